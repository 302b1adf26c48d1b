package querier

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/freshet-io/freshet/internal/core/tile"
)

// sample is a chunks.Sample, in the form that NewListSeries reads.
type sample struct {
	t int64
	v float64
	h *histogram.FloatHistogram
}

func (s sample) T() int64                      { return s.t }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.v }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return s.h }
func (s sample) Copy() chunks.Sample           { return s }
func (s sample) Type() chunkenc.ValueType {
	if s.h != nil {
		return chunkenc.ValFloatHistogram
	}
	return chunkenc.ValFloat
}

// For any mixture of samples, and any sequence of Next and Seek, mergeIterator returns the same as the
// simple loop in this test.
func TestMergeIteratorModel(t *testing.T) {
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 0))
		var stored []chunks.Sample
		var points []tile.Point
		var want []sample // stored values are even, values of points are odd
		for at := range int64(10) {
			inStored, inPoints := random.IntN(2) == 0, random.IntN(3) == 0
			if inStored {
				stored = append(stored, sample{t: at, v: float64(2 * at)})
				want = append(want, sample{t: at, v: float64(2 * at)})
			}
			if inPoints {
				points = append(points, tile.Point{T: at, V: float64(2*at + 1)})
			}
			if inPoints && !inStored {
				want = append(want, sample{t: at, v: float64(2*at + 1)})
			}
		}
		series := mergeSeries(nil,
			storage.NewListSeries(labels.EmptyLabels(), stored),
			liveSeries{live: tile.Live{Points: points}})
		it := series.Iterator(nil)
		var trace []string
		at := -1 // index in want
		for range 12 {
			var typ chunkenc.ValueType
			if random.IntN(3) == 0 {
				to := random.Int64N(12) - 1
				trace = append(trace, fmt.Sprintf("Seek(%d)", to))
				typ = it.Seek(to)
				at = max(at, 0)
				for at < len(want) && want[at].t < to {
					at++
				}
			} else {
				trace = append(trace, "Next")
				typ = it.Next()
				at++
			}
			if (typ == chunkenc.ValNone) != (at >= len(want)) {
				t.Fatalf("seed %d: stored %v, points %v: after %v: got type %v, want sample %d of %v",
					seed, stored, points, trace, typ, at, want)
			}
			if typ == chunkenc.ValNone {
				break
			}
			if gotT, gotV := it.At(); gotT != want[at].t || gotV != want[at].v || it.AtT() != gotT {
				t.Fatalf("seed %d: stored %v, points %v: after %v: got %d=%v, want %v",
					seed, stored, points, trace, gotT, gotV, want[at])
			}
		}
		if it.Err() != nil {
			t.Fatal(it.Err())
		}
	}
}

// An iterator can be reused for the next series.
func TestMergeIteratorReused(t *testing.T) {
	var it chunkenc.Iterator
	for n := range 3 {
		series := mergeSeries(nil,
			liveSeries{live: tile.Live{Points: []tile.Point{{T: 20, V: float64(n)}}}},
			storage.NewListSeries(labels.EmptyLabels(), []chunks.Sample{sample{t: 10, v: float64(n)}}))
		it = series.Iterator(it)
		var got []float64
		for it.Next() != chunkenc.ValNone {
			_, v := it.At()
			got = append(got, v)
		}
		if want := []float64{float64(n), float64(n)}; !slices.Equal(got, want) {
			t.Errorf("series %d: got %v; want %v", n, got, want)
		}
	}
}

// A stored histogram says whether its counter was reset since the previous stored histogram. If an
// open histogram lies in between, this is unknown. No reader may change an open histogram, because all
// queries share it.
func TestMergeIteratorHistograms(t *testing.T) {
	h := func(n float64) *histogram.FloatHistogram {
		return &histogram.FloatHistogram{Count: n, Sum: n, ZeroCount: n, CounterResetHint: histogram.NotCounterReset}
	}
	open := h(2)
	series := mergeSeries(nil,
		storage.NewListSeries(labels.EmptyLabels(), []chunks.Sample{
			sample{t: 10, h: h(1)}, sample{t: 20, h: h(1)}, sample{t: 30, h: h(3)}, sample{t: 40, h: h(4)}}),
		liveSeries{live: tile.Live{Points: []tile.Point{{T: 25, H: open}}}})
	var got []string
	it := series.Iterator(nil)
	for typ := it.Next(); typ != chunkenc.ValNone; typ = it.Next() {
		if it.Seek(it.AtT()) != typ || typ != chunkenc.ValFloatHistogram { // a Seek to this time changes nothing
			t.Fatalf("type %v", typ)
		}
		for _, into := range []*histogram.FloatHistogram{nil, {}} {
			at, fh := it.AtFloatHistogram(into)
			got = append(got, fmt.Sprint(at, fh.Count, fh.CounterResetHint == histogram.UnknownCounterReset))
			if at == 25 {
				fh.Count = 77
			}
		}
	}
	got = slices.Compact(got)
	want := []string{"10 1 false", "20 1 false", "25 2 false", "30 3 true", "40 4 false"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if open.Count != 2 {
		t.Error("a reader changed an open tile")
	}
}

// A sample inside a tile is live, even if its time is the end of a tile of another width.
func TestLiveSample(t *testing.T) {
	x, y := labels.FromStrings("__name__", "x"), labels.FromStrings("__name__", "y")
	for _, c := range []struct {
		why    string
		width  tile.Width
		newest int64 // of x, ms
		of     labels.Labels
		at     int64
		want   int64
	}{
		{"inside a tile of 10 s", tile.Width10s, 73_000, x, 73_000, 10_000},
		{"at the end of a tile of 10 s", tile.Width10s, 70_000, x, 70_000, 0},
		{"inside a tile of 1 min, where a tile of 10 s would end", tile.Width1m, 70_000, x, 70_000, 60_000},
		{"at the end of a tile of 1 min", tile.Width1m, 120_000, x, 120_000, 0},
		{"a sample before the newest", tile.Width1m, 73_000, x, 72_000, 0},
		{"a series without open tiles", tile.Width1m, 73_000, y, 73_000, 0},
	} {
		a := answer{live: []tile.Live{{Labels: x, Points: []tile.Point{{T: 60_000}, {T: c.newest}}}}, width: c.width}
		if got := a.LiveSample(c.of, c.at); got != c.want {
			t.Errorf("%s: the width is %d ms; want %d", c.why, got, c.want)
		}
	}
}
