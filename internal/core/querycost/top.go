package querycost

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Order is what the costliest queries of a Top come first by.
type Order string

// The orders, the default first.
const (
	ByTime    Order = "time"
	ByCount   Order = "count"
	ByLongest Order = "longest"
	BySamples Order = "samples"
)

// Orders are all orders, the default first.
var Orders = []Order{ByTime, ByCount, ByLongest, BySamples}

// ParseOrder parses an order; an empty text means ByTime.
func ParseOrder(text string) (Order, error) {
	if o := cmp.Or(Order(text), ByTime); slices.Contains(Orders, o) {
		return o, nil
	}
	return "", fmt.Errorf("sort = %s: is not one of time, count, longest and samples", text)
}

// compare puts the row that costs more first.
func (o Order) compare(a, b Row) int {
	first := 0
	switch o {
	case ByCount:
		first = cmp.Compare(b.Queries, a.Queries)
	case ByLongest:
		first = cmp.Compare(b.Longest, a.Longest)
	case BySamples:
		first = cmp.Compare(b.Samples, a.Samples)
	}
	return cmp.Or(first, cmp.Compare(b.Running, a.Running), cmp.Compare(b.Queries, a.Queries),
		strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Query, b.Query))
}

// Top is what the queries of a tenant, or of all tenants, cost in the last hour, and which of them are under way.
type Top struct {
	Active     []Active `json:"active"`      // the oldest first
	MoreActive int      `json:"more_active"` // under way and not listed
	Queries    []Row    `json:"queries"`
	Others     Rest     `json:"others"`
}

// Active is a query under way.
type Active struct {
	Tenant  string  `json:"tenant"`
	Node    string  `json:"node,omitempty"` // of a cluster
	Query   string  `json:"query"`          // as it was asked, cut to maxText bytes
	Begun   float64 `json:"begun"`          // Unix seconds
	Waiting bool    `json:"waiting"`        // for its first turn
	Range   float64 `json:"range_seconds,omitempty"`
	Step    float64 `json:"step_seconds,omitempty"`
	Steps   int64   `json:"steps"` // times at which it is evaluated; 0 for a look-up of series or labels
	Asker   string  `json:"asker"`
}

// Rest is the sum of queries that are not listed.
type Rest struct {
	Expressions uint64  `json:"expressions"` // a dropped one that comes back counts again
	Queries     uint64  `json:"queries"`
	Running     float64 `json:"running_seconds"`
	Samples     int64   `json:"samples"`
	Dropped     uint64  `json:"dropped"` // of the expressions: no longer in memory
}

// Top returns everything about the queries of a tenant, or of all tenants if the name is empty, in the Hour seconds
// before now, which is in Unix seconds.
func (t *Table) Top(now int64, tenant string) Top {
	t.mu.Lock()
	defer t.mu.Unlock()
	top := Top{Active: []Active{}, Queries: []Row{}}
	for r := range t.active {
		if q := r.query; tenant == "" || tenant == q.Tenant {
			top.Active = append(top.Active, newActive(r, q))
		}
	}
	for k, r := range t.rows {
		if tenant != "" && tenant != k.tenant {
			continue
		}
		if n := r.costs.lastHour(now); n.queries > 0 || r.active > 0 {
			row := newRow(r, &n, r.askedBy(func(a *askerCost) askerSum { return a.lastHour(now) }))
			row.ID = "" // it means something within a record only
			top.Queries = append(top.Queries, row)
		}
	}
	for of, r := range t.others {
		if tenant == "" || tenant == of {
			n := r.costs.lastHour(now)
			top.Others.add(Rest{n.dropped, n.queries, n.running.Seconds(), n.samples, n.dropped})
		}
	}
	return top
}

func newActive(r *Running, q *Query) Active {
	a := Active{
		Tenant: q.Tenant, Query: strings.Clone(clip(q.Text)), Begun: float64(q.Begun.UnixMilli()) / 1000,
		Waiting: !r.turn.Load(),
		Range:   q.Range.Seconds(), Step: q.Step.Seconds(), Asker: q.Asker.String(),
	}
	switch {
	case q.Lookup:
	case q.Step > 0:
		a.Steps = int64(q.Range/q.Step) + 1
	default:
		a.Steps = 1
	}
	return a
}

func (r *Rest) add(of Rest) {
	r.Expressions += of.Expressions
	r.Queries += of.Queries
	r.Running += of.Running
	r.Samples += of.Samples
	r.Dropped += of.Dropped
}

// Cut sorts the queries, and leaves out those beyond a limit. Of the queries under way, too, it keeps the limit.
func (t *Top) Cut(by Order, limit int) {
	t.cutActive(limit)
	slices.SortFunc(t.Queries, by.compare)
	t.leaveOut(t.Queries[min(limit, len(t.Queries)):])
	t.Queries = t.Queries[:min(limit, len(t.Queries))]
}

// CutAll leaves out the queries that are beyond the limit in each order.
func (t *Top) CutAll(limit int) {
	t.cutActive(limit)
	last := len(t.Queries)
	kept := 0 // queries before it stay
	for _, by := range Orders {
		rest := t.Queries[kept:]
		slices.SortFunc(rest, by.compare)
		kept = min(last, kept+limit)
	}
	t.leaveOut(t.Queries[kept:])
	t.Queries = t.Queries[:kept]
}

func (t *Top) cutActive(limit int) {
	slices.SortFunc(t.Active, func(a, b Active) int {
		return cmp.Or(cmp.Compare(a.Begun, b.Begun), strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Query, b.Query),
			strings.Compare(a.Node, b.Node))
	})
	t.MoreActive += max(0, len(t.Active)-limit)
	t.Active = t.Active[:min(limit, len(t.Active))]
}

// leaveOut adds rows to the others.
func (t *Top) leaveOut(rows []Row) {
	for _, r := range rows {
		t.Others.add(Rest{1, r.Queries, r.Running, r.Samples, 0})
	}
}

// Add adds the queries of another process.
func (t *Top) Add(of *Top) {
	type name struct{ tenant, query string }
	at := map[name]int{}
	for i, r := range t.Queries {
		at[name{r.Tenant, r.Query}] = i
	}
	for _, r := range of.Queries {
		if i, known := at[name{r.Tenant, r.Query}]; known {
			t.Queries[i].add(r)
		} else {
			t.Queries = append(t.Queries, r)
		}
	}
	t.Active = append(t.Active, of.Active...)
	t.MoreActive += of.MoreActive
	t.Others.add(of.Others)
}

// add adds the cost of the same queries in another process.
func (r *Row) add(of Row) {
	r.Queries += of.Queries
	r.Failed += of.Failed
	r.Active += of.Active
	r.Running += of.Running
	r.Waited += of.Waited
	r.Samples += of.Samples
	r.Series += of.Series
	if of.Longest > r.Longest {
		r.Longest, r.Example, r.Range, r.Step = of.Longest, of.Example, of.Range, of.Step
	}
	for _, by := range of.Askers {
		if len(r.Askers) < maxAskers && !slices.Contains(r.Askers, by) {
			r.Askers = append(r.Askers, by)
		}
	}
}
