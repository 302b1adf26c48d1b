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
	touched  bool   // the window has it among its series
	relative bool   // a gauge that has only been changed, never set
	untimed  uint64 // values on the wire without a time of their own
	value    float64
	at       int64 // Unix nanoseconds at which value was read
	timed    []timedValue
	timer    *timer
	set      *distinct.Set
}

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

// metric folds a line of so many samples. It takes all of them or none: a value
// that no sum can hold must not cost what others have counted.
func (a *accumulator) metric(p *series.Policy, m *dogstatsd.Metric, scale float64, samples uint64, now int64, relativeGauges bool) fate {
	if m.Time != 0 {
		return a.timedMetric(m, scale, samples, now)
	}
	ok := true
	switch m.Type {
	case dogstatsd.Count:
		total := a.value + sum(m.Values)/m.Rate*scale
		if ok = finite(total); ok {
			a.value = total
		}
	case dogstatsd.Gauge:
		ok = a.gauge(m.Values, scale, relativeGauges && m.Relative, now)
	case dogstatsd.Timing, dogstatsd.Histogram, dogstatsd.Distribution:
		if a.timer == nil {
			a.timer = new(timer)
		}
		if a.untimed == 0 {
			a.timer.reset(p)
		}
		ok = a.timer.observe(p, m.Values, 1/m.Rate, scale)
	case dogstatsd.Set:
		if a.set == nil {
			a.set = new(distinct.Set)
		}
		a.set.Add(distinct.Hash(m.Set))
	}
	if !ok {
		return overflows
	}
	a.untimed += samples
	return taken
}

// gauge sets the gauge to the last of the values, or changes it by all of them.
func (a *accumulator) gauge(values []float64, scale float64, relative bool, now int64) (ok bool) {
	value := values[len(values)-1] * scale
	if relative {
		value = a.value
		for _, v := range values {
			value += v * scale
		}
	}
	if !finite(value) {
		return false
	}
	a.relative = relative && (a.relative || a.untimed == 0)
	a.value, a.at = value, now
	return true
}

func (a *accumulator) check(c *dogstatsd.Check, now int64) fate {
	if c.Time != 0 {
		return a.timedLast(c.Time, float64(c.Status), 1, now)
	}
	a.untimed++
	a.value, a.at = float64(c.Status), now
	return taken
}

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}

func finite(v float64) bool { return !math.IsInf(v, 0) && !math.IsNaN(v) }

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

// Flush adds the increments of the window to out, which began with the window's
// second, and gives the window back to its table.
func (w *Window) Flush(out *batch.Writer) {
	for i, r := range w.touched {
		a := &r.windows[w.index]
		a.flush(out, r, &w.scratch)
		a.reset()
		w.touched[i] = nil
	}
	w.touched = w.touched[:0]
	w.flushing.Store(false)
}

func (a *accumulator) flush(out *batch.Writer, r *record, inc *batch.Increment) {
	for _, v := range a.timed {
		*inc = batch.Increment{
			Key: r.key, Policy: r.policyBytes, Source: r.source, Samples: saturate(v.samples),
			Time: v.time, Value: v.value, At: v.at,
		}
		out.Add(r.shard, inc)
	}
	if a.untimed == 0 {
		return
	}
	*inc = batch.Increment{
		Key: r.key, Policy: r.policyBytes, Source: r.source, Samples: saturate(a.untimed),
		Value: a.value, At: a.at, Relative: a.relative, Set: a.set,
	}
	if a.timer != nil {
		inc.Timer = &a.timer.buckets
		if r.policy.Bounds != nil {
			inc.Classic, inc.Sum = a.timer.classic, a.timer.sum
		}
	}
	out.Add(r.shard, inc)
}

// saturate makes a number of samples fit a batch. Only a window that was open for
// hours, because nobody took the one before, has more.
func saturate(samples uint64) uint32 { return uint32(min(samples, math.MaxUint32)) }

// samples is the number of values on the wire that were taken.
func (a *accumulator) samples() uint64 {
	n := a.untimed
	for _, v := range a.timed {
		n += v.samples
	}
	return n
}

func (a *accumulator) reset() {
	a.touched, a.untimed, a.relative, a.value, a.at = false, 0, false, 0, 0
	a.resetTimed()
	if a.set != nil {
		a.set.Reset()
	}
}
