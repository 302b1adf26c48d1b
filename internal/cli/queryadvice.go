package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"github.com/prometheus/common/model"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/adapter/promapi"
	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/core/promqladvice"
)

// adviceTimeout is how long a user waits for advice, once the answer is there.
const adviceTimeout = 10 * time.Second

// advise notes why the answer is empty, or what speaks against a query whose answer is not. It notes nothing if the
// server does not tell: the answer itself was shown.
func (q query) advise(ctx context.Context, empty bool) {
	expr, err := promapi.NewParser(promapi.DefaultConfig(), func() {}).ParseExpr(q.expr)
	if err != nil {
		return // the server has answered, so it knows more of PromQL
	}
	ctx, cancel := context.WithTimeout(ctx, adviceTimeout)
	defer cancel()
	server := advisor{ctx, q.server}
	var advice []string
	if empty {
		span := promqladvice.Query{Expr: expr, Start: q.view.At, End: q.view.At, Now: time.Now()}
		if q.view.Length > 0 {
			span.Start = q.view.Start()
		}
		if why, err := promqladvice.WhyEmpty(span, server); err == nil && why != "" {
			advice = append(advice, why)
		}
	} else {
		advice = promqladvice.Kinds(expr, q.view.Length > 0, server)
	}
	for _, text := range advice {
		fmt.Fprintf(q.view.Notes, "note: %s\n", terminal.Printable(text))
	}
}

// advisor asks a server what promqladvice wants to know.
type advisor struct {
	ctx    context.Context // of the advice about one query
	server apiclient.Server
}

func (a advisor) ask(path string, params url.Values, data any) error {
	_, answer, err := a.server.Ask(a.ctx, path, params)
	if err != nil {
		return err
	}
	return json.Unmarshal(answer.Data, data)
}

// Ask returns the answer to an expression at a time.
func (a advisor) Ask(expr string, at time.Time) (model.Vector, error) {
	var data struct{ Result model.Vector }
	err := a.ask("/api/v1/query", url.Values{"query": {expr}, "time": {unixSeconds(at)}}, &data)
	return data.Result, err
}

// AskRange returns the answer to an expression over a range of time.
func (a advisor) AskRange(expr string, start, end time.Time, step time.Duration) (model.Matrix, error) {
	var data struct{ Result model.Matrix }
	err := a.ask("/api/v1/query_range", url.Values{"query": {expr}, "start": {unixSeconds(start)},
		"end": {unixSeconds(end)}, "step": {fmt.Sprintf("%g", step.Seconds())}}, &data)
	return data.Result, err
}

// Values returns the values of a label in the series of a selector, or in all series.
func (a advisor) Values(label, selector string) (values []string, err error) {
	params := url.Values{}
	if selector != "" {
		params.Set("match[]", selector)
	}
	path := url.PathEscape(model.EscapeName(label, model.ValueEncodingEscaping))
	err = a.ask("/api/v1/label/"+path+"/values", params, &values)
	return values, err
}

// Type returns the type of a metric, or "" if there is none or more than one.
func (a advisor) Type(metric string) string {
	var data map[string][]struct{ Type string }
	if err := a.ask("/api/v1/metadata", url.Values{"metric": {metric}}, &data); err != nil || len(data[metric]) != 1 {
		return ""
	}
	return data[metric][0].Type
}
