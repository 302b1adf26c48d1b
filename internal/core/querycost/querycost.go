// Package querycost adds up the cost of queries over the last minute and the last hour, by tenant and
// query, and lists the askers and the queries that are under way. Queries that differ only in values
// count as one: see Normal. Memory is bounded. adapter/promapi decides when a query may run.
package querycost

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/freshet-io/freshet/internal/core/sender"
)

const (
	// Span is the time of Report, in seconds, and Hour that of Top.
	Span = steps * step
	Hour = steps * hourStep

	steps    = 6       // of a span; the step that is not complete comes on top
	step     = 10      // seconds per count
	hourStep = 10 * 60 // seconds
)

// Bounds of memory. 500 rows, each with 15 texts of up to 1,000 bytes and 3,000 bytes besides,
// take 9 MB if that many different queries are asked, all of them long.
const (
	maxRows    = 500
	dropAtOnce = maxRows / 10 // so that a new row seldom waits for a search
	maxAskers  = 4
	maxText    = 1000 // bytes
	maxHeader  = 100  // bytes
)

// Others is the ID of rows that add up all queries for which the table has no room.
const Others = "others"

// Asker is the sender of a query, as far as the request says who sent it.
type Asker struct {
	sender.Sender
	Dashboard, Panel string // of Grafana; empty if the request does not name them
}

// AskerOf returns the Asker of a request. It keeps references to the request's text.
func AskerOf(from sender.Sender, dashboard, panel string) Asker {
	return Asker{from, dashboard[:min(len(dashboard), maxHeader)], panel[:min(len(panel), maxHeader)]}
}

// String describes the asker, for example: 10.0.0.1 (Grafana/12.1), dashboard ab12, panel 3.
func (a Asker) String() string {
	text := a.Sender.String()
	if a.Dashboard != "" {
		text += ", dashboard " + a.Dashboard
	}
	if a.Panel != "" {
		text += ", panel " + a.Panel
	}
	return text
}

func (a Asker) clone() Asker {
	return Asker{a.Sender.Clone(), strings.Clone(a.Dashboard), strings.Clone(a.Panel)}
}

// Query is a query as it was asked.
type Query struct {
	Tenant, Text string
	Range, Step  time.Duration // 0 for an instant query
	Lookup       bool          // of series, labels, exemplars or remote read
	Begun        time.Time
	Asker        Asker
}

// Cost is the cost of one query.
type Cost struct {
	Running time.Duration // time with a slot
	Waited  time.Duration // for a slot
	Samples int64         // looked at
	Series  int64         // read
	Failed  bool
}

// Table adds up costs. It is safe for concurrent use.
type Table struct {
	mu     sync.Mutex
	rows   map[key]*row
	others map[string]*row // by tenant; the empty name is for tenants beyond maxRows
	active map[*Running]struct{}
	made   int // number of rows made since the process began
}

type key struct {
	tenant string
	form   uint64 // hash of the normal form
}

type row struct {
	id, tenant, form string
	lookup           bool
	active           int
	costs            costs
	askers           []askerCost
}

// costs are the sums of the last minute and of the last hour.
type costs struct{ minute, hour ring[counted] }

// counted holds the sums of one step.
type counted struct {
	queries, failed   uint64
	running, waited   time.Duration
	samples, seriesOf int64
	longest           time.Duration
	costliest         asked // the query that ran longest
	dropped           uint64
}

// asked is a query without its tenant and asker.
type asked struct {
	text       string
	span, step time.Duration
}

// askerCost is how long one asker's queries ran, in each step.
type askerCost struct {
	Asker
	minute, hour ring[askerSum]
}

type askerSum struct {
	queries uint64
	running time.Duration
}

// New returns an empty table.
func New() *Table {
	return &Table{rows: map[key]*row{}, others: map[string]*row{}, active: map[*Running]struct{}{}}
}

// Running is a query under way.
type Running struct {
	ID    string // ID of the query's row; queries that differ only in values share a row
	row   *row
	query *Query
	turn  atomic.Bool
}

// HasTurn says that the query no longer waits for its first turn.
func (r *Running) HasTurn() { r.turn.Store(true) }

