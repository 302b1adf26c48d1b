package promapi

import (
	"context"
	"errors"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/freshet-io/freshet/internal/core/columns"
	"github.com/freshet-io/freshet/internal/core/partial"
	"github.com/freshet-io/freshet/internal/core/stepcache"
)

// metered is a storage whose readers may pass their turn on after each series. The memory of series and
// labels counts against that turn.
type metered struct {
	storage.SampleAndChunkQueryable
}

// meteredQueries does the same as metered, for a storage that has queries but no chunks.
type meteredQueries struct{ storage.Queryable }

func (m meteredQueries) Querier(mint, maxt int64) (storage.Querier, error) {
	q, err := m.Queryable.Querier(mint, maxt)
	if err != nil {
		return nil, err
	}
	return meteredQuerier{q}, nil
}

// meter makes a storage metered, unless it already is.
func meter(q storage.Queryable) storage.Queryable {
	if _, ok := q.(metered); ok {
		return q
	}
	return meteredQueries{q}
}

func (m metered) Querier(mint, maxt int64) (storage.Querier, error) {
	return meteredQueries{m.SampleAndChunkQueryable}.Querier(mint, maxt)
}

func (m metered) ChunkQuerier(mint, maxt int64) (storage.ChunkQuerier, error) {
	q, err := m.SampleAndChunkQueryable.ChunkQuerier(mint, maxt)
	if err != nil {
		return nil, err
	}
	return meteredChunkQuerier{q}, nil
}

type meteredQuerier struct{ storage.Querier }

func (q meteredQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints,
	matchers ...*labels.Matcher) storage.SeriesSet {
	set := q.Querier.Select(ctx, sorted, hints, matchers...)
	if t := turnOf(ctx); t != nil {
		return &meteredSet{SeriesSet: set, ctx: ctx, turn: t, ranged: rangedOf(ctx, hints)}
	}
	return set
}

// rangedOf returns the reading of a query if a range function reads the series of a select, else nil.
func rangedOf(ctx context.Context, hints *storage.SelectHints) *stepcache.Reading {
	if hints == nil || hints.Range == 0 {
		return nil
	}
	return stepcache.FromContext(ctx)
}

// SelectChunks is part of columns.ChunkSelector.
func (q meteredQuerier) SelectChunks(ctx context.Context, sorted, kept bool, hints *storage.SelectHints,
	matchers ...*labels.Matcher) columns.ChunkSet {
	of, ok := q.Querier.(columns.ChunkSelector)
	if !ok {
		return nil
	}
	set := of.SelectChunks(ctx, sorted, kept, hints, matchers...)
	if t := turnOf(ctx); t != nil && set != nil {
		return &meteredColumns{ChunkSet: set, ctx: ctx, turn: t, kept: kept, ranged: rangedOf(ctx, hints)}
	}
	return set
}

// Hold is part of columns.Meter.
func (q meteredQuerier) Hold(ctx context.Context, bytes int64) error {
	if t := turnOf(ctx); t != nil {
		return t.take(bytes)
	}
	return nil
}

func (q meteredQuerier) LabelValues(ctx context.Context, name string, hints *storage.LabelHints,
	matchers ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return meteredTexts(ctx)(q.Querier.LabelValues(ctx, name, hints, matchers...))
}

func (q meteredQuerier) LabelNames(ctx context.Context, hints *storage.LabelHints,
	matchers ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return meteredTexts(ctx)(q.Querier.LabelNames(ctx, hints, matchers...))
}

func meteredTexts(ctx context.Context) func([]string, annotations.Annotations,
	error) ([]string, annotations.Annotations, error) {
	return func(texts []string, notes annotations.Annotations, err error) ([]string, annotations.Annotations, error) {
		t := turnOf(ctx)
		if t == nil || err != nil {
			return texts, notes, err
		}
		var bytes int64
		for _, text := range texts {
			bytes += valueBytes + int64(len(text))
		}
		return texts, notes, t.take(bytes)
	}
}

// meteredSet counts each series, because the engine keeps it until the end of the query.
type meteredSet struct {
	storage.SeriesSet
	ctx    context.Context
	turn   *turn
	ranged *stepcache.Reading
	err    error
}

