package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/explain"
	"github.com/freshet-io/freshet/internal/settings"
)

func newExplainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain 'LINE'",
		Short: "Say what a datagram would become here, field by field",
		Long: `Asks a server what a DogStatsD datagram would become there: what each field means,
the rule that matches, the series, how values are combined and where they are stored.
For a malformed line it marks the byte that is wrong. Nothing is stored.

LINE may have several lines, as a datagram may; - reads it from standard input.
The exit code is 1 if a line is malformed.`,
		Example: `  freshet explain 'page_views:1|c|#page:home'
  freshet explain 'price:1,5|g'
  freshet explain 'shop.cart.time:320|ms' --config freshet.yaml
  printf 'a:1|c\nb:2|g' | freshet explain - --json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("explain takes one line, got %d words; write it in quotes: freshet explain 'page_views:1|c'",
					len(args))
			}
			return nil
		},
	}
	server := apiclient.Flags(cmd.Flags())
	tenant := cmd.Flags().String("tenant", "", "`tenant` of the datagram (default the tenant of the server's address)")
	file := cmd.Flags().String("config", "", "use this configuration `file`, not a server")
	offline := cmd.Flags().Bool("offline", false, "use the defaults, not a server")
	asJSON := cmd.Flags().Bool("json", false, "print the answer as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		packet := []byte(args[0])
		if args[0] == "-" {
			var err error
			if packet, err = io.ReadAll(io.LimitReader(cmd.InOrStdin(), explain.MaxBytes+1)); err != nil {
				return fmt.Errorf("read the datagram from standard input: %w", err)
			}
			if len(packet) > explain.MaxBytes {
				return fmt.Errorf("explain: standard input is longer than the %d bytes that can be explained at once; "+
					"give it a part, for example with head -n 1000", explain.MaxBytes)
			}
		}
		var data []byte
		var err error
		if *file != "" || *offline {
			data, err = explainOffline(*file, *tenant, packet)
		} else {
			var a apiclient.Answer
			a, err = askExplanation(cmd.Context(), *server, *tenant, packet)
			data = a.Data
			if err != nil {
				err = fmt.Errorf("explain: %w; to explain without a server, give --config FILE or --offline", err)
			}
		}
		if err != nil {
			return err
		}
		var e answer.Explained
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("explain: read the answer: %w", err)
		}
		if *asJSON {
			err = terminal.WriteJSON(cmd.OutOrStdout(),
				fmt.Appendf(nil, `{"status":"success","data":%s}`, bytes.TrimSpace(data)))
		} else {
			err = printExplained(terminal.New(cmd.OutOrStdout(), cmd.ErrOrStderr()), &e, packet)
		}
		return errors.Join(err, malformed(&e))
	}
	return cmd
}

// askExplanation asks a server. The packet goes in the body, because it may be too long for a URL.
func askExplanation(ctx context.Context, server apiclient.Server, tenant string,
	packet []byte) (apiclient.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, apiclient.Timeout)
	defer cancel()
	resp, err := server.Post(ctx, "/api/v1/status/explain", url.Values{"tenant": {tenant}}, bytes.NewReader(packet))
	if err != nil {
		return apiclient.Answer{}, err
	}
	_, a, err := server.Read(resp)
	return a, err
}

// explainOffline explains a packet by the configuration in `file`, or by the defaults if `file` is
// empty.
func explainOffline(file, tenant string, packet []byte) ([]byte, error) {
	c, err := settings.Schema().Load(file, os.LookupEnv)
	if err != nil {
		return nil, err
	}
	x, err := explain.New(c.WithPaths(c.DataDir), time.Now())
	if err != nil {
		return nil, err
	}
	if tenant == "" {
		tenant = c.DogStatsD.Tenant
	}
	return json.Marshal(x.Explain(tenant, packet))
}

// malformed returns an error if a datagram has malformed lines, otherwise nil.
func malformed(e *answer.Explained) error {
	bad := 0
	for _, l := range e.Lines {
		if !l.WellFormed {
			bad++
		}
	}
	if bad == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d lines malformed", bad, len(e.Lines))
}

// printExplained prints an explanation for people. `packet` is the original input, since JSON cannot
// hold bytes that are not UTF-8.
func printExplained(v terminal.View, e *answer.Explained, packet []byte) error {
	var b strings.Builder
	next := 0
	for line := range dogstatsd.Lines(packet) {
		if next == len(e.Lines) {
			break
		}
		if next > 0 {
			b.WriteByte('\n')
		}
		printLine(&b, &e.Lines[next], v.Colour, line)
		next++
	}
	if len(e.Arrives) > 0 {
		fmt.Fprintf(&b, "\narrives for the tenant %s at %s\n", e.Tenant, strings.Join(e.Arrives, ", "))
	}
	printWarnings(&b, v.Colour, e.Warnings)
	_, err := io.WriteString(v.Out, b.String())
	return err
}

// Styles of an explanation on a terminal.
const (
	explainedField   = "\x1b[4m"
	explainedFault   = "\x1b[31m"
	explainedWarning = "\x1b[33m"
)

// marked returns text in a style of the terminal, if styles are on.
func marked(on bool, style, text string) string {
	if !on {
		return text
	}
	return style + text + "\x1b[0m"
}

func printWarnings(b *strings.Builder, colour bool, warnings []string) {
	for _, w := range warnings {
		fmt.Fprintf(b, "%s %s\n", marked(colour, explainedWarning, "warning:"), printable(w))
	}
}

func printLine(b *strings.Builder, l *answer.ExplainedLine, colour bool, line []byte) {
	v := terminal.Show(line)
	if colour {
		at := 0
		for _, f := range l.Fields {
			b.WriteString(v.Cut(at, f.From) + marked(true, explainedField, v.Cut(f.From, f.To)))
			at = f.To
		}
		b.WriteString(v.Cut(at, len(line)) + "\n")
	} else {
		marks := bytes.Repeat([]byte(" "), v.Column(len(line)))
		for _, f := range l.Fields {
			for i := v.Column(f.From); i < v.Column(f.To); i++ {
				marks[i] = '~'
			}
		}
		fmt.Fprintf(b, "%s\n", v.Text)
		if l.Fault == nil {
			fmt.Fprintf(b, "%s\n", bytes.TrimRight(marks, " "))
		}
	}
	if f := l.Fault; f != nil {
		fmt.Fprintf(b, "%s%s\n", strings.Repeat(" ", v.Column(f.At)), marked(colour, explainedFault, "^"))
		fmt.Fprintf(b, "%s: %s at byte %d: expected %s\n", marked(colour, explainedFault, "malformed"), f.Reason, f.At,
			printable(f.Expected))
	}
	width := 0
	for _, f := range l.Fields {
		width = max(width, v.Column(f.To)-v.Column(f.From))
	}
	width = min(width, 40)
	for _, f := range l.Fields {
		shown := v.Cut(f.From, f.To)
		fmt.Fprintf(b, "  %-13s %s%s %s\n", f.Name, shown, strings.Repeat(" ", max(0, width-terminal.Width(shown))),
			printable(f.Meaning))
	}
	if l.Becomes != nil {
		b.WriteString("becomes\n")
		printBecomes(b, l.Becomes)
	}
	printWarnings(b, colour, l.Warnings)
}

func printBecomes(b *strings.Builder, s *answer.Becomes) {
	row := func(name, text string) {
		if text != "" {
			fmt.Fprintf(b, "  %-13s %s\n", name, printable(text))
		}
	}
	switch {
	case s.Rule != nil:
		row("rule", fmt.Sprintf("mapping.rules[%d], match: %s", *s.Rule, s.Match))
	case s.Kind != "event":
		row("rule", "none matches")
	}
	row("kind", s.Kind)
	row("series", s.Query)
	row("values", s.Combine)
	if s.Shard != nil {
		row("shard", strconv.Itoa(int(*s.Shard)))
	}
	row("stored in", strings.Join(s.Stores, ", "))
	row("limits", strings.Join(s.Limits, "; "))
}

// printable returns a server's text with control characters made visible.
func printable(text string) string { return terminal.Show([]byte(text)).Text }
