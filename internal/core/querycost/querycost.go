// Package querycost adds up the cost of queries over the last minute, by tenant and query, and
// lists the askers. Queries that differ only in values count as one: see Normal. Memory is bounded.
// adapter/promapi decides when a query may run.
package querycost

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/freshet-io/freshet/internal/core/sender"
)

const (
	// Span is the time over which costs are added up, in seconds.
	Span  = 60
	step  = 10            // seconds per count
	steps = Span/step + 1 // number of counts that are kept; the newest is not complete
)

// Bounds of memory. 1,000 rows, each with 8 texts of up to 1,000 bytes and 3,500 bytes besides,
// take 11.5 MB if that many different queries are asked within a minute.
const (
	maxRows   = 1000
	maxAskers = 4
	maxText   = 1000 // bytes
	maxHeader = 100  // bytes
)

// Others is the ID of the row that adds up all queries for which the table has no room.
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
	others *row
	made   int   // number of rows made since the process began
	pruned int64 // Unix second of the last search for rows to remove
}

type key struct {
	tenant string
	form   uint64 // hash of the normal form
}

type row struct {
	id, tenant, form string
	active           int
	counts           [steps]counted
	askers           []askerCost
}

// counted holds the sums of one step.
type counted struct {
	at                int64 // Unix seconds, a multiple of step
	queries, failed   uint64
	running, waited   time.Duration
	samples, seriesOf int64
	longest           time.Duration
	costliest         Query // the query that ran longest, without tenant and asker
}

// askerCost is how long one asker's queries ran, in each step.
type askerCost struct {
	Asker
	counts [steps]struct {
		at      int64 // Unix seconds, a multiple of step
		running time.Duration
	}
}

// slot returns the index of a step's counts.
func slot(at int64) uint64 { return uint64(at/step) % steps }

// isRecent reports whether a step is within the last Span seconds.
func isRecent(at, now int64) bool { return at > now-Span-step && at <= now }

// New returns an empty table.
func New() *Table {
	return &Table{rows: map[key]*row{}, others: &row{id: Others, form: "other queries"}}
}

// Running is a query under way.
type Running struct {
	ID  string // ID of the query's row; queries that differ only in values share a row
	row *row
}

// Begin counts a query that begins. `now` is in Unix seconds. The caller must call End later.
func (t *Table) Begin(now int64, q *Query) *Running {
	form := Normal(q.Text)
	t.mu.Lock()
	defer t.mu.Unlock()
	k := key{q.Tenant, xxhash.Sum64String(form)}
	r := t.rows[k]
	if r == nil && t.room(now) {
		t.made++
		k.tenant = strings.Clone(k.tenant)
		r = &row{id: fmt.Sprint("q", t.made), tenant: k.tenant, form: strings.Clone(clip(form))}
		t.rows[k] = r
	}
	if r == nil {
		r = t.others
	}
	r.active++
	return &Running{r.id, r}
}

// room reports whether there is room for a row. To make room, it removes the rows of queries that
// did not run in the last Span seconds.
func (t *Table) room(now int64) bool {
	if len(t.rows) >= maxRows && t.pruned != now { // at most once a second, since the search takes long
		t.pruned = now
		for k, r := range t.rows {
			if r.active == 0 && r.sum(now).queries == 0 {
				delete(t.rows, k)
			}
		}
	}
	return len(t.rows) < maxRows
}

// End adds the cost of the query.
func (t *Table) End(now int64, of *Running, q *Query, c *Cost) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := of.row
	r.active--
	at := now - now%step
	n := &r.counts[slot(at)]
	if n.at != at {
		*n = counted{at: at}
	}
	n.queries++
	if c.Failed {
		n.failed++
	}
	n.running += c.Running
	n.waited += c.Waited
	n.samples += c.Samples
	n.seriesOf += c.Series
	if c.Running >= n.longest {
		n.longest = c.Running
		n.costliest = Query{Text: strings.Clone(clip(q.Text)), Range: q.Range, Step: q.Step}
	}
	r.asker(now, q.Asker).add(at, c.Running)
}

