package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/lib/command"
)

// query is one query to a server, and how to show the answer.
type query struct {
	server apiclient.Server
	expr   string
	raw    bool          // print the answer unchanged
	view   terminal.View // shows the answer; also holds the time to query
}

func newQueryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "query 'EXPR'",
		Short: "Query PromQL and print a table, or draw a plot",
		Long: `Sends a PromQL expression to a server and prints a table of series and values, bars for
native histograms, or a plot of a range of time.`,
		Example: `  freshet query page_views
  freshet query 'increase(page_views[5m] anchored)'
  freshet query 'histogram_quantile(0.99, rate(request_seconds[5m]))' --range 6h
  freshet query 'sum by (host) (rate(page_views[1m]))' --range 1h --step 10s
  freshet query up --time 2026-11-20T09:30:00Z --json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("query takes one expression, got %d words; write it in quotes: "+
					"freshet query 'sum by (host) (page_views)'", len(args))
			}
			return nil
		},
	}
	server := apiclient.Flags(cmd.Flags())
	cmd.ValidArgsFunction = completeMetric(server)
	at := command.TimeFlag(cmd.Flags(), "time",
		"`instant`, or end of the range: Unix seconds or 2006-01-02T15:04:05Z (default now)")
	length := command.DurationFlag(cmd.Flags(), "range", 0, "draw the last `duration`, like 15m, 1h or 2d")
	step := command.DurationFlag(cmd.Flags(), "step", 0,
		"`duration` between points, counted back from the end (default one point per column)")
	raw := cmd.Flags().Bool("json", false, "print the server's answer unchanged")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		view := terminal.New(cmd.OutOrStdout(), cmd.ErrOrStderr())
		view.At, view.Length, view.Step = *at, *length, *step
		if view.At.IsZero() {
			view.At = time.Now()
		}
		if view.Step == 0 {
			view.Step = view.PlotStep()
		}
		q := query{server: *server, expr: args[0], raw: *raw, view: view}
		return q.run(cmd.Context())
	}
	return cmd
}

func (q query) run(ctx context.Context) error {
	path, params := "/api/v1/query", url.Values{"query": {q.expr}}
	if v := q.view; v.Length > 0 {
		path = "/api/v1/query_range"
		params.Set("start", unixSeconds(v.Start()))
		params.Set("end", unixSeconds(v.At))
		params.Set("step", fmt.Sprintf("%g", v.Step.Seconds()))
	} else {
		params.Set("time", unixSeconds(v.At))
	}
	body, a, err := q.server.Ask(ctx, path, params)
	if err != nil {
		return pointed(q.expr, err)
	}
	a.PrintNotes(q.view.Notes)
	if q.raw {
		return terminal.WriteJSON(q.view.Out, body)
	}
	var result struct {
		Type   string          `json:"resultType"`
		Result json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(a.Data, &result); err != nil {
		return fmt.Errorf("query %s: read the answer of %s: %w", q.expr, q.server, err)
	}
	if err := q.view.Show(result.Type, result.Result); err != nil {
		return fmt.Errorf("query %s: show the answer: %w", q.expr, err)
	}
	return nil
}

// parseError matches the text that Prometheus' API writes before a query's problem. This text has the
// line and the column of the problem. Both are counted from 1, the column in bytes.
var parseError = regexp.MustCompile(`(?:^|: )(\d+):(\d+): parse error: `)

// pointed adds the faulty line of the query to `err`, with a caret below the place of the fault. If
// `err` names no place, pointed adds only the query.
func pointed(expr string, err error) error {
	line, column, ok := placeIn(expr, err.Error())
	if !ok {
		return fmt.Errorf("query %s: %w", expr, err)
	}
	text := terminal.Show([]byte(line))
	return fmt.Errorf("query: %w\n  %s\n  %s^", err, text.Text, strings.Repeat(" ", text.Column(column)))
}

// placeIn returns the line of a query that an error message refers to, and the number of bytes in that
// line before the fault. A fault at the end of the query is after its last byte.
func placeIn(expr, message string) (line string, column int, ok bool) {
	found := parseError.FindStringSubmatch(message)
	if found == nil {
		return "", 0, false
	}
	row, rowErr := strconv.Atoi(found[1])
	column, columnErr := strconv.Atoi(found[2])
	lines := strings.Split(expr, "\n")
	if rowErr != nil || columnErr != nil || row < 1 || row > len(lines) || column < 1 || column > len(lines[row-1])+1 {
		return "", 0, false // the place is not in this query
	}
	return lines[row-1], column - 1, true
}
