package blocks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/freshet-io/freshet/internal/lib/pagefault"
)

// Label writes a copy of a block to a new directory, with labels added to each series that has none of the same name,
// as Prometheus adds its external labels. Deleted samples are left out.
func (b Block) Label(ctx context.Context, dir string, add labels.Labels) (tsdb.BlockMeta, error) {
	w, err := NewWriter(dir, b.ID, b.Meta.MinTime, b.Meta.MaxTime)
	if err != nil {
		return tsdb.BlockMeta{}, err
	}
	err = b.open(func(block *tsdb.Block) error { return copySeries(ctx, w, block, add) })
	if err != nil {
		return tsdb.BlockMeta{}, errors.Join(err, w.Abandon())
	}
	meta, err := w.Close(ctx)
	if err == nil && b.Meta.Stats.NumTombstones == 0 && meta.Stats.NumSamples != b.Meta.Stats.NumSamples {
		err = fmt.Errorf("it has %d samples, and should have %d", meta.Stats.NumSamples, b.Meta.Stats.NumSamples)
	}
	return meta, err
}

// open opens the block for `do`. A part that the disk cannot read is an error.
func (b Block) open(do func(*tsdb.Block) error) error {
	return pagefault.Guard(func() error {
		block, err := tsdb.OpenBlock(slog.New(slog.DiscardHandler), b.Dir, nil, nil)
		if err != nil {
			return err
		}
		return errors.Join(do(block), block.Close())
	})
}

func copySeries(ctx context.Context, w *Writer, block *tsdb.Block, add labels.Labels) error {
	q, err := tsdb.NewBlockChunkQuerier(block, block.MinTime(), block.MaxTime()-1)
	if err != nil {
		return err
	}
	defer q.Close()
	all := labels.MustNewMatcher(labels.MatchEqual, "", "") // tsdb's way to select all series
	set := q.Select(ctx, false, &storage.SelectHints{Start: block.MinTime(), End: block.MaxTime(), DisableTrimming: true},
		all)
	var it chunks.Iterator
	for set.Next() {
		var metas []chunks.Meta
		for it = set.At().Iterator(it); it.Next(); {
			metas = append(metas, it.At())
		}
		if err := it.Err(); err != nil {
			return fmt.Errorf("series %s: %w", set.At().Labels(), err)
		}
		if err := w.Add(With(set.At().Labels(), add), metas); err != nil {
			return err
		}
	}
	return set.Err()
}

// With returns labels with those added whose names they lack.
func With(ls, add labels.Labels) labels.Labels {
	b := labels.NewBuilder(ls)
	add.Range(func(l labels.Label) {
		if !ls.Has(l.Name) {
			b.Set(l.Name, l.Value)
		}
	})
	return b.Labels()
}
