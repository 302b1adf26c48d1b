package promapi

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// fakeSeries is a storage of `n` series, each with one sample, at the time `base`. Reading one
// series takes the time `each`.
func fakeSeries(n int, each time.Duration) selects {
	return func(context.Context) storage.SeriesSet { return &slowSet{n: n, each: each} }
}

type slowSet struct {
	storage.SeriesSet
	n    int
	each time.Duration
}

func (s *slowSet) Next() bool {
	if s.n == 0 {
		return false
	}
	s.n--
	<-time.After(s.each)
	return true
}

func (s *slowSet) At() storage.Series {
	return storage.NewListSeries(labels.FromStrings("__name__", "x", "i", fmt.Sprint(s.n)), []chunks.Sample{sample{}})
}

func (s *slowSet) Err() error                        { return nil }
func (s *slowSet) Warnings() annotations.Annotations { return nil }

type sample struct{ chunks.Sample }

func (sample) T() int64   { return base * 1000 }
func (sample) ST() int64  { return 0 }
func (sample) F() float64 { return 1 }

func (sample) Type() chunkenc.ValueType { return chunkenc.ValFloat }

// asTenant changes options so that a header names the tenant.
func asTenant(_ *Config, o *Options) {
	o.Tenant = func(r *http.Request) string { return r.Header.Get("Tenant-Of-This-Test") }
}

func (s *server) as(name string, r *http.Request) *httptest.ResponseRecorder {
	r.Header.Set("Tenant-Of-This-Test", name)
	return s.ask(r)
}

// ranged returns a query of x with this many steps, all of which see the one sample of x.
func ranged(steps int) *http.Request {
	return get(prefix+"/query_range",
		url.Values{
			"query": {"x"}, "start": {fmt.Sprint(base)}, "end": {fmt.Sprint(float64(base) + float64(steps-1)*0.01)},
			"step": {"0.01"},
		})
}

func instant(query string) *http.Request {
	return get(prefix+"/query", url.Values{"query": {query}, "time": {fmt.Sprint(base)}})
}

// nothingHeld checks that all turns were given back.
func (s *server) nothingHeld(t *testing.T) {
	t.Helper()
	lanes := s.options.Engine.lanes
	held := func(what string) func(string, int64, int) {
		return func(name string, used int64, waiting int) {
			t.Errorf("%s: tenant %s still holds %d, and %d requests wait", what, name, used, waiting)
		}
	}
	for _, l := range lanes.all() {
		l.slots.Each(held("slots of " + l.name))
		l.memory.Each(held("memory of " + l.name))
	}
	lanes.answers.Each(held("answers"))
}

// In TestTenantsTakeTurns, 60 queries of tenant `a` wait. Each takes a minute, and one query may run at
// a time. Earlier, queries ran in the order in which they came, so vector(1) of another tenant waited
// for all the queries before it.
func TestTenantsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ofTenant := selects(func(ctx context.Context) storage.SeriesSet {
			name, _ := tenant.FromContext(ctx)
			return &slowSet{n: map[string]int{"a": 600, "b": 50}[name], each: 100 * time.Millisecond}
		})
		s := newServer(ofTenant, asTenant, func(cfg *Config, _ *Options) {
			cfg.MaxConcurrency, cfg.Timeout = 1, 10*time.Hour
		})
		began := time.Now()
		var done sync.Map // when each query of tenant a ended
		for range 30 {
			for _, r := range []*http.Request{ranged(1000), instant("x")} {
				go func() {
					if w := s.as("a", r); w.Code != http.StatusOK {
						t.Errorf("a query of tenant a: %d %s", w.Code, w.Body)
					}
					done.Store(r, time.Now())
				}()
			}
		}
		<-time.After(30*time.Second + 350*time.Millisecond) // in the middle of a turn
		for _, c := range []struct {
			why string
			ask func() int
			max time.Duration
		}{
			{"a query that reads no series", func() int { return s.as("b", instant("vector(1)")).Code }, 0},
			{"Freshet's own", func() int {
				q, err := Own{s.options.Engine}.NewInstantQuery(tenant.NewContext(t.Context(), "a"), s.options.Queryable, nil,
					"vector(1)", time.Now())
				if err != nil {
					t.Fatal(err)
				}
				defer q.Close()
				if err := q.Exec(tenant.NewContext(t.Context(), "a")).Err; err != nil {
					t.Error(err)
				}
				return http.StatusOK
			}, 0},
			// This query takes 5 s alone. Before each of its turns it waits for a turn of tenant a,
			// and one turn of tenant a has already begun.
			{"a long query", func() int { return s.as("b", ranged(1000)).Code }, 12 * time.Second},
			// This query begins as a short query and continues as a long one.
			{"a short query that turns out long", func() int { return s.as("b", instant("x")).Code }, 12 * time.Second},
			{"series", func() int { return s.as("b", get(prefix+"/series", url.Values{"match[]": {"x"}})).Code },
				5 * time.Second},
		} {
			asked := time.Now()
			if status := c.ask(); status != http.StatusOK {
				t.Errorf("%s of tenant b: status %d", c.why, status)
			}
			if took := time.Since(asked); took > c.max {
				t.Errorf("%s of tenant b took %v beside 60 queries of tenant a, want at most %v", c.why, took, c.max)
			}
		}
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		s.nothingHeld(t)
		n := 0
		done.Range(func(_, at any) bool {
			// One query runs at a time: 60 queries of tenant a, a minute each, and two of tenant b.
			if n++; at.(time.Time).Sub(began) > 61*time.Minute {
				t.Errorf("a query of tenant a was done after %v, want at most 61m", at.(time.Time).Sub(began))
			}
			return true
		})
		if n != 60 {
			t.Errorf("%d queries of tenant a were done, want 60", n)
		}
	})
}

