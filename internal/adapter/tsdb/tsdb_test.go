package tsdb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// base is second 0 of the tests: a multiple of the block duration.
const base = 1_700_006_400_000

// ten is the width of the tiles that most tests write.
const ten = tile.Width10s

// world has stores whose clock the test moves, and the series that a tile table would hold.
type world struct {
	t      testing.TB
	cfg    Config
	dir    string
	reg    *prometheus.Registry
	log    bytes.Buffer
	now    time.Time
	stores *Stores
	series map[string]*tile.Series
	state  write.State // state of the tenant default
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, cfg: DefaultConfig(), dir: t.TempDir(), now: time.UnixMilli(base).Add(24 * time.Hour)}
	w.open()
	t.Cleanup(w.close)
	return w
}

// open simulates the start of a process: nothing of the previous process is in memory.
func (w *world) open() {
	w.t.Helper()
	w.series = map[string]*tile.Series{}
	w.reg = prometheus.NewRegistry()
	stores, err := Open(w.cfg, w.dir, func() time.Time { return w.now }, w.reg, slog.New(slog.NewTextHandler(&w.log, nil)))
	if err != nil {
		w.t.Fatal(err)
	}
	w.stores = stores
}

func (w *world) close() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // in case a test left a reader open
	defer cancel()
	if err := w.stores.Close(ctx); err != nil {
		w.t.Error(err)
	}
}

// samples reads "a@10=1 a@20=stale b@10=h3": series, second and value. A prime makes a second
// tile.Series with the same labels: a' equals a, but is another object. A plus adds a label: a+ has
// the labels of a and one more. a@10=1#ab:2@9 has an exemplar with the trace ab and the value 2 at
// second 9.
func (w *world) samples(text string) []tile.Sample {
	w.t.Helper()
	var samples []tile.Sample
	for _, word := range strings.Fields(text) {
		name, rest, _ := strings.Cut(word, "@")
		at, val, _ := strings.Cut(rest, "=")
		second, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			w.t.Fatal(err)
		}
		if w.series[name] == nil {
			ls := labels.FromStrings("__name__", strings.TrimRight(name, "'+"), "host", "h")
			if strings.HasSuffix(name, "+") {
				ls = labels.NewBuilder(ls).Set("one", "more").Labels()
			}
			w.series[name] = &tile.Series{Labels: ls}
		}
		val, traced, found := strings.Cut(val, "#")
		val, timed := strings.CutSuffix(val, "T")
		s := tile.Sample{Series: w.series[name], T: base + 1000*second, Raw: rawOfEach, Timed: timed}
		if found {
			s.Exemplar = exemplarOf(w.t, traced)
		}
		switch {
		case val == "stale":
			s.V = math.Float64frombits(value.StaleNaN)
		case val == "hstale":
			s.H = &histogram.FloatHistogram{Sum: math.Float64frombits(value.StaleNaN)}
		case strings.HasPrefix(val, "h"):
			s.H = hist(w.t, val)
		default:
			if s.V, err = strconv.ParseFloat(val, 64); err != nil {
				w.t.Fatal(err)
			}
		}
		samples = append(samples, s)
	}
	return samples
}

// exemplarOf reads an exemplar such as "ab:2@9".
func exemplarOf(t testing.TB, text string) *batch.Exemplar {
	trace, rest, _ := strings.Cut(text, ":")
	val, at, _ := strings.Cut(rest, "@")
	v, err1 := strconv.ParseFloat(val, 64)
	second, err2 := strconv.ParseFloat(at, 64)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return &batch.Exemplar{Value: v, Time: base + int64(1000*second), Trace: batch.TraceOf([]byte(trace))}
}

