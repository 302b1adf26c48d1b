package querier

import (
	"cmp"
	"context"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/freshet-io/freshet/internal/core/columns"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// SelectChunks is Select for core/columns, with the stores' chunks as they are. It returns nil if Select has an error
// or a note about sparse tiles to give, or a limit.
func (q *querier) SelectChunks(ctx context.Context, _, _ bool, hints *storage.SelectHints,
	matchers ...*labels.Matcher) columns.ChunkSet {
	sel, err := q.begin(ctx, hints, matchers)
	if err != nil || limitOf(hints) > 0 || sparseNote(hints, sel.width, q.store.Retention(tile.Width10s.String())) != nil {
		return nil
	}
	stored, err := openStores(&q.source, &sel, q.store.ChunkQuerier)
	if err != nil {
		return nil
	}
	var sets []storage.ChunkSeriesSet
	for _, q := range stored.queriers {
		sets = append(sets, q.Select(ctx, true, hints, matchers...))
	}
	open := newLiveSet(sel.live).series
	return &chunkSet{stored: storage.NewMergeChunkSeriesSet(sets, 0, severalStores), used: true, open: open,
		live: answer{storage.EmptySeriesSet(), open, sel.width}, warnings: stored.warnings}
}

// inSeveralStores is a series that several stores have. Its chunks may overlap.
type inSeveralStores struct{ storage.ChunkSeries }

func severalStores(all ...storage.ChunkSeries) storage.ChunkSeries { return inSeveralStores{all[0]} }

// chunkSet merges the chunks of the stores with the points of open tiles. Both are sorted by labels.
type chunkSet struct {
	stored   storage.ChunkSeriesSet
	isStored bool        // whether `stored` is at a series
	used     bool        // whether the set has given that series, or `stored` has not begun
	open     []tile.Live // the series that the set has not given
	live     answer      // says which samples are live
	warnings annotations.Annotations
	series   columns.ChunkSeries
	err      error
}

// Next is part of columns.ChunkSet.
func (s *chunkSet) Next() bool {
	if s.used {
		s.isStored, s.used = s.stored.Next(), false
	}
	if s.err != nil || s.stored.Err() != nil || !s.isStored && len(s.open) == 0 {
		return false
	}
	order := -1 // of the labels of the open tiles, compared with those of the stored series
	if s.isStored && len(s.open) == 0 {
		order = 1
	} else if s.isStored {
		order = labels.Compare(s.open[0].Labels, s.stored.At().Labels())
	}
	s.series = columns.ChunkSeries{Points: s.series.Points[:0]}
	if order <= 0 {
		s.series.Labels = s.open[0].Labels
		for _, p := range s.open[0].Points {
			if p.H != nil {
				s.err = columns.ErrNoChunks
			}
			s.series.Points = append(s.series.Points, promql.FPoint{T: p.T, F: p.V})
		}
		s.open = s.open[1:]
	}
	if order >= 0 {
		of := s.stored.At()
		if _, several := of.(inSeveralStores); several {
			s.err = columns.ErrNoChunks
		}
		s.series.Labels, s.series.Stored, s.used = of.Labels(), of, true
	}
	return s.err == nil
}

// At is part of columns.ChunkSet.
func (s *chunkSet) At() columns.ChunkSeries { return s.series }

// Err is part of columns.ChunkSet.
func (s *chunkSet) Err() error { return cmp.Or(s.err, s.stored.Err()) }

// Warnings is part of columns.ChunkSet.
func (s *chunkSet) Warnings() annotations.Annotations {
	var all annotations.Annotations
	all.Merge(s.warnings)
	return all.Merge(s.stored.Warnings())
}

// Live is part of columns.ChunkSet.
func (s *chunkSet) Live() storage.SeriesSet { return s.live }
