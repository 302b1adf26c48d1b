package window

import (
	"slices"

	"github.com/freshet-io/freshet/internal/core/distinct"
	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/histogram"
	"github.com/freshet-io/freshet/internal/core/series"
)

// fate is what became of the samples of a line.
type fate uint8

const (
	taken        fate = iota
	overflows         // refused: with them the series would not be finite
	tooManyTimes      // refused: see maxTimed
)

// timer is the distribution of a timer in one window.
type timer struct {
	buckets histogram.Exponential // unless the series has classic buckets
	classic []float64             // counts by bound, the last for +Inf
	count   float64               // of classic
	sum     float64               // of classic
}

// metric folds a line of so many samples into a series that is in the open window.
// It takes all of them or none: a value that no sum can hold must not cost what
// others have counted.
func (t *Table) metric(r *record, m *dogstatsd.Metric, scale float64, samples uint64, now int64) fate {
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
		ok = t.timer(r).observe(t.policies[r.policy()].Policy, m.Values, 1/m.Rate, scale)
	case dogstatsd.Set:
		t.set(r).Add(distinct.Hash(m.Set))
	}
	if !ok {
		return overflows
	}
	r.add(i, samples)
	return taken
}

// weighted is what a counter's line adds to its sum.
func weighted(m *dogstatsd.Metric, scale float64) (total float64) {
	for _, v := range m.Values {
		total += v
	}
	if m.Rate != 1 { // a division takes as long as all else here
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

// finite reports whether v is a number: the difference of others is none.
func finite(v float64) bool { return v-v == 0 }

// timer returns the distribution of a series in the open window.
func (t *Table) timer(r *record) *timer {
	in := &t.extend(r).windows[t.open]
	if in.timer == nil {
		in.timer = new(timer)
	}
	if r.samples[t.open] == 0 {
		in.timer.reset(t.policies[r.policy()].Policy)
	}
	return in.timer
}

// set returns the set of a series in the open window. The flusher empties it.
func (t *Table) set(r *record) *distinct.Set {
	in := &t.extend(r).windows[t.open]
	if in.set == nil {
		in.set = new(distinct.Set)
	}
	return in.set
}

func (t *timer) reset(p *series.Policy) {
	if p.Bounds == nil {
		t.buckets.Reset(p.Schema)
		return
	}
	t.classic = append(t.classic[:0], make([]float64, len(p.Bounds)+1)...)
	t.count, t.sum = 0, 0
}

// observe counts each value as often as weight says, or none of them if the count
// or the sum would not be finite. No bucket holds more than the count.
func (t *timer) observe(p *series.Policy, values []float64, weight, scale float64) (ok bool) {
	count, sum := t.count, t.sum
	if p.Bounds == nil {
		count, sum = t.buckets.Count, t.buckets.Sum
	}
	for _, v := range values {
		count += weight
		sum += v * scale * weight
	}
	if !finite(count) || !finite(sum) {
		return false
	}
	if p.Bounds == nil {
		for _, v := range values {
			t.buckets.Observe(v*scale, weight, int(p.MaxBuckets))
		}
		return true
	}
	for _, v := range values {
		bucket, _ := slices.BinarySearch(p.Bounds, v*scale) // bounds are inclusive above
		t.classic[bucket] += weight
	}
	t.count, t.sum = count, sum
	return true
}
