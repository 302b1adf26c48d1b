package window

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/series"
)

// limited returns a table with limits, and the tenant to which the limits belong.
func limited(r Resolver, c limit.Config) (*Table, *limit.Tenant) {
	tenant := limit.New(c, 5*time.Minute, time.Hour).Tenant("default")
	table := New(r, Options{IdleWindows: 300, Limits: tenant})
	table.Start(at(0))
	return table, tenant
}

func TestWhatIsOverALimit(t *testing.T) {
	classic := &series.Policy{Schema: 3, MaxBuckets: 160, Bounds: []float64{1, 10}}
	fine := &series.Policy{Schema: 8, MaxBuckets: 10}
	for _, test := range []struct {
		why     string
		config  limit.Config
		policy  *series.Policy
		lines   []string
		want    []string
		folded  uint64
		refused uint64
	}{
		{why: "counters add up in the overflow series of their metric", config: limit.Config{MaxSeriesPerMetric: 1},
			lines:  []string{"a:1|c|#x:0", "a:2:3|c|#x:1", "a:4|c|#x:2|@0.5", "a:1|c|#x:0"},
			want:   []string{"counter a{overflow} n=3 13", "counter a{x:0} n=2 2"},
			folded: 3},
		{why: "negative increments are refused as ever", config: limit.Config{MaxSeriesPerMetric: 1},
			lines:  []string{"a:1|c|#x:0", "a:-2|c|#x:1", "a:-2:3|c|#x:1", "a:-2|c|#x:1"},
			want:   []string{"counter a{overflow} n=1 3", "counter a{x:0} n=1 1"},
			folded: 1},
		{why: "counts with a time of their own keep it", config: limit.Config{MaxSeriesPerMetric: 1},
			lines:  []string{"a:1|c|#x:0", fmt.Sprintf("a:2|c|#x:1|T%d", second-9), fmt.Sprintf("a:3|c|#x:2|T%d", second-9)},
			want:   []string{"counter a{overflow} n=2 5 T=-9", "counter a{x:0} n=1 1"},
			folded: 2},
		{why: "up/down counters add up in the overflow series, too", config: limit.Config{MaxSeriesPerMetric: 1},
			lines:  []string{"up.a:1|c|#x:0", "up.a:-2|c|#x:1", "up.a:-2:3|c|#x:1"},
			want:   []string{"updown up.a{overflow} n=3 -1", "updown up.a{x:0} n=1 1"},
			folded: 3},
		{why: "sets are merged", config: limit.Config{MaxSeriesPerMetric: 1},
			lines:  []string{"a:u|s|#x:0", "a:v|s|#x:1", "a:w|s|#x:2", "a:v|s|#x:3"},
			want:   []string{"set a{overflow} n=3 distinct=2", "set a{x:0} n=1 distinct=1"},
			folded: 3},
		{why: "timers of several resolutions fold into one", config: limit.Config{MaxSeriesPerMetric: 1}, policy: fine,
			lines:  []string{"a:1|ms|#x:0", "a:2|ms|#x:1", "a:3|ms|#x:2"},
			want:   []string{"timer a{overflow} n=2 count=2 sum=5", "timer a{x:0} n=1 count=1 sum=1"},
			folded: 2},
		{why: "classic buckets keep their bounds", config: limit.Config{MaxSeriesPerMetric: 1}, policy: classic,
			lines:  []string{"a:1|ms|#x:0", "a:2|ms|#x:1", "a:30|ms|#x:2"},
			want:   []string{"timer a{overflow} n=2 classic=[0 1 1] sum=32", "timer a{x:0} n=1 classic=[1 0 0] sum=1"},
			folded: 2},
		{why: "classic buckets of many metrics have nothing in common", config: limit.Config{MaxSeries: 1}, policy: classic,
			lines: []string{"a:1|ms|#x:0", "b:2|ms|#x:1", "c:30|ms|#x:2"},
			want: []string{
				"timer a{x:0} n=1 classic=[1 0 0] sum=1", "timer freshet_overflow_timer{overflow} n=2 count=2 sum=32",
			},
			folded: 2},
		{why: "a flood of names folds by kind", config: limit.Config{MaxSeries: 1},
			lines: []string{"a:1|c", "b:1|c", "c:2|c", "d:1|s"},
			want: []string{
				"counter a{} n=1 1", "counter freshet_overflow_counter{overflow} n=2 3",
				"set freshet_overflow_set{overflow} n=1 distinct=1",
			},
			folded: 3},
		{why: "gauges and checks are refused, known ones go on", config: limit.Config{MaxSeries: 2},
			lines:   []string{"a:1|g", "_sc|up|0", "b:7:8|g", "_sc|down|2", "a:2|g", "_sc|up|1"},
			want:    []string{"check up{} n=2 1", "gauge a{} n=2 2"},
			refused: 3},
	} {
		t.Run(test.why, func(t *testing.T) {
			table, _ := limited(&resolver{policy: test.policy}, test.config)
			for window := range 2 {
				send(t, table, at(float64(window)+0.5), test.lines...)
				var want []string
				for _, line := range test.want {
					if head, time, ok := strings.Cut(line, "T=-9"); ok {
						line = fmt.Sprintf("%sT=%+d%s", head, -9-window, time)
					}
					want = append(want, line)
				}
				expect(t, flush(t, table, at(float64(window)+1)), want...)
			}
			s := table.Stats()
			refused := s.LimitRefused[limit.MetricSeries] + s.LimitRefused[limit.TenantSeries] + s.LimitRefused[limit.NewSeries]
			if s.Folded != 2*test.folded || refused != 2*test.refused {
				t.Errorf("%+v", s)
			}
		})
	}
}

