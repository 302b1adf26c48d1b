package tsdb

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// Each write is followed by the fates of its samples. Between writes, "restart" opens the database
// again. "return" forgets the series, as a tile table forgets series that end.
func TestWrite(t *testing.T) {
	for _, c := range []struct {
		why   string
		steps []string
		want  string
	}{
		{"new samples are stored",
			[]string{"a@10=1 b@10=2", "stored 2", "a@20=3", "stored 1"},
			"a@10=1 a@20=3 b@10=2"},
		{"a series begins and ends within one write",
			[]string{"a@10=0 a@20=5 a@30=stale", "stored 3"},
			"a@10=0 a@20=5 a@30=stale"},
		{"a repeat is success and not stored twice",
			[]string{"a@10=1 a@20=2", "stored 2", "a@10=1 a@20=2 a@30=3", "stored 1, repeated 2"},
			"a@10=1 a@20=2 a@30=3"},
		{"a sender that sets timestamps sends two values for one time, and the first stays",
			[]string{"a@10=1T a@20=1", "stored 2", "a@10=2T a@10=1T b@10=1", "stored 1, repeated 1, duplicate 1", "a@20=2T",
				"duplicate 1"},
			"a@10=1 a@20=1 b@10=1"},
		{"NaN equals NaN",
			[]string{"a@10=NaN", "stored 1", "a@10=NaN", "repeated 1"},
			"a@10=NaN"},
		{"a stale marker equals another one",
			[]string{"a@10=stale", "stored 1", "a@10=stale", "repeated 1", "a@10=1", "conflicts 1"},
			"a@10=stale"},
		{"another value for the newest tile",
			[]string{"a@10=1", "stored 1", "a@10=2 b@10=1", "stored 1, conflicts 1"},
			"a@10=1 b@10=1"},
		{"another value for an older tile, which tsdb alone would accept",
			[]string{"a@10=1 a@20=2", "stored 2", "a@10=9 b@10=1", "stored 1, conflicts 1"},
			"a@10=1 a@20=2 b@10=1"},
		{"one sample twice in one write",
			[]string{"a@10=1 a@10=1 b@10=1", "stored 2, repeated 1"},
			"a@10=1 b@10=1"},
		{"two values in one write, where tsdb alone would silently lose one",
			[]string{"a@10=1 a@10=2 b@10=1", "stored 2, conflicts 1"},
			"a@10=1 b@10=1"},
		{"two values in one write, out of order",
			[]string{"a@100=1", "stored 1", "a@10=1 a@10=2 a@10=1", "stored 1, repeated 1, conflicts 1"},
			"a@10=1 a@100=1"},
		{"a series ends and returns within one write",
			[]string{"a@10=1 a@20=stale a'@20=1 a'@20=stale a'@30=0", "stored 3, repeated 1, conflicts 1"},
			"a@10=1 a@20=stale a@30=0"},
		{"out of order, in the window",
			[]string{"a@1800=1", "stored 1", "a@0=2", "stored 1", "a@0=2", "repeated 1", "a@0=3", "conflicts 1"},
			"a@0=2 a@1800=1"},
		{"out of order, before the window",
			[]string{"a@1800=1", "stored 1", "a@-10801=2 b@1800=1", "stored 1, too_old 1"},
			"a@1800=1 b@1800=1"},
		{"a repeat is a repeat at any age",
			[]string{"a@0=1", "stored 1", "a@7000=2", "stored 1", "a@0=1 a@0=2", "repeated 1, conflicts 1"},
			"a@0=1 a@7000=2"},
		{"against the order of time in one write, where tsdb alone would silently lose a sample",
			[]string{"a@12700=1 a@0=2 a@200=3", "stored 2, too_old 1"},
			"a@200=3 a@12700=1"},

		{"histograms",
			[]string{"a@10=h0 a@20=h1,2 a@30=hstale", "stored 3", "a@10=h0 a@20=h1,2 a@30=hstale", "repeated 3"},
			"a@10=h0 a@20=h1,2 a@30=hstale"},
		{"an earlier histogram gets no buckets of later ones in its chunk",
			[]string{"a@10=h1", "stored 1", "a@20=h1,0,0,4", "stored 1", "a@10=h1", "repeated 1", "a@10=h1,1", "conflicts 1"},
			"a@10=h1 a@20=h1,0,0,4"},
		{"another histogram for the newest tile",
			[]string{"a@10=h1", "stored 1", "a@10=h2", "conflicts 1"},
			"a@10=h1"},
		{"another histogram within one write",
			[]string{"a@10=h1 a@10=h2 a@10=h1", "stored 1, repeated 1, conflicts 1"},
			"a@10=h1"},
		{"a histogram out of order",
			[]string{"a@30=h1,1", "stored 1", "a@10=h1", "stored 1", "a@10=h1", "repeated 1", "a@10=h2", "conflicts 1"},
			"a@10=h1 a@30=h1,1"},
		{"a number conflicts with a histogram",
			[]string{"a@10=h1 b@10=1", "stored 2", "a@10=1 b@10=h1", "conflicts 2"},
			"a@10=h1 b@10=1"},
		{"the stale marker of a histogram, written as a number",
			[]string{"a@10=h1", "stored 1", "a@20=stale", "stored 1", "a@20=stale", "repeated 1", "a@20=hstale", "repeated 1"},
			"a@10=h1 a@20=hstale"},
		{"an invalid histogram does not affect others",
			[]string{"a@10=h-1 b@10=h1 c@10=1", "stored 2, invalid 1", "a@10=h1", "stored 1"},
			"a@10=h1 b@10=h1 c@10=1"},

		{"after a restart, the last write is repeated",
			[]string{"a@10=1 a@20=2 b@20=h1", "stored 3", "restart", "a@10=1 a@20=2 b@20=h1 a@30=3", "stored 1, repeated 3"},
			"a@10=1 a@20=2 a@30=3 b@20=h1"},
		{"after a restart, other values come",
			[]string{"a@10=1 a@20=2", "stored 2", "restart", "a@10=3 a@20=3", "conflicts 2"},
			"a@10=1 a@20=2"},
		{"after a restart, out-of-order samples are repeated",
			[]string{"a@100=1", "stored 1", "a@10=2 b@10=h1", "stored 2", "restart", "a@10=2 b@10=h1", "repeated 2", "a@10=3",
				"conflicts 1"},
			"a@10=2 a@100=1 b@10=h1"},
		{"a series returns with a repeat",
			[]string{"a@10=1", "stored 1", "b@100=1", "stored 1", "return", "a@10=1 a@20=2", "stored 1, repeated 1"},
			"a@10=1 a@20=2 b@100=1"},
		{"a series returns with another value",
			[]string{"a@10=1", "stored 1", "return", "a@10=2", "conflicts 1", "return", "a@10=1", "repeated 1"},
			"a@10=1"},
		{"a series with one label more is another series",
			[]string{"a+@10=1 a@20=1", "stored 2", "a@10=2 a+@20=2", "stored 2", "a@10=2 a+@10=2", "repeated 1, conflicts 1"},
			"a@10=2 a@20=1 a+@10=1 a+@20=2"},
		{"a series returns after a restart with another value",
			[]string{"a@10=1", "stored 1", "restart", "a@20=2", "stored 1", "return", "a@20=1 a@10=1",
				"repeated 1, conflicts 1"},
			"a@10=1 a@20=2"},
	} {
		t.Run(c.why, func(t *testing.T) {
			w := newWorld(t)
			for i := 0; i < len(c.steps); i++ {
				switch step := c.steps[i]; step {
				case "restart":
					w.close()
					w.open()
				case "return":
					clear(w.series)
				default:
					i++
					if got := w.write(step); got != c.steps[i] {
						t.Errorf("write %q: %s; want %s", step, got, c.steps[i])
					}
				}
			}
			if got := w.stored(tenant.Default, "10s"); got != c.want {
				t.Errorf("stored %s\nwant   %s", got, c.want)
			}
		})
	}
}

