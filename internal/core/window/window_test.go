package window

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/series"
)

// resolver makes a series of a name and its sorted tags.
type resolver struct {
	asked  int
	drop   string
	policy *series.Policy
	scale  float64 // 0 stands for 1
}

var kinds = map[dogstatsd.Type]series.Kind{
	dogstatsd.Count: series.Counter, dogstatsd.Gauge: series.Gauge, dogstatsd.Timing: series.Timer,
	dogstatsd.Histogram: series.Timer, dogstatsd.Distribution: series.Timer, dogstatsd.Set: series.Set,
	dogstatsd.Buckets: series.Timer,
}

func (r *resolver) resolve(kind series.Kind, name, tags []byte) Resolution {
	r.asked++
	if string(name) == r.drop {
		return Resolution{Drop: true}
	}
	parts := strings.Split(string(tags), ",")
	slices.Sort(parts)
	b := labels.NewBuilder(labels.FromStrings("__name__", string(name)))
	b.Set("tags", strings.Join(parts, ",")) // an empty label is no label
	key := series.AppendKey(nil, kind, b.Labels())
	policy := &series.DefaultPolicy
	if r.policy != nil {
		policy = r.policy
	}
	return Resolution{Key: key, Shard: series.Shard("default", key), Policy: policy, Scale: cmp.Or(r.scale, 1)}
}

func (r *resolver) ResolveMetric(m *dogstatsd.Metric) Resolution {
	if r.UpDown(m) {
		return r.resolve(series.UpDown, m.Name, m.Tags)
	}
	return r.resolve(kinds[m.Type], m.Name, m.Tags)
}

// UpDown reports true for counts whose names begin with "up.".
func (r *resolver) UpDown(m *dogstatsd.Metric) bool {
	return m.Type == dogstatsd.Count && bytes.HasPrefix(m.Name, []byte("up."))
}

func (r *resolver) ResolveCheck(c *dogstatsd.Check) Resolution {
	return r.resolve(series.Check, c.Name, c.Tags)
}

// ResolveOverflow gives overflow series the tag "overflow".
func (r *resolver) ResolveOverflow(kind series.Kind, name string, policy *series.Policy) Resolution {
	if name == "" {
		name = "freshet_overflow_" + kind.String()
	}
	key := series.AppendKey(nil, kind, labels.FromStrings("__name__", name, "tags", "overflow"))
	return Resolution{Key: key, Shard: series.Shard("default", key), Policy: policy, Scale: 1}
}

const second = 1_763_680_000

// at returns the time `seconds` after `second`, in Unix nanoseconds.
func at(seconds float64) int64 { return second*1e9 + int64(seconds*1e9) }

// Metric counts one metric as Metrics does, without prefetching.
func (t *Table) Metric(m *dogstatsd.Metric, now int64) {
	t.countMetric(t.hashOf(byte(m.Type), m.Name, m.Tags, t.rest(nil, &m.Origin)), m, now)
}

// send parses lines and counts them as read at `now`.
func send(t testing.TB, table *Table, now int64, lines ...string) {
	t.Helper()
	var p dogstatsd.Parser
	p.Reset([]byte(strings.Join(lines, "\n")))
	for {
		switch p.Next() {
		case dogstatsd.MetricLine:
			table.Metric(&p.Metric, now)
		case dogstatsd.CheckLine:
			table.Check(&p.Check, now)
		case dogstatsd.End:
			return
		}
	}
}

// flush closes the window at `now` and returns its increments, one line each.
func flush(t testing.TB, table *Table, now int64) []string {
	t.Helper()
	w, ok := table.Close(now)
	if !ok {
		t.Fatal("the last window is still with the flusher")
	}
	if w == nil {
		return nil
	}
	lines := render(t, w)
	if refused := table.stats.Overflowed; refused > 0 {
		table.stats.Overflowed = 0
		lines = slices.Insert(lines, 0, fmt.Sprintf("%d refused", refused)) // digits sort first
	}
	return lines
}

