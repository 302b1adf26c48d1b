package distributor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/core/otlp"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/settings"
)

// aggregator keeps totals in shards of tiles, as the role does, and posts the fates of samples.
type aggregator struct {
	ledger *ledger.Ledger
	err    error // returned by Push; unless it is batch.ErrUnsynced, Push counts nothing
	away   error // returned by Kinds
	asked  int   // how often Kinds was called

	pushing  atomic.Int32
	together atomic.Bool // two pushes ran at the same time, so the order of their sequence numbers was undefined

	mu     sync.Mutex
	shards map[uint16]*tile.Shard
}

func (a *aggregator) shard(number uint16) *tile.Shard {
	if a.shards == nil {
		a.shards = map[uint16]*tile.Shard{}
	}
	if a.shards[number] == nil {
		a.shards[number] = tile.New(&tile.Config{CounterTTL: time.Hour, GaugeTTL: time.Hour, UpDownTTL: 3 * time.Hour},
			1_700_000_000_000-10_000)
	}
	return a.shards[number]
}

func (a *aggregator) Push(_ context.Context, batches []batch.Batch) error {
	if a.err != nil && !errors.Is(a.err, batch.ErrUnsynced) {
		return a.err
	}
	if a.pushing.Add(1) > 1 {
		a.together.Store(true)
	}
	defer a.pushing.Add(-1)
	runtime.Gosched()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range batches {
		f, err := a.shard(b.Shard).Fold(b.Bytes)
		if err != nil {
			panic(err)
		}
		a.ledger.Post("a", ledger.Transfer{From: ledger.Window, To: ledger.Tile, Samples: f.Samples},
			ledger.Transfer{From: ledger.Window, To: ledger.Refused, Reason: "repeated", Samples: f.Repeated})
	}
	return a.err
}

func (a *aggregator) Kinds(_ context.Context, tenant string, keys [][]byte) ([]series.Kind, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	kinds := make([]series.Kind, len(keys))
	for i, key := range keys {
		for kind := series.Counter; kind <= series.LastKind; kind++ {
			other := append([]byte{byte(kind)}, key[1:]...)
			if (kinds[i] == 0 || key[0] == byte(kind)) && a.shard(series.Shard(tenant, other)).Holds(tenant, other) {
				kinds[i] = kind
			}
		}
	}
	return kinds, a.away
}

func (a *aggregator) TenantSeries(_ context.Context, tenant string) (n int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.shards {
		n += s.TenantLen(tenant)
	}
	return n, nil
}

// totals returns the totals as a query would, by the names of the series. A total is a value, or a text
// for a histogram.
func (a *aggregator) totals() map[string]string {
	all := map[string]string{}
	for _, s := range a.shards {
		for _, l := range s.Live("a", tile.Width10s, 1_700_000_020_000, math.MaxInt64, nil) {
			p := l.Points[len(l.Points)-1]
			name := l.Labels.Get("__name__")
			if le := l.Labels.Get("le"); le != "" {
				name += "{" + le + "}"
			}
			if all[name] = fmt.Sprint(p.V); p.H != nil {
				all[name] = fmt.Sprintf("%v of %v at schema %d: %v", p.H.Count, p.H.Sum, p.H.Schema, p.H.PositiveBuckets)
			}
		}
	}
	return all
}

func newDeltaWorld(t *testing.T, change func(*settings.Distributor)) (*world, *aggregator) {
	w := newWorld(t, change)
	a := &aggregator{ledger: w.Ledger}
	w.Aggregator, w.Tiles = a, tiles{w}
	return w, a
}