// After a compaction has taken a series out of memory, the store still finds the samples of the series.
func TestWriteAfterCompaction(t *testing.T) {
	w := newWorld(t)
	w.write("a@0=1 b@0=1")
	for hour := 1; hour <= 5; hour++ {
		w.write(fmt.Sprintf("b@%d=1", hour*3600))
	}
	db := w.stores.tenants[tenant.Default]["10s"].db
	if err := db.Compact(context.Background()); err != nil {
		t.Fatal(err)
	}
	if db.Head().NumSeries() != 1 || len(db.Blocks()) == 0 {
		t.Fatalf("%d series in memory and %d blocks, want 1 series and at least 1 block",
			db.Head().NumSeries(), len(db.Blocks()))
	}
	for _, step := range []struct{ write, want string }{
		{"a@0=1", "repeated 1"},
		{"a@0=2", "conflicts 1"},
		{"a'@0=1", "repeated 1"},
		{"a@18000=2", "stored 1"}, // written with a reference that is no longer valid
		{"a@18010=3", "stored 1"},
		{"a@18000=2", "repeated 1"},
	} {
		if got := w.write(step.write); got != step.want {
			t.Errorf("write %s: %s; want %s", step.write, got, step.want)
		}
	}
	if got, want := w.stored(tenant.Default, "10s"), "a@0=1 a@18000=2 a@18010=3 "; !strings.HasPrefix(got, want) {
		t.Errorf("stored %s; want %s...", got, want)
	}
}

