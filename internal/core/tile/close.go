package tile

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"github.com/freshet-io/freshet/internal/core/series"
)

// Closed counts what became of the samples of closed tiles.
type Closed struct {
	Samples    uint64            // on the wire, in the tiles
	Duplicates map[string]uint64 // on the wire, by tenant: stamped by their sender with the end of a tile, which has a sample already
	Waiting    []*Waiting        // what is to be stored, one of each tenant that has something
}

// Close ends the tile up to boundary, which must be the next one, or any later one while
// the shard rests, and returns what is to be stored. The samples stay part of the open set until Stored: whether a tenant's
// earlier ones are stored does not matter here, so that no store holds up a shard.
// Times to live are those of config, so that a replay can close with those of its time.
func (s *Shard) Close(boundary int64, config *Config) (closed Closed) {
	if next := s.closed + finest.Millis(); boundary != next && (boundary < next || !s.Rests()) {
		panic(fmt.Sprintf("BUG: tile of shard closed up to %d, asked for %d", s.closed, boundary))
	}
	s.closed, s.timedWindow = boundary, config.OutOfOrder.Milliseconds()
	closed.Duplicates = map[string]uint64{}
	for _, t := range s.tenants {
		if len(t.entries) == 0 {
			s.forgetTenant(t)
			continue
		}
		w := t.begin(boundary)
		full := slices.Contains(config.Full, t.name)
		for _, e := range t.entries {
			before := w.len()
			samples, duplicates := e.close(boundary, config.ttl(e.kind), full, &w.Samples)
			closed.Samples += samples
			if duplicates > 0 {
				closed.Duplicates[t.name] += duplicates
			}
			// What waits needs the series: it is found by it.
			if w.len() == before && len(t.waiting) == 0 && e.idle(boundary) {
				t.remove(e)
				e.key, e.next = "", nil // whoever expects it must not find it, nor keep others
				s.count(e, -1)
			}
		}
		if w.len() > 0 {
			w.measure()
			t.waiting = append(t.waiting, w)
			closed.Waiting = append(closed.Waiting, w)
		}
	}
	s.closeLog(boundary)
	s.forgetSenders()
	return closed
}

// Rests reports whether the shard holds nothing but totals of up/down counters, all of
// them handed out: its next tiles say again what the last one said. Such totals outlive a
// time when nothing ran by weeks, whose tiles nobody needs.
func (s *Shard) Rests() bool {
	if s.series != s.upDowns {
		return false
	}
	for _, t := range s.tenants {
		for _, e := range t.entries {
			if len(e.open) > 0 || slices.Contains(e.owes[:], true) {
				return false
			}
		}
	}
	return true
}

// Skip moves the boundary of a shard without series, which has nothing to close. What
// waits to be stored goes on waiting.
func (s *Shard) Skip(boundary int64, config *Config) bool {
	if s.Len() > 0 {
		return false
	}
	for _, t := range s.tenants {
		s.forgetTenant(t)
	}
	s.closed, s.timedWindow = boundary, config.OutOfOrder.Milliseconds()
	s.forgetSenders()
	return true
}

// forgetTenant forgets a tenant without series, unless it waits for its stores.
func (s *Shard) forgetTenant(t *tenant) {
	if len(t.waiting) == 0 {
		delete(s.tenants, t.name)
	}
}

// senderTTL is how long the sequence of a silent sender is remembered, by our
// boundaries: longer than anyone repeats a batch.
const senderTTL = 3_600_000 // ms

func (s *Shard) forgetSenders() {
	for id, last := range s.senders {
		if last.Boundary < s.closed-senderTTL {
			delete(s.senders, id)
		}
	}
}

