package columns

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"
)

// newResults returns a leaf's results as the series of the selector in its place. They come from chunks if these can be
// had.
func newResults(ctx context.Context, l *leaf, q storage.Querier, sorted bool) storage.SeriesSet {
	r := results{leaf: l, ctx: ctx}
	r.samples = func() storage.SeriesSet { return q.Select(ctx, sorted, &l.hints, l.selector.LabelMatchers...) }
	if c, ok := q.(ChunkSelector); ok {
		hints := l.hints
		hints.DisableTrimming = true // otherwise chunks at the ends would be encoded again
		r.chunks = c.SelectChunks(ctx, sorted, l.agg == nil, &hints, l.selector.LabelMatchers...)
	}
	if r.chunks != nil {
		r.from = r.chunks.Live()
	} else {
		r.from = r.samples()
	}
	if l.agg == nil {
		return &single{results: r, live: r.from}
	}
	a := &aggregated{results: r}
	a.meter, _ = q.(Meter)
	return a
}

// results is what both kinds of a leaf's results have in common. They begin when the engine first
// asks for a series, which is when it would begin itself.
type results struct {
	*leaf
	ctx     context.Context
	chunks  ChunkSet                 // nil if `from` has the series
	samples func() storage.SeriesSet // selects samples in place of chunks
	from    storage.SeriesSet
	begun   *evaluation
	err     error
}

// start makes the evaluation. It returns false after an error.
func (r *results) start() bool {
	if r.begun == nil && r.err == nil {
		r.selector.UnexpandedSeriesSet = r.from // where the engine's functions look for live samples
		if r.begun, r.err = r.begin(r.ctx); r.err != nil {
			r.plan.fail(r.err)
		}
	}
	return r.err == nil
}

// Err is part of storage.SeriesSet.
func (r *results) Err() error {
	switch {
	case r.err != nil:
		return r.err
	case r.chunks != nil:
		return r.chunks.Err()
	}
	return r.from.Err()
}

// Warnings is part of storage.SeriesSet.
func (r *results) Warnings() annotations.Annotations {
	if r.chunks != nil {
		return r.chunks.Warnings()
	}
	return r.from.Warnings()
}

// single has the results of a range function. It evaluates each series only when the engine reads its
// results, so the results of one series are held twice at most. A series whose samples turn out not to be in chunks of
// floats is selected again, as samples.
type single struct {
	results
	given  int               // how many series the engine has
	unread int               // how many of them it has not read
	last   labels.Labels     // of the last one that was given in chunks
	live   storage.SeriesSet // says which samples of the first select are live
	again  storage.SeriesSet // at a series whose chunks could not be read; nil before the first
}

// Next is part of storage.SeriesSet.
func (s *single) Next() bool {
	if !s.start() || !s.more() {
		return false
	}
	s.given++
	s.unread++
	return true
}

// more moves to the next series. Where the chunks end because a series cannot be given in chunks, samples go on.
func (s *single) more() bool {
	if s.chunks == nil {
		return s.from.Next()
	}
	if s.chunks.Next() {
		s.last = s.chunks.At().Labels
		return true
	}
	if !errors.Is(s.chunks.Err(), ErrNoChunks) {
		return false
	}
	s.chunks, s.from = nil, s.samples()
	for i := range s.given {
		if !s.from.Next() || i == s.given-1 && !labels.Equal(s.from.At().Labels(), s.last) {
			s.err = s.plan.fail(errDecline) // the series have changed
			return false
		}
	}
	return s.from.Next()
}

// At is part of storage.SeriesSet.
func (s *single) At() storage.Series {
	if s.chunks == nil {
		return singleSeries{of: s, series: s.from.At()}
	}
	in := s.chunks.At()
	in.Points = slices.Clone(in.Points) // the set uses them again
	return singleSeries{of: s, chunks: in}
}