// WriteTiles does not change its input, as tile.Sample promises, although tsdb adds the empty
// buckets of its chunk to the histograms that it keeps.
func TestWriteLeavesHistogramsAlone(t *testing.T) {
	w := newWorld(t)
	samples := w.samples("a@10=h1,0,4 a@20=h1,0,4")
	samples[0].H.PositiveSpans = []histogram.Span{{Length: 3}}
	samples[0].H.PositiveBuckets = []float64{1, 0, 4}
	want := samples[1].H.Copy()
	if _, err := w.stores.WriteTiles(context.Background(), tenant.Default, ten, samples); err != nil {
		t.Fatal(err)
	}
	if got := samples[1].H; !slices.Equal(got.PositiveSpans, want.PositiveSpans) ||
		!slices.Equal(got.PositiveBuckets, want.PositiveBuckets) {
		t.Errorf("the histogram became %v %v; it was %v %v", got.PositiveSpans, got.PositiveBuckets, want.PositiveSpans,
			want.PositiveBuckets)
	}
}

func TestWriteIsCounted(t *testing.T) {
	w := newWorld(t)
	w.write("a@10=1 a@20=1 b@10=1")
	w.write("a@10=1 a@20=2 b@10=1")
	m := w.stores.metrics
	for name, got := range map[string]struct {
		c    prometheus.Collector
		want float64
	}{
		"stored":    {m.stored.WithLabelValues("10s"), 3},
		"repeated":  {m.repeated.WithLabelValues("10s"), 2},
		"conflicts": {m.conflicts.WithLabelValues("10s"), 1},
	} {
		if n := testutil.ToFloat64(got.c); n != got.want {
			t.Errorf("%s: %v; want %v", name, n, got.want)
		}
	}
	if log := w.log.String(); !strings.Contains(log, `__name__=\"a\"`) || !strings.Contains(log, "1, not 2") {
		t.Errorf("the log does not name the conflict: %s", log)
	}
}