// close absorbs the tile that ends at boundary and hands out its samples; if the tenant
// is full none that says again what was said. It returns how many values on the wire are
// in the tile, and how many stamped ones gave way to it.
func (e *entry) close(boundary, ttl int64, full bool, out *[NumWidths][]Sample) (samples, duplicates uint64) {
	var first [NumWidths]int
	for w := range first {
		first[w] = len(out[w])
	}
	duplicates = e.handOutTimed(boundary, out)
	if e.kind == series.Set {
		e.total.set = nil // a tile without values has none
	}
	if len(e.open) > 0 && e.open[0].end == boundary {
		samples = e.open[0].samples
		out[finest] = e.begin(out[finest], finest, boundary-finest.Millis(), boundary)
		e.absorb(&e.open[0])
		e.open = append(e.open[:0], e.open[1:]...)
	}
	e.expireSources(boundary, ttl)
	expired := boundary-e.lastSeen >= ttl
	for w := range Width(NumWidths) {
		if boundary%w.Millis() == 0 {
			from := len(out[w])
			out[w] = e.emit(out[w], w, boundary, expired, full)
			if w == finest && samples > 0 {
				out[w][from].Raw = samples // the tile has counted something, so there is one
			}
			if w == finest {
				e.handOutExemplar(boundary, out[w][from:])
			}
		}
		for _, sample := range out[w][first[w]:] {
			e.lastStored[w] = max(e.lastStored[w], sample.T)
		}
	}
	if boundary%Width1m.Millis() == 0 {
		e.minute.Reset()
	}
	if expired && !slices.Contains(e.live[:], true) && !slices.Contains(e.owes[:], true) {
		e.forget()
	}
	return samples, duplicates
}

// handOutTimed hands out the points whose time has come. One at the boundary
// gives way to the tile that ends there: it is a duplicate.
func (e *entry) handOutTimed(boundary int64, out *[NumWidths][]Sample) (duplicates uint64) {
	for len(e.timed) > 0 && e.timed[0].t <= boundary {
		p := e.timed[0]
		e.timed = e.timed[1:]
		if p.t == boundary && (e.started || len(e.open) > 0 && e.open[0].end == boundary) {
			duplicates += p.samples
			continue
		}
		for w := range out {
			out[w] = append(out[w], Sample{Series: e.series, T: p.t, V: p.v, Timed: true})
		}
		out[finest][len(out[finest])-1].Raw = p.samples
	}
	if len(e.timed) == 0 {
		e.timed = nil
	}
	return duplicates
}

// emit appends the samples of width w at boundary t. What a store has not been
// given yet it gets even if the series has expired meanwhile; the stale marker
// then follows at the next boundary. Of a full tenant nothing is repeated.
func (e *entry) emit(out []Sample, w Width, t int64, expired, full bool) []Sample {
	switch {
	case e.owes[w]:
		if w != finest {
			out = e.begin(out, w, t-w.Millis(), t)
		}
		e.owes[w], e.live[w] = false, true
		return e.samples(out, w, t, form{})
	case !e.live[w]:
		return out
	case expired:
		e.live[w] = false
		return e.samples(out, w, t, form{stale: true})
	case full:
		return out
	}
	return e.samples(out, w, t, form{})
}

// begin appends the sample that precedes a counter or timer that is new or comes
// back, so that rate and increase see its first increment: zero, or in the finest
// width what it had counted before, if another width is still being told of that.
// It is stamped with the start of the tile, or right behind what is stored
// already. It does nothing for a series that lives.
func (e *entry) begin(out []Sample, w Width, start, before int64) []Sample {
	if e.live[w] || e.kind != series.Counter && e.kind != series.Timer {
		return out
	}
	t := max(start, e.lastStored[w]+1)
	if t >= before {
		return out
	}
	return e.samples(out, w, t, form{zero: w != finest || !e.started})
}

// idle reports whether the series has left all stores so long ago that whatever
// comes next is stamped behind what they hold. It must have nothing that waits for them.
func (e *entry) idle(boundary int64) bool {
	if len(e.open) > 0 || len(e.timed) > 0 {
		return false
	}
	for w := range Width(NumWidths) {
		if e.live[w] || e.started || boundary-boundary%w.Millis() <= e.lastStored[w] {
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
	if changed && len(e.sources) > 0 {
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
		all = append(all, &Series{Labels: b.Labels(), Kind: series.Timer})
	}
	b.Del(model.BucketLabel)
	for _, suffix := range []string{"_sum", "_count"} {
		b.Set(model.MetricNameLabel, name+suffix)
		all = append(all, &Series{Labels: b.Labels(), Kind: series.Timer})
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