// Two tables of a tenant share the places. A table that gives up all its places for a reload leaves
// them to its successor.
func TestTablesShareThePlaces(t *testing.T) {
	one, tenant := limited(&resolver{}, limit.Config{MaxSeries: 2, MaxNewSeriesPerMinute: 2})
	two := New(&resolver{}, Options{IdleWindows: 300, Limits: tenant})
	two.Start(at(0))
	send(t, one, at(0.1), "a:1|g", "b:1|g")
	send(t, two, at(0.2), "a:2|g", "c:2|g")
	expect(t, flush(t, two, at(1)), "gauge a{} n=1 2")
	last, _ := one.Close(at(1))
	expect(t, render(t, last), "gauge a{} n=1 1", "gauge b{} n=1 1")
	one.Release(at(1))
	next := New(&resolver{}, Options{IdleWindows: 300, Limits: tenant})
	next.Start(at(1))
	send(t, next, at(1.5), "b:3|g", "c:3|g")
	expect(t, flush(t, next, at(2)), "gauge b{} n=1 3")
}

// The flood that begins in window 1 takes all places. After it, one whole window passes with nothing
// over the limit. In the next window newcomers have a place. Series that are measured all the time keep
// their places.
func TestRecoveryWithinTwoWindows(t *testing.T) {
	table, tenant := limited(&resolver{}, limit.Config{MaxSeriesPerMetric: 100})
	flood := func(window, from int) {
		for id := from; id < from+500; id++ {
			send(t, table, at(float64(window)+0.5), fmt.Sprintf("a:1|c|#id:%d", id))
		}
	}
	closed := func(window int) string { return strings.Join(flush(t, table, at(float64(window)+1)), "\n") }
	steady := []string{"a:1|c|#steady", "b:1|c|#passing", "a:1|c|#twice"}
	send(t, table, at(0.5), steady...)
	closed(0)
	send(t, table, at(1.05), steady[2])
	for window := 1; window <= 4; window++ { // during the flood no place is given up
		send(t, table, at(float64(window)+0.1), steady[0])
		flood(window, window*1000)
		closed(window)
		if r := tenant.Report(at(float64(window))); r.Series != 101 {
			t.Fatalf("during the flood, %d series have a place in window %d, want 101", r.Series, window)
		}
	}
	send(t, table, at(5.5), steady[0]) // the first window after the flood
	closed(5)
	if r := tenant.Report(at(6)); r.Series != 3 { // b was under the limit, "twice" came twice: both stay
		t.Errorf("after the flood, %d series have a place, want 3", r.Series)
	}
	send(t, table, at(6.5), steady[0], "a:7|c|#new")
	if got := closed(6); got != "counter a{new} n=1 7\ncounter a{steady} n=1 1" {
		t.Errorf("in the second window after the flood: got\n%s\nwant the new series and the steady one", got)
	}
}