// evaluate fills the evaluation's row with the results of a series.
func (s *single) evaluate(of singleSeries) error {
	if of.series != nil {
		s.liveIn(s.from)
		return s.begun.evaluate(of.series)
	}
	s.liveIn(s.live)
	err := s.begun.evaluateChunks(of.chunks)
	if !errors.Is(err, ErrNoChunks) {
		return err
	}
	if s.again == nil {
		s.again = s.samples()
	}
	s.liveIn(s.again)
	for s.again.Next() {
		if at := s.again.At(); labels.Equal(at.Labels(), of.chunks.Labels) {
			return s.begun.evaluate(at)
		}
	}
	return cmp.Or(s.again.Err(), errDecline)
}

// liveIn sets the select of the next series. A later select has later live samples.
func (s *single) liveIn(set storage.SeriesSet) {
	s.selector.UnexpandedSeriesSet = set // where the engine's functions look
	s.begun.live, _ = set.(liveSet)
}

// singleSeries is a series of samples or in chunks.
type singleSeries struct {
	of     *single
	chunks ChunkSeries
	series storage.Series // nil if the series is in chunks
}

// Labels is part of storage.Series.
func (s singleSeries) Labels() labels.Labels {
	if s.series == nil {
		return s.of.labels(s.chunks.Labels)
	}
	return s.of.labels(s.series.Labels())
}

// Iterator is part of storage.Series.
func (s singleSeries) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	s.of.unread--
	err := s.of.evaluate(s)
	if err == nil && s.of.unread == 0 {
		err = s.of.begun.end()
	}
	if err != nil {
		return &rowIterator{err: s.of.plan.fail(err)}
	}
	s.of.gave(&s.of.begun.row)
	return s.of.begun.row.iterator(it, s.of.plan.interval)
}

// aggregated has the results of an aggregation, which are ready when the engine asks for the first.
type aggregated struct {
	results
	meter  Meter // nil if the memory is not bounded
	base   int   // samples that the engine holds besides those of the series
	groups *groups
	next   int
	row    row
}

// Meter is a storage.Querier that bounds the memory of a query.
type Meter interface {
	// Hold counts bytes that the query holds from now on. It returns an error if that is too much.
	Hold(ctx context.Context, bytes int64) error
}

// sampleBytes is the memory of a sample in the engine.
const sampleBytes = 16

// Next is part of storage.SeriesSet.
func (a *aggregated) Next() bool {
	if a.groups == nil && !a.aggregate() {
		return false
	}
	a.next++
	return a.err == nil && a.next <= len(a.groups.all)
}

// aggregate evaluates all series. If their samples turn out not to be in chunks of floats, it begins again with
// samples, and counts the samples anew.
func (a *aggregated) aggregate() bool {
	if !a.start() {
		return false
	}
	total, read := a.plan.samples.TotalSamples, a.plan.samples.SamplesRead
	err := a.all()
	if errors.Is(err, ErrNoChunks) {
		a.plan.samples.TotalSamples, a.plan.samples.SamplesRead = total, read
		a.chunks, a.from, a.begun = nil, a.samples(), nil
		if !a.start() {
			return false
		}
		err = a.all()
	}
	if err != nil {
		a.err = a.plan.fail(err)
	}
	return err == nil
}

// all adds all series to their groups. An error of the set is left to Err.
func (a *aggregated) all() error {
	a.groups = newGroups(a.plan, a.agg)
	e := a.begun
	a.base = e.base
	if a.chunks != nil {
		for a.chunks.Next() {
			s := a.chunks.At()
			err := e.evaluateChunks(s)
			if err == nil {
				err = a.add(s.Labels)
			}
			if err != nil {
				return err
			}
		}
		if err := a.chunks.Err(); errors.Is(err, ErrNoChunks) {
			return err
		}
	} else {
		for a.from.Next() {
			s := a.from.At()
			err := e.evaluate(s)
			if err == nil {
				err = a.add(s.Labels())
			}
			if err != nil {
				return err
			}
		}
	}
	a.plan.samples.UpdatePeak(e.base)
	return e.end()
}

