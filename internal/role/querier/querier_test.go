package querier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	promtsdb "github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/core/changes"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// now is the time 0 of the tests, in Unix milliseconds.
const now = 1_700_006_400_000

// openTiles implements the interface Open with the open tiles of one tenant.
type openTiles struct {
	tenant string
	live   map[tile.Width][]tile.Live
	asked  func() // called before the answer
	err    error
	lacks  error // why raw lacks samples
	stale  error // why the newest samples may be missing
	waited int   // calls of Current
}

func (o *openTiles) Current(context.Context, string) error {
	o.waited++
	return o.stale
}

func (o *openTiles) Changes(string) *changes.Log { return nil }
func (o *openTiles) FinalBefore(string) int64    { return changes.All }

func (o *openTiles) Replayed(context.Context, string) error { return o.lacks }

func (o *openTiles) Live(name string, w tile.Width, mint, maxt int64, matchers []*labels.Matcher) ([]tile.Live, error) {
	if o.asked != nil {
		o.asked()
	}
	if o.err != nil || name != o.tenant {
		return nil, o.err
	}
	var matching []tile.Live
	for _, l := range o.live[w] {
		points := slices.Clone(l.Points)
		points = slices.DeleteFunc(points, func(p tile.Point) bool { return p.T < mint || p.T > maxt })
		if len(points) > 0 &&
			!slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(l.Labels.Get(m.Name)) }) {
			matching = append(matching, tile.Live{Labels: l.Labels, Points: points})
		}
	}
	return matching, nil
}

// world is a querier over stores on disk and open tiles.
type world struct {
	t      *testing.T
	stores *tsdb.Stores
	open   *openTiles
	*Queryable
}

// newWorld returns a world with samples in the raw store, written as "name@second=value".
func newWorld(t *testing.T, rawSamples string) *world { return newWorldIn(t, t.TempDir(), rawSamples) }

