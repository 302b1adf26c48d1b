// Package stepcache keeps the results of range queries, step by step. A query that was asked a minute ago then
// evaluates only the steps that are new, or whose samples may have changed meanwhile. Its answer is the same, bit by
// bit, as if it evaluated all steps.
//
// That takes three things. The value of a step must depend on samples at or before the step alone: final.go lists the
// expressions for which it does. The samples must be the same as before: a Source says up to which time they are. And
// the query must read tiles of the same width: a Reading carries what decides about it.
//
// Callers evaluate queries, and never keep answers that have notes. What a Cache holds is never changed.
package stepcache

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/freshet-io/freshet/internal/core/changes"
)

// Cache has the kept steps of all queries, within a bound. It drops the queries that were not asked for longest. All
// methods are safe for concurrent use.
type Cache struct {
	most int64 // bytes

	mu      sync.Mutex
	bytes   int64
	kept    map[Key]*list.Element // of items
	recent  list.List             // the query that was asked last is first
	evicted uint64
	refused uint64
}

type item struct {
	key   Key
	steps *Steps
}

// New returns a cache of at most so many bytes.
func New(most int64) *Cache { return &Cache{most: most, kept: map[Key]*list.Element{}} }

// Get returns the kept steps of a query, or nil.
func (c *Cache) Get(k Key) *Steps {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.kept[k]
	if e == nil {
		return nil
	}
	c.recent.MoveToFront(e)
	return e.Value.(item).steps
}

// Takes reports whether the cache may keep steps with so many points, and counts steps that are too large. The caller
// need not copy those.
func (c *Cache) Takes(points int) bool {
	if pointBytes*int64(points) <= c.most/4 {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused++
	return false
}

// Put keeps steps in place of those that were kept for the query. It keeps none that take more than a quarter of the
// cache, since they would push out all others.
func (c *Cache) Put(k Key, s *Steps) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.kept[k]; e != nil {
		c.remove(e)
	}
	if s.bytes > c.most/4 {
		c.refused++
		return
	}
	c.kept[k] = c.recent.PushFront(item{k, s})
	for c.bytes += s.bytes; c.bytes > c.most; c.evicted++ {
		c.remove(c.recent.Back())
	}
}

// Drop drops the steps of a query.
func (c *Cache) Drop(k Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.kept[k]; e != nil {
		c.remove(e)
	}
}

func (c *Cache) remove(e *list.Element) {
	i := c.recent.Remove(e).(item)
	delete(c.kept, i.key)
	c.bytes -= i.steps.bytes
}

// Stats are the figures of a cache.
type Stats struct {
	Bytes   int64
	Evicted uint64 // queries whose steps made room for others
	Refused uint64 // results that were too large to keep
}

// Stats returns the present figures.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{c.bytes, c.evicted, c.refused}
}

// Key is what two queries have in common whose steps are the same. Times are in milliseconds.
type Key struct {
	Tenant, Text string
	Step, Phase  int64 // each step is Phase after a multiple of Step
	Lookback     int64
}

// Query is a range query of a tenant. Times are in Unix milliseconds.
type Query struct {
	Key
	Start, Last int64 // the first step and the last one
}

// Of returns a query, if its steps may be kept.
func Of(tenant, text string, s *parser.EvalStmt) (q Query, ok bool) {
	step := s.Interval.Milliseconds()
	if step <= 0 || !Final(s.Expr) {
		return q, false
	}
	start, end := s.Start.UnixNano()/1e6, s.End.UnixNano()/1e6
	q = Query{Key: Key{Tenant: tenant, Text: text, Step: step, Phase: (start%step + step) % step,
		Lookback: s.LookbackDelta.Milliseconds()}, Start: start, Last: end - (end-start)%step}
	return q, q.Start < q.Last
}

// Until returns the steps up to a step.
func (q Query) Until(last int64) Query {
	q.Last = last
	return q
}

// Steps returns the number of steps.
func (q Query) Steps() int64 { return (q.Last-q.Start)/q.Step + 1 }

// State is the state of a tenant's data in a moment.
type State struct {
	Stores, Tiles changes.Mark
	Files         uint64 // identifies the blocks on disk
	FinalBefore   int64  // open tiles do not change what queries see before this time, Unix ms
}

// Source says what has changed in the data that queries read.
type Source interface {
	// State returns the present state of a tenant's data. What a query reads afterwards is of this state, or newer.
	State(tenant string) State
	// Same returns a time in Unix milliseconds: samples before it are as they were in state s.
	Same(tenant string, s State) int64
}

// Reading is how a query reads tiles. A context carries it to the storage.
type Reading struct {
	// Skipped is how much later than the query its evaluation begins, in ms. The width of tiles depends on the start of
	// the query.
	Skipped int64

	widths atomic.Uint32
	merged atomic.Bool
	typed  atomic.Bool
}

// Read notes the width of tiles that a select has read, or would have read.
func (r *Reading) Read(width uint8) {
	if r != nil {
		r.widths.Or(1 << width)
	}
}

// Merge notes that a select has merged samples of one series from several stores. If two stores have a sample at the
// same time, the merge takes the one or the other, depending on where it begins.
func (r *Reading) Merge() {
	if r != nil {
		r.merged.Store(true)
	}
}

// Ranged notes the labels of a series that a range function reads. The function drops its type and unit like its name,
// and fails if two series then have the same labels, even at different steps: see final.go.
func (r *Reading) Ranged(of labels.Labels) {
	if r != nil && (of.Has(model.MetricTypeLabel) || of.Has(model.MetricUnitLabel)) {
		r.typed.Store(true)
	}
}

// Width returns the width that all selects have read. It is not ok if they have read several, or none, if one has
// merged stores, or if a range function has dropped types or units: then no step may be kept.
func (r *Reading) Width() (w uint32, ok bool) {
	w = r.widths.Load()
	return w, w != 0 && w&(w-1) == 0 && !r.merged.Load() && !r.typed.Load()
}

type readingKey struct{}

// NewContext returns a context that carries r.
func NewContext(ctx context.Context, r *Reading) context.Context {
	return context.WithValue(ctx, readingKey{}, r)
}

// FromContext returns the Reading of a context, or nil.
func FromContext(ctx context.Context) *Reading {
	r, _ := ctx.Value(readingKey{}).(*Reading)
	return r
}