// An operator who reads of a flood in the log may reload or restart in the middle of it. That does not
// delay the recovery. Passers-by leave even if only the previous table held them. Series that are
// measured all the time keep their places.
func TestRecoveryWithinTwoWindowsOfAReload(t *testing.T) {
	for _, way := range []string{"reload", "restart"} {
		t.Run(way, func(t *testing.T) {
			table, tenant := limited(&resolver{}, limit.Config{MaxSeriesPerMetric: 100})
			steady := "a:1|c|#steady"
			flood := func(window int) {
				send(t, table, at(float64(window)+0.1), steady)
				for id := range 500 {
					send(t, table, at(float64(window)+0.5), fmt.Sprintf("a:1|c|#id:%d", 500*window+id))
				}
				flush(t, table, at(float64(window)+1))
			}
			flood(0)
			flood(1)
			if way == "reload" {
				table.Release(at(2))
			} else {
				before := tenant
				tenant = limit.New(limit.Config{MaxSeriesPerMetric: 100}, 5*time.Minute, time.Hour).Tenant("default")
				for _, key := range before.Keys() {
					tenant.Load(at(2), at(2), key, 0)
				}
			}
			table = New(&resolver{}, Options{IdleWindows: 300, Limits: tenant})
			table.Start(at(2))
			flood(2)
			if r := tenant.Report(at(3)); r.Series != 100 {
				t.Fatalf("during the flood, %d series have a place, want 100", r.Series)
			}
			send(t, table, at(3.5), steady)
			flush(t, table, at(4))
			send(t, table, at(4.5), steady, "a:7|c|#new")
			if got := strings.Join(flush(t, table, at(5)), "\n"); got != "counter a{new} n=1 7\ncounter a{steady} n=1 1" {
				t.Errorf("in the second window after the flood: got\n%s\nwant the new series and the steady one", got)
			}
		})
	}
}

// A slow disk stretches a window. If a flood came in the window's first moment, the window does not
// count as quiet, however long it is. The flood's passers-by used to stay until they were idle.
func TestRecoveryFromAFloodInALongWindow(t *testing.T) {
	table, _ := limited(&resolver{}, limit.Config{MaxSeries: 10})
	for id := range 100 {
		send(t, table, at(0), fmt.Sprintf("a:1|c|#id:%d", id))
	}
	flush(t, table, at(3))
	if s := table.Stats(); s.Series != 10 {
		t.Errorf("before a quiet window, %d series have a place, want 10", s.Series)
	}
	flush(t, table, at(4))
	if s := table.Stats(); s.Series != 0 {
		t.Errorf("after a quiet window, %d series have a place, want 0", s.Series)
	}
}

// The reader waits while passers-by leave, so only a bounded number leaves in each window.
func TestRecoveryTakesItsTime(t *testing.T) {
	table, _ := limited(&resolver{}, limit.Config{MaxSeries: 2*leaveMost + 10})
	for id := range 2*leaveMost + 11 {
		send(t, table, at(0.5), fmt.Sprintf("a:1|c|#id:%d", id))
	}
	flush(t, table, at(1))
	for window, want := range []uint64{leaveMost + 10, 10, 0} {
		flush(t, table, at(float64(window)+2))
		if s := table.Stats(); s.Series != want {
			t.Errorf("after quiet window %d: %d series, want %d", window, s.Series, want)
		}
	}
}

// The same bound holds for series without a holder. After a restart no series has a holder, and the
// reader used to wait until a million of them had left.
func TestRecoveryOfTheUnclaimedTakesItsTime(t *testing.T) {
	const restored = 2*leaveMost + 10
	table, tenant := limited(&resolver{}, limit.Config{MaxSeries: restored})
	for id := range restored {
		tenant.Load(at(0), at(0),
			series.AppendKey(nil, series.Counter, labels.FromStrings("__name__", "a", "id", fmt.Sprint(id))), 0)
	}
	send(t, table, at(0.5), "a:1|c|#new")
	flush(t, table, at(1))
	for window, want := range []int{leaveMost + 10, 10, 0, 0} {
		flush(t, table, at(float64(window)+2))
		if r := tenant.Report(at(float64(window) + 2)); r.Series != want {
			t.Errorf("after quiet window %d: %d series, want %d", window, r.Series, want)
		}
	}
	if tenant.Over() != table.recovered {
		t.Error("the recovery does not end")
	}
}

func TestWhoComesAfterAFloodIsNoPasserBy(t *testing.T) {
	table, tenant := limited(&resolver{}, limit.Config{MaxNewSeriesPerMinute: 60})
	for id := range 100 {
		send(t, table, at(0.5), fmt.Sprintf("a:1|c|#id:%d", id))
	}
	flush(t, table, at(1))
	send(t, table, at(1.6), "a:1|c|#after") // by now the limit allows one more series
	flush(t, table, at(2))
	if r := tenant.Report(at(2)); r.Series != 1 || table.Stats().Series != 1 {
		t.Errorf("%d series have a place, want 1: the one that came after the flood", r.Series)
	}
}