// TestQueue sends more queries of a tenant than may wait.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(fakeSeries(10, time.Second), asTenant, func(cfg *Config, _ *Options) {
			cfg.MaxConcurrency, cfg.MaxWaiting = 1, 2
		})
		var mu sync.Mutex
		statuses := map[int]int{}
		ask := func(name string) {
			go func() {
				w := s.as(name, ranged(1000))
				mu.Lock()
				statuses[w.Code]++
				mu.Unlock()
				if e := decode(t, w); w.Code == http.StatusTooManyRequests &&
					(e.ErrorType != "execution" || !strings.Contains(e.Error, "query.max_waiting")) {
					t.Errorf("the error does not name the setting: %+v", e)
				}
			}()
			synctest.Wait()
		}
		for range 5 {
			ask("a")
		}
		ask("b")
		time.Sleep(time.Minute)
		synctest.Wait()
		if statuses[http.StatusOK] != 4 || statuses[http.StatusTooManyRequests] != 2 {
			t.Errorf("the count of answers by status is %v, want 4 with 200 (three of tenant a, one of b) and 2 with "+
				"429 (of a)", statuses)
		}
		if got := s.failures(t, failedQueue); got != 2 {
			t.Errorf("%v were counted", got)
		}
		s.nothingHeld(t)
	})
}

// TestQueryMemory sends queries that need more memory than is available. Each error
// names the fix.
func TestQueryMemory(t *testing.T) {
	const mib = 1 << 20
	memory := func(bytes int) func(*Config, *Options) {
		return func(cfg *Config, _ *Options) { cfg.MaxConcurrency, cfg.MaxMemory = 1, conf.Bytes(bytes) }
	}
	for _, c := range []struct {
		why    string
		change func(*Config, *Options)
		series int
		r      *http.Request
		want   string // part of the error; empty if there is an answer
	}{
		// A long query has a share of 12 of the 64 MiB: room for 393,216 samples, and 6 MiB for series.
		{"all fits", memory(64 * mib), 100, ranged(1000), ""},
		{"the samples fit, and their JSON would not", memory(64 * mib), 300, ranged(1000), ""},
		{"too many samples", memory(64 * mib), 400, ranged(1000),
			"there is memory for 393216 at once; queries share 64 MiB (query.max_memory), and 1 long queries run at " +
				"once (query.max_concurrency): ask for fewer series"},
		{"too many samples for query.max_samples", func(cfg *Config, _ *Options) { cfg.MaxSamples = 1000 }, 100, ranged(1000),
			"more than 1000 at once (query.max_samples)"},
		{"the samples fit, but the answer does not", memory(64 * mib), 5000,
			instant(`label_replace(x, "long", "` + strings.Repeat("l", 2000) + `", "", "")`), "the answer takes more than its share of 12 MiB"},
		{"too many series", memory(64 * mib), 20_000, ranged(1), "the series and labels that the query reads take more than"},
		{"a short query begins again as a long one", memory(64 * mib), 2000, ranged(50), ""},
		{"too many series for a list of series",
			memory(64 * mib), 40_000, get(prefix+"/series", url.Values{"match[]": {"x"}}),
			"the series and labels that the query reads take more than its share of 8 MiB; " +
				"queries share 64 MiB (query.max_memory), and 2 requests for series, labels, exemplars or remote read run at " +
				"once (by query.max_memory, at most 10)"},
		{"too many samples for the limit of the machine, which the error names",
			func(*Config, *Options) {}, 400_000, instant("x"),
			"queries share 2048 MiB (a quarter of this test; query.max_memory overrides it)"},
	} {
		s := newServer(fakeSeries(c.series, 0), c.change)
		w := s.ask(c.r)
		switch e := decode(t, w); {
		case c.want == "" && w.Code != http.StatusOK:
			t.Errorf("%s: status %d %s", c.why, w.Code, e.Error)
		case c.want != "" &&
			(w.Code != http.StatusUnprocessableEntity || e.ErrorType != "execution" || !strings.Contains(e.Error, c.want)):
			t.Errorf("%s: status %d, %s %q, want %q", c.why, w.Code, e.ErrorType, e.Error, c.want)
		}
		if c.want != "" && !strings.HasPrefix(c.r.URL.Path, prefix+"/series") && s.failures(t, failedMemory) != 1 {
			t.Errorf("%s: the failure is not counted exactly once", c.why)
		}
		s.nothingHeld(t)
	}
}

