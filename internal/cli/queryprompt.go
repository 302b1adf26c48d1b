package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/core/promqlcomplete"
	"github.com/freshet-io/freshet/internal/lib/command"
)

// promptTimeout is how long Tab waits for names.
const promptTimeout = time.Second

// conversation is a session of `freshet query -i`.
type conversation struct {
	server     apiclient.Server
	span       timeSpan // of the next query
	out, notes io.Writer
}

// converse reads expressions and commands, and shows each answer, until the user leaves.
func converse(cmd *cobra.Command, server apiclient.Server, asked timeSpan) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer stop()
	c := &conversation{server: server, span: asked, out: cmd.OutOrStdout(), notes: cmd.ErrOrStderr()}
	history, forgets := openHistory()
	defer history.close()
	prompt, err := terminal.NewPrompt(cmd.InOrStdin(), c.out, history,
		func(line string, cursor int) (int, []string, string) { return c.complete(ctx, line, cursor) })
	if err != nil {
		return fmt.Errorf("query --interactive: %w", err)
	}
	if forgets != nil {
		fmt.Fprintf(c.notes, "note: %v\n", forgets)
	}
	fmt.Fprintf(c.notes, "%s: Tab completes, \\help lists commands, Ctrl-D leaves\n", server)
	for {
		line, err := read(ctx, prompt, c.prompt())
		if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) {
			fmt.Fprintln(c.notes) // the line of the prompt has no end
			return nil
		}
		if err != nil {
			return err
		}
		if line = strings.TrimSpace(line); slices.Contains(leaves, line) {
			return nil
		}
		if err := c.handle(ctx, line); err != nil {
			fmt.Fprintln(c.notes, err)
		}
	}
}

// read reads a line. A SIGINT from elsewhere ends it, since Ctrl-C reaches the prompt as a key.
func read(ctx context.Context, prompt *terminal.Prompt, text string) (string, error) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT)
	defer stop()
	return prompt.Read(ctx, text)
}

// prompt shows the length of the range.
func (c *conversation) prompt() string {
	if c.span.length > 0 {
		return "freshet " + model.Duration(c.span.length).String() + "> "
	}
	return "freshet> "
}

// handle does what a line says. Ctrl-C ends a query that takes long.
func (c *conversation) handle(ctx context.Context, line string) error {
	if line == "" {
		return nil
	}
	if line == "help" {
		line = `\help`
	}
	if strings.HasPrefix(line, `\`) {
		return c.command(line)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT)
	defer stop()
	err := query{server: c.server, expr: line, view: c.span.view(c.out, c.notes)}.run(ctx)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

// leaves are the lines that end the conversation. A metric of such a name can be asked for as {__name__="exit"}.
var leaves = []string{`\q`, `\quit`, "exit", "quit"}

const promptHelp = `\range 1h    draw the last hour; any duration
\instant     show the values at one time again
\step 10s    duration between points; auto for one point per column
\time TIME   instant, or end of the range: Unix seconds or 2006-01-02T15:04:05Z; now
\help        this list
\q, exit     leave, as Ctrl-D does
Tab completes metrics, labels, values, functions and commands. Arrows move and recall.
Ctrl-C clears the line, or ends a query. Ctrl-A, -E, -K, -U and -W work as in a shell.`

var promptCommands = []string{`\help`, `\instant`, `\q`, `\range `, `\step `, `\time `}

// command changes the span of the queries that follow. Commands begin with \, as no expression does.
func (c *conversation) command(line string) (err error) {
	name, value, _ := strings.Cut(line, " ")
	value = strings.TrimSpace(value)
	set := c.span
	switch name {
	case `\help`:
		_, err = fmt.Fprintln(c.notes, promptHelp)
	case `\range`:
		set.length, err = command.ParseDuration(value)
	case `\instant`:
		set.length = 0
	case `\step`:
		if set.step = 0; value != "auto" {
			set.step, err = command.ParseDuration(value)
		}
	case `\time`:
		if set.at = (time.Time{}); value != "now" {
			set.at, err = command.ParseTime(value)
		}
	default:
		return fmt.Errorf("%s is not a command; \\help lists them", name)
	}
	if err != nil {
		return fmt.Errorf("%s %q: %w", name, value, err)
	}
	c.span = set
	return nil
}

// complete completes a command or an expression.
func (c *conversation) complete(ctx context.Context, line string, cursor int) (int, []string, string) {
	if strings.HasPrefix(line, `\`) {
		found := promqlcomplete.Completion{Options: slices.DeleteFunc(slices.Clone(promptCommands),
			func(name string) bool { return !strings.HasPrefix(name, line[:cursor]) })}
		return found.Start, found.Options, found.Common()
	}
	ctx, cancel := context.WithTimeout(ctx, promptTimeout)
	defer cancel()
	found := promqlcomplete.At(line, cursor, names{ctx: ctx, server: c.server})
	return found.Start, found.Options, found.Common()
}
