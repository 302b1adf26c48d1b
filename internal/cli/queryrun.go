package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/core/promqladvice"
)

// timeSpan is the time that a user asks for.
type timeSpan struct {
	at           time.Time     // zero for now
	length, step time.Duration // 0 for an instant, and for one point per column
}

// view returns the view of the span at present.
func (s timeSpan) view(out, notes io.Writer) terminal.View {
	view := terminal.New(out, notes)
	view.At, view.Length, view.Step = s.at, s.length, s.step
	if view.At.IsZero() {
		view.At = time.Now()
	}
	if view.Step == 0 {
		view.Step = view.PlotStep()
	}
	return view
}

// query is one query to a server, and how to show the answer.
type query struct {
	server apiclient.Server
	expr   string
	raw    bool          // print the answer unchanged
	view   terminal.View // shows the answer; also holds the time to query
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
	q.advise(ctx, string(result.Result) == "[]")
	return nil
}

// parseError matches the text that Prometheus' API writes before a query's problem. This text has the
// line and the column of the problem. Both are counted from 1, the column in bytes.
var parseError = regexp.MustCompile(`(?:^|: )(\d+):(\d+): parse error: `)

// pointed adds the faulty line of the query to `err`, with a caret below the place of the fault, and what to do about
// it if the error does not say so. If `err` names no place, pointed adds only the query.
func pointed(expr string, err error) error {
	line, column, ok := placeIn(expr, err.Error())
	if !ok {
		return fmt.Errorf("query %s: %w", expr, err)
	}
	text, advice := terminal.Show([]byte(line)), promqladvice.Fault(err.Error())
	if advice != "" {
		advice = "\n  " + terminal.Printable(advice)
	}
	return fmt.Errorf("query: %w\n  %s\n  %s^%s", err, text.Text, strings.Repeat(" ", text.Column(column)), advice)
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
