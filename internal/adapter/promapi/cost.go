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
	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/tenant"
)

// ProfileLabel is the label that samples of the processor profile have which were taken
// while a query ran: the ID of its row in Costs.
const ProfileLabel = "query"

// Costs returns what queries and look-ups that came by HTTP cost in the last minute, those
// first that took most time.
func (e *Engine) Costs(limit int) []querycost.Row { return e.costs.Report(time.Now().Unix(), limit) }

// costing adds up what one query or look-up costs. A nil *costing is one of Freshet's own,
// which nobody adds up.
type costing struct {
	table   *querycost.Table
	query   querycost.Query
	running *querycost.Running
	cost    querycost.Cost
}

// costing begins to add up, if the context is a request's. From here on the profile says of
// the goroutine for which query it works, until labels are taken off again by serve.
func (e *Engine) costing(ctx context.Context, q querycost.Query) *costing {
	a := answerOf(ctx)
	if a == nil {
		return nil
	}
	q.Tenant, _ = tenant.FromContext(ctx)
	q.Asker = a.asker
	c := &costing{table: e.costs, query: q}
	c.running = e.costs.Begin(time.Now().Unix(), &c.query)
	pprof.SetGoroutineLabels(pprof.WithLabels(ctx, pprof.Labels(ProfileLabel, c.running.ID)))
	return c
}

// add adds what a turn cost that is over.
func (c *costing) add(t *turn) {
	if c != nil {
		c.cost.Running += t.ran
		c.cost.Waited += t.waited
		c.cost.Series += t.read.Load()
	}
}

// gaveUp adds the time of waiting for a turn that did not come.
func (c *costing) gaveUp(waited time.Duration) {
	if c != nil {
		c.cost.Waited += waited
	}
}

// failed notes that the query failed.
func (c *costing) failed() {
	if c != nil {
		c.cost.Failed = true
	}
}

// samples adds those that an evaluation looked at.
func (c *costing) samples(q promql.Query) {
	if c != nil && q.Stats() != nil && q.Stats().Samples != nil {
		c.cost.Samples += q.Stats().Samples.TotalSamples
	}
}

// end is for when all turns are over. It may be called again.
func (c *costing) end() {
	if c != nil && c.running != nil {
		c.table.End(time.Now().Unix(), c.running, &c.query, &c.cost)
		c.running = nil
	}
}

// costOf is a query as the table of costs knows it.
func costOf(q promql.Query) querycost.Query {
	of := querycost.Query{Text: q.String()}
	if s, ok := q.Statement().(*parser.EvalStmt); ok {
		of.Range, of.Step = s.End.Sub(s.Start), s.Interval
	}
	return of
}

// lookupText is a request for series, labels, exemplars or remote read in place of a query.
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

// askerOf is who asks, with what Grafana says of the panel.
func askerOf(r *http.Request) querycost.Asker {
	return querycost.AskerOf(sender.Of(r.RemoteAddr, r.UserAgent()), r.Header.Get("X-Dashboard-Uid"), r.Header.Get("X-Panel-Id"))
}
