package window

import (
	"math"
	"slices"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/distinct"
	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/histogram"
	"github.com/freshet-io/freshet/internal/core/series"
)

// accumulator is what one series counted in one window. Its memory is used again
// by the window after the next one.
type accumulator struct {
	samples  uint32 // values on the wire; 0 means that the window has nothing of it
	untimed  uint32 // those of them without a time of their own
	relative bool   // a gauge that has only been changed, never set
	value    float64
	at       int64 // Unix nanoseconds at which value was read
	timed    []timedValue
	timer    *timer
	set      *distinct.Set
}

// timedValue is a value of a line with |T.
type timedValue struct {
	time    int64 // Unix seconds
	value   float64
	samples uint32
	at      int64
}

// timer is the distribution of a timer in one window.
type timer struct {
	buckets histogram.Exponential // unless the series has classic buckets
	classic []float64             // counts by bound, the last for +Inf
	sum     float64               // of classic
}

func (a *accumulator) metric(r *record, m *dogstatsd.Metric, samples uint32, now int64, relativeGauges bool) {
	a.samples += samples
	if m.Time != 0 {
		a.timedMetric(r, m, samples, now)
		return
	}
	first := a.untimed == 0
	a.untimed += samples
	switch m.Type {
	case dogstatsd.Count:
		a.value += sum(m.Values) / m.Rate * r.Scale
	case dogstatsd.Gauge:
		a.gauge(m.Values, r.Scale, relativeGauges && m.Relative, first)
		a.at = now
	case dogstatsd.Timing, dogstatsd.Histogram, dogstatsd.Distribution:
		if a.timer == nil {
			a.timer = new(timer)
		}
		if first {
			a.timer.reset(r.Policy)
		}
		a.timer.observe(r.Policy, m.Values, 1/m.Rate, r.Scale)
	case dogstatsd.Set:
		if a.set == nil {
			a.set = new(distinct.Set)
		}
		a.set.Add(distinct.Hash(m.Set))
	}
}

func (a *accumulator) gauge(values []float64, scale float64, relative, first bool) {
	if !relative {
		a.value, a.relative = values[len(values)-1]*scale, false
		return
	}
	if first {
		a.relative = true
	}
	for _, v := range values {
		a.value += v * scale
	}
}

func (a *accumulator) check(c *dogstatsd.Check, now int64) {
	a.samples++
	if c.Time != 0 {
		a.timed = append(a.timed, timedValue{time: c.Time, value: float64(c.Status), samples: 1, at: now})
		return
	}
	a.untimed++
	a.value, a.at = float64(c.Status), now
}

// timedMetric notes values that are stamped by their sender: only counters and
// gauges can be.
func (a *accumulator) timedMetric(r *record, m *dogstatsd.Metric, samples uint32, now int64) {
	v := timedValue{time: m.Time, samples: samples, at: now}
	if m.Type == dogstatsd.Gauge {
		v.value = m.Values[len(m.Values)-1] * r.Scale
		a.timed = append(a.timed, v)
		return
	}
	v.value = sum(m.Values) / m.Rate * r.Scale
	for i := range a.timed {
		if a.timed[i].time == v.time {
			a.timed[i].value += v.value
			a.timed[i].samples += samples
			return
		}
	}
	a.timed = append(a.timed, v)
}

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}

func (t *timer) reset(p *series.Policy) {
	if p.Bounds == nil {
		t.buckets.Reset(p.Schema)
		return
	}
	t.classic = append(t.classic[:0], make([]float64, len(p.Bounds)+1)...)
	t.sum = 0
}

func (t *timer) observe(p *series.Policy, values []float64, weight, scale float64) {
	for _, v := range values {
		v *= scale
		if p.Bounds == nil {
			t.buckets.Observe(v, weight, int(p.MaxBuckets))
			continue
		}
		bucket, _ := slices.BinarySearch(p.Bounds, v) // bounds are inclusive above
		t.classic[bucket] += weight
		t.sum += v * weight
	}
}

// Flush adds the increments of the window to out, which began with the window's
// second, and gives the window back to its table. Increments that grew beyond
// what a float holds are refused: it returns how many samples they stood for.
func (w *Window) Flush(out *batch.Writer) (overflowed uint64) {
	for i, r := range w.touched {
		a := &r.windows[w.index]
		overflowed += a.flush(out, r, &w.scratch)
		a.reset()
		w.touched[i] = nil
	}
	w.touched = w.touched[:0]
	w.flushing.Store(false)
	return overflowed
}

func (a *accumulator) flush(out *batch.Writer, r *record, inc *batch.Increment) (overflowed uint64) {
	for _, v := range a.timed {
		if !finite(v.value) {
			overflowed += uint64(v.samples)
			continue
		}
		*inc = batch.Increment{Key: r.Key, Policy: r.policy, Source: r.Source, Samples: v.samples, Time: v.time, Value: v.value, At: v.at}
		out.Add(r.Shard, inc)
	}
	if a.untimed == 0 {
		return overflowed
	}
	*inc = batch.Increment{
		Key: r.Key, Policy: r.policy, Source: r.Source, Samples: a.untimed,
		Value: a.value, At: a.at, Relative: a.relative, Set: a.set,
	}
	if a.timer != nil {
		inc.Timer = &a.timer.buckets
		if r.Policy.Bounds != nil {
			inc.Classic, inc.Sum = a.timer.classic, a.timer.sum
		}
	}
	if !finite(inc.Value) || !finite(inc.Sum) || (inc.Timer != nil && !(finite(inc.Timer.Sum) && finite(inc.Timer.Count))) {
		return overflowed + uint64(a.untimed)
	}
	out.Add(r.Shard, inc)
	return overflowed
}

func finite(v float64) bool { return !math.IsInf(v, 0) && !math.IsNaN(v) }

func (a *accumulator) reset() {
	a.samples, a.untimed, a.relative, a.value, a.at = 0, 0, false, 0, 0
	a.timed = a.timed[:0]
	if a.set != nil {
		a.set.Reset()
	}
}
