package cli

import (
	"context"
	"encoding/json"
	"errors"
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
	"github.com/freshet-io/freshet/internal/core/tail"
	"github.com/freshet-io/freshet/internal/lib/command"
	"github.com/freshet-io/freshet/internal/lib/run"
)

// readableRate is the default number of lines a second on a terminal.
const readableRate = 100

// noticePause is the time between two notices about lines that were not shown.
const noticePause = 5 * time.Second

func newTailCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Show lines as they arrive, and their senders",
		Long: `Prints the lines that arrive at a server on this machine, until it is interrupted. In
filters * stands for any text and ? for a byte. A name in a filter is the one that the
client sends (page.views) or the one in PromQL (page_views). Lines that are left out,
because there are too many or the server had no time, are counted and reported.`,
		Example: `  freshet tail
  freshet tail --name 'page_*' --tag env:prod
  freshet tail --malformed                          and why
  freshet tail --sender 10.2.0.0/16 --sample 0.01   a hundredth of the datagrams
  freshet tail --pid 4711 --json`,
	}
	server := apiclient.Flags(cmd.Flags())
	flags := cmd.Flags()
	name := flags.String("name", "",
		"only metrics, checks and events whose name, as sent or as stored, matches this `glob`")
	tags := flags.StringArray("tag", nil,
		"only lines with a tag that matches this `glob`, such as env:prod*; repeated: with all")
	flags.String("sender", "", "only lines that this `address` or network sent by UDP")
	flags.Int32("pid", 0, "only lines that this `process` sent by a Unix socket")
	flags.Int32("uid", 0, "only lines that this `user` sent by a Unix socket")
	flags.String("listener", "", "only lines that arrive at this socket: `NETWORK://ADDRESS`, as in /metrics")
	flags.Float64("sample", 1, "look at a random `share` of the datagrams")
	rate := flags.Int("max-rate", 0, fmt.Sprintf("`lines` a second; 0: no limit (default %d on a terminal)", readableRate))
	malformed := flags.Bool("malformed", false, "only malformed lines, and why")
	raw := flags.Bool("json", false, "print JSON, one line each")
	params := url.Values{}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		params = url.Values{
			"name": {*name}, "tag": *tags, "malformed": {strconv.FormatBool(*malformed)}, "max_rate": {strconv.Itoa(*rate)},
		}
		for _, key := range []string{"sender", "pid", "uid", "listener", "sample"} {
			if flags.Changed(key) { // --uid 0 is a valid filter
				params.Set(key, flags.Lookup(key).Value.String())
			}
		}
		if !flags.Changed("max-rate") && isTerminal(cmd.OutOrStdout()) {
			params.Set("max_rate", strconv.Itoa(readableRate))
		}
		if _, _, _, err := tail.ParseQuery(params); err != nil {
			return err
		}
		return command.NoWords(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := run.WithSignals(cmd.Context())
		defer cancel()
		t := tailView{View: terminal.New(cmd.OutOrStdout(), cmd.ErrOrStderr()), raw: *raw}
		if err := t.run(ctx, *server, params); err != nil {
			return fmt.Errorf("tail: %w", err)
		}
		return nil
	}
	return cmd
}

// tailView prints lines for people, or for a program.
type tailView struct {
	terminal.View
	raw     bool
	unseen  answer.Tailed // counts that no notice has reported yet
	noticed time.Time
}

func (t *tailView) run(ctx context.Context, server apiclient.Server, params url.Values) error {
	body, err := server.Follow(ctx, "/api/v1/status/tail", params)
	if err != nil {
		return err
	}
	defer body.Close()
	fmt.Fprintf(t.Notes, "waiting for lines at %s%s; Ctrl-C ends it\n", server, wanted(params))
	t.noticed = time.Now()
	stream := json.NewDecoder(body)
	for {
		var got answer.Tailed
		if err := stream.Decode(&got); err != nil {
			return errors.Join(ended(ctx, err), t.notice())
		}
		if err := t.show(got); err != nil {
			return err
		}
	}
}

// wanted describes the filter in `params`. The text is for a user who has not seen a line yet.
func wanted(params url.Values) string {
	var all []string
	for _, key := range []string{"name", "tag", "sender", "pid", "uid", "listener"} {
		for _, value := range params[key] {
			if value != "" {
				all = append(all, key+" "+terminal.Printable(value))
			}
		}
	}
	if params.Get("malformed") == "true" {
		all = append(all, "malformed")
	}
	if len(all) == 0 {
		return ""
	}
	return " with " + strings.Join(all, ", ")
}

func (t *tailView) show(got answer.Tailed) error {
	if t.raw {
		return terminal.PrintJSON(t.Out, got)
	}
	if got.Node != "" {
		fmt.Fprintf(t.Notes, "the lines are of node %s, and of no other one\n", terminal.Printable(got.Node))
	}
	if got.Line != nil {
		return writeLine(t.View, got.Line)
	}
	t.unseen.LeftOut += got.LeftOut
	t.unseen.Missed += got.Missed
	if time.Since(t.noticed) < noticePause {
		return nil
	}
	return t.notice()
}

// notice reports how many lines were not shown since the last notice.
func (t *tailView) notice() error {
	t.noticed = time.Now()
	var parts []string
	if n := t.unseen.LeftOut; n > 0 {
		parts = append(parts, fmt.Sprintf("%d lines were left out (raise --max-rate, or filter more)", n))
	}
	if n := t.unseen.Missed; n > 0 {
		parts = append(parts, fmt.Sprintf("%d datagrams were missed (give --sample to look at fewer)", n))
	}
	t.unseen = answer.Tailed{}
	if len(parts) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(t.Notes, "... %s\n", strings.Join(parts, "; "))
	return err
}

// writeLine prints the time, the sender and the line. For a malformed line it prints the problem
// below the faulty place.
func writeLine(v terminal.View, l *tail.Line) error {
	sender := l.Sender
	if sender == "" {
		sender = "-"
	}
	before := fmt.Sprintf("%s  %-21s  ", time.Unix(0, l.Time).Format("15:04:05.000"), sender)
	var b strings.Builder
	b.WriteString(tint(v, faint, before))
	bytes := l.Bytes
	if bytes == nil {
		bytes = []byte(l.Text)
	}
	shown := terminal.Show(bytes)
	if l.Malformed == "" {
		b.WriteString(colourLine(v, l, shown.Text))
	} else {
		column := terminal.Width(before) + shown.Column(min(l.At, len(bytes))) // l.At may come from another version
		fmt.Fprintf(&b, "%s\n%*s%s", tint(v, red, shown.Text), column, "",
			tint(v, red, "^ "+l.Malformed+": expected "+l.Expected))
	}
	b.WriteByte('\n')
	_, err := io.WriteString(v.Out, b.String())
	return err
}

// colourLine paints the name, the type and the tags of text.
func colourLine(v terminal.View, l *tail.Line, text string) string {
	name, rest, ok := strings.Cut(text, ":")
	if !v.Colour || !ok || name != l.Name { // checks and events have no colours
		return text
	}
	rest, tags, tagged := strings.Cut(rest, "|#")
	value, kind, _ := strings.Cut(rest, "|")
	painted := tint(v, bold, name) + ":" + value + "|" + tint(v, yellow, kind)
	if tagged {
		painted += "|#" + tint(v, green, tags)
	}
	return painted
}