func (s *meteredSet) Next() bool {
	if s.err != nil || !s.SeriesSet.Next() {
		return false
	}
	s.turn.read.Add(1)
	of := s.SeriesSet.At().Labels()
	s.ranged.Ranged(of)
	if s.err = s.turn.take(seriesBytes + int64(of.ByteSize())); s.err == nil {
		s.err = s.turn.pass(s.ctx)
	}
	return s.err == nil
}

func (s *meteredSet) At() storage.Series { return meteredSeries{s.SeriesSet.At(), s} }

func (s *meteredSet) Err() error {
	if s.err != nil {
		return s.err
	}
	return s.SeriesSet.Err()
}

// LiveSample implements LiveSet. It returns 0 if the set has no live samples.
func (s *meteredSet) LiveSample(of labels.Labels, at int64) (width int64) {
	if live, ok := s.SeriesSet.(LiveSet); ok {
		return live.LiveSample(of, at)
	}
	return 0
}

// LiveAt implements LiveSet.
func (s *meteredSet) LiveAt(of labels.Labels) (at int64, ok bool) {
	if live, isLive := s.SeriesSet.(LiveSet); isLive {
		return live.LiveAt(of)
	}
	return 0, false
}

// meteredColumns counts memory for series that are kept only. An aggregation keeps groups instead: see Hold.
type meteredColumns struct {
	columns.ChunkSet
	ctx    context.Context
	turn   *turn
	ranged *stepcache.Reading
	kept   bool
	err    error
}

func (s *meteredColumns) Next() bool {
	if s.err != nil || !s.ChunkSet.Next() {
		return false
	}
	s.turn.read.Add(1)
	of := s.ChunkSet.At().Labels
	s.ranged.Ranged(of)
	if s.kept {
		s.err = s.turn.take(seriesBytes + int64(of.ByteSize()))
	}
	if s.err == nil {
		s.err = s.turn.pass(s.ctx)
	}
	return s.err == nil
}

// At passes the turn on before the samples are read if that is later, as for kept series.
func (s *meteredColumns) At() columns.ChunkSeries {
	of := s.ChunkSet.At()
	if s.kept && of.Stored != nil {
		of.Stored = meteredChunks{of.Stored, s}
	}
	return of
}

func (s *meteredColumns) Err() error {
	if s.err != nil {
		return s.err
	}
	return s.ChunkSet.Err()
}

type meteredChunks struct {
	storage.ChunkSeries
	of *meteredColumns
}

// Iterator is like meteredSeries.Iterator.
func (s meteredChunks) Iterator(it chunks.Iterator) chunks.Iterator {
	_ = s.of.turn.pass(s.of.ctx)
	return s.ChunkSeries.Iterator(it)
}

type meteredSeries struct {
	storage.Series
	of *meteredSet
}

// Iterator passes the turn on before the samples are read. If the context ends meanwhile, the
// engine notices at the next series.
func (s meteredSeries) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	_ = s.of.turn.pass(s.of.ctx)
	return s.Series.Iterator(it)
}

type meteredChunkQuerier struct{ storage.ChunkQuerier }

func (q meteredChunkQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints,
	matchers ...*labels.Matcher) storage.ChunkSeriesSet {
	set := q.ChunkQuerier.Select(ctx, sorted, hints, matchers...)
	if w := answerOf(ctx); w != nil && errors.Is(set.Err(), partial.ErrElsewhere) {
		w.elsewhere = true
	}
	if t := turnOf(ctx); t != nil {
		return &meteredChunkSet{ChunkSeriesSet: set, ctx: ctx, turn: t}
	}
	return set
}

// meteredChunkSet counts no memory, because only one frame of streamed chunks is in memory at a time.
type meteredChunkSet struct {
	storage.ChunkSeriesSet
	ctx  context.Context
	turn *turn
	err  error
}

func (s *meteredChunkSet) Next() bool {
	if s.err != nil {
		return false
	}
	s.err = s.turn.pass(s.ctx)
	return s.err == nil && s.ChunkSeriesSet.Next()
}

func (s *meteredChunkSet) Err() error {
	if s.err != nil {
		return s.err
	}
	return s.ChunkSeriesSet.Err()
}
