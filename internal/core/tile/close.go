package tile

import (
	"fmt"
	"math"
	"strconv"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"github.com/freshet-io/freshet/internal/core/series"
)

// Flush collects the samples of closed tiles by tenant and width, in the order of
// time for each series.
type Flush map[string]*[NumWidths][]Sample

func (f Flush) of(tenant string) *[NumWidths][]Sample {
	if f[tenant] == nil {
		f[tenant] = new([NumWidths][]Sample)
	}
	return f[tenant]
}

// Close ends the tile up to boundary, which must be the next one, and adds to out
// what is to be stored. The samples stay part of the open set until Committed.
// It returns how many values on the wire the tile stands for.
func (s *Shard) Close(boundary int64, out Flush) (samples uint64) {
	if boundary != s.closed+finest.Millis() || s.pending {
		panic(fmt.Sprintf("BUG: tile of shard closed up to %d, asked for %d, pending %t", s.closed, boundary, s.pending))
	}
	s.closed = boundary
	for _, t := range s.tenants {
		if len(t.entries) == 0 {
			delete(s.tenants, t.name)
			continue
		}
		to := out.of(t.name)
		for _, e := range t.entries {
			samples += e.close(boundary, s.config.ttl(e.kind), to)
			if e.idle(boundary) {
				t.remove(e)
				s.series--
			}
		}
	}
	s.pending = true
	s.forgetSenders()
	return samples
}

// Committed says that the samples of the last boundary are stored: they leave the
// open set.
func (s *Shard) Committed() {
	s.pending = false
	for _, t := range s.tenants {
		for _, e := range t.entries {
			e.pending = [NumWidths][]Sample{}
		}
	}
}

// Skip moves the boundary of an empty shard, which has nothing to close.
func (s *Shard) Skip(boundary int64) bool {
	if s.Len() > 0 || s.pending {
		return false
	}
	clear(s.tenants)
	s.closed = boundary
	s.forgetSenders()
	return true
}

// senderTTL is how long the sequence of a silent sender is remembered: longer
// than anyone repeats a batch.
const senderTTL = 3600 // s

func (s *Shard) forgetSenders() {
	for id, last := range s.senders {
		if last.Second < s.closed/1000-senderTTL {
			delete(s.senders, id)
		}
	}
}

// close absorbs the tile that ends at boundary and hands out its samples.
func (e *entry) close(boundary, ttl int64, out *[NumWidths][]Sample) (samples uint64) {
	if e.kind == series.Set {
		e.total.set = nil // a tile without values has none
	}
	if len(e.open) > 0 && e.open[0].end == boundary {
		samples = e.open[0].samples
		e.absorb(&e.open[0])
		e.open = append(e.open[:0], e.open[1:]...)
	}
	e.expireSources(boundary, ttl)
	expired := boundary-e.lastSeen >= ttl
	for w := range Width(NumWidths) {
		first := len(out[w])
		for _, p := range e.timed {
			out[w] = append(out[w], Sample{Series: e.series, T: p.T, V: p.V, Timed: true})
		}
		if boundary%w.Millis() == 0 {
			out[w] = e.emit(out[w], w, boundary, expired)
		}
		// A sub-slice of what the store reads: samples are never changed.
		e.pending[w] = out[w][first:len(out[w]):len(out[w])]
		for _, sample := range e.pending[w] {
			e.lastStored[w] = max(e.lastStored[w], sample.T)
		}
	}
	e.timed = nil
	if boundary%Width1m.Millis() == 0 {
		e.minute.Reset()
	}
	if expired {
		e.forget()
	}
	return samples
}

// emit appends the samples of width w at boundary t.
func (e *entry) emit(out []Sample, w Width, t int64, expired bool) []Sample {
	switch {
	case expired && e.live[w]:
		e.live[w] = false
		return e.samples(out, w, t, form{stale: true})
	case expired || !e.started:
		return out
	}
	if !e.live[w] {
		e.live[w] = true
		out = e.zero(out, w, t-w.Millis(), t)
	}
	return e.samples(out, w, t, form{})
}

// zero appends the sample that precedes a counter or timer that is new or comes
// back, so that rate and increase see its first increment. It is stamped with
// the start of the tile, or right behind what is stored already.
func (e *entry) zero(out []Sample, w Width, start, before int64) []Sample {
	if e.kind != series.Counter && e.kind != series.Timer {
		return out
	}
	t := max(start, e.lastStored[w]+1)
	if t >= before {
		return out
	}
	return e.samples(out, w, t, form{zero: true})
}