// add adds the results of a series to its group, and counts memory that the groups need. The limit of samples bounds
// the results of all series, which the engine would hold, so only what the groups need beyond that counts. A leaf's
// groups are freed before the next leaf begins, so the memory is that of the largest.
func (a *aggregated) add(of labels.Labels) error {
	a.groups.add(a.labels(of), &a.begun.row)
	more := a.groups.bytes - sampleBytes*int64(a.begun.base-a.base) - a.plan.metered
	if a.meter == nil || more <= 0 {
		return nil
	}
	a.plan.metered += more
	return a.meter.Hold(a.ctx, more)
}

// At is part of storage.SeriesSet.
func (a *aggregated) At() storage.Series { return aggregatedSeries{a, a.next - 1} }

type aggregatedSeries struct {
	of    *aggregated
	index int
}

// Labels is part of storage.Series.
func (s aggregatedSeries) Labels() labels.Labels { return s.of.groups.all[s.index].labels }

// Iterator is part of storage.Series. The engine reads each series once, so the cells are freed.
func (s aggregatedSeries) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	g := s.of.groups.all[s.index]
	s.of.groups.results(g, &s.of.row)
	g.cells, g.histograms = nil, nil
	s.of.gave(&s.of.row)
	return s.of.row.iterator(it, s.of.plan.interval)
}

// rowIterator iterates over a row. After each result that is the last before a gap, it has a stale
// marker, so that the engine does not look back over the gap.
type rowIterator struct {
	row
	interval int64
	t        int64
	v        float64
	h        *histogram.FloatHistogram // nil for floats
	stale    bool
	err      error
}

// iterator returns an iterator over the row, in the memory of another if possible.
func (r *row) iterator(again chunkenc.Iterator, interval int64) chunkenc.Iterator {
	it, ok := again.(*rowIterator)
	if !ok {
		it = &rowIterator{}
	}
	*it = rowIterator{row: *r, interval: interval, t: math.MinInt64, stale: true}
	return it
}

// Next is part of chunkenc.Iterator.
func (i *rowIterator) Next() chunkenc.ValueType {
	next := int64(math.MaxInt64)
	isFloat := len(i.floats) > 0
	if isFloat {
		next = i.floats[0].T
	}
	if len(i.histograms) > 0 && i.histograms[0].T < next {
		next, isFloat = i.histograms[0].T, false
	}
	switch {
	case i.err != nil:
		return chunkenc.ValNone
	case !i.stale && next > i.t+i.interval:
		i.t, i.v, i.h, i.stale = i.t+i.interval, math.Float64frombits(value.StaleNaN), nil, true
	case isFloat:
		i.t, i.v, i.h, i.stale = next, i.floats[0].F, nil, false
		i.floats = i.floats[1:]
	case len(i.histograms) > 0:
		i.t, i.h, i.stale = next, i.histograms[0].H, false
		i.histograms = i.histograms[1:]
	default:
		return chunkenc.ValNone
	}
	return i.kind()
}

func (i *rowIterator) kind() chunkenc.ValueType {
	if i.h != nil {
		return chunkenc.ValFloatHistogram
	}
	return chunkenc.ValFloat
}

// millis is int64 under another name: see role/querier.
type millis = int64

// Seek is part of chunkenc.Iterator.
func (i *rowIterator) Seek(t millis) chunkenc.ValueType {
	if i.t >= t {
		return i.kind()
	}
	for {
		if kind := i.Next(); kind == chunkenc.ValNone || i.t >= t {
			return kind
		}
	}
}

// At is part of chunkenc.Iterator.
func (i *rowIterator) At() (int64, float64) { return i.t, i.v }

// AtHistogram is never called, since all histograms have float counts.
func (i *rowIterator) AtHistogram(*histogram.Histogram) (int64, *histogram.Histogram) {
	return i.t, nil
}

// AtFloatHistogram is part of chunkenc.Iterator. The result belongs to the reader.
func (i *rowIterator) AtFloatHistogram(*histogram.FloatHistogram) (int64, *histogram.FloatHistogram) {
	return i.t, i.h
}

// AtT is part of chunkenc.Iterator.
func (i *rowIterator) AtT() int64 { return i.t }

// AtST is part of chunkenc.Iterator.
func (i *rowIterator) AtST() int64 { return 0 }

// Err is part of chunkenc.Iterator.
func (i *rowIterator) Err() error { return i.err }
