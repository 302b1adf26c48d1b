package columns

import (
	"context"
	"errors"
	"math"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/freshet-io/freshet/internal/lib/xorchunk"
)

// ChunkSelector is a storage.Querier that can select series in chunks, too. Such a select has the series of Select in
// the same order, with the same samples, and possibly with further samples before and after the times of the hints.
// It returns nil if it has no chunks for these hints. `kept` says whether the series stay in memory until the query
// ends.
type ChunkSelector interface {
	SelectChunks(ctx context.Context, sorted, kept bool, hints *storage.SelectHints,
		matchers ...*labels.Matcher) ChunkSet
}

// ChunkSet is a set of series. Err is ErrNoChunks if a series cannot be given in chunks.
// Live returns a set without series that says which samples are live, if Select's set says it: see liveSet.
type ChunkSet interface {
	Next() bool
	At() ChunkSeries
	Err() error
	Warnings() annotations.Annotations
	Live() storage.SeriesSet
}

// ChunkSeries is a series in chunks.
type ChunkSeries struct {
	Labels labels.Labels
	Stored storage.ChunkSeries // nil if no sample is stored
	Points []promql.FPoint     // of tiles that are open, in order of time. A stored sample of the same time counts
}

// ErrNoChunks says that a select must be read as samples.
var ErrNoChunks = errors.New("the samples are not in chunks of floats one after the other")

// chunked is the source of a column's floats if they come from chunks. They are read a chunk at a time, into the
// list beyond the window.
type chunked struct {
	is     bool // whether the column's samples come from chunks
	stale  bool // whether the column keeps stale markers
	chunks chunks.Iterator
	more   bool            // whether there may be further chunks
	last   int64           // time of the newest sample of the chunks so far
	points []promql.FPoint // those that are not in the list yet
}

// beginChunks begins with a series of floats in chunks.
func (c *column) beginChunks(s ChunkSeries, wantResets, keepStale bool) {
	c.empty(wantResets)
	k := &c.chunked
	k.is, k.stale, k.more, k.last, k.points = true, keepStale, s.Stored != nil, math.MinInt64, s.Points
	if k.more {
		k.chunks = s.Stored.Iterator(k.chunks)
	}
}

// advanceChunks is advance for samples in chunks.
func (c *column) advanceChunks(mint, maxt int64) (fresh int, err error) {
	before := c.floats.end()
	if err := c.fill(mint, maxt); err != nil {
		return 0, err
	}
	f, r := &c.floats, &c.resets
	for f.hi < len(f.all) && f.all[f.hi].T <= maxt {
		f.hi++
	}
	for r.hi < len(r.all) && r.all[r.hi] < f.end() {
		r.hi++
	}
	c.leave(mint)
	return f.end() - max(before, f.dropped+f.lo), nil
}

// fill reads chunks until the list has a sample after `maxt`. It passes over chunks that end at `mint` or before.
func (c *column) fill(mint, maxt int64) error {
	k, f := &c.chunked, &c.floats
	for len(f.all) == 0 || f.all[len(f.all)-1].T <= maxt {
		if !k.more {
			c.add(k.points)
			k.points = nil
			return nil
		}
		if k.more = k.chunks.Next(); !k.more {
			if err := k.chunks.Err(); err != nil {
				return err
			}
			continue
		}
		if err := c.fillChunk(k.chunks.At(), mint); err != nil {
			return err
		}
	}
	return nil
}

// fillChunk appends the samples of a chunk, and the points before them.
func (c *column) fillChunk(of chunks.Meta, mint int64) error {
	k := &c.chunked
	// TSDB has merged a chunk without a reference from chunks that overlap. Which of two samples of one time the merge
	// takes depends on where a reader begins, so the query must read as the engine does.
	if of.Chunk.Encoding() != chunkenc.EncXOR || of.Ref == 0 || of.MinTime <= k.last {
		return ErrNoChunks
	}
	k.last = of.MaxTime
	before := 0
	for before < len(k.points) && k.points[before].T < of.MinTime {
		before++
	}
	c.add(k.points[:before])
	k.points = k.points[before:]
	inside := len(k.points) > 0 && k.points[0].T <= of.MaxTime
	if of.MaxTime <= mint && !inside {
		return nil
	}
	f, begin := &c.floats, len(c.floats.all)
	var err error
	if f.all, err = xorchunk.Append(f.all, of.Chunk.Bytes()); err != nil {
		return err
	}
	for i := begin; inside && i < len(f.all); i++ {
		switch at := k.points[0].T; {
		case at < f.all[i].T:
			return ErrNoChunks
		case at == f.all[i].T:
			k.points = k.points[1:]
			inside = len(k.points) > 0
		}
	}
	c.added(begin)
	return nil
}

// covered returns the newest time for which the list has all samples, once fill has returned.
func (c *column) covered() int64 {
	if !c.chunked.more && len(c.chunked.points) == 0 {
		return math.MaxInt64
	}
	return c.floats.all[len(c.floats.all)-1].T - 1
}

// add adds floats to the list, beyond the window.
func (c *column) add(floats []promql.FPoint) {
	begin := len(c.floats.all)
	c.floats.all = append(c.floats.all, floats...)
	c.added(begin)
}

// added drops stale markers from the part of the list that begins at `begin`, and notes resets.
func (c *column) added(begin int) {
	if c.chunked.stale {
		return
	}
	f, before := &c.floats, math.Inf(-1)
	if begin > 0 && c.resets.wanted {
		before = f.all[begin-1].F
	}
	kept := begin
	for i := begin; i < len(f.all); i++ {
		v := f.all[i].F
		if !(v >= before) { // rare: a reset, or not a number
			if value.IsStaleNaN(v) {
				continue
			}
			if v < before {
				c.resets.all = append(c.resets.all, f.dropped+kept)
			}
		}
		if c.resets.wanted {
			before = v
		}
		if kept < i {
			f.all[kept] = f.all[i]
		}
		kept++
	}
	f.all = f.all[:kept]
}
