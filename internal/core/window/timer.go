package window

import (
	"math"
	"slices"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/histogram"
	"github.com/freshet-io/freshet/internal/core/series"
)

// observation is a value of a timer. Values are noted as they come, and put into buckets many at a
// time. If each went into its bucket at once, the buckets would rarely be in the CPU's caches.
type observation struct {
	value  float64
	weight float64 // how many values it stands for
	series uint32  // number of the record
	first  bool    // the series' first value in the window
}

// maxObserved is how many values may wait to be put into buckets: 192 KiB.
const maxObserved = 8192

// timer is the distribution of a timer in one window.
type timer struct {
	buckets histogram.Exponential // unless the series has classic buckets
	classic []float64             // counts by bound, the last for +Inf
}

// observe notes each value as often as `weight` says. If the count or the sum would not be finite, it
// notes none of the values. So every bucket stays finite, too, since no bucket holds more than the
// count. The record holds the sum as its value, and the count in place of a gauge's time.
func (t *Table) observe(number uint32, r *record, values []float64, weight, scale float64) (ok bool) {
	i := t.open & 1
	sum, count := r.values[i], math.Float64frombits(uint64(r.ats[i]))
	for _, v := range values {
		sum += v * scale * weight
		count += weight
	}
	if !finite(sum) || !finite(count) {
		return false
	}
	r.values[i], r.ats[i] = sum, int64(math.Float64bits(count))
	first := t.begin(r)
	for _, v := range values {
		t.note(observation{v * scale, weight, number, first})
		first = false
	}
	return true
}

// observeBuckets is observe for a line of buckets (see dogstatsd.Metric). One value in each bucket
// stands for all values of that bucket.
func (t *Table) observeBuckets(number uint32, r *record, buckets []float64, weight, scale float64) (ok bool) {
	i := t.open & 1
	sum, count := r.values[i]+buckets[0]*scale*weight, math.Float64frombits(uint64(r.ats[i]))
	for k := 1; k < len(buckets); k += 2 {
		count += buckets[k+1] * weight
		if !finite(buckets[k] * scale) {
			return false
		}
	}
	if !finite(sum) || !finite(count) {
		return false
	}
	r.values[i], r.ats[i] = sum, int64(math.Float64bits(count))
	first := t.begin(r)
	for k := 1; k < len(buckets); k += 2 {
		t.note(observation{buckets[k] * scale, buckets[k+1] * weight, number, first})
		first = false
	}
	return true
}

// begin reports whether this is a timer's first value in the open window.
func (t *Table) begin(r *record) (first bool) {
	if r.extra == 0 {
		t.extend(r) // must be done now: it is not possible while the flusher has the window
	}
	return r.samples[t.open&1] == 0
}

// maxAhead is how far an exemplar's time may lie in the future, in milliseconds. The stores refuse
// exemplars further ahead. In the window, such an exemplar would be the newest of its series, and
// replace all others.
const maxAhead = 600_000

// exemplify keeps an exemplar of a timer in the open window, if it is the newest. Its value is
// scaled like the series' other values.
func (t *Table) exemplify(r *record, e *dogstatsd.Exemplar, scale float64, now int64) {
	value, i := e.Value*scale, t.open&1
	if e.Time > now/1e6+maxAhead || !finite(value) {
		t.stats.ExemplarsRefused++
		return
	}
	t.stats.Exemplars++
	x := t.extras[r.extra]
	if x.exemplars == nil {
		x.exemplars = new([2]batch.Exemplar)
	}
	newest := &x.exemplars[i]
	if r.marks[i]&traced != 0 && e.Time < newest.Time {
		return
	}
	r.marks[i] |= traced
	*newest = batch.Exemplar{Value: value, Time: e.Time, Trace: batch.TraceOf(e.Trace)}
}

func (t *Table) note(o observation) {
	w := &t.windows[t.open&1]
	w.observed = append(w.observed, o)
	if len(w.observed) == maxObserved {
		w.fill(t.records, t.extras, t.policies)
	}
}

// fill puts the noted values into the buckets of their timers.
func (w *Window) fill(records records, extras []*extra, policies []policy) {
	for i := range w.observed {
		o := &w.observed[i]
		r := records.at(o.series)
		p := policies[r.policy()].Policy
		in := &extras[r.extra].windows[w.index]
		if in.timer == nil {
			in.timer = new(timer)
		}
		if o.first {
			in.timer.reset(p)
		}
		in.timer.observe(p, o.value, o.weight)
	}
	w.observed = w.observed[:0]
}

func (t *timer) reset(p *series.Policy) {
	if p.Bounds == nil {
		t.buckets.Reset(p.Schema)
		return
	}
	t.classic = append(t.classic[:0], make([]float64, len(p.Bounds)+1)...)
}

func (t *timer) observe(p *series.Policy, value, weight float64) {
	if p.Bounds == nil {
		t.buckets.Observe(value, weight, int(p.MaxBuckets))
		return
	}
	bucket, _ := slices.BinarySearch(p.Bounds, value) // a bound belongs to the bucket below it
	t.classic[bucket] += weight
}
