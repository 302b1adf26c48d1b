package blocks

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/index"
	"github.com/prometheus/prometheus/tsdb/tombstones"
)

// Point is a sample: a float, or a histogram if H is set.
type Point struct {
	T int64 // Unix milliseconds
	V float64
	H *histogram.FloatHistogram
}

// Same reports whether two points are the same, bit for bit.
func (p Point) Same(o Point) bool {
	if p.H == nil || o.H == nil {
		return p.T == o.T && p.H == o.H && math.Float64bits(p.V) == math.Float64bits(o.V)
	}
	return p.T == o.T && p.H.Equals(o.H)
}

// String returns the time and the value.
func (p Point) String() string {
	if p.H != nil {
		return fmt.Sprintf("%s at %d", p.H, p.T)
	}
	return fmt.Sprintf("%v at %d", p.V, p.T)
}

// Points are some samples of a series, in the order of time.
type Points struct {
	Labels labels.Labels
	Points []Point
}

// Sample returns the samples of a random chunk of `n` random series, with the labels that Label would give these. It
// leaves out deleted samples, and chunks that have no others.
func (b Block) Sample(ctx context.Context, n int, random *rand.Rand, add labels.Labels) (found []Points, err error) {
	err = b.open(func(block *tsdb.Block) error {
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
		deleted, err := block.Tombstones()
		if err != nil {
			return err
		}
		defer deleted.Close()
		name, value := index.AllPostingsKey()
		postings, err := idx.Postings(ctx, name, value)
		if err != nil {
			return err
		}
		refs, err := index.ExpandPostings(postings)
		if err != nil {
			return err
		}
		var of labels.ScratchBuilder
		var metas []chunks.Meta
		for range min(n, len(refs)) {
			ref := refs[random.IntN(len(refs))]
			if err := idx.Series(ref, &of, &metas); err != nil {
				return err
			}
			if len(metas) == 0 {
				continue
			}
			chunk, _, err := data.ChunkOrIterable(metas[random.IntN(len(metas))])
			if err != nil {
				return err
			}
			gone, err := deleted.Get(ref)
			if err != nil {
				return err
			}
			points, err := pointsOf(nil, chunk, gone)
			if err != nil {
				return err
			}
			if len(points) > 0 {
				found = append(found, Points{With(of.Labels().Copy(), add), points})
			}
		}
		return nil
	})
	return found, err
}

// PointsOf returns the samples of chunks.
func PointsOf(all []chunks.Meta) (points []Point, err error) {
	for _, c := range all {
		if points, err = pointsOf(points, c.Chunk, nil); err != nil {
			return nil, err
		}
	}
	return points, nil
}

func pointsOf(points []Point, chunk chunkenc.Chunk, gone tombstones.Intervals) ([]Point, error) {
	it := chunk.Iterator(nil)
	for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
		p := Point{T: it.AtT()}
		if (tombstones.Interval{Mint: p.T, Maxt: p.T}).IsSubrange(gone) {
			continue
		}
		if kind == chunkenc.ValFloat {
			_, p.V = it.At()
		} else {
			_, p.H = it.AtFloatHistogram(nil)
		}
		points = append(points, p)
	}
	return points, it.Err()
}
