package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// query is one question to a server and how to show its answer.
type query struct {
	server string
	expr   string
	at     time.Time     // the end of the range, if there is one
	length time.Duration // of the range; 0 asks for the instant
	step   time.Duration // between points of the range; 0: one a column
	raw    bool          // print the answer as it came

	out, notes io.Writer
	columns    int  // of the terminal, or of the page
	colour     bool // the terminal's colours may be used
}

func newQueryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "query 'EXPR'",
		Short: "Ask a PromQL expression and print a table, or draw a plot",
		Long: `Asks a server a PromQL expression and prints the answer: a table for series and
values, bars for native histograms, a plot for a range of time.`,
		Example: `  freshet query page_views
  freshet query 'increase(page_views[5m] anchored)'
  freshet query 'histogram_quantile(0.99, rate(request_seconds[5m]))' --range 6h
  freshet query 'sum by (host) (rate(page_views[1m]))' --range 1h --step 10s
  freshet query up --time 2026-11-20T09:30:00Z --json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("query takes one expression, got %d words; write it in quotes: freshet query 'sum by (host) (page_views)'", len(args))
			}
			return nil
		},
	}
	server := serverFlag(cmd)
	at := timeFlag(cmd.Flags(), "time", "`instant` to ask for, or the end of the range, as Unix seconds or 2006-01-02T15:04:05Z (default now)")
	length := durationFlag(cmd.Flags(), "range", 0, "draw the last `duration`, like 15m, 1h or 2d")
	step := durationFlag(cmd.Flags(), "step", 0, "`duration` between the points of the range (default one point a column)")
	raw := cmd.Flags().Bool("json", false, "print the server's answer as it came")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q := query{
			server: *server, expr: args[0], at: *at, length: *length, step: *step, raw: *raw,
			out: cmd.OutOrStdout(), notes: cmd.ErrOrStderr(), columns: 80,
		}
		if q.at.IsZero() {
			q.at = time.Now()
		}
		if file, ok := q.out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
			q.colour = true
			if columns, _, err := term.GetSize(int(file.Fd())); err == nil {
				q.columns = columns
			}
		}
		return q.run(cmd.Context())
	}
	return cmd
}

func (q query) run(ctx context.Context) error {
	path, params := "/api/v1/query", url.Values{"query": {q.expr}}
	if q.length > 0 {
		if q.step == 0 {
			// Whole seconds, since nothing here is stored more often.
			q.step = time.Duration(math.Ceil(q.length.Seconds()/float64(plotColumns(q.columns)-1))) * time.Second
		}
		path = "/api/v1/query_range"
		params.Set("start", unixSeconds(q.at.Add(-q.length)))
		params.Set("end", unixSeconds(q.at))
		params.Set("step", fmt.Sprintf("%g", q.step.Seconds()))
	} else {
		params.Set("time", unixSeconds(q.at))
	}
	body, a, err := ask(ctx, q.server, path, params)
	if err != nil {
		return fmt.Errorf("query %s: %w", q.expr, err)
	}
	a.printNotes(q.notes)
	if q.raw {
		_, err := fmt.Fprintf(q.out, "%s\n", body)
		return err
	}
	var result struct {
		Type   string          `json:"resultType"`
		Result json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(a.Data, &result); err != nil {
		return fmt.Errorf("query %s: read the answer of %s: %w", q.expr, q.server, err)
	}
	if err := q.show(result.Type, result.Result); err != nil {
		return fmt.Errorf("query %s: show the answer: %w", q.expr, err)
	}
	return nil
}

// show prints a result of one of PromQL's four types.
func (q query) show(kind string, text []byte) error {
	switch kind {
	case "scalar":
		var s model.Scalar
		if err := json.Unmarshal(text, &s); err != nil {
			return err
		}
		_, err := fmt.Fprintln(q.out, s.Value)
		return err
	case "string":
		var s model.String
		if err := json.Unmarshal(text, &s); err != nil {
			return err
		}
		_, err := fmt.Fprintln(q.out, printable(s.Value))
		return err
	case "vector":
		var v model.Vector
		if err := json.Unmarshal(text, &v); err != nil {
			return err
		}
		if len(v) == 0 {
			return q.nothing()
		}
		return writeVector(q.out, v)
	case "matrix":
		var m model.Matrix
		if err := json.Unmarshal(text, &m); err != nil {
			return err
		}
		if len(m) == 0 {
			return q.nothing()
		}
		if q.length > 0 {
			return q.draw(m)
		}
		return writeMatrix(q.out, m)
	}
	return fmt.Errorf("this version does not know the type %q; use --json", kind)
}

// nothing says so apart from the output, where a script expects series only.
func (q query) nothing() error {
	span := "at " + q.at.Format(time.RFC3339)
	if q.length > 0 {
		span = "from " + q.at.Add(-q.length).Format(time.RFC3339) + " to " + q.at.Format(time.RFC3339)
	}
	_, err := fmt.Fprintf(q.notes, "no series match %s\n", span)
	return err
}
