package window

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/series"
)

// lineAt returns a line whose exemplar is ms milliseconds after the window's second.
func lineAt(line string, ms int64) string { return fmt.Sprintf("%s,%d", line, second*1e3+ms) }

func TestASeriesKeepsTheNewestExemplarOfAWindow(t *testing.T) {
	for _, test := range []struct {
		why           string
		scale         float64
		lines         []string
		want          []string
		seen, refused uint64
	}{
		{why: "a line's exemplar, beside what the line counts", seen: 1,
			lines: []string{lineAt("a:2:4|d|@0.5|x:4bf92f3577b34da6a3ce929d0e0e4736,4", 123)},
			want:  []string{"timer a{} n=2 count=4 sum=12 x=4bf92f3577b34da6a3ce929d0e0e4736,4,+123ms"}},
		{why: "a line of buckets may have an exemplar, too", seen: 1,
			lines: []string{lineAt("a:h3,1.5,1;-5,2,3|nh|x:ab,0.5", 5)},
			want:  []string{"timer a{} n=1 count=6 sum=1.5 x=ab,0.5,+5ms"}},
		{why: "the newest by its own time, whichever comes last", seen: 3,
			lines: []string{lineAt("a:1|d|x:a,1", 5), lineAt("a:2|h|x:b,2", 9), lineAt("a:3|ms|x:c,3", 8)},
			want:  []string{"timer a{} n=3 count=3 sum=6 x=b,2,+9ms"}},
		{why: "of two exemplars at one time the later line's, even with a shorter id", seen: 2,
			lines: []string{lineAt("a:1|d|x:aaaaaaaa,1", 5), lineAt("a:2|d|x:b,2", 5)},
			want:  []string{"timer a{} n=2 count=2 sum=3 x=b,2,+5ms"}},
		{why: "lines without an exemplar leave it alone", seen: 1,
			lines: []string{"a:1|d", lineAt("a:1|d|x:a,1", 5), "a:1|d"},
			want:  []string{"timer a{} n=3 count=3 sum=3 x=a,1,+5ms"}},
		{why: "each series keeps an exemplar of its own", seen: 2,
			lines: []string{lineAt("a:1|d|x:a,1", 5), lineAt("a:1|d|#k:v|x:b,1", 7), "a:1|d|#k:w"},
			want: []string{
				"timer a{k:v} n=1 count=1 sum=1 x=b,1,+7ms", "timer a{k:w} n=1 count=1 sum=1",
				"timer a{} n=1 count=1 sum=1 x=a,1,+5ms",
			}},
		{why: "a rule's scale applies to its value", scale: 0.001, seen: 1,
			lines: []string{lineAt("a:2000|ms|x:a,2000", 5)}, want: []string{"timer a{} n=1 count=1 sum=2 x=a,2,+5ms"}},
		{why: "an exemplar that the scale makes infinite is refused alone", scale: 1000, refused: 1,
			lines: []string{lineAt("a:1|ms|x:a,1e308", 5)}, want: []string{"timer a{} n=1 count=1 sum=1000"}},
		{why: "a refused line's exemplar does not count", seen: 1,
			lines: []string{lineAt("a:1|d|x:a,1", 5), lineAt("a:1e308|d|@0.1|x:b,1", 9)},
			want:  []string{"1 refused", "timer a{} n=1 count=1 sum=1 x=a,1,+5ms"}},
		{why: "an exemplar may be 10 minutes ahead; one further ahead would stay the newest for long", seen: 2, refused: 1,
			lines: []string{
				lineAt("a:1|d|x:a,1", 600_500), lineAt("b:1|d|x:b,1", 600_501), lineAt("c:1|d|x:c,1", -second*1e3+1),
			},
			want: []string{
				"timer a{} n=1 count=1 sum=1 x=a,1,+600500ms",
				"timer b{} n=1 count=1 sum=1", fmt.Sprintf("timer c{} n=1 count=1 sum=1 x=c,1,%dms", 1-second*1000),
			}},
	} {
		t.Run(test.why, func(t *testing.T) {
			table := New(&resolver{scale: test.scale}, Options{})
			table.Start(at(0))
			send(t, table, at(0.5), test.lines...)
			expect(t, flush(t, table, at(1)), test.want...)
			if s := table.Stats(); s.Exemplars != test.seen || s.ExemplarsRefused != test.refused {
				t.Errorf("%d exemplars, %d refused, want %d exemplars, %d refused",
					s.Exemplars, s.ExemplarsRefused, test.seen, test.refused)
			}
		})
	}
}

