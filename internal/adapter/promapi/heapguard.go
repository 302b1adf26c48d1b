package promapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// heapGuard watches the heap of the process while queries run. When the heap is nearly full, the guard
// ends the query that may take the most memory. The shares of lanes count only what queries read, but
// the engine allocates more: for each series that a part of a query returns, it makes a list with room
// for all steps.
type heapGuard struct {
	limit   uint64 // bytes that the process may have; 0 turns the guard off
	bound   uint64 // bytes of the heap in use at which the guard ends a query
	read    func() heap
	collect func() // collects garbage and waits for it
	logger  *slog.Logger

	mu      sync.Mutex
	running map[*watched]struct{}
	looks   bool      // whether a goroutine is in `run`
	stale   uint64    // number of the first collection after which heap.live counts no ended query
	until   time.Time // while the query `ending` runs, no other query is ended before this time
	ending  *watched  // the last ended query; nil once it has returned
}

// heap is a reading of the heap.
type heap struct {
	live        uint64 // bytes that the last collection found in use
	allocated   uint64 // bytes, garbage included
	collections uint64 // number of collections since the start
}

const (
	// heapLook is the time between two looks. In that time a query allocates at most some 100 MB. A
	// look takes microseconds.
	heapLook = 50 * time.Millisecond
	// heapPause is how long an ended query has to return before the guard ends another query. The
	// engine notices the end at its next step.
	heapPause = time.Second
	// smallQuery: the guard never ends a query below 1/smallQuery of the bound, because that would
	// free next to nothing.
	smallQuery = 100
	// fresh is the number of collections that free all memory of an ended query: the first may
	// have begun before the query returned, and two more empty the engine's pool of lists.
	fresh = 3
	// mostPoints is the largest number of samples that the engine makes room for in a list
	// (maxPointsSliceSize in its source).
	mostPoints = 5000
)

func newHeapGuard(process int64, logger *slog.Logger) *heapGuard {
	return &heapGuard{
		// The rest is for stacks, for the program itself, and for what is allocated until the
		// ended query has returned.
		limit: uint64(process), bound: uint64(process) / 10 * 8, read: readHeap, collect: collectTwice,
		logger: logger, running: map[*watched]struct{}{},
	}
}

func readHeap() heap {
	s := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/cycles/total:gc-cycles"},
	}
	metrics.Read(s)
	return heap{s[0].Value.Uint64(), s[1].Value.Uint64(), s[2].Value.Uint64()}
}

// collectTwice collects garbage. The second collection frees lists that the engine keeps for its
// next query.
func collectTwice() {
	runtime.GC()
	runtime.GC()
}

// watched is a running query.
type watched struct {
	guard  *heapGuard
	query  promql.Query
	turn   *turn
	own    bool // whether it is one of Freshet's own
	ctx    context.Context
	cancel context.CancelCauseFunc
	steps  uint64 // samples that a list of the query has room for
	spread bool   // each step may return different series, because of count_values
}

// errHeap is the cause when the guard ends a query.
var errHeap error = &memoryError{"the memory of the process is nearly full"}

// watch makes the guard watch a query that begins to run. The caller must call end when
// the query has ended.
func (g *heapGuard) watch(ctx context.Context, q promql.Query, t *turn) *watched {
	w := &watched{guard: g, query: q, turn: t, own: t.begun == t.all.own, ctx: ctx}
	if g.limit == 0 {
		return w
	}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.size()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running[w] = struct{}{}
	if !g.looks {
		g.looks = true
		g.stale = g.read().collections + fresh
		go g.run()
	}
	return w
}

// size computes how much the query may return for each series that it reads.
func (w *watched) size() {
	s, ok := w.query.Statement().(*parser.EvalStmt)
	if !ok {
		return
	}
	w.steps = 1
	if s.Interval > 0 {
		w.steps = min(uint64(s.End.Sub(s.Start)/s.Interval)+1, mostPoints)
	}
	parser.Inspect(s.Expr, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.SubqueryExpr:
			w.steps = mostPoints
		case *parser.AggregateExpr:
			w.spread = w.spread || n.Op == parser.COUNT_VALUES
		}
		return nil
	})
}

// potential is how many bytes the query may need in all for the series that it has read so far.
func (w *watched) potential() uint64 {
	lists := uint64(w.turn.read.Load()) + 1 // plus one, because vector() returns a series and reads none
	if w.spread {
		lists *= w.steps
	}
	return lists * w.steps * sampleBytes
}

// cause returns the query's error: errHeap if the guard ended it, else err.
func (w *watched) cause(err error) error {
	_, canceled := errors.AsType[promql.ErrQueryCanceled](err)
	if (canceled || errors.Is(err, context.Canceled)) && errors.Is(context.Cause(w.ctx), errHeap) {
		return w.turn.all.heapFull()
	}
	return err
}

// end makes the guard forget the query.
func (w *watched) end() {
	g := w.guard
	if g.limit == 0 {
		return
	}
	w.cancel(nil)
	now := g.read().collections
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.running, w)
	g.stale = now + fresh
	if g.ending == w {
		g.ending = nil
	}
}

// run looks at the heap until no query runs.
func (g *heapGuard) run() {
	tick := time.NewTicker(heapLook)
	defer tick.Stop()
	for now := range tick.C {
		g.look(now)
		g.mu.Lock()
		if len(g.running) == 0 {
			g.looks = false
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
	}
}

// full is true if the heap is nearly full. Usually the runtime keeps the heap below its limit,
// and the figure of the last collection shows how much is in use. If more than the limit is
// allocated, garbage included, the runtime could not keep the heap below the limit.
func (g *heapGuard) full(h heap) bool { return h.live > g.bound || h.allocated > g.limit }

// look ends the largest query if the heap is full.
func (g *heapGuard) look(now time.Time) {
	h := g.read()
	if !g.full(h) {
		return
	}
	g.mu.Lock()
	wait := g.ending != nil && now.Before(g.until)
	largest := g.largest()
	stale := h.collections < g.stale
	g.mu.Unlock()
	if wait || largest == nil {
		return
	}
	if stale {
		// Garbage of an ended query must not end another query.
		g.collect()
		if h = g.read(); !g.full(h) {
			return
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if largest = g.largest(); largest == nil {
		return
	}
	g.ending, g.until = largest, now.Add(heapPause)
	largest.cancel(errHeap)
	text := largest.query.String()
	g.logger.Warn("the memory is nearly full: a query was ended",
		"tenant", largest.turn.tenant, "query", text[:min(len(text), longestTraced)],
		"heap_bytes", h.live, "bound_bytes", g.bound)
}

// largest returns the query whose end may free the most memory. It returns one of Freshet's own
// queries only if there is no other, and nil if no query is large enough or all have been ended.
func (g *heapGuard) largest() (found *watched) {
	least := g.bound / smallQuery
	for w := range g.running {
		if w.ctx.Err() != nil || w.potential() < least {
			continue
		}
		switch {
		case found == nil, found.own && !w.own, found.own == w.own && w.potential() > found.potential():
			found = w
		}
	}
	return found
}

// heapFull returns the error of a query that the guard ended. The query cannot begin again,
// because no lane has more memory for it.
func (s *lanes) heapFull() error {
	return fmt.Errorf("%w, and this query may take most of it; all queries should share at most %d MiB (%s): "+
		"ask for fewer series, a shorter range or a longer step, or give the process more memory",
		errHeap, s.total>>20, s.of)
}

// longestTraced bounds the text of a query in its span, in bytes.
const longestTraced = 1000