func newWorldIn(t *testing.T, dir, rawSamples string) *world {
	if rawSamples != "" {
		db, err := promtsdb.Open(filepath.Join(dir, "tsdb", tenant.Default, "raw"), nil, nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		app := db.Appender(context.Background())
		for _, s := range samples(t, rawSamples) {
			if _, err := app.Append(0, s.Series.Labels, s.T, s.V); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(app.Commit(), db.Close()); err != nil {
			t.Fatal(err)
		}
	}
	clock := func() time.Time { return time.UnixMilli(now) }
	stores, err := tsdb.Open(tsdb.DefaultConfig(), dir, clock, prometheus.NewRegistry(),
		slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // Close fails unless all queriers were closed
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := stores.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	open := &openTiles{tenant: tenant.Default, live: map[tile.Width][]tile.Live{}}
	return &world{t: t, stores: stores, open: open, Queryable: New(stores, open, 5*time.Minute, clock)}
}

// samples reads "a@10=1 b@20=h2": series, second and value. h2 is a histogram with 2 in one bucket.
func samples(t *testing.T, text string) []tile.Sample {
	t.Helper()
	var all []tile.Sample
	for _, word := range strings.Fields(text) {
		name, rest, _ := strings.Cut(word, "@")
		at, val, _ := strings.Cut(rest, "=")
		var second int64
		var v float64
		_, err := fmt.Sscan(at, &second)
		_, errV := fmt.Sscan(strings.TrimPrefix(val, "h"), &v)
		if err := errors.Join(err, errV); err != nil {
			t.Fatal(err)
		}
		s := tile.Sample{
			Series: &tile.Series{Labels: labels.FromStrings("__name__", name, "of", name)}, T: now + 1000*second, V: v,
		}
		if val[0] == 'h' {
			s.H = &histogram.FloatHistogram{
				Count: v, Sum: v, PositiveSpans: []histogram.Span{{Length: 1}}, PositiveBuckets: []float64{v},
			}
		}
		all = append(all, s)
	}
	return all
}

func (w *world) write(name string, width tile.Width, text string) {
	w.t.Helper()
	for _, s := range samples(w.t, text) {
		st, err := w.stores.WriteTiles(context.Background(), name, width, []tile.Sample{s})
		if err != nil || st.Stored.Samples != 1 {
			w.t.Fatalf("write %s: %+v, %v", text, st, err)
		}
	}
}

// opened adds points to the open tiles, grouped by series.
func (w *world) opened(width tile.Width, text string) {
	w.t.Helper()
	for _, s := range samples(w.t, text) {
		all := w.open.live[width]
		p := tile.Point{T: s.T, V: s.V, H: s.H}
		if n := len(all); n > 0 && labels.Equal(all[n-1].Labels, s.Series.Labels) {
			all[n-1].Points = append(all[n-1].Points, p)
		} else {
			w.open.live[width] = append(all, tile.Live{Labels: s.Series.Labels, Points: []tile.Point{p}})
		}
	}
}

var (
	ctx        = tenant.NewContext(context.Background(), tenant.Default)
	everything = labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+")
)

const hour = 3600 * 1000

// selected returns the result of a select over the last hour, as text.
func (w *world) selected(ctx context.Context, hints *storage.SelectHints, matchers ...*labels.Matcher) (string, error) {
	q, err := w.Querier(now-hour, now)
	if err != nil {
		w.t.Fatal(err)
	}
	defer q.Close()
	var words []string
	set := q.Select(ctx, false, hints, matchers...)
	for set.Next() {
		words = append(words, text(w.t, set.At().Labels(), set.At().Iterator(nil))...)
	}
	return strings.Join(words, " "), set.Err()
}

func (w *world) selectedChunks(ctx context.Context, hints *storage.SelectHints,
	matchers ...*labels.Matcher) (string, error) {
	q, err := w.ChunkQuerier(now-hour, now)
	if err != nil {
		w.t.Fatal(err)
	}
	defer q.Close()
	var words []string
	set := q.Select(ctx, false, hints, matchers...)
	for set.Next() {
		it := set.At().Iterator(nil)
		for it.Next() {
			words = append(words, text(w.t, set.At().Labels(), it.At().Chunk.Iterator(nil))...)
		}
		if it.Err() != nil {
			w.t.Fatal(it.Err())
		}
	}
	return strings.Join(words, " "), set.Err()
}

func text(t *testing.T, ls labels.Labels, it chunkenc.Iterator) (words []string) {
	t.Helper()
	for typ := it.Next(); typ != chunkenc.ValNone; typ = it.Next() {
		val := ""
		if typ == chunkenc.ValFloat {
			_, v := it.At()
			val = fmt.Sprint(v)
		} else {
			_, h := it.AtFloatHistogram(nil)
			val = fmt.Sprint("h", h.Count)
		}
		words = append(words, fmt.Sprintf("%s@%d=%s", ls.Get("__name__"), (it.AtT()-now)/1000, val))
	}
	if it.Err() != nil {
		t.Fatal(it.Err())
	}
	return words
}

func TestSelect(t *testing.T) {
	const (
		fine   = 15 * 1000 // step of a range query that reads tiles of 10 s
		coarse = 60 * 1000
	)
	for _, c := range []struct {
		why              string
		raw, ten, minute string // stored
		open10s, open1m  string
		step             int64
		want             string
	}{
		{why: "nothing"},
		{why: "raw samples and tiles have different series and overlap in time",
			raw: "r@-30=1 r@-5=2", ten: "a@-30=3 a@-20=4", step: fine,
			want: "a@-30=3 a@-20=4 r@-30=1 r@-5=2"},
		{why: "tiles of 10 s are read with the raw samples, but no tiles of 1 min",
			raw: "r@-30=1", ten: "a@-60=1 a@-50=2", minute: "a@-60=1", open10s: "a@-3=3", open1m: "a@-2=4", step: fine,
			want: "a@-60=1 a@-50=2 a@-3=3 r@-30=1"},
		{why: "tiles of 1 min are read with the raw samples, but no tiles of 10 s",
			raw: "r@-30=1", ten: "a@-60=1 a@-50=2", minute: "a@-60=1", open10s: "a@-3=3", open1m: "a@-2=4", step: coarse,
			want: "a@-60=1 a@-2=4 r@-30=1"},
		{why: "a series that is only in open tiles", open10s: "a@-3=1", ten: "b@-10=1", want: "a@-3=1 b@-10=1"},
		{why: "a tile that is stored and still open is returned once",
			ten: "a@-20=1 a@-10=2", open10s: "a@-20=1 a@-10=2 a@-3=3", want: "a@-20=1 a@-10=2 a@-3=3"},
		{why: "a stored tile is final, though the open one may have changed since",
			ten: "a@-10=5", open10s: "a@-10=4 a@-3=6", want: "a@-10=5 a@-3=6"},
		{why: "a tile was stored between the two reads",
			ten: "a@-20=1 a@-10=4", open10s: "a@-13=3", want: "a@-20=1 a@-13=3 a@-10=4"},
		{why: "histograms", ten: "a@-20=h1 a@-10=h2", open10s: "a@-10=h2 a@-3=h3", want: "a@-20=h1 a@-10=h2 a@-3=h3"},
		{why: "one series with raw samples and tiles",
			raw: "a@-20=1 a@-15=2", ten: "a@-20=1 a@-10=3", open10s: "a@-3=4", want: "a@-20=1 a@-15=2 a@-10=3 a@-3=4"},
		{why: "sorted, whatever the order of the open set",
			ten: "b@-10=1", open10s: "c@-3=1 a@-3=1 b@-3=2", want: "a@-3=1 b@-10=1 b@-3=2 c@-3=1"},
		{why: "only samples in the range of the query", ten: "a@-3601=1 a@-3600=2", open10s: "a@0=3 a@1=4",
			want: "a@-3600=2 a@0=3"},
	} {
		t.Run(c.why, func(t *testing.T) {
			w := newWorld(t, c.raw)
			w.write(tenant.Default, tile.Width10s, c.ten)
			w.write(tenant.Default, tile.Width1m, c.minute)
			w.opened(tile.Width10s, c.open10s)
			w.opened(tile.Width1m, c.open1m)
			hints := &storage.SelectHints{Start: now - hour, End: now, Step: c.step}
			for what, do := range map[string]func(context.Context, *storage.SelectHints, ...*labels.Matcher) (string, error){
				"samples": w.selected, "chunks": w.selectedChunks,
			} {
				if got, err := do(ctx, hints, everything); got != c.want || err != nil {
					t.Errorf("%s: %s, %v\nwant %s", what, got, err, c.want)
				}
				if c.step == 0 {
					if got, err := do(ctx, nil, everything); got != c.want || err != nil {
						t.Errorf("%s without hints: got %s, error %v\nwant %s", what, got, err, c.want)
					}
				}
			}
		})
	}
}

// A tile is committed to its store, and then leaves the open tiles. If that happens between the two
// reads of a query, one of the reads must return the tile.
func TestSelectMissesNoTileOnItsWay(t *testing.T) {
	for name, do := range map[string]func(w *world) (string, error){
		"samples": func(w *world) (string, error) { return w.selected(ctx, nil, everything) },
		"chunks":  func(w *world) (string, error) { return w.selectedChunks(ctx, nil, everything) },
		"label values": func(w *world) (string, error) {
			q, err := w.Querier(now-hour, now)
			if err != nil {
				return "", err
			}
			defer q.Close()
			values, _, err := q.LabelValues(ctx, "of", nil)
			return strings.Join(values, " "), err
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "")
			w.write(tenant.Default, tile.Width10s, "a@-20=1")
			w.open.asked = func() { w.write(tenant.Default, tile.Width10s, "b@-10=2") }
			got, err := do(w)
			if err != nil || !strings.Contains(got, "b") {
				t.Errorf("tile b was committed during the query: got %s, error %v, want tile b in the result", got, err)
			}
		})
	}
}

func TestSelectMatchesAndLimits(t *testing.T) {
	w := newWorld(t, "r@-5=1")
	w.write(tenant.Default, tile.Width10s, "a@-10=1 b@-10=1")
	w.opened(tile.Width10s, "b@-3=1 c@-3=1")
	b := labels.MustNewMatcher(labels.MatchEqual, "of", "b")
	if got, err := w.selected(ctx, nil, b); got != "b@-10=1 b@-3=1" || err != nil {
		t.Errorf("of=b: %s, %v", got, err)
	}
	hints := &storage.SelectHints{Start: now - hour, End: now, Limit: 2}
	if got, err := w.selected(ctx, hints, everything); got != "a@-10=1 b@-10=1 b@-3=1" || err != nil {
		t.Errorf("a query with a limit of two series returned %s, error %v, want all samples of a and b", got, err)
	}
}

func TestLabels(t *testing.T) {
	w := newWorld(t, "r@-5=1")
	w.write(tenant.Default, tile.Width10s, "a@-10=1 b@-10=1")
	w.opened(tile.Width10s, "b@-3=1 c@-3=1")
	w.open.live[tile.Width10s] = append(w.open.live[tile.Width10s],
		tile.Live{Labels: labels.FromStrings("__name__", "d", "only", "open"), Points: []tile.Point{{T: now - 3000}}})
	sq, _ := w.Querier(now-hour, now)
	cq, _ := w.ChunkQuerier(now-hour, now)
	for what, q := range map[string]storage.LabelQuerier{"samples": sq, "chunks": cq} {
		for _, c := range []struct {
			why  string
			ask  func() ([]string, error)
			want []string
		}{
			{"values of stores and open tiles", values(q, "of", nil), []string{"a", "b", "c", "r"}},
			{"values of series that match", values(q, "of", nil, labels.MustNewMatcher(labels.MatchRegexp, "__name__", "b|c|d")),
				[]string{"b", "c"}},
			{"the first two values", values(q, "of", &storage.LabelHints{Limit: 2}), []string{"a", "b"}},
			{"values of a label that no series has", values(q, "nothing", nil), nil},
			{"names", names(q, nil), []string{"__name__", "of", "only"}},
			{"names of series that match", names(q, nil, labels.MustNewMatcher(labels.MatchEqual, "of", "c")),
				[]string{"__name__", "of"}},
			{"one name", names(q, &storage.LabelHints{Limit: 1}), []string{"__name__"}},
		} {
			if got, err := c.ask(); !slices.Equal(got, c.want) || err != nil {
				t.Errorf("%s: %s: got %v, error %v; want %v", what, c.why, got, err, c.want)
			}
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
}

func values(q storage.LabelQuerier, name string, hints *storage.LabelHints,
	matchers ...*labels.Matcher) func() ([]string, error) {
	return func() ([]string, error) {
		got, _, err := q.LabelValues(ctx, name, hints, matchers...)
		return got, err
	}
}

func names(q storage.LabelQuerier, hints *storage.LabelHints, matchers ...*labels.Matcher) func() ([]string, error) {
	return func() ([]string, error) {
		got, _, err := q.LabelNames(ctx, hints, matchers...)
		return got, err
	}
}

func TestTenants(t *testing.T) {
	w := newWorld(t, "r@-5=1")
	w.write(tenant.Default, tile.Width10s, "a@-10=1")
	w.opened(tile.Width10s, "a@-3=2")
	w.write("other", tile.Width10s, "o@-10=1")
	other := tenant.NewContext(context.Background(), "other")
	nobody := tenant.NewContext(context.Background(), "nobody")

	for _, c := range []struct {
		why  string
		ctx  context.Context
		want string
	}{
		{"a tenant gets its own samples", ctx, "a@-10=1 a@-3=2 r@-5=1"},
		{"another tenant gets only its own samples", other, "o@-10=1"},
		{"a tenant without stores gets nothing", nobody, ""},
	} {
		for what, do := range map[string]func(context.Context, *storage.SelectHints, ...*labels.Matcher) (string, error){
			"samples": w.selected, "chunks": w.selectedChunks,
		} {
			if got, err := do(c.ctx, nil, everything); got != c.want || err != nil {
				t.Errorf("%s: %s: got %s, error %v; want %s", c.why, what, got, err, c.want)
			}
		}
	}

	// A request without a tenant in its context gets an error. It does not get the default tenant.
	q, _ := w.Querier(now-hour, now)
	defer q.Close()
	lost := context.Background()
	_, _, errValues := q.LabelValues(lost, "of", nil)
	_, _, errNames := q.LabelNames(lost, nil)
	_, errSelect := w.selected(lost, nil, everything)
	_, errChunks := w.selectedChunks(lost, nil, everything)
	_, errExemplars := w.ExemplarQuerier(lost)
	for i, err := range []error{errValues, errNames, errSelect, errChunks, errExemplars} {
		if !errors.Is(err, errNoTenant) {
			t.Errorf("%d: %v; want %v", i, err, errNoTenant)
		}
	}
	if eq, err := w.ExemplarQuerier(ctx); err != nil {
		t.Error(err)
	} else if found, err := eq.Select(0, now); len(found) != 0 || err != nil {
		t.Errorf("exemplars %v, %v", found, err)
	}
}

// If the open tiles cannot be read, the query fails, because an answer without the newest samples must
// not look complete.
func TestSelectSaysWhatItCannotRead(t *testing.T) {
	w := newWorld(t, "")
	w.open.err = errors.New("table on fire")
	if _, err := w.selected(ctx, nil, everything); !errors.Is(err, w.open.err) {
		t.Errorf("select: %v", err)
	}
	w.open.err = nil
	if err := w.stores.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	for what, do := range map[string]func(context.Context, *storage.SelectHints, ...*labels.Matcher) (string, error){
		"samples": w.selected, "chunks": w.selectedChunks,
	} {
		if _, err := do(ctx, nil, everything); !errors.Is(err, tsdb.ErrClosed) {
			t.Errorf("a select of %s in a closed store returned %v, want ErrClosed", what, err)
		}
	}
}

// The hints of the engine decide which width is read. The two widths have different values here, so the
// answer shows which of them was read.
func TestEngineChoosesResolution(t *testing.T) {
	w := newWorld(t, "")
	for s := -1800; s <= 0; s += 60 {
		w.write(tenant.Default, tile.Width10s, fmt.Sprintf("a@%d=10", s))
		w.write(tenant.Default, tile.Width1m, fmt.Sprintf("a@%d=60", s))
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute})
	t.Cleanup(func() { engine.Close() })
	end := time.UnixMilli(now)
	for _, c := range []struct {
		expr string
		step time.Duration // 0 for an instant query
		want float64
	}{
		{"a", 0, 10},
		{"max_over_time(a[10m])", 0, 10},
		{"a", 15 * time.Second, 10},
		{"a", time.Minute, 60},
		{"max_over_time(a[2m])", time.Minute, 10},
		{"max_over_time(a[4m])", time.Minute, 60},
		{"max_over_time(a[10m:1m])", 0, 60}, // a subquery has steps too
	} {
		var q promql.Query
		var err error
		if c.step == 0 {
			q, err = engine.NewInstantQuery(ctx, w, nil, c.expr, end)
		} else {
			q, err = engine.NewRangeQuery(ctx, w, nil, c.expr, end.Add(-10*time.Minute), end, c.step)
		}
		if err != nil {
			t.Fatal(err)
		}
		result := q.Exec(ctx)
		var got float64
		switch v := result.Value.(type) {
		case promql.Vector:
			got = v[0].F
		case promql.Matrix:
			got = v[0].Floats[len(v[0].Floats)-1].F
		}
		if result.Err != nil || got != c.want {
			t.Errorf("%s, step %v: got %v, error %v; want %v", c.expr, c.step, got, result.Err, c.want)
		}
		q.Close()
	}
}