// increments makes a request of metrics with delta temporality.
func (w *world) increments(add func(pmetric.MetricSlice)) *write.Incoming {
	w.t.Helper()
	m := pmetric.NewMetrics()
	add(m.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics())
	var totals remotewrite.Request
	var increments write.Incoming
	var to, deltas remotewrite.Builder
	to.Begin(&totals, nil)
	deltas.Begin(&increments.Request, nil)
	c, err := otlp.Convert(m, w.OTLP(), &to, &deltas, func(int) error { return nil })
	if err != nil || c.Refused.AnyRefused() || len(totals.Series) > 0 {
		w.t.Fatal(err, c.Refused.Text(), len(totals.Series))
	}
	return &increments
}

func (w *world) stamp(after time.Duration) pcommon.Timestamp {
	return pcommon.NewTimestampFromTime(w.now.Add(after))
}

// sum adds a point to a sum for each value. The points are 1 s apart.
func (w *world) sum(to pmetric.MetricSlice, name string, monotonic bool, values ...float64) {
	m := to.AppendEmpty()
	m.SetName(name)
	s := m.SetEmptySum()
	s.SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
	s.SetIsMonotonic(monotonic)
	for i, v := range values {
		p := s.DataPoints().AppendEmpty()
		p.SetDoubleValue(v)
		p.SetTimestamp(w.stamp(time.Duration(i+1) * time.Second))
	}
}

func (w *world) everyKind(to pmetric.MetricSlice) {
	w.sum(to, "requests", true, 3, 4)
	w.sum(to, "open", false, 3, -5)
	explicit := to.AppendEmpty()
	explicit.SetName("latency")
	explicit.SetEmptyHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
	for i := range 2 {
		p := explicit.Histogram().DataPoints().AppendEmpty()
		p.SetTimestamp(w.stamp(time.Duration(i+1) * time.Second))
		p.ExplicitBounds().FromRaw([]float64{1, 2})
		p.BucketCounts().FromRaw([]uint64{0, 2, 1})
		p.SetCount(3)
		p.SetSum(7)
	}
	exponential := to.AppendEmpty()
	exponential.SetName("size")
	exponential.SetEmptyExponentialHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
	for i := range 2 {
		p := exponential.ExponentialHistogram().DataPoints().AppendEmpty()
		p.SetTimestamp(w.stamp(time.Duration(i+1) * time.Second))
		p.SetScale(5)
		p.Positive().SetOffset(-2)
		p.Positive().BucketCounts().FromRaw([]uint64{2, 0, uint64(i)})
		p.SetCount(2 + uint64(i))
		p.SetSum(1.5)
	}
}

// buckets adds an exponential histogram.
func (w *world) buckets(to pmetric.MetricSlice, count uint64, counts ...uint64) {
	m := to.AppendEmpty()
	m.SetName("h")
	m.SetEmptyExponentialHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
	p := m.ExponentialHistogram().DataPoints().AppendEmpty()
	p.SetTimestamp(w.stamp(0))
	p.Positive().BucketCounts().FromRaw(counts)
	p.SetCount(count)
}

// Deltas of every kind become totals. Repeats do not count again.
func TestDeltasBecomeTotals(t *testing.T) {
	w, a := newDeltaWorld(t, func(c *settings.Distributor) { c.OTLP.NativeHistograms = true })
	want := map[string]string{
		"requests_total": "7", "open": "-2",
		"latency_bucket{1}": "0", "latency_bucket{2}": "4", "latency_bucket{+Inf}": "6", "latency_count": "6",
		"latency_sum": "14",
		"size":        "5 of 3 at schema 5: [4 1]",
	}
	const samples, histograms = 2 + 2 + 2*5, 2
	for round := range 3 {
		o, err := w.PushDeltas(t.Context(), "a", w.increments(w.everyKind))
		if err != nil || o.AnyRefused() || o.Written != (outcome.Counts{Samples: samples, Histograms: histograms}) {
			t.Fatalf("round %d: error %v, written %+v: %s", round, err, o.Written, o.Text())
		}
		if got := a.totals(); !maps.Equal(got, want) {
			t.Errorf("round %d: got %v\nwant %v", round, got, want)
		}
	}
	books := w.Ledger.Books().Tenants["a"].Samples
	if books.Received != 3*(samples+histograms) || books.Tile != samples+histograms ||
		books.Refused["repeated"] != 2*(samples+histograms) || books.Difference != 0 {
		t.Errorf("the books are %+v", books)
	}
}