// Rules may give timers of one metric native histograms of several resolutions. The overflow series of
// that metric has a resolution of its own.
func TestAnOverflowSeriesHasOnePolicy(t *testing.T) {
	r := &resolver{policy: &series.Policy{Schema: 8, MaxBuckets: 10}}
	table, _ := limited(r, limit.Config{MaxSeriesPerMetric: 1})
	send(t, table, at(0.1), "a:1|ms|#x:0", "a:1|ms|#x:1")
	r.policy = &series.Policy{Schema: -4, MaxBuckets: 160}
	send(t, table, at(0.2), "a:1|ms|#x:2")
	for _, number := range table.overflows {
		o := table.records.at(number)
		if policy := table.policies[o.policy()]; policy.Policy != &series.DefaultPolicy || o.samples[0] != 2 {
			t.Errorf("%+v of %d samples", policy, o.samples[0])
		}
	}
}

func TestAFloodLeavesNothingInTheTable(t *testing.T) {
	table, _ := limited(&resolver{drop: "debug"}, limit.Config{MaxSeries: 10})
	for i := range 20_000 {
		send(t, table, at(0.5), fmt.Sprintf("a:1|c|#id:%d", i), fmt.Sprintf("n%d:1|c", i), fmt.Sprintf("g:1|g|#id:%d", i),
			fmt.Sprintf("debug:1|c|#id:%d", i))
	}
	flush(t, table, at(1))
	if s := table.Stats(); s.Series != 10 || s.Contexts != 10+maxDropped || s.Dropped != 20_000 ||
		len(table.overflows) != 2 {
		t.Errorf("%+v, %d overflow series; want 10 series, 2 overflow series", s, len(table.overflows))
	}
	for window := 1; window < 300+2*sweepShare; window++ {
		flush(t, table, at(float64(window)+1))
	}
	if s := table.Stats(); s.Contexts != 0 || table.dropped != 0 || len(table.overflows) != 0 {
		t.Errorf("after all series were idle: %+v, %d dropped, %d overflow series, want none",
			s, table.dropped, len(table.overflows))
	}
}

// Overflow series become idle together when a flood ends. The reader used to wait until all had
// left: 48 ms for the overflow series of 100,000 metrics.
func TestIdleOverflowsTakeTheirTime(t *testing.T) {
	const metrics = 2 * leaveMost
	table, _ := limited(&resolver{}, limit.Config{MaxSeriesPerMetric: 1})
	table.options.IdleWindows = 10
	var lines []string
	for i := range metrics {
		lines = append(lines, fmt.Sprintf("m%d:1|c|#v:1", i), fmt.Sprintf("m%d:1|c|#v:2", i))
	}
	send(t, table, at(0.5), lines...)
	left := metrics
	for window := range 10 + 2*sweepShare {
		if w, _ := table.Close(at(float64(window) + 1)); w != nil {
			increments(t, w, func(*batch.Increment) {})
		}
		if gone := left - len(table.overflows); gone > 2*metrics/sweepShare+1 {
			t.Fatalf("%d overflow series left at once, want at most %d", gone, 2*metrics/sweepShare+1)
		}
		left = len(table.overflows)
	}
	if left != 0 || len(table.overflowNames) != 0 {
		t.Errorf("after all series were idle, %d overflow series and %d of their names are left, want none",
			left, len(table.overflowNames))
	}
}

