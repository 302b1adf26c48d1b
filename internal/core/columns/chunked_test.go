package columns_test

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/freshet-io/freshet/internal/core/columns"
)

// A series is its chunks and the points of open tiles, wherever these are. Stored samples count if a point has the same
// time. If chunks overlap, or a point is between the samples of a chunk, the query reads samples.
func TestPointsOfOpenTiles(t *testing.T) {
	for _, c := range []struct {
		why    string
		chunks [][]int64 // times in seconds
		points []int64
		again  bool // whether the query must read samples
	}{
		{"points after chunks", [][]int64{{0, 10, 20}, {30, 40}}, []int64{50, 60}, false},
		{"points that are stored already", [][]int64{{0, 10, 20}, {30, 40}}, []int64{30, 40, 50}, false},
		{"only points", nil, []int64{0, 10, 20}, false},
		{"no points", [][]int64{{0, 10, 20}, {30}, {40, 50}}, nil, false},
		{"points before and between chunks", [][]int64{{20, 30}, {60, 70}}, []int64{0, 10, 40, 50, 70, 80}, false},
		{"a point within a chunk", [][]int64{{0, 10, 30, 40}}, []int64{20, 50}, true},
		{"chunks that overlap", [][]int64{{0, 10, 30}, {20, 40}}, nil, true},
		{"a chunk that the query passes over, and one that it reads", [][]int64{{0, 10}, {400, 410}}, []int64{420}, false},
	} {
		one := newParted(c.chunks, c.points)
		for _, text := range []string{"sum(x)", "sum(rate(x[25s]))", "sum(sum_over_time(x[15s]))", "count(increase(x[1m]))",
			"rate(x[25s])"} {
			for _, offset := range []time.Duration{-time.Minute, 0, 5 * time.Second, 390 * time.Second} {
				from := time.UnixMilli(begin).Add(offset)
				q := query{text: text, start: from, end: from.Add(3 * time.Minute), step: 10 * time.Second, maxSamples: 1000}
				e := engine(q.maxSamples)
				want, err := q.on(e)(one)
				if err != nil {
					t.Fatal(err)
				}
				got, err := columns.New(one, q.maxSamples, q.on(e))
				if err != nil {
					t.Fatal(err)
				}
				w := want.Exec(context.Background())
				one.selects = 0
				same(t, q, want, w, got)
				if again := one.selects > 0; again != c.again && offset == 0 {
					t.Errorf("%s, %s: samples were read: %v, want %v", c.why, text, again, c.again)
				}
				if t.Failed() {
					t.Fatalf("%s: %v", c.why, q)
				}
			}
		}
	}
}

// parted is a storage with one series, whose samples are in chunks and points.
type parted struct {
	samples []chunks.Sample
	series  columns.ChunkSeries
	selects int // how often samples were read
}

func newParted(parts [][]int64, points []int64) *parted {
	p := &parted{series: columns.ChunkSeries{Labels: labels.FromStrings("__name__", "x")}}
	stored := map[int64]bool{}
	var inChunks [][]chunks.Sample
	for _, times := range parts {
		var one []chunks.Sample
		for _, at := range times {
			stored[at] = true
			one = append(one, sample{begin + at*1000, float64(at * at % 700)})
		}
		inChunks = append(inChunks, one)
		p.samples = append(p.samples, one...)
	}
	if len(inChunks) > 0 {
		p.series.Stored = chunkSeries{storage.NewListChunkSeriesFromSamples(p.series.Labels, inChunks...)}
	}
	for _, at := range points {
		point := sample{begin + at*1000, 1e6 + float64(at)}
		p.series.Points = append(p.series.Points, promql.FPoint{T: point.t, F: point.v})
		if !stored[at] {
			p.samples = append(p.samples, point)
		}
	}
	slices.SortFunc(p.samples, func(a, b chunks.Sample) int { return cmp.Compare(a.T(), b.T()) })
	return p
}

func (p *parted) Querier(int64, int64) (storage.Querier, error) {
	return partedQuerier{storage.NoopQuerier(), p}, nil
}

type partedQuerier struct {
	storage.Querier
	of *parted
}

func (q partedQuerier) Select(_ context.Context, _ bool, hints *storage.SelectHints,
	_ ...*labels.Matcher) storage.SeriesSet {
	q.of.selects++
	var within []chunks.Sample
	for _, s := range q.of.samples {
		if s.T() >= hints.Start && s.T() <= hints.End {
			within = append(within, s)
		}
	}
	return &seriesSet{Series: storage.NewListSeries(q.of.series.Labels, within)}
}

func (q partedQuerier) SelectChunks(context.Context, bool, bool, *storage.SelectHints,
	...*labels.Matcher) columns.ChunkSet {
	return &partedSet{series: q.of.series}
}

// chunkSeries has references to its chunks.
type chunkSeries struct{ storage.ChunkSeries }

func (s chunkSeries) Iterator(chunks.Iterator) chunks.Iterator {
	return referenced{s.ChunkSeries.Iterator(nil)}
}

type referenced struct{ chunks.Iterator }

func (r referenced) At() chunks.Meta {
	m := r.Iterator.At()
	m.Ref = 1
	return m
}

// once is a set of one series.
type once struct{ read bool }

func (s *once) Next() bool {
	first := !s.read
	s.read = true
	return first
}

func (*once) Err() error                        { return nil }
func (*once) Warnings() annotations.Annotations { return nil }

type seriesSet struct {
	once
	storage.Series
}

func (s *seriesSet) At() storage.Series { return s.Series }

type partedSet struct {
	once
	series columns.ChunkSeries
}

func (s *partedSet) At() columns.ChunkSeries { return s.series }
func (*partedSet) Live() storage.SeriesSet   { return storage.EmptySeriesSet() }

// sample is a chunks.Sample.
type sample struct {
	t int64
	v float64
}

func (s sample) T() int64                    { return s.t }
func (s sample) F() float64                  { return s.v }
func (sample) H() *histogram.Histogram       { return nil }
func (sample) FH() *histogram.FloatHistogram { return nil }
func (sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (sample) ST() int64                     { return 0 }
func (s sample) Copy() chunks.Sample         { return s }
