package promapi

import (
	"context"
	"net/http"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/freshet-io/freshet/internal/core/querycost"
	"github.com/freshet-io/freshet/internal/core/tenant"
)

// ProfileLabel labels samples of the CPU profile that were taken while a query ran. Its value
// is the ID of the query's row in Costs.
const ProfileLabel = "query"

// Costs returns what queries and look-ups over HTTP cost in the last minute, the longest first.
func (e *Engine) Costs(limit int) []querycost.Row { return e.costs.Report(time.Now().Unix(), limit) }

// TopCosts returns what queries and look-ups over HTTP cost in the last hour, and which are under way: of a tenant, or
// of all tenants if the name is empty.
func (e *Engine) TopCosts(tenant string) querycost.Top { return e.costs.Top(time.Now().Unix(), tenant) }

// costing adds up the cost of one query or look-up. It is nil for Freshet's own queries, whose
// cost is not counted.
type costing struct {
	table   *querycost.Table
	query   querycost.Query
	running *querycost.Running
	cost    querycost.Cost
}

// costing begins to add up costs if the context belongs to a request. From then on, profiles
// show which query the goroutine works for, until serve removes the labels.
func (e *Engine) costing(ctx context.Context, q querycost.Query) *costing {
	a := answerOf(ctx)
	if a == nil {
		return nil
	}
	q.Tenant, _ = tenant.FromContext(ctx)
	q.Asker, q.Begun = a.asker, time.Now()
	c := &costing{table: e.costs, query: q}
	c.running = e.costs.Begin(q.Begun.Unix(), &c.query)
	pprof.SetGoroutineLabels(pprof.WithLabels(ctx, pprof.Labels(ProfileLabel, c.running.ID)))
	return c
}

// hasTurn is called when the query got its first turn.
func (c *costing) hasTurn() {
	if c != nil {
		c.running.HasTurn()
	}
}

// add adds the cost of a finished turn.
func (c *costing) add(t *turn) {
	if c != nil {
		c.cost.Running += t.ran
		c.cost.Waited += t.waited
		c.cost.Series += t.read.Load()
	}
}

// gaveUp adds the time that a query waited for a turn that it did not get.
func (c *costing) gaveUp(waited time.Duration) {
	if c != nil {
		c.cost.Waited += waited
	}
}

// failed is called when the query has failed.
func (c *costing) failed() {
	if c != nil {
		c.cost.Failed = true
	}
}

// samples adds the samples that an evaluation looked at.
func (c *costing) samples(q promql.Query) {
	if c != nil && q.Stats() != nil && q.Stats().Samples != nil {
		c.cost.Samples += q.Stats().Samples.TotalSamples
	}
}

// end ends the costing after all turns. It may be called again.
func (c *costing) end() {
	if c != nil && c.running != nil {
		c.table.End(time.Now().Unix(), c.running, &c.query, &c.cost)
		c.running = nil
	}
}

// costOf describes a query for the table of costs.
func costOf(q promql.Query) querycost.Query {
	of := querycost.Query{Text: q.String()}
	if s, ok := q.Statement().(*parser.EvalStmt); ok {
		of.Range, of.Step = s.End.Sub(s.Start), s.Interval
	}
	return of
}

// lookupText describes a request for series, labels, exemplars or remote read. The table of costs
// shows this description in place of a query's text.
func lookupText(r *http.Request) string {
	text := strings.TrimPrefix(r.URL.Path, prefix+"/")
	for i, m := range r.Form["match[]"] {
		if i == 3 {
			return text + " ..."
		}
		text += " " + m
	}
	return text
}

// askerOf returns the sender of the request, with the panel that Grafana's headers
// name.
func (a *api) askerOf(r *http.Request) querycost.Asker {
	return querycost.AskerOf(a.Sender(r), r.Header.Get("X-Dashboard-Uid"), r.Header.Get("X-Panel-Id"))
}