// asker returns the count of an asker. If there are maxAskers already, a new asker replaces the one
// whose queries recently took the least time. The new asker inherits that time, so that it is not
// replaced next.
func (r *row) asker(now int64, a Asker) *askerCost {
	least, leastRunning := 0, time.Duration(math.MaxInt64)
	for i := range r.askers {
		if r.askers[i].Asker == a {
			return &r.askers[i]
		}
		if running, _ := r.askers[i].sum(now); running < leastRunning {
			least, leastRunning = i, running
		}
	}
	if len(r.askers) < maxAskers {
		r.askers = append(r.askers, askerCost{Asker: a.clone()})
		return &r.askers[len(r.askers)-1]
	}
	r.askers[least].Asker = a.clone()
	return &r.askers[least]
}

// add adds the time of a query to its step.
func (a *askerCost) add(at int64, running time.Duration) {
	n := &a.counts[slot(at)]
	if n.at != at {
		n.at, n.running = at, 0
	}
	n.running += running
}

// sum returns how long the asker's queries of the last Span seconds ran, and whether there were
// such queries.
func (a *askerCost) sum(now int64) (running time.Duration, asked bool) {
	for _, n := range a.counts {
		if isRecent(n.at, now) {
			running, asked = running+n.running, true
		}
	}
	return running, asked
}

// sum returns the counts of the last Span seconds.
func (r *row) sum(now int64) (sum counted) {
	for i := range r.counts {
		if n := &r.counts[i]; n.queries > 0 && isRecent(n.at, now) {
			sum.queries += n.queries
			sum.failed += n.failed
			sum.running += n.running
			sum.waited += n.waited
			sum.samples += n.samples
			sum.seriesOf += n.seriesOf
			if n.longest >= sum.longest {
				sum.longest, sum.costliest = n.longest, n.costliest
			}
		}
	}
	return sum
}

// askedBy returns the askers of the last Span seconds. The asker that took the most time comes
// first.
func (r *row) askedBy(now int64) []string {
	type asked struct {
		by      string
		running time.Duration
	}
	var all []asked
	for i := range r.askers {
		if running, ok := r.askers[i].sum(now); ok {
			all = append(all, asked{r.askers[i].String(), running})
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

// Row is the cost of all queries that differ only in values, over the last Span seconds.
type Row struct {
	ID      string   `json:"id"`
	Tenant  string   `json:"tenant"`
	Query   string   `json:"query"` // with a question mark for each value
	Queries uint64   `json:"queries"`
	Failed  uint64   `json:"failed"`
	Active  int      `json:"active"` // waiting or running now
	Running float64  `json:"running_seconds"`
	Waited  float64  `json:"waited_seconds"`
	Samples int64    `json:"samples"` // looked at
	Series  int64    `json:"series"`  // read
	Longest float64  `json:"longest_seconds"`
	Example string   `json:"example,omitempty"` // the query that ran longest
	Range   float64  `json:"range_seconds,omitempty"`
	Step    float64  `json:"step_seconds,omitempty"`
	Askers  []string `json:"askers"` // the asker whose queries took the most time comes first
}

// Report returns the rows whose queries took the most time in the Span seconds before now, at most
// `limit` rows. `now` is in Unix seconds.
func (t *Table) Report(now int64, limit int) []Row {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := []Row{}
	add := func(r *row) {
		n := r.sum(now)
		if n.queries == 0 && r.active == 0 {
			return
		}
		shown := Row{
			ID: r.id, Tenant: r.tenant, Query: r.form, Queries: n.queries, Failed: n.failed, Active: r.active,
			Running: n.running.Seconds(), Waited: n.waited.Seconds(), Samples: n.samples, Series: n.seriesOf,
			Longest: n.longest.Seconds(),
			Example: n.costliest.Text, Range: n.costliest.Range.Seconds(), Step: n.costliest.Step.Seconds(),
			Askers: r.askedBy(now),
		}
		all = append(all, shown)
	}
	for _, r := range t.rows {
		add(r)
	}
	add(t.others)
	slices.SortFunc(all, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.Running, a.Running), cmp.Compare(b.Active, a.Active), cmp.Compare(a.ID, b.ID))
	})
	return all[:min(limit, len(all))]
}
