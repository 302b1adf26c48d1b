package promapi

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/storage"

	"github.com/freshet-io/freshet/internal/core/tenant"
)

// heapOfTest replaces the heap that a guard reads.
type heapOfTest struct {
	live, allocated, collections atomic.Uint64
	garbage                      atomic.Bool // whether the next collection finds no memory in use
}

// guarded returns an API in a process that may have `limit` bytes. Each tenant has its own number
// of series, and reading one takes 10 ms.
func guarded(limit uint64, series map[string]int) (*server, *heapOfTest) {
	s := newServer(selects(func(ctx context.Context) storage.SeriesSet {
		name, _ := tenant.FromContext(ctx)
		return &slowSet{n: series[name], each: 10 * time.Millisecond}
	}), asTenant, func(cfg *Config, _ *Options) { cfg.MaxConcurrency = 10 })
	h, g := &heapOfTest{}, s.options.Engine.heap
	g.limit, g.bound = limit, limit/10*8
	g.read = func() heap { return heap{h.live.Load(), h.allocated.Load(), h.collections.Load()} }
	g.collect = func() {
		h.collections.Add(fresh)
		h.allocated.Store(0)
		if h.garbage.Load() {
			h.live.Store(0)
		}
	}
	return s, h
}

func (s *server) failedForHeap(t *testing.T, name string, w *httptest.ResponseRecorder) {
	t.Helper()
	e := decode(t, w)
	if w.Code != http.StatusUnprocessableEntity || e.ErrorType != "execution" ||
		!strings.Contains(e.Error, "nearly full") || !strings.Contains(e.Error, "query.max_memory") {
		t.Errorf("query of %s: status %d, %s %q; want 422 and an error that names query.max_memory",
			name, w.Code, e.ErrorType, e.Error)
	}
}

// unwatched checks that the guard stops looking once no query runs, and that all turns were
// given back.
func unwatched(t *testing.T, s *server) {
	t.Helper()
	time.Sleep(2 * heapLook)
	synctest.Wait()
	if g := s.options.Engine.heap; g.looks || len(g.running) > 0 {
		t.Errorf("the guard still runs: %v, and it watches %d queries; want false and 0", g.looks, len(g.running))
	}
	s.nothingHeld(t)
}

// TestFullHeapEndsTheLargest fills the heap while three queries run. The shares of lanes do not count
// what the engine allocates for its results. Earlier, one query took 1.2 GB on a server with 500 MiB.
func TestFullHeapEndsTheLargest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := guarded(1<<20, map[string]int{"small": 100, "large": 10_000, "middle": 200})
		answers := map[string]chan *httptest.ResponseRecorder{}
		for _, name := range []string{"small", "large", "middle"} {
			done := make(chan *httptest.ResponseRecorder, 1)
			answers[name] = done
			steps := map[string]int{"small": 110, "large": 1000, "middle": 500}[name]
			go func() { done <- s.as(name, ranged(steps)) }()
		}
		time.Sleep(505 * time.Millisecond)
		h.allocated.Store(2 << 20) // garbage from before the queries
		time.Sleep(100 * time.Millisecond)
		for name, done := range answers {
			if len(done) > 0 {
				t.Fatalf("the query of %s ended too early: %s", name, (<-done).Body)
			}
		}
		h.live.Store(900 << 10)
		filled := time.Now()
		w := <-answers["large"]
		s.failedForHeap(t, "large", w)
		if took := time.Since(filled); took > 2*heapLook {
			t.Errorf("the largest query ended %v after the heap was full, want at most 100ms", took)
		}
		// The ended query's memory is garbage now. It must not make the guard end another query.
		h.garbage.Store(true)
		for _, name := range []string{"small", "middle"} {
			if w := <-answers[name]; w.Code != http.StatusOK {
				t.Errorf("query of %s: status %d %s", name, w.Code, w.Body)
			}
		}
		if got := s.failures(t, failedMemory); got != 1 {
			t.Errorf("%v failures were counted for the reason memory, want 1", got)
		}
		unwatched(t, s)
	})
}

// TestHeapThatStaysFull checks that the guard ends one query after another, and Freshet's own query
// last.
func TestHeapThatStaysFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := guarded(10_000, map[string]int{"a": 10_000, "b": 10_000, "freshet": 10_000})
		order := make(chan string, 3)
		go func() {
			s.failedForHeap(t, "a", s.as("a", ranged(200)))
			order <- "a"
		}()
		// A short query that the guard ends does not begin again as a long one.
		go func() {
			s.failedForHeap(t, "b", s.as("b", instant("x")))
			order <- "b"
		}()
		go func() {
			ctx := tenant.NewContext(t.Context(), "freshet")
			// This query is larger than b's.
			q, err := Own{s.options.Engine}.NewInstantQuery(ctx, s.options.Queryable, nil, `max_over_time(x[5m:1s])`,
				time.Unix(base, 0))
			if err != nil {
				t.Error(err)
				return
			}
			defer q.Close()
			if err := q.Exec(ctx).Err; err == nil || !strings.Contains(err.Error(), "nearly full") {
				t.Errorf("Freshet's own query got the error %v, want that the heap is nearly full", err)
			}
			order <- "own"
		}()
		time.Sleep(525 * time.Millisecond)
		h.live.Store(9000)
		if got := []string{<-order, <-order, <-order}; !slices.Equal(got, []string{"a", "b", "own"}) {
			t.Errorf("the queries ended in the order %v, want a, b, own", got)
		}
		if got := s.failures(t, failedMemory); got != 3 {
			t.Errorf("%v failures were counted for the reason memory, want 3", got)
		}
		if got := s.gathered(t, "freshet_query_wait_seconds", "long", ""); got != 1 {
			t.Errorf("%v long queries began, want 1, the query of tenant a", got)
		}
		unwatched(t, s)
	})
}

// TestFullHeapSparesSmallQueries checks that the guard ends no small query when other data fills the
// heap, because that would free nothing. A query with count_values is not small, because each of its
// steps may return other series.
func TestFullHeapSparesSmallQueries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := guarded(100<<20, map[string]int{"a": 40})
		h.live.Store(99 << 20)
		if w := s.as("a", ranged(1000)); w.Code != http.StatusOK {
			t.Errorf("a small query: status %d %s", w.Code, w.Body)
		}
		form := url.Values{
			"query": {`count(count_values("v", x))`}, "start": {fmt.Sprint(base)}, "end": {fmt.Sprint(base + 10)},
			"step": {"0.01"},
		}
		s.failedForHeap(t, "a", s.as("a", get(prefix+"/query_range", form)))
		unwatched(t, s)
	})
}
