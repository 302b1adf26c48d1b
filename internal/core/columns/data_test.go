package columns_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

// randomData writes some hours of samples of series of all kinds.
func randomData(t testing.TB, r *rand.Rand) *tsdb.DB {
	t.Helper()
	o := tsdb.DefaultOptions()
	o.OutOfOrderTimeWindow = (hours * time.Hour).Milliseconds()
	db, err := tsdb.Open(t.TempDir(), nil, nil, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	db.DisableCompactions() // the order of series would change between two queries
	t.Cleanup(func() { db.Close() })
	type point struct {
		at int64
		of func(storage.Appender, labels.Labels, int64) error
	}
	inOrder := r.IntN(2) == 0 // late samples make chunks overlap, which are then read as samples
	late := map[string][]point{}
	series := map[string]labels.Labels{}
	for _, of := range kinds {
		for i := range 2 + r.IntN(4) {
			ls := labels.FromStrings("__name__", of.name, "job", fmt.Sprint("j", i%2), "instance", fmt.Sprint("i", i))
			for _, le := range of.les() {
				b := labels.NewBuilder(ls)
				if le != "" {
					b.Set("le", le)
				}
				ls := b.Labels()
				series[ls.String()] = ls
				next := of.values(r)
				every := []int64{10_000, 15_000, 60_000, 7_123}[r.IntN(4)]
				app := db.Appender(context.Background())
				for at := begin + 1000*r.Int64N(600); at < begin+hours*3_600_000; at += every {
					if r.IntN(100) == 0 {
						at += r.Int64N(1_200_000) // a gap
					}
					p := point{at + r.Int64N(every/2)*int64(r.IntN(2)), next()}
					switch chance := r.IntN(60); {
					case chance == 0 && !inOrder:
						late[ls.String()] = append(late[ls.String()], p)
					case chance == 1 && !inOrder:
						late[ls.String()] = append(late[ls.String()], point{p.at, next()})
						fallthrough
					default:
						if err := p.of(app, ls, p.at); err != nil && !refused(err) {
							t.Fatal(err)
						}
					}
				}
				if err := app.Commit(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if r.IntN(3) == 0 {
		if err := db.Compact(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(late)) {
		app := db.Appender(context.Background())
		for _, p := range late[name] {
			if err := p.of(app, series[name], p.at); err != nil && !refused(err) {
				t.Fatal(err)
			}
		}
		if err := app.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	return db
}

func refused(err error) bool {
	return errors.Is(err, storage.ErrOutOfOrderSample) || errors.Is(err, storage.ErrDuplicateSampleForTimestamp) ||
		errors.Is(err, storage.ErrOutOfBounds) || errors.Is(err, storage.ErrTooOldSample)
}

type write = func(storage.Appender, labels.Labels, int64) error

func float(f float64) write {
	return func(app storage.Appender, ls labels.Labels, at int64) error {
		_, err := app.Append(0, ls, at, f)
		return err
	}
}

func ints(h *histogram.Histogram) write {
	h = h.Copy()
	return func(app storage.Appender, ls labels.Labels, at int64) error {
		_, err := app.AppendHistogram(0, ls, at, h, nil)
		return err
	}
}

func floats(h *histogram.FloatHistogram) write {
	h = h.Copy()
	return func(app storage.Appender, ls labels.Labels, at int64) error {
		_, err := app.AppendHistogram(0, ls, at, nil, h)
		return err
	}
}

// kind is a kind of series. `values` returns a generator of its samples.
type kind struct {
	name   string
	values func(*rand.Rand) func() write
	le     []string
}

func (k kind) les() []string {
	if k.le == nil {
		return []string{""}
	}
	return k.le
}

var stale = math.Float64frombits(value.StaleNaN)

var kinds = []kind{
	{name: "requests_total", values: counter},
	{name: "errors_total", values: counter},
	{name: "gauge", values: gauge},
	{name: "old_gauge", values: gauge},
	{name: "seconds_bucket", values: counter, le: []string{"0.1", "1", "10", "+Inf"}},
	{name: "latency", values: integers},
	{name: "float_latency", values: floatHistograms},
	{name: "custom_latency", values: custom},
	{name: "mixed", values: mixed},
}

func counter(r *rand.Rand) func() write {
	v := float64(r.IntN(1000))
	return func() write {
		switch r.IntN(150) {
		case 0:
			v = float64(r.IntN(10))
		case 1:
			return float(stale)
		case 2:
			return float(math.NaN())
		}
		v += r.ExpFloat64() * 10
		return float(v)
	}
}

func gauge(r *rand.Rand) func() write {
	large := r.IntN(8) == 0
	return func() write {
		switch r.IntN(100) {
		case 0:
			return float(stale)
		case 1:
			return float(math.NaN())
		case 2:
			return float(math.Inf(1 - 2*r.IntN(2)))
		}
		if large {
			return float(r.NormFloat64() * 1e308)
		}
		return float(r.NormFloat64() * math.Pow(10, float64(r.IntN(12))))
	}
}

func integers(r *rand.Rand) func() write {
	h := &histogram.Histogram{Schema: int32(r.IntN(5)), ZeroThreshold: 1e-10, ZeroCount: 1, Count: 1,
		PositiveSpans:   []histogram.Span{{Offset: 0, Length: 2}, {Offset: 2, Length: 2}},
		PositiveBuckets: []int64{0, 0, 0, 0}}
	return func() write {
		switch r.IntN(100) {
		case 0:
			return ints(&histogram.Histogram{Sum: stale})
		case 1:
			h.Count, h.ZeroCount, h.Sum, h.PositiveBuckets = 1, 1, 0, []int64{0, 0, 0, 0}
		case 2:
			h.Schema = int32(r.IntN(5))
		}
		n := int64(r.IntN(5))
		h.PositiveBuckets[0] += n
		h.PositiveBuckets[1] += 0
		h.ZeroCount += uint64(r.IntN(3))
		h.Count = h.ZeroCount
		var at int64
		for _, d := range h.PositiveBuckets {
			at += d
			h.Count += uint64(at)
		}
		h.Sum += r.Float64() * 100
		return ints(h)
	}
}

func floatHistograms(r *rand.Rand) func() write {
	h := &histogram.FloatHistogram{Schema: 1, ZeroThreshold: 1e-10,
		PositiveSpans: []histogram.Span{{Offset: 1, Length: 3}}, PositiveBuckets: make([]float64, 3),
		NegativeSpans: []histogram.Span{{Offset: 0, Length: 1}}, NegativeBuckets: make([]float64, 1)}
	if r.IntN(4) == 0 {
		h.CounterResetHint = histogram.GaugeType
	}
	return func() write {
		if r.IntN(80) == 0 {
			clear(h.PositiveBuckets)
			clear(h.NegativeBuckets)
			h.ZeroCount, h.Sum = 0, 0
		}
		h.PositiveBuckets[r.IntN(3)] += r.Float64()
		h.NegativeBuckets[0] += r.Float64()
		h.ZeroCount += float64(r.IntN(2))
		h.Count = h.ZeroCount + h.NegativeBuckets[0]
		for _, b := range h.PositiveBuckets {
			h.Count += b
		}
		h.Sum += r.NormFloat64() * 10
		return floats(h)
	}
}

func custom(r *rand.Rand) func() write {
	bounds := [][]float64{{1, 2, 3}, {1, 2.5, 3}}[r.IntN(2)]
	h := &histogram.FloatHistogram{Schema: histogram.CustomBucketsSchema, CustomValues: bounds,
		PositiveSpans: []histogram.Span{{Offset: 0, Length: 4}}, PositiveBuckets: make([]float64, 4)}
	return func() write {
		if r.IntN(80) == 0 {
			clear(h.PositiveBuckets)
			h.Sum = 0
		}
		h.PositiveBuckets[r.IntN(4)] += float64(r.IntN(4))
		h.Count = 0
		for _, b := range h.PositiveBuckets {
			h.Count += b
		}
		h.Sum += r.Float64()
		return floats(h)
	}
}

func mixed(r *rand.Rand) func() write {
	generators := []func() write{counter(r), integers(r), floatHistograms(r), custom(r)}
	now := 0
	return func() write {
		if r.IntN(40) == 0 {
			now = r.IntN(len(generators))
		}
		return generators[now]()
	}
}
