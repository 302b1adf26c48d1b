package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/top"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/run"
)

func newTopCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show the busiest metrics and senders, new series and large labels",
		Long: `Shows the busiest of each, every second until it is interrupted, or once if the output is
not a terminal. The server counts only while a client asks, so the first answer takes
two seconds. Rates cover at most the last ten seconds. Metrics over a limit are red.`,
		Example: `  freshet top
  freshet top --once --limit 5
  freshet top --json --interval 10s             a line of JSON every ten seconds
  freshet top --once --json | jq '.data.labels[0]'`,
	}
	server := apiclient.Flags(cmd.Flags())
	limit := cmd.Flags().Int("limit", top.DefaultRows,
		fmt.Sprintf("`rows` of each list, at most %d; a terminal may have room for fewer", top.MaxRows))
	interval := command.DurationFlag(cmd.Flags(), "interval", time.Second, "refresh after this `duration` (default 1s)")
	once := cmd.Flags().Bool("once", false, "look once")
	raw := cmd.Flags().Bool("json", false, "print each answer of the server as a line")
	cmd.Args = withRows(limit)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := run.WithSignals(cmd.Context())
		defer cancel()
		out := cmd.OutOrStdout()
		t := topQuery{server: *server, limit: *limit}
		screen := terminal.NewScreen(out)
		switch {
		case *raw && *once:
			return t.print(ctx, out)
		case *raw:
			return each(ctx, *interval, func() error { return t.print(ctx, out) })
		case *once || screen == nil:
			return t.show(ctx, terminal.New(out, cmd.ErrOrStderr()))
		default:
			return t.live(ctx, screen, *interval)
		}
	}
	return cmd
}

// withRows checks the number of rows of a command that takes no words.
func withRows(limit *int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if _, err := top.ParseRows(strconv.Itoa(*limit)); err != nil {
			return fmt.Errorf("--%w", err)
		}
		return command.NoWords(cmd, args)
	}
}

// topQuery asks a server for its busiest metrics and senders.
type topQuery struct {
	server apiclient.Server
	limit  int
}

func (t topQuery) ask(ctx context.Context) (body []byte, page *answer.TopAll, err error) {
	body, a, err := t.server.Ask(ctx, "/api/v1/status/top", url.Values{"limit": {strconv.Itoa(t.limit)}})
	if err != nil {
		return nil, nil, fmt.Errorf("top: %w", err)
	}
	page = &answer.TopAll{View: new(top.View)}
	if err := json.Unmarshal(a.Data, page); err != nil {
		return nil, nil, fmt.Errorf("top: read the answer of %s: %w", t.server, err)
	}
	return body, page, nil
}

// print prints an answer unchanged.
func (t topQuery) print(ctx context.Context, out io.Writer) error {
	body, _, err := t.ask(ctx)
	if err != nil {
		return err
	}
	return terminal.WriteJSON(out, body)
}

// show prints one whole page, however many lines it has.
func (t topQuery) show(ctx context.Context, view terminal.View) error {
	_, top, err := t.ask(ctx)
	if err != nil {
		return err
	}
	p := topPage{colour: view.Colour}
	if view.Colour {
		p.columns = view.Columns
	}
	_, err = fmt.Fprintln(view.Out, strings.Join(p.lines(top), "\n"))
	return err
}

// live shows page after page. Once a first answer has come, live continues even if the server stops
// answering: the server may be restarting, and users want to watch that.
func (t topQuery) live(ctx context.Context, screen *terminal.Screen, interval time.Duration) (err error) {
	_, last, err := t.ask(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if err := screen.Open(); err != nil {
		return err
	}
	defer func() {
		if closed := screen.Close(); err == nil {
			err = closed
		}
	}()
	return each(ctx, interval, func() error {
		_, top, failure := t.ask(ctx)
		if failure == nil {
			last = top
		}
		p := topPage{colour: true}
		p.columns, p.rows = screen.Size()
		if failure != nil && ctx.Err() == nil {
			p.notice = failure.Error()
		}
		return screen.Draw(p.lines(last))
	})
}