// An exemplar belongs to one window. Every second window uses the same memory. Such a window never shows
// the old exemplar, even if its own exemplar is older or it has none.
func TestAnExemplarDoesNotStayForTheNextWindow(t *testing.T) {
	table := New(&resolver{policy: &series.Policy{Schema: 3, MaxBuckets: 160, Bounds: []float64{1}}},
		Options{IdleWindows: 300})
	table.Start(at(0))
	for window, test := range []struct{ line, want string }{
		{"|x:a,1,900", " x=a,1,900"}, {"", ""}, {"", ""}, {"|x:b,2,800", " x=b,2,800"}, {"|x:c,3,700", " x=c,3,700"},
		{"", ""}, {"|x:d,4,600", " x=d,4,600"},
	} {
		send(t, table, at(float64(window)), "a:1|d"+test.line)
		w, _ := table.Close(at(float64(window) + 1))
		increments(t, w, func(inc *batch.Increment) {
			got := ""
			if x := inc.Exemplar; x != nil {
				got = fmt.Sprintf(" x=%s,%g,%d", x.Trace.String(), x.Value, x.Time)
			}
			if got != test.want {
				t.Errorf("window %d:%s, want%s", window, got, test.want)
			}
		})
	}
}

// The table does not touch a window until the flusher gives it back.
func TestAnExemplarWaitsWithItsWindow(t *testing.T) {
	table := New(&resolver{}, Options{IdleWindows: 300})
	table.Start(at(0))
	send(t, table, at(0), "a:1|d|x:a,1,100")
	w, _ := table.Close(at(1))
	send(t, table, at(1), "a:1|d|x:b,2,200")
	if _, ok := table.Close(at(2)); ok {
		t.Fatal("the table got a window back before it was flushed")
	}
	send(t, table, at(2), "a:1|d|x:c,3,150")
	var traces []string
	for _, w := range []*Window{w, nil} {
		if w == nil {
			w, _ = table.Close(at(3))
		}
		increments(t, w, func(inc *batch.Increment) { traces = append(traces, inc.Exemplar.Trace.String()) })
	}
	expect(t, traces, "a", "b")
}

// The exemplar of a folded line belongs to the overflow series.
func TestAnExemplarOfASeriesWithoutAPlace(t *testing.T) {
	tenant := limit.New(limit.Config{MaxSeries: 1}, time.Minute, time.Hour).Tenant("default")
	table := New(&resolver{}, Options{IdleWindows: 300, Limits: tenant})
	table.Start(at(0))
	send(t, table, at(0.5), "a:1|d", lineAt("a:2|d|#k:v|x:ab,2", 5))
	expect(t, flush(t, table, at(1)), "timer a{overflow} n=1 count=1 sum=2 x=ab,2,+5ms", "timer a{} n=1 count=1 sum=1")
}

// A window with an exemplar allocates no more memory than any other.
func TestExemplarsDoNotAllocate(t *testing.T) {
	table := New(&resolver{}, Options{IdleWindows: 300})
	table.Start(at(0))
	lines := []byte("a:1|d|x:4bf92f3577b34da6a3ce929d0e0e4736,1,1763680000123\nb:h3,1,0;1,1|nh|x:ab,1,5\na:2|d|x:cd,2,6")
	lines = append(make([]byte, 0, 512), lines...)
	var p dogstatsd.Parser
	var out batch.Writer
	now, tenant := at(0), []byte("default")
	window := func() {
		p.Reset(lines)
		for p.Next() != dogstatsd.End {
			table.Metric(&p.Metric, now)
		}
		now += 1e9
		w, _ := table.Close(now)
		out.Begin(batch.Header{Tenant: tenant, Second: w.Second})
		w.Flush(&out, math.MaxInt)
		out.End()
	}
	window()
	window()
	if n := testing.AllocsPerRun(100, window); n != 0 {
		t.Errorf("%v allocations a window", n)
	}
}