// A write that fails, as on a full disk, stores nothing. The store works again once the disk does. From
// then on, no series made only by the failed write may stay in memory without a record on disk, and no
// half-written record may end the replay. Either would lose samples that were acknowledged later.
func TestWriteFails(t *testing.T) {
	if !alone(t) {
		return
	}
	w := newWorld(t)
	w.write("a@10=1")
	many := "a@20=2"
	for i := range 5000 {
		many += fmt.Sprintf(" series_with_a_long_name_%d@20=%d", i, i)
	}
	samples := w.samples(many)
	write := func() error {
		_, err := w.stores.WriteTiles(context.Background(), tenant.Default, ten, samples)
		return err
	}

	unlimited := limitFiles(t)
	first, second := write(), write()
	w.stores.Look()
	ill := w.stores.Broken()
	unlimited()
	if len(ill) != 1 || !ill[0].Open || ill[0].Tenant != tenant.Default || ill[0].Store != "10s" ||
		!strings.Contains(ill[0].Error(), "disk still accepts no writes") {
		t.Errorf("an open store whose disk takes no writes has the faults %v, want one", ill)
	}
	if first == nil || !strings.Contains(first.Error(), "file too large") {
		t.Fatalf("the write did not reach the file size limit: %v", first)
	}
	if second == nil || !strings.Contains(second.Error(), "still not writable") {
		t.Errorf("the second write returned %v, want an error", second)
	}
	if got := w.stored(tenant.Default, "10s"); got != "a@10=1" {
		t.Errorf("stored %.200s; want only the samples from before", got)
	}
	if n := testutil.ToFloat64(w.stores.metrics.failed.WithLabelValues("10s")); n != 2 {
		t.Errorf("%v failed writes counted; want 2", n)
	}

	// A reader has the old database open when the disk takes files again: the repair waits for the
	// reader.
	q, err := w.stores.Querier(tenant.Default, "10s", 0, base)
	if err != nil {
		t.Fatal(err)
	}
	expired, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := w.stores.WriteTiles(expired, tenant.Default, ten, samples); err == nil {
		t.Error("a database was closed while a reader used it")
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	if err := write(); err != nil {
		t.Fatalf("a write after the disk had space again: %v", err)
	}
	w.write("series_with_a_long_name_7@30=8")

	// If this process is killed now, the next one finds these files.
	later := t.TempDir()
	if err := os.CopyFS(later, os.DirFS(w.dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(later, "tsdb", tenant.Default, "10s", "lock")); err != nil {
		t.Fatal(err)
	}
	before := w.stored(tenant.Default, "10s")
	w.close()
	w.dir = later
	w.open()
	if after := w.stored(tenant.Default, "10s"); after != before || len(strings.Fields(after)) != len(samples)+2 {
		t.Errorf("the store has %d samples after the restart, and %d were acknowledged", len(strings.Fields(after)),
			len(strings.Fields(before)))
	}
}

// alone runs a test again in a separate process, and reports whether the caller is in that process. In
// that process, limitFiles affects no other file, such as the log that go test keeps.
func alone(t *testing.T) bool {
	const child = "FRESHET_TEST_ALONE"
	if os.Getenv(child) == t.Name() {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), child+"="+t.Name())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

// limitFiles prevents any file of the process from growing beyond one and a half pages of the WAL,
// until the returned function is called.
func limitFiles(t *testing.T) (unlimited func()) {
	t.Helper()
	signal.Ignore(syscall.SIGXFSZ)
	t.Cleanup(func() { signal.Reset(syscall.SIGXFSZ) })
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	set := func(l syscall.Rlimit) {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &l); err != nil {
			t.Fatal(err)
		}
	}
	set(syscall.Rlimit{Cur: 48 << 10, Max: before.Max})
	return func() { set(before) }
}

// Bound: 500 ns for each sample on one core, so that 100,000 series of 10 s tiles cost a two-hundredth
// of a core. Each pass writes the next tile of 10,000 series with known references.
func BenchmarkWrite(b *testing.B) {
	const series = 10_000
	stores, samples := benchmarkStores(b, series)
	b.ReportAllocs()
	for b.Loop() {
		nextTile(samples)
		mustStore(b, stores, samples)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/series, "ns/sample")
}

// Apart from tsdb's own memory, a usual write allocates a constant amount plus four bytes a sample.
func TestWriteAllocates(t *testing.T) {
	const series = 1000
	stores, samples := benchmarkStores(t, series)
	allocs := testing.AllocsPerRun(20, func() {
		nextTile(samples)
		mustStore(t, stores, samples)
	})
	if allocs > series/10 {
		t.Errorf("%v allocations for %d samples, want at most %d", allocs, series, series/10)
	}
}

// Bound: 20 µs a sample, so that repeating a flush of 50,000 series after a restart costs a
// second. Each sample is looked up in the database.
func BenchmarkWriteRepeat(b *testing.B) {
	const series = 10_000
	stores, samples := benchmarkStores(b, series)
	b.ReportAllocs()
	for b.Loop() {
		st, err := stores.WriteTiles(context.Background(), tenant.Default, ten, samples)
		if err != nil || st.Repeated.Samples != series {
			b.Fatalf("got %+v, want %d repeated samples; error %v", st, series, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/series, "ns/sample")
}

// Bound: 0.6 MB and 3 goroutines for a database with one sample, so 100 tenants with three
// databases each take 180 MB.
func BenchmarkSmallDatabase(b *testing.B) {
	measure := func() (heap uint64, goroutines int) {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc, runtime.NumGoroutine()
	}
	const tenants = 10
	for b.Loop() {
		stores, samples := benchmarkStores(b, 1)
		heap, goroutines := measure()
		for i := range tenants {
			if _, err := stores.WriteTiles(context.Background(), fmt.Sprint(i), ten, samples); err != nil {
				b.Fatal(err)
			}
		}
		moreHeap, moreGoroutines := measure()
		b.ReportMetric((float64(moreHeap)-float64(heap))/tenants, "heap-B/db")
		b.ReportMetric(float64(moreGoroutines-goroutines)/tenants, "goroutines/db")
	}
}

func benchmarkStores(tb testing.TB, series int) (*Stores, []tile.Sample) {
	now := func() time.Time { return time.UnixMilli(base).AddDate(10, 0, 0) }
	stores, err := Open(DefaultConfig(), tb.TempDir(), now, prometheus.NewRegistry(),
		slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := stores.Close(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	samples := make([]tile.Sample, series)
	for i := range samples {
		samples[i] = tile.Sample{T: base, Series: &tile.Series{Labels: labels.FromStrings(
			"__name__", fmt.Sprintf("requests_%d", i%50), "host", "web-1", "path", fmt.Sprintf("/p/%d", i))}}
	}
	mustStore(tb, stores, samples)
	return stores, samples
}

func nextTile(samples []tile.Sample) {
	for i := range samples {
		samples[i].T += ten.Millis()
		samples[i].V += float64(i)
	}
}

func mustStore(tb testing.TB, stores *Stores, samples []tile.Sample) {
	st, err := stores.WriteTiles(context.Background(), tenant.Default, ten, samples)
	if err != nil || st.Stored.Samples != len(samples) {
		tb.Fatalf("got %+v, want %d stored samples; error %v", st, len(samples), err)
	}
}