// A million unique labels over the limit cost at most 5 % more memory than the series that the limit
// allows. The two compared tables have seen the same number of windows.
func TestAFloodTakesNoMemory(t *testing.T) {
	const allowed, flood = 10_000, 300_000
	heap := func(lines int) (bytes uint64) {
		before := heapInUse()
		table, tenant := limited(&resolver{}, limit.Config{MaxSeriesPerMetric: allowed})
		var p dogstatsd.Parser
		var out batch.Writer
		for i := range lines {
			p.Reset(fmt.Appendf(nil,
				"http.requests:1|c|#env:production,region:eu-west-1,request:%08x-1f2e-4d3c-8b7a-0123456789ab", i))
			for p.Next() == dogstatsd.MetricLine {
				table.Metric(&p.Metric, at(0.5))
			}
			if i%(lines/10) == 0 {
				if w, _ := table.Close(at(1 + float64(i/(lines/10))/100)); w != nil {
					out.Begin(batch.Header{Tenant: []byte("default"), Second: w.Second})
					w.Flush(&out, math.MaxInt)
				}
			}
		}
		out = batch.Writer{}
		bytes = heapInUse() - before
		if r := tenant.Report(at(1)); r.Series != allowed {
			t.Fatalf("%d series", r.Series)
		}
		runtime.KeepAlive(table)
		return bytes
	}
	full, flooded := heap(allowed), heap(flood)
	t.Logf("%d series: %d bytes; after a flood of %d: %d bytes, %+.2f %%",
		allowed, full, flood, flooded, 100*(float64(flooded)/float64(full)-1))
	if float64(flooded) > 1.05*float64(full) {
		t.Errorf("%d bytes after the flood, want at most 5 %% more than %d", flooded, full)
	}
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A client that keeps changing the order of its tags uses spellings that are not remembered. Its
// series is still measured and keeps its place.
func TestARespelledSeriesKeepsItsPlace(t *testing.T) {
	const others = 999 // with so many, one window checks all spellings of the series
	table, tenant := limited(&resolver{}, limit.Config{MaxSeries: others + 1})
	table.resolver = &sorting{}
	table.options.IdleWindows = 10
	for window := range 200 {
		for i := range others {
			send(t, table, at(float64(window)+0.4), fmt.Sprintf("other%d:1|c", i))
		}
		for i := range 10 { // no spelling comes again, not even the eight remembered ones
			send(t, table, at(float64(window)+0.5), fmt.Sprintf("g:%d|g|#a,%s", window, strings.Repeat("b,", 1+i+10*window)))
		}
		flush(t, table, at(float64(window)+1))
		if v := tenant.Admit(at(float64(window)+1.1),
			&limit.Claim{Key: series.AppendKey(nil, series.Gauge, labels.FromStrings("__name__", "h"))}); v.Fate !=
			limit.Refused {
			t.Fatalf("after window %d, another series got a place, but all places are in use", window)
		}
	}
}

// sorting resolves every context of a name to one series.
type sorting struct{ resolver }

func (s *sorting) ResolveMetric(m *dogstatsd.Metric) Resolution {
	other := *m
	other.Tags = nil
	return s.resolver.ResolveMetric(&other)
}

// The limits count series, so they also bound the size of a series. A longer context gets no place and
// is not remembered, even if it is another spelling of a series that has a place.
func TestALongSeriesHasNoPlace(t *testing.T) {
	table, tenant := limited(&sorting{}, limit.Config{MaxSeriesBytes: 100})
	long := strings.Repeat("x", 200)
	send(t, table, at(0.5), "a:1|c|#"+long, "b:1|c", "b:2|c|#"+long, "c:1|g|#"+long)
	expect(t, flush(t, table, at(1)), "counter b{} n=2 3", "counter freshet_overflow_counter{overflow} n=1 1")
	s := table.Stats()
	if s.Contexts != 1 || s.Series != 1 || s.Folded != 1 || s.LimitRefused[limit.SeriesBytes] != 1 || s.Respellings != 1 {
		t.Errorf("%+v", s)
	}
	if r := tenant.Report(at(1)); r.Series != 1 || r.Folded[limit.SeriesBytes] != 1 {
		t.Errorf("%+v", r)
	}
}

// A counter whose increments are all refused takes no place, so another series can have it.
func TestWhatIsRefusedTakesNoPlace(t *testing.T) {
	table, tenant := limited(&resolver{}, limit.Config{MaxSeries: 1})
	send(t, table, at(0.5), "a:-1|c|#x", "b:1|g")
	expect(t, flush(t, table, at(1)), "gauge b{} n=1 1")
	if s, r := table.Stats(), tenant.Report(at(1)); s.Negative != 1 || s.Series != 1 || r.Series != 1 {
		t.Errorf("%+v, %d series", s, r.Series)
	}
}

// A listener forgets an idle up/down counter. Its place stays taken, because the total is kept.
func TestAnIdleUpDownCounterKeepsItsPlace(t *testing.T) {
	for _, c := range []struct {
		name string
		want int // series
	}{{"up.a", 1}, {"a", 0}} {
		table, tenant := limited(&resolver{}, limit.Config{})
		table.options.IdleWindows = 2
		send(t, table, at(0.5), c.name+":1|c")
		for second := 1.0; second < 200; second++ {
			flush(t, table, at(second))
		}
		if s, r := table.Stats(), tenant.Report(at(200)); s.Series != 0 || r.Series != c.want {
			t.Errorf("%s: the table has %d series, the tenant %d, want 0, %d", c.name, s.Series, r.Series, c.want)
		}
	}
}