// Begin counts a query that begins. `now` is in Unix seconds. The caller must call End later, and must
// not change the query before.
func (t *Table) Begin(now int64, q *Query) *Running {
	form := Normal(q.Text)
	t.mu.Lock()
	defer t.mu.Unlock()
	k := key{q.Tenant, xxhash.Sum64String(form)}
	r := t.rows[k]
	if r == nil && t.room(now) {
		t.made++
		k.tenant = strings.Clone(k.tenant)
		r = &row{id: fmt.Sprint("q", t.made), tenant: k.tenant, form: strings.Clone(clip(form)), lookup: q.Lookup}
		t.rows[k] = r
	}
	if r == nil {
		r = t.othersOf(q.Tenant)
	}
	r.active++
	running := &Running{ID: r.id, row: r, query: q}
	t.active[running] = struct{}{}
	return running
}

// room reports whether there is room for a row. To make room, it adds the rows that cost the least in the last
// hour to the others.
func (t *Table) room(now int64) bool {
	if len(t.rows) < maxRows {
		return true
	}
	type idle struct {
		key
		counted
	}
	var all []idle
	for k, r := range t.rows {
		if r.active == 0 {
			all = append(all, idle{k, r.costs.lastHour(now)})
		}
	}
	slices.SortFunc(all, func(a, b idle) int {
		return cmp.Or(cmp.Compare(a.running, b.running), cmp.Compare(a.queries, b.queries))
	})
	for _, of := range all[:min(dropAtOnce, len(all))] {
		if of.queries > 0 { // otherwise its costs are older than an hour
			others := t.othersOf(of.tenant)
			others.costs.merge(&t.rows[of.key].costs)
			others.costs.minute.at(now, step).dropped++
			others.costs.hour.at(now, hourStep).dropped++
		}
		delete(t.rows, of.key)
	}
	maps.DeleteFunc(t.others, func(_ string, r *row) bool {
		n := r.costs.lastHour(now)
		return r.active == 0 && n.queries == 0 && n.dropped == 0
	})
	return len(t.rows) < maxRows
}

// othersOf returns the row of a tenant's queries without a row.
func (t *Table) othersOf(tenant string) *row {
	if r := t.others[tenant]; r != nil {
		return r
	}
	if len(t.others) >= maxRows {
		tenant = ""
	}
	if t.others[tenant] == nil {
		tenant = strings.Clone(tenant)
		t.others[tenant] = &row{id: Others, tenant: tenant, form: "other queries"}
	}
	return t.others[tenant]
}

// End adds the cost of the query.
func (t *Table) End(now int64, of *Running, q *Query, c *Cost) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.active, of)
	r := of.row
	r.active--
	one := counted{
		queries: 1, running: c.Running, waited: c.Waited, samples: c.Samples, seriesOf: c.Series, longest: c.Running,
		costliest: asked{strings.Clone(clip(q.Text)), q.Range, q.Step},
	}
	if c.Failed {
		one.failed = 1
	}
	r.costs.minute.at(now, step).add(&one)
	r.costs.hour.at(now, hourStep).add(&one)
	r.asker(now, q.Asker).add(now, c.Running)
}

// add adds the sums of another step or query. Of two queries that ran as long, the later one stays.
func (n *counted) add(of *counted) {
	n.queries += of.queries
	n.failed += of.failed
	n.running += of.running
	n.waited += of.waited
	n.samples += of.samples
	n.seriesOf += of.seriesOf
	n.dropped += of.dropped
	if of.queries > 0 && of.longest >= n.longest {
		n.longest, n.costliest = of.longest, of.costliest
	}
}

func (c *costs) merge(of *costs) {
	c.minute.merge(&of.minute, (*counted).add)
	c.hour.merge(&of.hour, (*counted).add)
}

func (c *costs) lastMinute(now int64) (sum counted) {
	c.minute.recent(now, step, sum.add)
	return sum
}

func (c *costs) lastHour(now int64) (sum counted) {
	c.hour.recent(now, hourStep, sum.add)
	return sum
}