func render(t testing.TB, w *Window) []string {
	t.Helper()
	var out batch.Writer
	out.Begin(batch.Header{Tenant: []byte("default"), Second: w.Second, Birth: w.Birth})
	w.Flush(&out, math.MaxInt)
	var lines []string
	for _, b := range out.End() {
		var r batch.Reader
		if err := r.Reset(b.Bytes); err != nil {
			t.Fatal(err)
		}
		for inc := r.Next(); inc != nil; inc = r.Next() {
			lines = append(lines, describe(t, inc, w.Second))
		}
		if r.Err() != nil {
			t.Fatal(r.Err())
		}
	}
	slices.Sort(lines)
	return lines
}

func describe(t testing.TB, inc *batch.Increment, windowSecond int64) string {
	t.Helper()
	kind, ls, err := series.ParseKey(inc.Key)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s{%s} n=%d", kind, ls.Get("__name__"), ls.Get("tags"), inc.Samples)
	switch {
	case inc.Classic != nil:
		fmt.Fprintf(&b, " classic=%v sum=%g", inc.Classic, inc.Sum)
	case inc.Timer != nil:
		fmt.Fprintf(&b, " count=%g sum=%g", inc.Timer.Count, inc.Timer.Sum)
	case inc.Set != nil:
		fmt.Fprintf(&b, " distinct=%d", inc.Set.Len())
	case inc.Relative:
		fmt.Fprintf(&b, " change=%g", inc.Value)
	default:
		fmt.Fprintf(&b, " %g", inc.Value)
	}
	if inc.Time != 0 {
		fmt.Fprintf(&b, " T=%+d", inc.Time-windowSecond)
	}
	if x := inc.Exemplar; x != nil {
		fmt.Fprintf(&b, " x=%s,%g,%+dms", x.Trace.String(), x.Value, x.Time-windowSecond*1e3)
	}
	return b.String()
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestHowValuesCombine(t *testing.T) {
	classic := &series.Policy{Schema: 3, MaxBuckets: 160, Bounds: []float64{1, 10}}
	for _, test := range []struct {
		why     string
		options Options
		policy  *series.Policy
		lines   []string
		want    []string
	}{
		{why: "counters add up, corrected for their sampling rate",
			lines: []string{"a:1|c", "a:2:3|c", "a:1|c|@0.1"}, want: []string{"counter a{} n=4 16"}},
		{why: "a counter cannot go down: negative increments are refused",
			lines: []string{"a:1:-5:2|c", "b:-1|c"}, want: []string{"counter a{} n=2 3"}},
		{why: "an up/down counter goes down, corrected for its sampling rate, at its own times, too",
			lines: []string{"up.a:1:-5:2|c", "up.b:-1|c", "up.b:-1|c|@0.1", fmt.Sprintf("up.b:-2|c|T%d", second-9)},
			want:  []string{"updown up.a{} n=3 -2", "updown up.b{} n=1 -2 T=-9", "updown up.b{} n=2 -11"}},
		{why: "gauges keep the last value",
			lines: []string{"a:1|g", "a:7:2|g"}, want: []string{"gauge a{} n=3 2"}},
		{why: "a sign is part of a DogStatsD gauge's value",
			lines: []string{"a:1|g", "a:+5|g"}, want: []string{"gauge a{} n=2 5"}},
		{why: "a sign changes a StatsD gauge", options: Options{RelativeGauges: true},
			lines: []string{"a:1|g", "a:+5|g", "a:-2|g"}, want: []string{"gauge a{} n=3 4"}},
		{why: "a change of a gauge not set in this window stays a change", options: Options{RelativeGauges: true},
			lines: []string{"a:+5|g", "a:-7|g"}, want: []string{"gauge a{} n=2 change=-2"}},
		{why: "a sampled value of a timer stands for several",
			lines: []string{"a:2:4|ms|@0.5"}, want: []string{"timer a{} n=2 count=4 sum=12"}},
		{why: "classic buckets include their upper bound", policy: classic,
			lines: []string{"a:1:2:10:11|h"}, want: []string{"timer a{} n=4 classic=[1 2 1] sum=24"}},
		{why: "a line of buckets is one sample that stands for all values in them, with the sender's sum",
			lines: []string{"a:h3,10,1;-5,2,3|nh", "a:h3,1,0;-5,1|nh", "a:0.5|ms"},
			want:  []string{"timer a{} n=3 count=8 sum=11.5"}},
		{why: "a rate applies to all values in the buckets",
			lines: []string{"a:h3,10,1;-5,2,3|nh|@0.5"}, want: []string{"timer a{} n=1 count=12 sum=20"}},
		{why: "a bucket's values go into the classic bucket of its middle", policy: classic,
			lines: []string{"a:h0,3,1;1,2;2,5;4,7;n9,1|nh"}, want: []string{"timer a{} n=1 classic=[2 7 7] sum=3"}},
		{why: "sets count distinct values, whatever they look like",
			lines: []string{"a:x|s", "a:x|s", "a:1:2|s"}, want: []string{"set a{} n=3 distinct=2"}},
		{why: "a check keeps its last status",
			lines: []string{"_sc|up|0", "_sc|up|2"}, want: []string{"check up{} n=2 2"}},
		{why: "counts with a time of their own stay apart, by time",
			lines: []string{
				fmt.Sprintf("a:1|c|T%d", second-9), fmt.Sprintf("a:2|c|T%d", second-9), fmt.Sprintf("a:4|c|T%d", second-8), "a:8|c",
			},
			want: []string{"counter a{} n=1 4 T=-8", "counter a{} n=1 8", "counter a{} n=2 3 T=-9"}},
		{why: "each timed gauge is a sample of its own",
			lines: []string{fmt.Sprintf("a:1|g|T%d", second-9), fmt.Sprintf("a:2|g|T%d", second-8)},
			want:  []string{"gauge a{} n=1 1 T=-9", "gauge a{} n=1 2 T=-8"}},
		{why: "a gauge with the time of another replaces it",
			lines: []string{fmt.Sprintf("a:1|g|T%d", second-9), fmt.Sprintf("a:2|g|T%d", second-9)},
			want:  []string{"gauge a{} n=2 2 T=-9"}},
		{why: "a check with the time of another replaces it",
			lines: []string{fmt.Sprintf("_sc|up|0|d:%d", second-9), fmt.Sprintf("_sc|up|2|d:%d", second-9)},
			want:  []string{"check up{} n=2 2 T=-9"}},
		{why: "a time in milliseconds costs only its own line",
			lines: []string{fmt.Sprintf("a:1|c|T%d000", second), fmt.Sprintf("_sc|up|0|d:%d000", second), "a:2|c"},
			want:  []string{"check up{} n=1 0", "counter a{} n=1 2"}},

		// One absurd line used to spoil all samples of its series in the window.
		{why: "a line that no counter can hold costs only itself",
			lines: []string{"a:5|c", "a:1e308:1e308|c", "a:1|c"}, want: []string{"2 refused", "counter a{} n=2 6"}},
		{why: "large lines that together overflow a counter are refused",
			lines: []string{"a:1e308|c", "a:1e308|c", "b:1|c"},
			want:  []string{"1 refused", "counter a{} n=1 1e+308", "counter b{} n=1 1"}},
		{why: "large lines with one time of their own that overflow a counter are refused",
			lines: []string{fmt.Sprintf("a:1e308|c|T%d", second), fmt.Sprintf("a:1e308|c|T%d", second)},
			want:  []string{"1 refused", "counter a{} n=1 1e+308 T=+0"}},
		{why: "a gauge is changed only as far as a float goes", options: Options{RelativeGauges: true},
			lines: []string{"a:+1e308|g", "a:+1e308|g"}, want: []string{"1 refused", "gauge a{} n=1 change=1e+308"}},
		{why: "a timer refuses what its sum cannot hold, the first line included",
			lines: []string{"a:1e308|ms|@0.1", "a:5|ms", "a:1e308:1|ms|@0.1"},
			want:  []string{"3 refused", "timer a{} n=1 count=1 sum=5"}},
		{why: "a timer refuses what its sum cannot hold",
			lines: []string{"a:1e308:1e308|ms", "a:5|ms"}, want: []string{"2 refused", "timer a{} n=1 count=1 sum=5"}},
		{why: "buckets with more values than a count can hold are refused",
			lines: []string{"a:h0,1,0;1,1e308|nh", "a:h0,1,0;1,1,1e308|nh", "a:h0,1e308,0;1,1|nh", "a:h0,1e308,0;1,1|nh"},
			want:  []string{"2 refused", "timer a{} n=2 count=1e+308 sum=1e+308"}},
		{why: "classic buckets refuse what their sum cannot hold, together", policy: classic,
			lines: []string{"a:0:1e308:1e308|ms", "a:0:0:2|ms", "a:1|ms"},
			want:  []string{"3 refused", "timer a{} n=4 classic=[3 1 0] sum=3"}},
		{why: "a line that is refused leaves nothing behind",
			lines: []string{"a:1e308:1e308|c"}, want: []string{"2 refused"}},
	} {
		t.Run(test.why, func(t *testing.T) {
			table := New(&resolver{policy: test.policy}, test.options)
			table.Start(at(0))
			send(t, table, at(0.5), test.lines...)
			expect(t, flush(t, table, at(1)), test.want...)
			for next := range 2 { // the second of these windows reuses the memory of the first window above
				send(t, table, at(float64(next)+1.5), "z:1|c")
				expect(t, flush(t, table, at(float64(next)+2)), "counter z{} n=1 1")
			}
		})
	}
}

// The values of a bucket keep their place in the distribution, whatever unit they have and whatever
// resolution the series has.
func TestBucketsKeepTheirPlace(t *testing.T) {
	for _, test := range []struct {
		schema int8
		scale  float64
		want   string
	}{
		{3, 1, "[{-7 1} {1 1} {3 1}] [2 1 4] 12"},   // as they were sent
		{2, 1, "[{-3 2} {1 1}] [2 1 4] 12"},         // pairs of buckets become one: -7 and -6 become -3
		{5, 1, "[{-30 1} {7 1} {15 1}] [2 1 4] 12"}, // each goes to the middle of four finer buckets
		{3, 8, "[{17 1} {1 1} {3 1}] [2 1 4] 96"},
	} {
		table := New(&resolver{policy: &series.Policy{Schema: test.schema, MaxBuckets: 160}, scale: test.scale}, Options{})
		table.Start(at(0))
		send(t, table, at(0.5), "a:h3,12,0;-7,2,0,1;-1,4|nh")
		w, _ := table.Close(at(1))
		increments(t, w, func(inc *batch.Increment) {
			f := inc.Timer.Float()
			if got := fmt.Sprint(f.PositiveSpans, f.PositiveBuckets, f.Sum); got != test.want {
				t.Errorf("schema %d, scale %v: %s, want %s", test.schema, test.scale, got, test.want)
			}
		})
	}
	table := New(&resolver{scale: 1000}, Options{})
	table.Start(at(0))
	send(t, table, at(0.5), "a:h0,1,0;1024,1|nh", "a:1|ms")
	expect(t, flush(t, table, at(1)), "1 refused", "timer a{} n=1 count=1 sum=1000")
}

func TestTimersHistogramsAndDistributionsAreOneKind(t *testing.T) {
	table := New(&resolver{}, Options{IdleWindows: 300})
	table.Start(at(0))
	send(t, table, at(0.5), "a:1|ms", "a:2|h", "a:3|d")
	expect(t, flush(t, table, at(1)), "timer a{} n=3 count=3 sum=6")
}

func TestKnownContextsAreNotResolvedAgain(t *testing.T) {
	r := &resolver{}
	table := New(r, Options{IdleWindows: 300})
	table.Start(at(0))
	for i := range 5 {
		send(t, table, at(float64(i)), "a:1|c|#x:1", "a:1|c|@0.5|#x:1", "a:1|g|#x:1", "a:1|c|#x:2")
		flush(t, table, at(float64(i)+1))
	}
	if r.asked != 3 { // counter and gauge of x:1, counter of x:2
		t.Errorf("asked %d times", r.asked)
	}
}

// Tags in another order are another spelling of the same series. Their samples add up, and only
// maxSpellings spellings are remembered.
func TestSpellingsShareASeries(t *testing.T) {
	r := &resolver{}
	table := New(r, Options{IdleWindows: 300})
	table.Start(at(0))
	tags := []string{"a", "b", "c", "d"}
	rng := rand.New(rand.NewPCG(1, 1))
	sent := map[string]bool{}
	for range 2 {
		for range 200 {
			rng.Shuffle(len(tags), func(i, j int) { tags[i], tags[j] = tags[j], tags[i] })
			line := "m:1|c|#" + strings.Join(tags, ",")
			sent[line] = true
			send(t, table, at(0.5), line)
		}
	}
	expect(t, flush(t, table, at(1)), "counter m{a,b,c,d} n=400 400")
	s := table.Stats()
	if len(sent) != 24 || s.Contexts != maxSpellings || s.Series != 1 || s.Respellings == 0 {
		t.Errorf("%d spellings of one series were sent, want 24; the table should remember %d, got %+v",
			len(sent), maxSpellings, s)
	}
}

// Unused spellings make room for others; a spelling in use stays.
func TestIdleSpellingsLeave(t *testing.T) {
	const idle = 5
	r := &resolver{}
	table := New(r, Options{IdleWindows: idle})
	table.Start(at(0))
	spelling := func(i int) string { return "m:1|c|#" + strings.Repeat("a,", i%4) + "b" + strings.Repeat(",a", 3-i%4) }
	for i := range 4 {
		send(t, table, at(0.5), spelling(i))
	}
	for window := range idle + 2*sweepShare {
		send(t, table, at(float64(window)+0.5), spelling(2))
		flush(t, table, at(float64(window)+1))
	}
	if s := table.Stats(); s.Contexts != 1 || s.Series != 1 || r.asked != 4 {
		t.Errorf("%+v, asked %d times", s, r.asked)
	}
	for i := range 4 {
		send(t, table, at(1000), spelling(i))
	}
	if s := table.Stats(); s.Contexts != 4 || r.asked != 7 {
		t.Errorf("%+v, asked %d times", s, r.asked)
	}
}

// Hashes may collide, by chance or on purpose, so the table compares every byte, and the length of
// each part.
func TestContextsAreComparedByteForByte(t *testing.T) {
	table := New(&resolver{}, Options{IdleWindows: 300, OriginLabels: true})
	table.Start(at(0))
	send(t, table, at(0.5), "abc:1|c|#x:1,y:2|c:id1")
	rest := []byte("\nid1\n\n")
	ref := table.records.at(1).first
	for _, other := range []spelling{
		{byte(dogstatsd.Count), []byte("abd"), []byte("x:1,y:2"), rest},
		{byte(dogstatsd.Count), []byte("abc"), []byte("x:1,y:3"), rest},
		{byte(dogstatsd.Count), []byte("abc"), []byte("x:1,y:2"), []byte("\nid2\n\n")},
		{byte(dogstatsd.Gauge), []byte("abc"), []byte("x:1,y:2"), rest},
		{byte(dogstatsd.Count), []byte("ab"), []byte("cx:1,y:2"), rest},
		{byte(dogstatsd.Count), []byte("abc"), []byte("x:1,y:2\nid1"), []byte("\n\n")},
	} {
		table.contexts.Insert(table.hashOf(other.kind, other.name, other.tags, other.rest), uint32(ref))
		if number, _ := table.find(table.hashOf(other.kind, other.name, other.tags, other.rest), other.kind, other.name,
			other.tags, other.rest); number != 0 {
			t.Errorf("the table mistakes %q for another context", other)
		}
	}
	send(t, table, at(0.5), "abc:1|c|#x:1,y:2|c:id1")
	if s := table.Stats(); s.Resolved != 1 {
		t.Error("the same context is resolved again, want it to be found")
	}
}

// Lines from different cgroups may have the labels of different pods, so each cgroup has its own contexts. Beside a
// container's id, the inode says nothing, and makes no other context.
func TestContextsHaveTheirInode(t *testing.T) {
	table := New(&resolver{}, Options{IdleWindows: 300, OriginLabels: true})
	table.Start(at(0))
	for range 2 {
		send(t, table, at(0.5), "a:1|c|c:in-1", "a:1|c|c:in-2", "a:1|c|c:ci-x,in-1", "a:1|c|c:ci-x,in-2", "a:1|c|c:1")
	}
	if s := table.Stats(); s.Resolved != 4 {
		t.Errorf("%d contexts were resolved, want 4", s.Resolved)
	}
}

// The contents of a window do not reappear two windows later, when its memory is reused.
func TestEachWindowBeginsAnew(t *testing.T) {
	table := New(&resolver{}, Options{IdleWindows: 300, RelativeGauges: true})
	table.Start(at(0))
	for window := range 4 {
		now := float64(window)
		send(t, table, at(now), fmt.Sprintf("s:%d|s", window), "c:1|c", "g:+5|g", "h:1|ms",
			fmt.Sprintf("t:1|c|T%d", second+window))
		expect(t, flush(t, table, at(now+1)), "counter c{} n=1 1", "counter t{} n=1 1 T=+0", "gauge g{} n=1 change=5",
			"set s{} n=1 distinct=1", "timer h{} n=1 count=1 sum=1")
	}
}

func TestDroppedContextsAreCountedAndRemembered(t *testing.T) {
	r := &resolver{drop: "debug"}
	table := New(r, Options{IdleWindows: 300})
	table.Start(at(0))
	send(t, table, at(0.5), "debug:1|c", "debug:1:2|c", "a:1|c")
	expect(t, flush(t, table, at(1)), "counter a{} n=1 1")
	if s := table.Stats(); s.Dropped != 3 || s.Samples != 1 || r.asked != 2 {
		t.Errorf("%+v, asked %d times", s, r.asked)
	}
}

// While the flusher holds one window, the other window takes everything, however long that lasts.
// Nothing is lost or counted twice.
func TestAStalledFlusherStretchesTheWindow(t *testing.T) {
	table := New(&resolver{}, Options{IdleWindows: 300})
	table.Start(at(0))
	send(t, table, at(0.5), "a:1|c")
	held, _ := table.Close(at(1))
	send(t, table, at(1.5), "a:2|c")
	if _, ok := table.Close(at(2)); ok {
		t.Fatal("the table closed a window while the flusher held the other one")
	}
	send(t, table, at(2.5), "a:4|c")
	expect(t, render(t, held), "counter a{} n=1 1")
	stretched, ok := table.Close(at(3))
	if !ok || stretched.Second != second+2 || stretched.Birth != at(1.5) {
		t.Fatalf("the stretched window is %+v, want second +2, birth +1.5 s", stretched)
	}
	expect(t, render(t, stretched), "counter a{} n=2 6")
}

func TestAClockThatWentBackKeepsTheWindowsStamp(t *testing.T) {
	table := New(&resolver{}, Options{IdleWindows: 300})
	table.Start(at(0))
	send(t, table, at(0.5), "a:1|c")
	w, _ := table.Close(at(-3600))
	if w.Second != second || table.Second() != second-3600 {
		t.Errorf("the closed window is %d, the open one %d, want 0, -3600", w.Second-second, table.Second()-second)
	}
}

// TestTableAgainstAModel compares the table with a map, through growth, idleness and the reuse
// of entries.
func TestTableAgainstAModel(t *testing.T) {
	const idle = 5
	table := New(&resolver{}, Options{IdleWindows: idle})
	table.Start(at(0))
	rng := rand.New(rand.NewPCG(7, 7))
	total := 0
	for window := range 400 {
		want := map[string]int{}
		base := (window / 100) * 1000 // new contexts every hundred windows
		for range 200 {
			name := fmt.Sprintf("m%d", base+rng.IntN(1500))
			want[name]++
			send(t, table, at(float64(window)+0.5), name+":1|c")
		}
		var lines []string
		for name, n := range want {
			lines = append(lines, fmt.Sprintf("counter %s{} n=%d %d", name, n, n))
			total += n
		}
		slices.Sort(lines)
		expect(t, flush(t, table, at(float64(window)+1)), lines...)
		if t.Failed() {
			t.Fatalf("in window %d", window)
		}
	}
	for window := 400; window < 400+idle+2*sweepShare; window++ {
		flush(t, table, at(float64(window)+1))
	}
	if s := table.Stats(); s.Contexts != 0 || s.Series != 0 || s.Samples != uint64(total) {
		t.Errorf("after all series were idle: %+v, want none", s)
	}
	if table.contexts.Len()+table.series.Len() != 0 {
		t.Error("the index still has a context or a series that left")
	}
}

func packet(contexts int) []string {
	types := []string{"c", "g", "ms", "s", "d"}
	var lines []string
	for i := range contexts {
		lines = append(lines,
			fmt.Sprintf("service.request.duration.%d:%d|%s|#env:production,region:eu-west-1,service:checkout,status:%d",
				i, i, types[i%5], i%7))
	}
	return lines
}

func TestAKnownContextDoesNotAllocate(t *testing.T) {
	table := New(&resolver{}, Options{IdleWindows: 300})
	table.Start(at(0))
	raw := []byte(strings.Join(append(packet(100), "up.open:1:-3|c", "hits:1|c", "hits:-1:2|c"), "\n"))
	var p dogstatsd.Parser
	var out batch.Writer
	now, tenant := at(0), []byte("default")
	round := func() {
		now += 1e9
		for range 3 {
			p.Reset(raw)
			for p.Next() == dogstatsd.MetricLine {
				table.Metric(&p.Metric, now)
			}
		}
		w, _ := table.Close(now)
		out.Begin(batch.Header{Tenant: tenant, Second: w.Second})
		w.Flush(&out, math.MaxInt)
	}
	round()
	round()
	if n := testing.AllocsPerRun(50, round); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Contexts and their series are allocated in large pieces, so many new ones add almost no work for
// the garbage collector.
func TestNewContextsAllocateInPieces(t *testing.T) {
	const contexts = 20_000
	tenant := limit.New(limit.Config{}, time.Minute, time.Hour).Tenant("default")
	table := New(&plain{}, Options{IdleWindows: 300, Limits: tenant})
	table.Start(at(0))
	m := dogstatsd.Metric{
		Type: dogstatsd.Count, Values: []float64{1}, Rate: 1, Name: []byte("requests"), Tags: []byte("customer:0000000"),
	}
	id := 0
	n := testing.AllocsPerRun(1, func() {
		for range contexts {
			id++
			decimal(m.Tags[len("customer:"):], id)
			table.Metric(&m, at(0))
		}
	})
	if s := table.Stats(); s.Series != 2*contexts {
		t.Fatalf("%+v", s)
	}
	if n > contexts/10 {
		t.Errorf("%v allocations for %d contexts, want at most %d", n, contexts, contexts/10)
	}
}

// The counts of a table carry over to the next table, but not the numbers of contexts and series that it
// holds. This covers every field, including ones added later.
func TestCountsGoOnWithTheNextTable(t *testing.T) {
	fill := func(n uint64) (s Stats) {
		for _, f := range reflect.ValueOf(&s).Elem().Fields() {
			if f.Kind() == reflect.Array {
				for i := range f.Len() {
					f.Index(i).SetUint(n)
				}
			} else {
				f.SetUint(n)
			}
		}
		return s
	}
	want := fill(5)
	want.Contexts, want.Series = 3, 3
	if got := fill(2).Plus(fill(3)); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
