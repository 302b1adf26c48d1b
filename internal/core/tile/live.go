package tile

import (
	"cmp"
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/batch"
)

// view is a query's view of the open tiles of a shard.
type view struct {
	width   Width
	stamp   int64 // time of the last sample, Unix ms
	past    bool  // increments of windows after `stamp` are folded already
	closed  int64 // boundary of the shard
	config  *Config
	seconds *seconds
	reader  *batch.Reader
	copy    entry // copy of the current series
}

// append adds the samples that a query sees of a series. It changes only a copy of the series. In
// the copy, tiles that end before `stamp` close as if nothing came late, and the tile that is open
// at `stamp` closes there.
func (v *view) append(samples []Sample, e *entry) []Sample {
	w := v.width
	for _, p := range e.has().timed {
		samples = append(samples, Sample{Series: e.series, T: p.t, V: p.v})
	}
	if v.past && v.stamp < v.closed {
		return samples // the total already has later counts
	}
	if v.stamp <= e.lastStored[w] || !e.pending(w) && (!e.live[w] || v.stamp-e.lastSeen >= v.config.ttl(e.kind)) {
		return samples
	}
	c := &v.copy
	e.copyTo(c)
	known := v.cut(c, e)
	var out [NumWidths][]Sample
	out[w] = samples
	for end := v.closed + tileMillis; end < v.stamp && c.pending(w); end += tileMillis {
		c.close(end, never, true, &out)
	}
	if known {
		c.take(v.stamp, &out)
		out[w] = c.handOut(out[w], w, v.stamp, false, false)
	}
	return out[w]
}

// never is a time to live without an end, in ms. Queries use it: a series expires only when a tile
// really closes.
const never = math.MaxInt64

// cut gives the copy c the open tiles of e up to the stamp of the view. The last tile gets the
// content that it had at the stamp. cut reports whether that content is known.
func (v *view) cut(c, e *entry) (known bool) {
	for i := range e.open {
		t := &e.open[i]
		if t.end-tileMillis >= v.stamp {
			break // starts at the stamp or later
		}
		c.open = append(c.open, *t)
		last := &c.open[len(c.open)-1]
		if v.past && t.end > v.stamp {
			*last = openTile{end: t.end}
			if !v.seconds.at(v.reader, e, t, v.stamp, last) {
				return false
			}
			if last.samples == 0 {
				c.open = c.open[:len(c.open)-1]
			}
		}
		last.end = min(t.end, v.stamp)
	}
	return true
}

func matches(ls labels.Labels, matchers []*labels.Matcher) bool {
	for _, m := range matchers {
		if !m.Matches(ls.Get(m.Name)) {
			return false
		}
	}
	return true
}

// appendPoints distributes an entry's samples among the entry's matching series.
func appendPoints(out []Live, matching []*Series, samples []Sample) []Live {
	for _, s := range matching {
		var points []Point
		for _, sample := range samples {
			if sample.Series == s {
				points = append(points, Point{T: sample.T, V: sample.V, H: sample.H})
			}
		}
		if len(points) == 0 {
			continue
		}
		out = append(out, Live{Labels: s.Labels, Points: sortPoints(points)})
	}
	return out
}

// appendWaiting adds series that ended or whose buckets have changed, so that only waiting samples of
// these series are left. A series with the same labels may exist again.
func appendWaiting(out []Live, left map[*Series][]Sample) []Live {
	if len(left) == 0 {
		return out
	}
	for s, samples := range left {
		out = appendPoints(out, []*Series{s}, samples)
	}
	slices.SortStableFunc(out, func(a, b Live) int { return labels.Compare(a.Labels, b.Labels) })
	merged := out[:1]
	for _, l := range out[1:] {
		last := &merged[len(merged)-1]
		if !labels.Equal(last.Labels, l.Labels) {
			merged = append(merged, l)
			continue
		}
		last.Points = sortPoints(append(last.Points, l.Points...))
	}
	return merged
}

// sortPoints sorts points by time, and keeps the first at each time.
func sortPoints(points []Point) []Point {
	slices.SortStableFunc(points, func(a, b Point) int { return cmp.Compare(a.T, b.T) })
	return slices.CompactFunc(points, func(a, b Point) bool { return a.T == b.T })
}
