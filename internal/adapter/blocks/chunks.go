package blocks

import (
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// fit returns the samples of a series from `from` to `to`, both included, in chunks that are in order and do not
// overlap. It encodes only chunks anew that reach beyond, or overlap.
func fit(all []chunks.Meta, from, to int64) (fitting []chunks.Meta, err error) {
	slices.SortStableFunc(all, func(a, b chunks.Meta) int { return int(a.MinTime - b.MinTime) })
	for len(all) > 0 {
		n, end := 1, all[0].MaxTime
		for n < len(all) && all[n].MinTime <= end {
			end = max(end, all[n].MaxTime)
			n++
		}
		if n == 1 && all[0].MinTime >= from && end <= to {
			fitting = append(fitting, all[0])
		} else if fitting, err = encode(fitting, all[:n], from, to); err != nil {
			return nil, err
		}
		all = all[n:]
	}
	return fitting, nil
}

// encode appends the samples of chunks that may overlap. Of two samples at one time, it takes one.
func encode(to []chunks.Meta, all []chunks.Meta, mint, maxt int64) ([]chunks.Meta, error) {
	var parts []storage.Series
	for _, c := range all {
		parts = append(parts, &storage.SeriesEntry{Lset: labels.EmptyLabels(),
			SampleIteratorFn: func(chunkenc.Iterator) chunkenc.Iterator {
				return &cut{Iterator: c.Chunk.Iterator(nil), from: mint, to: maxt}
			}})
	}
	it := storage.NewSeriesToChunkEncoder(storage.ChainedSeriesMerge(parts...)).Iterator(nil)
	for it.Next() {
		to = append(to, it.At())
	}
	return to, it.Err()
}

// cut iterates over the samples of a time.
type cut struct {
	chunkenc.Iterator
	from, to int64
	begun    bool
}

// Next is part of chunkenc.Iterator.
func (c *cut) Next() chunkenc.ValueType {
	if !c.begun {
		return c.Seek(c.from)
	}
	return c.until(c.Iterator.Next())
}

// millis is int64 under another name: see role/querier.
type millis = int64

// Seek is part of chunkenc.Iterator.
func (c *cut) Seek(t millis) chunkenc.ValueType {
	c.begun = true
	return c.until(c.Iterator.Seek(max(t, c.from)))
}

func (c *cut) until(kind chunkenc.ValueType) chunkenc.ValueType {
	if kind != chunkenc.ValNone && c.AtT() > c.to {
		return chunkenc.ValNone
	}
	return kind
}