// A sum that may fall declares itself as an up/down counter: its total outlives the totals of
// monotonic sums and of gauges.
func TestDeltasThatMayFallAreUpDownCounters(t *testing.T) {
	w, a := newDeltaWorld(t, func(*settings.Distributor) {})
	push := func(falling float64) {
		t.Helper()
		if o, err := w.PushDeltas(t.Context(), "a", w.increments(func(to pmetric.MetricSlice) {
			w.sum(to, "hits", true, 3)
			w.sum(to, "open", false, falling)
		})); err != nil || o.AnyRefused() {
			t.Fatal(err, o.Text())
		}
	}
	push(-5)
	for _, s := range a.shards {
		for range 2 * 360 {
			s.Close(s.Closed()+tile.Width10s.Millis(), &tile.Config{
				CounterTTL: time.Hour, GaugeTTL: time.Hour, UpDownTTL: 3 * time.Hour,
			})
			s.AllStored()
		}
	}
	for _, s := range a.shards {
		for held := range s.Series() {
			if kind := series.Kind(held.Key[0]); kind != series.UpDown || !held.Delta {
				t.Errorf("after two hours there is a %v, want only the up/down counter: %+v", kind, held)
			}
		}
	}
	if n, _ := a.TenantSeries(t.Context(), "a"); n != 1 {
		t.Errorf("after two hours there are %d series, want 1", n)
	}
}

// Points of a series that come in the wrong order in a request are sorted.
func TestDeltasAreCountedInTheOrderOfTime(t *testing.T) {
	w, a := newDeltaWorld(t, func(*settings.Distributor) {})
	r := w.increments(func(to pmetric.MetricSlice) {
		w.sum(to, "a", true, 1, 2, 4)
		points := to.At(0).Sum().DataPoints()
		points.At(0).SetTimestamp(w.stamp(9 * time.Second))
	})
	if o, err := w.PushDeltas(t.Context(), "a", r); err != nil || a.totals()["a_total"] != "7" {
		t.Errorf("%v, %s: %v", err, o.Text(), a.totals())
	}
}