// hist reads a histogram such as "h1,2", which has 1 and 2 in its first two buckets.
func hist(t testing.TB, text string) *histogram.FloatHistogram {
	h := &histogram.FloatHistogram{Schema: 3}
	for _, c := range strings.Split(text[1:], ",") {
		n, err := strconv.ParseFloat(c, 64)
		if err != nil {
			t.Fatal(err)
		}
		h.Count += n
		h.Sum += n
		h.PositiveBuckets = append(h.PositiveBuckets, n)
	}
	h.PositiveSpans = []histogram.Span{{Length: uint32(len(h.PositiveBuckets))}}
	return h.Compact(0)
}

// rawOfEach is how many received values are in each sample of the tests.
const rawOfEach = 7

// write writes samples and returns the number of samples for each fate, such as "stored 2, too_old 1".
func (w *world) write(text string) string {
	w.t.Helper()
	samples := w.samples(text)
	stats, err := w.stores.WriteTiles(context.Background(), tenant.Default, ten, samples)
	if err != nil {
		w.t.Fatalf("write %q: %v", text, err)
	}
	return w.fates(stats, len(samples))
}

func (w *world) fates(written tile.Written, of int) string {
	w.t.Helper()
	var fates []string
	sum := 0
	add := func(name string, n tile.Count) {
		sum += n.Samples
		if n.Raw != rawOfEach*uint64(n.Samples) {
			w.t.Errorf("fate %s: %d samples have %d received values in all, want %d for each sample",
				name, n.Samples, n.Raw, rawOfEach)
		}
		if n.Samples > 0 {
			fates = append(fates, fmt.Sprintf("%s %d", name, n.Samples))
		}
	}
	add("stored", written.Stored)
	add("repeated", written.Repeated)
	add("conflicts", written.Refused[tile.Conflict])
	for reason, n := range written.Refused {
		if tile.Reason(reason) != tile.Conflict {
			add(tile.Reason(reason).String(), n)
		}
	}
	if written.Exemplars > 0 {
		fates = append(fates, fmt.Sprintf("exemplars %d", written.Exemplars))
	}
	if written.ExemplarsNotKept > 0 {
		fates = append(fates, fmt.Sprintf("exemplars not kept %d", written.ExemplarsNotKept))
	}
	if sum != of {
		w.t.Errorf("%d samples have %d fates: %+v", of, sum, written)
	}
	return strings.Join(fates, ", ")
}