// idle reports whether the series has left all stores so long ago that whatever
// comes next is stamped behind what they hold.
func (e *entry) idle(boundary int64) bool {
	if len(e.open) > 0 || len(e.timed) > 0 {
		return false
	}
	for w := range Width(NumWidths) {
		if e.live[w] || boundary-boundary%w.Millis() <= e.lastStored[w] || e.started {
			return false
		}
	}
	return true
}

// expireSources forgets the senders that a merged gauge no longer hears of.
func (e *entry) expireSources(boundary, ttl int64) {
	changed := false
	for id, s := range e.sources {
		if boundary-s.at/1e6 >= ttl {
			delete(e.sources, id)
			changed = true
		}
	}
	if changed {
		e.total.value = e.merged(e.sources)
	}
}

// form is what a sample says in place of the series' value.
type form struct{ zero, stale bool }

// samples appends what the stores get of the series at time t: one sample, or
// one for each classic bucket, the sum and the count.
func (e *entry) samples(out []Sample, w Width, t int64, f form) []Sample {
	if e.classic != nil {
		return e.classicSamples(out, t, f)
	}
	sample := Sample{Series: e.series, T: t}
	switch {
	case e.kind == series.Timer:
		sample.H = e.floatHistogram(f)
	case f.stale:
		sample.V = staleNaN
	case f.zero:
	case e.kind == series.Set:
		sample.V = float64(e.distinct(w))
	default:
		sample.V = e.total.value
	}
	return append(out, sample)
}

var (
	staleNaN       = math.Float64frombits(value.StaleNaN)
	staleHistogram = &histogram.FloatHistogram{Sum: staleNaN}
)

func (e *entry) floatHistogram(f form) *histogram.FloatHistogram {
	switch {
	case f.stale:
		return staleHistogram
	case f.zero || e.total.timer == nil:
		// Empty, at the resolution of what follows: no change of it between them.
		schema := int32(e.policy.Schema)
		if e.total.timer != nil {
			schema = int32(e.total.timer.Schema)
		}
		return &histogram.FloatHistogram{Schema: schema, ZeroThreshold: math.Ldexp(1, -128)}
	}
	if e.float == nil {
		e.float = e.total.timer.Float()
	}
	return e.float
}

// distinct is the number of values that a set had in the tile of width w.
func (e *entry) distinct(w Width) uint64 {
	switch {
	case w != finest:
		return e.minute.Len()
	case e.total.set == nil:
		return 0
	}
	return e.total.set.Len()
}

// classicSeries are the series of a timer in classic buckets, in the order in
// which classicSamples fills them: each bound, +Inf, the sum and the count.
func classicSeries(ls labels.Labels, bounds []float64) []*Series {
	name := ls.Get(model.MetricNameLabel)
	var all []*Series
	b := labels.NewBuilder(ls)
	b.Set(model.MetricNameLabel, name+"_bucket")
	for _, bound := range append(bounds[:len(bounds):len(bounds)], math.Inf(1)) {
		b.Set(model.BucketLabel, strconv.FormatFloat(bound, 'g', -1, 64))
		all = append(all, &Series{Labels: b.Labels()})
	}
	b.Del(model.BucketLabel)
	for _, suffix := range []string{"_sum", "_count"} {
		b.Set(model.MetricNameLabel, name+suffix)
		all = append(all, &Series{Labels: b.Labels()})
	}
	return all
}

func (e *entry) classicSamples(out []Sample, t int64, f form) []Sample {
	count := 0.0
	for i, s := range e.classic {
		sample := Sample{Series: s, T: t}
		buckets := len(e.policy.Bounds) + 1
		if i < buckets && e.total.classic != nil {
			count += e.total.classic[i]
		}
		switch {
		case f.stale:
			sample.V = staleNaN
		case f.zero:
		case i == buckets: // the sum
			sample.V = e.total.sum
		default: // a bucket, or the count of all of them
			sample.V = count
		}
		out = append(out, sample)
	}
	return out
}

// stored are the series that the stores know the entry by.
func (e *entry) stored() []*Series {
	if e.classic != nil {
		return e.classic
	}
	return []*Series{e.series}
}

// Resume adds to out the samples that were handed out and not committed, after a
// restart of the process that was about to store them.
func (s *Shard) Resume(out Flush) {
	for _, t := range s.tenants {
		to := out.of(t.name)
		for _, e := range t.entries {
			for w, pending := range e.pending {
				to[w] = append(to[w], pending...)
			}
		}
	}
}
