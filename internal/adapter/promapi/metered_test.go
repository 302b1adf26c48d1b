package promapi

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/freshet-io/freshet/internal/core/columns"
)

// Between two series that core/columns reads in chunks, a query passes its turn on. Otherwise one query with many
// series would hold its slot until its end. Series that are kept count against the turn.
func TestChunksAreMetered(t *testing.T) {
	for _, kept := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		one := &turn{begun: &lane{share: 1 << 20}}
		q := meteredQuerier{chunkSelector{storage.NoopQuerier(), 3}}
		set := q.SelectChunks(withTurn(ctx, one), true, kept, nil)
		for range 2 {
			if !set.Next() || set.Err() != nil {
				t.Fatal("the set ends early:", set.Err())
			}
		}
		cancel() // a turn that is not running returns the context's error
		if set.Next() || !errors.Is(set.Err(), context.Canceled) {
			t.Errorf("the error is %v, want that of the turn", set.Err())
		}
		if n := one.read.Load(); n != 3 {
			t.Errorf("%d series are counted, want 3", n)
		}
		if held := one.series > 0; held != kept {
			t.Errorf("kept is %v, but %d bytes are counted", kept, one.series)
		}
		if set := (meteredQuerier{storage.NoopQuerier()}).SelectChunks(ctx, true, kept, nil); set != nil {
			t.Errorf("a storage without chunks gives %v", set)
		}
	}
}

// chunkSelector selects a number of series without samples.
type chunkSelector struct {
	storage.Querier
	series int
}

func (q chunkSelector) SelectChunks(context.Context, bool, bool, *storage.SelectHints,
	...*labels.Matcher) columns.ChunkSet {
	return &emptySeries{left: q.series}
}

type emptySeries struct{ left int }

func (s *emptySeries) Next() bool                      { s.left--; return s.left >= 0 }
func (*emptySeries) At() columns.ChunkSeries           { return columns.ChunkSeries{} }
func (*emptySeries) Err() error                        { return nil }
func (*emptySeries) Warnings() annotations.Annotations { return nil }
func (*emptySeries) Live() storage.SeriesSet           { return storage.EmptySeriesSet() }