// TestSharesAddUp checks that, with any settings, the lanes together never have more memory than the
// total.
func TestSharesAddUp(t *testing.T) {
	for _, concurrency := range []int{0, 1, 2, 20} {
		for _, bytes := range []int64{leastMemory, 125 << 20, 16 << 30} {
			cfg := DefaultConfig()
			cfg.MaxConcurrency = concurrency
			l := newLanes(cfg, Memory{Bytes: bytes})
			n := cfg.concurrency()
			most := l.long.share*(n+1) + l.short.share*(n+2) + l.own.share*(ownSlots+1) + l.lookup.share*l.lookup.count +
				bytes/16*answersPart
			if most > bytes {
				t.Errorf("with %d queries at once and %d bytes, the lanes can hold %d bytes", concurrency, bytes, most)
			}
			if n < 1 || n < 3 && l.short.share < 1<<18 {
				t.Errorf("with %d queries at once and %d bytes: got %d slots and %d bytes for a short query, want at "+
					"least 1 and 262144",
					concurrency, bytes, n, l.short.share)
			}
		}
	}
}

// TestWaitingIsSeen reads the metrics while one query runs and two wait.
func TestWaitingIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(fakeSeries(10, time.Second), asTenant, func(cfg *Config, _ *Options) { cfg.MaxConcurrency = 1 })
		for range 3 {
			go s.as("a", ranged(1000))
		}
		synctest.Wait()
		got := s.gathered(t, "freshet_query_waiting", "long", "a")
		if got != 2 {
			t.Errorf("%v wait, want 2", got)
		}
		if held := s.gathered(t, "freshet_query_held_bytes", "long", "a"); held !=
			float64(s.options.Engine.lanes.long.share) {
			t.Errorf("%v bytes are held, want one share", held)
		}
		time.Sleep(time.Minute)
		if got := s.gathered(t, "freshet_query_wait_seconds", "long", ""); got != 3 {
			t.Errorf("%v waits were timed, want 3", got)
		}
	})
}

// gathered returns the value of a metric of a lane and tenant, or the count of a histogram.
func (s *server) gathered(t *testing.T, name, lane, tenant string) float64 {
	t.Helper()
	families, err := s.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			of := map[string]string{}
			for _, l := range m.GetLabel() {
				of[l.GetName()] = l.GetValue()
			}
			if f.GetName() == name && of["lane"] == lane && of["tenant"] == tenant {
				return m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return 0
}

// Functions such as rate call LiveSample of a series set, and core/columns LiveAt. The metered storage
// wraps the set, so the wrapper must have these methods, too.
func TestMeteredSetsHaveLiveSamples(t *testing.T) {
	for _, c := range []struct {
		why  string
		set  storage.SeriesSet
		want int64
	}{
		{"live", liveAt{storage.EmptySeriesSet(), 7000, 10_000}, 10_000},
		{"stored", storage.EmptySeriesSet(), 0},
	} {
		q, err := metered{selects(func(context.Context) storage.SeriesSet { return c.set })}.Querier(0, 1)
		if err != nil {
			t.Fatal(err)
		}
		live, ok := q.Select(withTurn(t.Context(), &turn{}), false, nil).(LiveSet)
		if !ok {
			t.Fatalf("%s: the set does not implement LiveSet", c.why)
		}
		if width := live.LiveSample(labels.EmptyLabels(), 7000); width != c.want {
			t.Errorf("%s: the tiles before the live sample have width %d, want %d", c.why, width, c.want)
		}
		if at, ok := live.LiveAt(labels.EmptyLabels()); ok != (c.want > 0) || ok && at != 7000 {
			t.Errorf("%s: the live sample is at %d, %v", c.why, at, ok)
		}
	}
}

// stuckSeries takes some time between its first sample and the next. Meanwhile the query cannot pass
// its turn on, as in functions of long ranges and in subqueries.
type stuckSeries struct {
	storage.Series
	during func()
}

func (s stuckSeries) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	s.during()
	return s.Series.Iterator(it)
}

