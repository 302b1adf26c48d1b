package columns

import (
	"math"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// instantsInChunks is instants for a column of floats from chunks, with stale markers.
func (e *evaluation) instantsInChunks() error {
	p, c := e.plan, &e.column
	e.row.reset()
	last := p.start + int64(p.steps-1)*p.interval
	for ts := p.start; ts <= last; {
		if err := c.fill(ts-e.offset-p.lookback, ts-e.offset); err != nil {
			return err
		}
		all, next, covered := c.floats.all, c.floats.hi, c.covered()
		for ; ts <= last && ts-e.offset <= covered; ts += p.interval {
			ref := ts - e.offset
			for next < len(all) && all[next].T <= ref {
				next++
			}
			if next == 0 {
				continue
			}
			if s := all[next-1]; s.T > ref-p.lookback && !value.IsStaleNaN(s.F) {
				e.row.floats = append(e.row.floats, promql.FPoint{T: ts, F: s.F})
			}
		}
		c.floats.lo, c.floats.hi = max(next-1, 0), next
		c.trim()
	}
	return e.countInstants()
}

// instant reads a series like the engine's selector: the newest sample at a time, if it is not older
// than the look-back delta. It seeks where the engine seeks, since seeking changes what histograms
// say about resets.
type instant struct {
	it       chunkenc.Iterator
	lookback int64
	now      sample // the sample that the iterator is at; its histogram is not read
	before   sample // the sample before it; without a time if there is none
}

type sample struct {
	kind chunkenc.ValueType
	t    int64
	v    float64
	h    *histogram.FloatHistogram
}

// never is before all times.
const never = math.MinInt64

func newInstant(it chunkenc.Iterator, lookback int64) instant {
	return instant{it: it, lookback: lookback, now: sample{kind: it.Next(), t: never}, before: sample{t: never}}
}

// at returns the newest sample at a time, which is not before the last call's. It is not ok if the sample is older than
// the look-back delta.
func (i *instant) at(ref int64) (v float64, h *histogram.FloatHistogram, ok bool, err error) {
	if oldest := ref - i.lookback; i.now.kind != chunkenc.ValNone && oldest > i.now.t {
		i.before.t = never
		i.took(i.it.Seek(oldest))
	}
	for i.now.kind != chunkenc.ValNone && i.now.t < ref {
		i.before = i.now
		if i.now.kind != chunkenc.ValFloat {
			i.before.t, i.before.h = i.it.AtFloatHistogram(nil)
		}
		i.took(i.it.Next())
	}
	found := i.before
	switch {
	case i.now.kind == chunkenc.ValNone:
		if err := i.it.Err(); err != nil {
			return 0, nil, false, err
		}
	case i.now.t == ref:
		if found = i.now; found.kind != chunkenc.ValFloat {
			_, found.h = i.it.AtFloatHistogram(nil)
		}
	}
	if found.t == never || found.t <= ref-i.lookback ||
		value.IsStaleNaN(found.v) || found.h != nil && value.IsStaleNaN(found.h.Sum) {
		return 0, nil, false, nil
	}
	return found.v, found.h, true, nil
}

// took notes the sample that the iterator has moved to.
func (i *instant) took(kind chunkenc.ValueType) {
	switch kind {
	case chunkenc.ValNone:
		i.now.kind = kind
	case chunkenc.ValFloat:
		t, v := i.it.At()
		i.now = sample{kind: kind, t: t, v: v}
	default:
		i.now = sample{kind: kind, t: i.it.AtT()}
	}
}
