package tsdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/index"

	"github.com/freshet-io/freshet/internal/lib/pagefault"
)

// Content counts the contents of a store's blocks.
type Content struct {
	Tenant, Store string
	Blocks        int
	Series        int // of all blocks: a series in three blocks counts three times
	Samples       uint64

	pace   func(bytes int64) error // called with the bytes of chunks that were read; may be nil
	strict bool                    // chunks that are not within the block's time are an error
}

// readBlock reads everything in a block. A part that the disk cannot read is an error, as other damage is.
func (c *Content) readBlock(ctx context.Context, dir string) error {
	return pagefault.Guard(func() error { return c.readMapped(ctx, dir) })
}

func (c *Content) readMapped(ctx context.Context, dir string) (err error) {
	block, err := tsdb.OpenBlock(slog.New(slog.DiscardHandler), dir, nil, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, block.Close()) }()
	idx, err := block.Index()
	if err != nil {
		return err
	}
	defer idx.Close()
	data, err := block.Chunks()
	if err != nil {
		return err
	}
	defer data.Close()
	name, value := index.AllPostingsKey()
	postings, err := idx.Postings(ctx, name, value)
	if err != nil {
		return err
	}
	c.Blocks++
	var b labels.ScratchBuilder
	var metas []chunks.Meta
	series, samples := uint64(0), uint64(0)
	for ; postings.Next(); series++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, bytes, err := readSeries(idx, data, postings.At(), &b, &metas)
		if err == nil && c.strict {
			err = chunksWithin(block.Meta(), b.Labels(), metas)
		}
		if err == nil && c.pace != nil {
			err = c.pace(bytes)
		}
		if err != nil {
			return err
		}
		samples += n
	}
	if err := postings.Err(); err != nil {
		return err
	}
	if err := readPostings(ctx, idx); err != nil {
		return err
	}
	if has := block.Meta().Stats; has.NumSeries != series || has.NumSamples != samples {
		return fmt.Errorf("has %d series and %d samples, and should have %d series and %d samples",
			series, samples, has.NumSeries, has.NumSamples)
	}
	c.Series += int(series)
	c.Samples += samples
	return nil
}

// chunksWithin returns an error unless the chunks of a series are within the time of their block. Queries of other
// times do not read the block, and would miss them.
func chunksWithin(block tsdb.BlockMeta, series labels.Labels, all []chunks.Meta) error {
	for _, c := range all {
		if c.MinTime < block.MinTime || c.MaxTime >= block.MaxTime || c.MinTime > c.MaxTime {
			return fmt.Errorf("series %s: a chunk has the times %d to %d ms, and %s says that the block begins at "+
				"%d and ends before %d; queries would not find it", series, c.MinTime, c.MaxTime, metaFile,
				block.MinTime, block.MaxTime)
		}
	}
	return nil
}

// readPostings reads the lists of series of all labels, each of which has a checksum.
func readPostings(ctx context.Context, idx tsdb.IndexReader) error {
	names, err := idx.LabelNames(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		values, err := idx.LabelValues(ctx, name, nil)
		if err != nil {
			return fmt.Errorf("label %s: %w", name, err)
		}
		for _, value := range values {
			if _, err := idx.Postings(ctx, name, value); err != nil {
				return fmt.Errorf("label %s: %w", name, err)
			}
		}
	}
	return nil
}

// readSeries returns how many samples and bytes the chunks of a series have.
func readSeries(
	idx tsdb.IndexReader, data tsdb.ChunkReader, ref storage.SeriesRef, b *labels.ScratchBuilder, metas *[]chunks.Meta,
) (samples uint64, bytes int64, err error) {
	if err := idx.Series(ref, b, metas); err != nil {
		return 0, 0, fmt.Errorf("series %d: %w", ref, err)
	}
	for _, meta := range *metas {
		chunk, _, err := data.ChunkOrIterable(meta) // checks its checksum, too
		if err != nil {
			return 0, 0, fmt.Errorf("series %s: %w", b.Labels(), err)
		}
		samples += uint64(chunk.NumSamples())
		bytes += int64(len(chunk.Bytes()))
	}
	return samples, bytes, nil
}