type stuckSet struct {
	slowSet
	during func()
}

func (s *stuckSet) At() storage.Series { return stuckSeries{s.slowSet.At(), s.during} }

// In TestStuckQuery, a query of tenant `a` computes for a minute without reaching its next series. More
// queries of `a` wait, and one may run at a time. Earlier, tenant `b` waited until such a query reached
// a series: a subquery over 20 days delayed vector(1) of tenant `b` by 19 s.
func TestStuckQuery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most int
		s := newServer(selects(func(ctx context.Context) storage.SeriesSet {
			if name, _ := tenant.FromContext(ctx); name != "a" {
				return &slowSet{n: 30, each: 100 * time.Millisecond} // 3 s
			}
			return &stuckSet{slowSet{n: 1}, func() {
				running++
				most = max(most, running)
				<-time.After(time.Minute)
				running--
			}}
		}), asTenant, func(cfg *Config, _ *Options) { cfg.MaxConcurrency, cfg.Timeout = 1, 10*time.Hour })
		for range 3 {
			go s.as("a", ranged(1000))
		}
		synctest.Wait()
		took := map[string]time.Duration{}
		var mu sync.Mutex
		ask := func(name string) {
			asked := time.Now()
			if w := s.as(name, ranged(1000)); w.Code != http.StatusOK {
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			}
			mu.Lock()
			took[name] += time.Since(asked)
			mu.Unlock()
		}
		go ask("b")
		synctest.Wait()
		go ask("c")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		lanes := s.options.Engine.lanes
		for name, want := range map[string]time.Duration{
			"b": longTurn + passTime + 3*time.Second,
			"c": longTurn + passTime + 6*time.Second, // the lane adds one slot, not two, and b gets it first
		} {
			if took[name] != want {
				t.Errorf("%s took %v, want %v", name, took[name], want)
			}
		}
		// All memory is in use, and no share is lent twice.
		lanes.long.memory.Each(func(name string, used int64, _ int) {
			if used > lanes.long.share {
				t.Errorf("%s holds %d bytes, more than one share of %d", name, used, lanes.long.share)
			}
		})
		time.Sleep(time.Hour)
		synctest.Wait()
		if most != 1 {
			t.Errorf("%d queries of tenant a ran at once, want 1", most)
		}
		s.nothingHeld(t)
		if lanes.long.slots.Wanted("") {
			t.Error("the lane has lent more memory than it has")
		}
	})
}

// In TestSlowShortQueries, the queries of tenants `a` and `c` begin as short ones and take all memory of
// short queries, but turn out long. In one case they read many series. In the other, a function computes
// for a long time. Earlier, vector(1) of tenant `b` waited for memory until those queries had ended or
// got a long slot.
func TestSlowShortQueries(t *testing.T) {
	for what, slow := range map[string]selects{
		"many series": fakeSeries(600, 100*time.Millisecond),
		"a function that computes for long": func(ctx context.Context) storage.SeriesSet {
			return &stuckSet{slowSet{n: 1}, func() {
				select { // like the engine between two steps
				case <-ctx.Done():
				case <-time.After(time.Minute):
				}
			}}
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(slow, asTenant, func(cfg *Config, _ *Options) { cfg.MaxConcurrency, cfg.Timeout = 1, 10*time.Hour })
				var done sync.WaitGroup
				for range 5 {
					for _, name := range []string{"a", "c"} {
						done.Go(func() {
							if w := s.as(name, instant("x")); w.Code != http.StatusOK {
								t.Errorf("%s of tenant %s: %d %s", what, name, w.Code, w.Body)
							}
						})
					}
					synctest.Wait()
				}
				for range 20 {
					time.Sleep(time.Second)
					asked := time.Now()
					if w := s.as("b", instant("vector(1)")); w.Code != http.StatusOK {
						t.Errorf("b: %d %s", w.Code, w.Body)
					}
					if took := time.Since(asked); took > 3*time.Second {
						t.Errorf("vector(1) of tenant b took %v beside queries of tenants a and c with %s, want at "+
							"most 3s", took, what)
					}
				}
				done.Wait()
				synctest.Wait()
				s.nothingHeld(t)
				// In the end each query ran: queries that began again ended in the long lane.
				if got := s.failures(t, failedTimeout) + s.failures(t, failedMemory); got != 0 {
					t.Errorf("%v queries were counted as failures", got)
				}
			})
		})
	}
}
