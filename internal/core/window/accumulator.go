package window

import (
	"github.com/freshet-io/freshet/internal/core/distinct"
	"github.com/freshet-io/freshet/internal/core/dogstatsd"
)

// fate is what became of the samples of a line.
type fate uint8

const (
	taken        fate = iota
	overflows         // refused: they would make the series infinite
	tooManyTimes      // refused: see maxTimed
	tooFarAhead       // refused: see MaxAhead
)

// metric folds a line with the given number of samples into a series that is in the open window. It
// takes all of them or none: an overflowing value must not spoil the counts of other lines.
func (t *Table) metric(number uint32, r *record, m *dogstatsd.Metric, scale float64, samples uint64, now int64) fate {
	if m.Time != 0 {
		return t.timedMetric(r, m, scale, samples, now)
	}
	ok, i := true, t.open&1
	switch m.Type {
	case dogstatsd.Count:
		total := r.values[i] + weighted(m, scale)
		if ok = finite(total); ok {
			r.values[i] = total
		}
	case dogstatsd.Gauge:
		ok = r.gauge(i, m.Values, scale, t.options.RelativeGauges && m.Relative, now)
	case dogstatsd.Timing, dogstatsd.Histogram, dogstatsd.Distribution:
		ok = t.observe(number, r, m.Values, 1/m.Rate, scale)
	case dogstatsd.Buckets:
		ok = t.observeBuckets(number, r, m.Values, 1/m.Rate, scale)
	case dogstatsd.Set:
		t.set(r).Add(distinct.Hash(m.Set))
	}
	if !ok {
		return overflows
	}
	r.add(i, samples)
	if len(m.Exemplar.Trace) > 0 {
		t.exemplify(r, &m.Exemplar, scale, now)
	}
	return taken
}

// weighted returns the amount that a counter's line adds to its sum.
func weighted(m *dogstatsd.Metric, scale float64) (total float64) {
	for _, v := range m.Values {
		total += v
	}
	if m.Rate != 1 { // a division costs as much as the rest of this function
		total /= m.Rate
	}
	return total * scale
}

// gauge sets the gauge to the last of the values, or changes it by all of them.
func (r *record) gauge(i uint8, values []float64, scale float64, change bool, now int64) (ok bool) {
	value := values[len(values)-1] * scale
	if change {
		value = r.values[i]
		for _, v := range values {
			value += v * scale
		}
	}
	if !finite(value) {
		return false
	}
	if !change {
		r.marks[i] &^= relative
	} else if r.samples[i] == 0 {
		r.marks[i] |= relative
	}
	r.values[i], r.ats[i] = value, now
	return true
}

func (t *Table) check(r *record, c *dogstatsd.Check, now int64) fate {
	if c.Time != 0 {
		return t.timedLast(r, c.Time, float64(c.Status), 1, now)
	}
	i := t.open & 1
	r.add(i, 1)
	r.values[i], r.ats[i] = float64(c.Status), now
	return taken
}

// finite reports whether v is finite: Inf-Inf and NaN-NaN are NaN.
func finite(v float64) bool { return v-v == 0 }

// set returns a series' set in the open window. The flusher empties it.
func (t *Table) set(r *record) *distinct.Set {
	in := &t.extend(r).windows[t.open]
	if in.set == nil {
		in.set = new(distinct.Set)
	}
	return in.set
}