// stored returns all samples of a store in the notation of the method samples, by series.
func (w *world) stored(name, store string) string {
	w.t.Helper()
	q, err := w.stores.Querier(name, store, math.MinInt64, math.MaxInt64)
	if err != nil {
		w.t.Fatal(err)
	}
	defer q.Close()
	var words []string
	set := q.Select(context.Background(), true, nil, labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+"))
	for set.Next() {
		name := set.At().Labels().Get("__name__")
		if set.At().Labels().Has("one") {
			name += "+"
		}
		it := set.At().Iterator(nil)
		for typ := it.Next(); typ != chunkenc.ValNone; typ = it.Next() {
			p := tile.Point{T: it.AtT()}
			if typ == chunkenc.ValFloat {
				_, p.V = it.At()
			} else {
				_, p.H = it.AtFloatHistogram(nil)
			}
			words = append(words, fmt.Sprintf("%s@%d=%s", name, (p.T-base)/1000, notation(p)))
		}
		if it.Err() != nil {
			w.t.Fatal(it.Err())
		}
	}
	if set.Err() != nil {
		w.t.Fatal(set.Err())
	}
	return strings.Join(words, " ")
}

func notation(p tile.Point) string {
	switch {
	case p.H == nil && isStale(p):
		return "stale"
	case p.H == nil:
		return fmt.Sprint(p.V)
	case isStale(p):
		return "hstale"
	}
	counts := []string{}
	it := p.H.Copy().Compact(0).PositiveBucketIterator()
	for i := int32(0); it.Next(); i++ {
		for ; i < it.At().Index; i++ {
			counts = append(counts, "0")
		}
		counts = append(counts, fmt.Sprint(it.At().Count))
	}
	if len(counts) == 0 {
		counts = []string{"0"}
	}
	return "h" + strings.Join(counts, ",")
}

// A reference is valid only in one open database. Another database gives the same numbers to other
// series, and tsdb would not notice.
func TestReferenceDiesWithItsDatabase(t *testing.T) {
	w := newWorld(t)
	w.write("a@10=1 b@10=2")
	kept := w.series
	w.close()
	if err := os.RemoveAll(filepath.Join(w.dir, "tsdb")); err != nil {
		t.Fatal(err)
	}
	w.open()
	w.series["b"] = kept["b"] // series b had reference 2, which series c will get
	w.write("d@10=1 c@10=1")
	w.write("b@20=3")
	if got, want := w.stored(tenant.Default, "10s"), "b@20=3 c@10=1 d@10=1"; got != want {
		t.Errorf("stored %s; want %s", got, want)
	}
}

func TestTenantsAndStoresAreApart(t *testing.T) {
	w := newWorld(t)
	ctx := context.Background()
	for _, wr := range []struct {
		tenant string
		width  tile.Width
		text   string
	}{
		{"red", tile.Width10s, "a@10=1"},
		{"blue", tile.Width10s, "a@10=2"},
		{"blue", tile.Width1m, "a@60=3"},
	} {
		clear(w.series) // each tenant has its own tile table
		if _, err := w.stores.WriteTiles(ctx, wr.tenant, wr.width, w.samples(wr.text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ tenant, store, want string }{
		{"red", "10s", "a@10=1"},
		{"blue", "10s", "a@10=2"},
		{"blue", "1m", "a@60=3"},
		{"red", "1m", ""},
		{"red", Raw, ""},
		{"green", "10s", ""},
		{"red", "5m", ""},
		{"red/../blue", "10s", ""},
	} {
		if got := w.stored(c.tenant, c.store); got != c.want {
			t.Errorf("store %s/%s has %q; want %q", c.tenant, c.store, got, c.want)
		}
	}
	var dirs []string
	for _, pattern := range []string{"*", "*/*"} {
		found, _ := filepath.Glob(filepath.Join(w.dir, "tsdb", pattern))
		for _, f := range found {
			rel, _ := filepath.Rel(w.dir, f)
			dirs = append(dirs, rel)
		}
	}
	slices.Sort(dirs)
	want := []string{"tsdb/blue", "tsdb/blue/10s", "tsdb/blue/1m", "tsdb/red", "tsdb/red/10s"}
	if !slices.Equal(dirs, want) {
		t.Errorf("the directories are %v; want %v: a query must make no directory", dirs, want)
	}
}

// The stores take every tenant, and know after a restart which tenants they have. core/tenants decides
// before a write which tenants are admitted.
func TestStoresRefuseNoTenant(t *testing.T) {
	w := newWorld(t)
	w.close()
	w.cfg.MaxTenants = 1
	w.open()
	for _, name := range []string{"one", "two", "three"} {
		if _, err := w.stores.WriteTiles(context.Background(), name, ten, w.samples(name+"@10=1")); err != nil {
			t.Error(err)
		}
	}
	if _, err := w.stores.WriteTiles(context.Background(), "../four", ten, w.samples("x@10=1")); err == nil ||
		!strings.Contains(err.Error(), "not allowed") {
		t.Error(err)
	}
	w.close()
	w.open()
	if got := w.stores.Tenants(); !slices.Equal(got, []string{"one", "three", "two"}) {
		t.Error(got)
	}
}

// After a restart the first query opens the database on disk.
func TestQueryOpens(t *testing.T) {
	w := newWorld(t)
	w.write("a@10=1")
	w.close()
	w.open()
	if n := testutil.ToFloat64(w.stores.metrics.open); n != 0 {
		t.Errorf("%v databases are open before a write or a query", n)
	}
	if got := w.stored(tenant.Default, "10s"); got != "a@10=1" {
		t.Errorf("stored %q", got)
	}
	if n := testutil.ToFloat64(w.stores.metrics.open); n != 1 {
		t.Errorf("%v databases are open; want 1", n)
	}
}

func TestStats(t *testing.T) {
	w := newWorld(t)
	w.write("a@10=1 b@10=1")
	stats, err := w.stores.Stats(tenant.Default, "10s", "__name__", 10)
	if err != nil || stats.NumSeries != 2 {
		t.Errorf("stats %+v, error %v; want 2 series", stats, err)
	}
	for _, store := range []string{Raw, "nonsense"} {
		if stats, err := w.stores.Stats(tenant.Default, store, "__name__", 10); stats != nil || err != nil {
			t.Errorf("%s: stats %+v, error %v; want neither", store, stats, err)
		}
	}
	if blocks, err := w.stores.Blocks(tenant.Default, "10s"); len(blocks) != 0 || err != nil {
		t.Errorf("blocks %v, %v", blocks, err)
	}
	if got := w.stores.Retention("10s"); got != 48*time.Hour {
		t.Errorf("the retention of the store 10s is %v, want 48h", got)
	}
	q, err := w.stores.ExemplarQuerier(context.Background(), tenant.Default)
	if err != nil {
		t.Fatal(err)
	}
	if found, err := q.Select(0, math.MaxInt64); len(found) != 0 || err != nil {
		t.Errorf("exemplars %v, %v", found, err)
	}
}

// Each open database has the most important metrics of tsdb under its own labels. They disappear when the
// database closes. Of all others there is a sum for each kind of store, and what a closed database has counted
// stays in it.
func TestMetricsOfEachDatabase(t *testing.T) {
	w := newWorld(t)
	w.write("a@10=1")
	w.stored(tenant.Default, "10s")
	if _, err := w.stores.WriteTiles(context.Background(), tenant.Default, tile.Width1m, w.samples("a@60=1")); err != nil {
		t.Fatal(err)
	}
	const head = `# HELP prometheus_tsdb_head_series Total number of series in the head block.
# TYPE prometheus_tsdb_head_series gauge
`
	if err := testutil.GatherAndCompare(w.reg, strings.NewReader(head+
		`prometheus_tsdb_head_series{store="10s",tenant="default"} 1
prometheus_tsdb_head_series{store="1m",tenant="default"} 1
`), "prometheus_tsdb_head_series"); err != nil {
		t.Error(err)
	}
	w.close()
	if n, err := testutil.GatherAndCount(w.reg, "prometheus_tsdb_head_series"); n != 0 || err != nil {
		t.Errorf("%d metrics of closed databases are left, error %v", n, err)
	}
}

func TestMetricsOfAllDatabases(t *testing.T) {
	w := newWorld(t)
	read := func() map[string]string {
		families, err := w.reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				labels := ""
				for _, l := range m.GetLabel() {
					labels += " " + l.GetName() + "=" + l.GetValue()
				}
				switch {
				case m.Counter != nil:
					got[f.GetName()+labels] = fmt.Sprint(m.Counter.GetValue())
				case m.Gauge != nil:
					got[f.GetName()+labels] = fmt.Sprint(m.Gauge.GetValue())
				case m.Histogram != nil:
					got[f.GetName()+labels] = fmt.Sprint(m.Histogram.GetSampleCount(), len(m.Histogram.Bucket))
				case m.Summary != nil:
					got[f.GetName()+labels] = fmt.Sprint(m.Summary.GetSampleCount(), len(m.Summary.Quantile))
				}
			}
		}
		return got
	}
	expect := func(when string, want map[string]string) {
		t.Helper()
		got := read()
		for name, value := range want {
			if got[name] != value {
				t.Errorf("%s: %s is %q, want %q", when, name, got[name], value)
			}
		}
	}
	for i, name := range []string{"one", "two"} {
		if _, err := w.stores.WriteTiles(t.Context(), name, ten, w.samples("a@10=1 b@10=1 c@20=1")[i:]); err != nil {
			t.Fatal(err)
		}
	}
	counters := map[string]string{
		"prometheus_tsdb_head_series_created_total store=10s":                  "5",
		"prometheus_tsdb_head_samples_appended_total store=10s type=float":     "5",
		"prometheus_tsdb_head_samples_appended_total store=10s type=histogram": "0",
		"prometheus_tsdb_compaction_duration_seconds store=10s":                "0 14",
		"prometheus_tsdb_head_max_time store=10s":                              "",
	}
	expect("open", counters)
	expect("open", map[string]string{"prometheus_tsdb_head_chunks store=10s": "5",
		"prometheus_tsdb_wal_fsync_duration_seconds store=10s": "0 0"})
	w.now = w.now.Add(w.cfg.Idle + time.Hour)
	if err := w.stores.closeIdle(); err != nil {
		t.Fatal(err)
	}
	expect("closed", counters)
	expect("closed", map[string]string{"prometheus_tsdb_head_chunks store=10s": ""})
	if _, err := w.stores.WriteTiles(t.Context(), "one", ten, w.samples("d@20=1")); err != nil {
		t.Fatal(err)
	}
	expect("open again", map[string]string{"prometheus_tsdb_head_samples_appended_total store=10s type=float": "6"})
}

func TestCloseWaitsForReaders(t *testing.T) {
	w := newWorld(t)
	w.write("a@10=1")
	q, err := w.stores.Querier(tenant.Default, "10s", 0, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	expired, cancel := context.WithCancel(context.Background())
	cancel()
	if err := w.stores.Close(expired); err == nil {
		t.Error("a database was closed while a reader used it")
	}
	closed := make(chan error)
	go func() { closed <- w.stores.Close(context.Background()) }()
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if _, err := w.stores.Querier(tenant.Default, "10s", 0, 1); err == nil {
		t.Error("a closed store answers a query")
	}
	if _, err := w.stores.WriteTiles(context.Background(), tenant.Default, ten, nil); err == nil {
		t.Error("a closed store takes samples")
	}
}

// Writers of different series and readers share a store.
func TestConcurrent(t *testing.T) {
	w := newWorld(t)
	const writers, writes = 4, 50
	var all [writers][][]tile.Sample
	for i := range all {
		for n := range writes {
			all[i] = append(all[i], w.samples(fmt.Sprintf("s%d@%d=%d", i, 10*n, n)))
		}
	}
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for _, samples := range all[i] {
				if st, err := w.stores.WriteTiles(context.Background(), tenant.Default, ten, samples); err != nil ||
					st.Stored.Samples != 1 {
					t.Errorf("got %+v, want 1 stored sample; error %v", st, err)
				}
			}
		})
		wg.Go(func() {
			for range writes {
				w.stored(tenant.Default, "10s")
			}
		})
	}
	wg.Wait()
	if got := len(strings.Fields(w.stored(tenant.Default, "10s"))); got != writers*writes {
		t.Errorf("%d samples stored; want %d", got, writers*writes)
	}
}

func TestValidate(t *testing.T) {
	defaults := struct {
		Store Config `yaml:"store"`
	}{DefaultConfig()}
	if _, err := conf.New("TEST", defaults).Load("", os.LookupEnv); err != nil {
		t.Errorf("the default configuration has problems: %v", err)
	}
	var keys []string
	for _, p := range (Config{OutOfOrder: -1, Exemplars: -1, MaxOpen: -1, WALCompression: "lz4"}).Validate() {
		keys = append(keys, p.Key)
	}
	want := []string{"retention.raw", "retention.10s", "retention.1m", "out_of_order", "exemplars", "max_tenants",
		"pending", "idle", "max_open", "wal_compression", "wal_fsync"}
	if !slices.Equal(keys, want) {
		t.Errorf("the keys with problems are %v; want %v", keys, want)
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	_, err := Open(DefaultConfig(), file, time.Now, prometheus.NewRegistry(),
		slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("the error %v does not name %s", err, file)
	}
}