// All concurrent requests count, and no request counts as a repeat of another.
func TestDeltasAtTheSameTime(t *testing.T) {
	w, a := newDeltaWorld(t, func(*settings.Distributor) {})
	var wg sync.WaitGroup
	for i := range 64 {
		r := w.increments(func(to pmetric.MetricSlice) { w.sum(to, fmt.Sprintf("a%d", i), true, 1) })
		wg.Go(func() {
			if _, err := w.PushDeltas(t.Context(), "a", r); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(a.totals()); n != 64 || a.together.Load() {
		t.Errorf("%d series have a total, want 64; whether two pushes ran at the same time: %v, want false",
			n, a.together.Load())
	}
}

// Whatever its fate, each part of a request is in the answer and in the books exactly once.
func TestDeltasThatAreNotCounted(t *testing.T) {
	two := func(w *world, to pmetric.MetricSlice) {
		w.sum(to, "a", true, 1)
		w.sum(to, "b", true, 1)
	}
	for _, c := range []struct {
		why     string
		change  func(*settings.Distributor)
		add     func(*world, pmetric.MetricSlice)
		written int
		dropped int
		refused string // a part of the text
	}{
		{why: "a rule drops a series", change: func(c *settings.Distributor) {
			c.Relabel = []mapping.Relabel{{SourceLabels: []string{"__name__"},
				Regex: mapping.Optional{Text: "b_total", Given: true}, Action: "drop"}}
		}, add: two, written: 1, dropped: 1},
		{why: "a label that is too long", change: func(c *settings.Distributor) { c.MaxLabelValue = 6 }, add: two,
			refused: "2 too_long_label"},
		{why: "too many series", change: func(c *settings.Distributor) { c.MaxSeries = 1 }, add: two, written: 1,
			refused: `(1 too_many_series), everything else was written; ` +
				`the first is {__name__="b_total"}: the tenant has 1 series`},
		{why: "too far ahead", change: func(*settings.Distributor) {}, add: func(w *world, to pmetric.MetricSlice) {
			w.sum(to, "a", true, 1)
			to.At(0).Sum().DataPoints().At(0).SetTimestamp(w.stamp(11 * time.Minute))
		}, refused: "1 too_far_ahead"},
		{why: "a time before 1970", change: func(*settings.Distributor) {}, add: func(w *world, to pmetric.MetricSlice) {
			w.sum(to, "a", true, 1)
			to.At(0).Sum().DataPoints().At(0).SetTimestamp(1)
		}, refused: "1 too_old"},
		{why: "a bucket with an index that is too large", change: func(*settings.Distributor) {},
			add: func(w *world, to pmetric.MetricSlice) {
				m := to.AppendEmpty()
				m.SetName("h")
				m.SetEmptyExponentialHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
				p := m.ExponentialHistogram().DataPoints().AppendEmpty()
				p.SetTimestamp(w.stamp(0))
				p.Positive().SetOffset(1 << 20)
				p.Positive().BucketCounts().FromRaw([]uint64{1})
				p.SetCount(1)
			}, refused: "1 bad_histogram"},
		{why: "more values in its buckets than in its count", change: func(*settings.Distributor) {},
			add:     func(w *world, to pmetric.MetricSlice) { w.buckets(to, 2, 300, 300) },
			refused: "its count is 2, but its buckets add up to 600"},
		{why: "more values than a count can hold", change: func(*settings.Distributor) {},
			add: func(w *world, to pmetric.MetricSlice) { w.buckets(to, 1<<63, 1<<63) }, refused: "1 bad_histogram"},
	} {
		w, _ := newDeltaWorld(t, c.change)
		r := w.increments(func(to pmetric.MetricSlice) { c.add(w, to) })
		o, err := w.PushDeltas(t.Context(), "a", r)
		if err != nil || o.Written.Total() != c.written || o.Dropped.Total() != c.dropped ||
			!strings.Contains(o.Text(), c.refused) || (c.refused == "") != (o.Text() == "") {
			t.Errorf("%s: %v, %+v, %q", c.why, err, o, o.Text())
		}
		refused := o.AllRefused()
		books := w.Ledger.Books().Tenants["a"].Samples
		if all := uint64(c.written + c.dropped + refused.Total()); books.Received != all ||
			books.Tile != uint64(c.written) || books.Difference != 0 {
			t.Errorf("%s: %d values were sent, but the books are %+v", c.why, all, books)
		}
	}
}

// Two kinds may not share a name and labels: a store would get two values for one series.
func TestDeltasOfTwoKinds(t *testing.T) {
	w, a := newDeltaWorld(t, func(*settings.Distributor) {})
	both := func(to pmetric.MetricSlice) {
		w.sum(to, "conf", true, 7)         // conf_total
		w.sum(to, "conf_total", false, -3) // also conf_total
	}
	if o, err := w.PushDeltas(t.Context(), "a", w.increments(both)); err != nil || o.Written.Samples != 1 ||
		!strings.Contains(o.Text(), "(1 mixed_series)") || !strings.Contains(o.Text(), "is already a counter here") {
		t.Errorf("two kinds in one request: error %v, written %+v, want 1: %s", err, o.Written, o.Text())
	}
	w.now = w.now.Add(5 * time.Second)
	if o, err := w.PushDeltas(t.Context(), "a", w.increments(both)); err != nil || o.Written.Samples != 1 ||
		a.totals()["conf_total"] != "14" {
		t.Errorf("later: %v, %+v, %v", err, o.Written, a.totals())
	}
}

// If a request has two points of one series and time, for example from two scopes, both are counted.
// If the same request is sent again, it counts nothing.
func TestDeltasOfTwoScopesAddUp(t *testing.T) {
	w, a := newDeltaWorld(t, func(*settings.Distributor) {})
	r := w.increments(func(to pmetric.MetricSlice) {
		w.sum(to, "a", true, 5)
		w.sum(to, "a", true, 6)
		w.everyKind(to)
		w.everyKind(to)
	})
	for range 2 {
		o, err := w.PushDeltas(t.Context(), "a", r)
		if err != nil || o.AnyRefused() {
			t.Fatal(err, o.Text())
		}
		if got := a.totals(); got["a_total"] != "11" || got["requests_total"] != "14" || got["open"] != "-4" ||
			got["latency_count"] != "12" || got["size"] != "10 of 6 at schema 5: [8 2]" {
			t.Errorf("%v", got)
		}
	}
	if books := w.Ledger.Books().Tenants["a"].Samples; books.Refused["repeated"] != books.Tile || books.Difference != 0 {
		t.Errorf("the books are %+v", books)
	}
}

// The rate limit applies to deltas, too.
func TestDeltasTakeFromTheRate(t *testing.T) {
	w, _ := newDeltaWorld(t, func(c *settings.Distributor) { c.Rate = 1 })
	r := w.increments(func(to pmetric.MetricSlice) { w.sum(to, "a", true, slices.Repeat([]float64{1}, 100)...) })
	if _, err := w.PushDeltas(t.Context(), "a", r); err != nil || w.Admit("a") == nil {
		t.Errorf("the first request returned %v, want no error; or the next request was admitted, want a refusal", err)
	}
}

// If the aggregator cannot count, only the books change. If it has counted but could not sync the
// journal, the samples count once.
func TestDeltasThatCannotBeJournalled(t *testing.T) {
	for _, failure := range []error{errors.New("no space left"), fmt.Errorf("%w: the disk", batch.ErrUnsynced)} {
		w, a := newDeltaWorld(t, func(c *settings.Distributor) { c.MaxSeries = 1 })
		a.err = failure
		request := w.increments(func(to pmetric.MetricSlice) {
			w.sum(to, "a", true, 1, 2)
			w.sum(to, "b", true, 1) // has no room
		})
		var again *RetryError
		if _, err := w.PushDeltas(t.Context(), "a", request); !errors.As(err, &again) || !errors.Is(err, failure) {
			t.Errorf("%v: %v", failure, err)
		} else if errors.Is(failure, batch.ErrUnsynced) == strings.Contains(err.Error(), "nothing was written") {
			t.Error(err)
		}
		if n := testutil.ToFloat64(w.metrics.retries.WithLabelValues(unavailable)); n != 1 {
			t.Errorf("%v: %v retries", failure, n)
		}
		a.err = nil
		w.now = w.now.Add(recount)
		if o, err := w.PushDeltas(t.Context(), "a", request); err != nil || o.Written.Samples != 2 {
			t.Errorf("%v: then %v, %s", failure, err, o.Text())
		}
		if got := a.totals()["a_total"]; got != "3" {
			t.Errorf("%v: the total is %s", failure, got)
		}
		if books := w.Ledger.Books().Tenants["a"].Samples; books.Received != 6 || books.Tile != 2 || books.Difference != 0 {
			t.Errorf("%v: the books are %+v", failure, books)
		}
	}
}

// The distributor calls Kinds only once for all series of a request. If the aggregator returns an
// error, nothing counts, and the sender sends the request again.
func TestTheAggregatorIsAskedOnceForARequest(t *testing.T) {
	w, a := newDeltaWorld(t, func(*settings.Distributor) {})
	a.away = errors.New("no leader")
	r := w.increments(w.everyKind)
	var again *RetryError
	if _, err := w.PushDeltas(t.Context(), "a", r); !errors.As(err, &again) || !errors.Is(err, a.away) || a.asked != 1 {
		t.Errorf("a push returned %v, and Kinds was called %d times, want the aggregator's error and 1 call",
			err, a.asked)
	}
	parts := uint64(r.Counts().Samples + r.Counts().Histograms)
	if books := w.Ledger.Books().Tenants["a"].Samples; books.Received != parts || books.Tile != 0 ||
		books.Difference != 0 {
		t.Errorf("the books are %+v", books)
	}
	a.away = nil
	if o, err := w.PushDeltas(t.Context(), "a", r); err != nil || uint64(o.Written.Total()) != parts || a.asked != 2 {
		t.Errorf("the next push returned %v, %+v, and Kinds was called %d times, want everything written and 2 calls",
			err, o.Written, a.asked)
	}
}

// The sender of a flood of deltas must be known. So each new series and each refusal by a limit is
// reported with the sender. A known series is not reported.
func TestNewSeriesOfDeltasAreTold(t *testing.T) {
	w, _ := newDeltaWorld(t, func(c *settings.Distributor) { c.MaxSeries = 1 })
	for range 2 {
		r := w.increments(func(to pmetric.MetricSlice) {
			w.sum(to, "a", true, 1)
			w.sum(to, "b", true, 1)
		})
		r.Sender = sender.Of("10.0.0.7:1", "otel/1")
		if _, err := w.PushDeltas(t.Context(), "t", r); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		`t {__name__="a_total"} 10.0.0.7 (otel/1) false`, `t {__name__="b_total"} 10.0.0.7 (otel/1) true`,
		`t {__name__="b_total"} 10.0.0.7 (otel/1) true`,
	}
	if !slices.Equal(w.told, want) {
		t.Errorf("NewTotal was called with %q, want %q", w.told, want)
	}
	grown := w.stores.Growth()
	if len(grown) != 1 || grown[0].Metrics[0].Name != "b_total" ||
		!slices.Equal(grown[0].Metrics[0].Senders, []string{"10.0.0.7 (otel/1)"}) {
		t.Errorf("%+v", grown)
	}
}

// The metadata of a metric are kept, whatever its temporality is.
func TestWhatIsSaidOfDeltas(t *testing.T) {
	w, _ := newDeltaWorld(t, func(*settings.Distributor) {})
	r := w.increments(func(to pmetric.MetricSlice) {
		w.sum(to, "a", true, 1)
		to.At(0).SetDescription("How many.")
		to.At(0).SetUnit("By")
	})
	if _, err := w.PushDeltas(t.Context(), "a", r); err != nil {
		t.Fatal(err)
	}
	var got []string
	w.Metadata.All("a", func(name string, m metadata.Metadata) bool {
		got = append(got, fmt.Sprint(name, " ", m.Type, " ", m.Help, " ", m.Unit))
		return true
	})
	if want := []string{"a_bytes_total counter How many. bytes"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A series that is sent both as deltas and by DogStatsD has one key, so it has one total.
func TestDeltasShareTotals(t *testing.T) {
	w, a := newDeltaWorld(t, func(*settings.Distributor) {})
	key := series.AppendKey(nil, series.Counter, labels.FromStrings("__name__", "a_total"))
	var bw batch.Writer
	bw.Begin(batch.Header{Tenant: []byte("a"), Producer: 1, Sequence: 1, Second: w.now.Unix()})
	bw.Add(series.Shard("a", key), &batch.Increment{Key: key, Samples: 1, Value: 5})
	if err := a.Push(t.Context(), bw.End()); err != nil {
		t.Fatal(err)
	}
	again := w.increments(func(to pmetric.MetricSlice) { w.sum(to, "a", true, 1) })
	if _, err := w.PushDeltas(t.Context(), "a", again); err != nil || a.totals()["a_total"] != "6" {
		t.Errorf("%v: %v", err, a.totals())
	}
}