// asker returns the count of an asker. If there are maxAskers already, a new asker replaces the one
// whose queries took the least time in the last hour. The new asker inherits that time, so that it is
// not replaced next.
func (r *row) asker(now int64, a Asker) *askerCost {
	least, leastRunning := 0, time.Duration(math.MaxInt64)
	for i := range r.askers {
		if r.askers[i].Asker == a {
			return &r.askers[i]
		}
		if sum := r.askers[i].lastHour(now); sum.running < leastRunning {
			least, leastRunning = i, sum.running
		}
	}
	if len(r.askers) < maxAskers {
		r.askers = append(r.askers, askerCost{Asker: a.clone()})
		return &r.askers[len(r.askers)-1]
	}
	r.askers[least].Asker = a.clone()
	return &r.askers[least]
}

// add adds the time of a query.
func (a *askerCost) add(now int64, running time.Duration) {
	one := askerSum{1, running}
	a.minute.at(now, step).add(&one)
	a.hour.at(now, hourStep).add(&one)
}

func (s *askerSum) add(of *askerSum) {
	s.queries += of.queries
	s.running += of.running
}

func (a *askerCost) lastMinute(now int64) (sum askerSum) {
	a.minute.recent(now, step, sum.add)
	return sum
}

func (a *askerCost) lastHour(now int64) (sum askerSum) {
	a.hour.recent(now, hourStep, sum.add)
	return sum
}

// askedBy returns the askers with queries in a time. The asker that took the most time comes first.
func (r *row) askedBy(within func(*askerCost) askerSum) []string {
	type asked struct {
		by      string
		running time.Duration
	}
	var all []asked
	for i := range r.askers {
		if sum := within(&r.askers[i]); sum.queries > 0 {
			all = append(all, asked{r.askers[i].String(), sum.running})
		}
	}
	slices.SortStableFunc(all, func(a, b asked) int { return cmp.Compare(b.running, a.running) })
	names := []string{}
	for _, a := range all {
		names = append(names, a.by)
	}
	return names
}

func clip(text string) string { return text[:min(len(text), maxText)] }

// Row is the cost of all queries that differ only in values, over the last minute or hour.
type Row struct {
	ID      string   `json:"id,omitempty"`
	Tenant  string   `json:"tenant"`
	Query   string   `json:"query"`            // with a question mark for each value
	Lookup  bool     `json:"lookup,omitempty"` // of series, labels, exemplars or remote read: Query is no PromQL
	Queries uint64   `json:"queries"`
	Failed  uint64   `json:"failed"`
	Active  int      `json:"active"` // waiting or running now
	Running float64  `json:"running_seconds"`
	Waited  float64  `json:"waited_seconds"`
	Samples int64    `json:"samples"` // looked at
	Series  int64    `json:"series"`  // read
	Longest float64  `json:"longest_seconds"`
	Example string   `json:"example,omitempty"` // the query that ran longest, cut to maxText bytes
	Range   float64  `json:"range_seconds,omitempty"`
	Step    float64  `json:"step_seconds,omitempty"`
	Askers  []string `json:"askers"` // the asker whose queries took the most time comes first
}

func newRow(r *row, n *counted, askers []string) Row {
	return Row{
		ID: r.id, Tenant: r.tenant, Query: r.form, Lookup: r.lookup, Queries: n.queries, Failed: n.failed, Active: r.active,
		Running: n.running.Seconds(), Waited: n.waited.Seconds(), Samples: n.samples, Series: n.seriesOf,
		Longest: n.longest.Seconds(),
		Example: n.costliest.text, Range: n.costliest.span.Seconds(), Step: n.costliest.step.Seconds(),
		Askers: askers,
	}
}

// Report returns the rows whose queries took the most time in the Span seconds before now, at most
// `limit` rows, with one row for the others of all tenants. `now` is in Unix seconds.
func (t *Table) Report(now int64, limit int) []Row {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := []Row{}
	add := func(r *row) {
		if n := r.costs.lastMinute(now); n.queries > 0 || r.active > 0 {
			by := r.askedBy(func(a *askerCost) askerSum { return a.lastMinute(now) })
			all = append(all, newRow(r, &n, by))
		}
	}
	for _, r := range t.rows {
		add(r)
	}
	others := &row{id: Others, form: "other queries"}
	for _, r := range t.others {
		others.active += r.active
		others.costs.merge(&r.costs)
	}
	add(others)
	slices.SortFunc(all, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.Running, a.Running), cmp.Compare(b.Active, a.Active), cmp.Compare(a.ID, b.ID))
	})
	return all[:min(limit, len(all))]
}
