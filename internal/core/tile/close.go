package tile

import (
	"slices"
)

// close absorbs the tile that ends at `boundary` and hands out its samples. If `full` is set, it does
// not repeat unchanged values: see Config.Full. It returns how many values on the wire are in the
// tile, and how many stamped values it replaced.
func (e *entry) close(boundary, ttl int64, full bool, out *[NumWidths][]Sample) (samples, duplicates uint64) {
	var first [NumWidths]int
	for w := range first {
		first[w] = len(out[w])
	}
	duplicates = e.handOutTimed(boundary, out)
	samples = e.take(boundary, out)
	e.expireSources(boundary, ttl)
	expired := boundary-e.lastSeen >= ttl
	for w := range Width(NumWidths) {
		if boundary%w.Millis() == 0 {
			from := len(out[w])
			out[w] = e.handOut(out[w], w, boundary, expired, full)
			if w == finest && samples > 0 {
				out[w][from].Raw = samples // the tile is not empty, so there is a sample
			}
		}
		for _, sample := range out[w][first[w]:] {
			e.lastStored[w] = max(e.lastStored[w], sample.T)
		}
	}
	if boundary%Width1m.Millis() == 0 {
		if e.rare != nil {
			e.rare.minute.Reset()
		}
	}
	if expired && !slices.Contains(e.live[:], true) && !slices.Contains(e.owes[:], true) {
		e.forget()
	}
	return samples, duplicates
}

// take hands out a preceding sample if one is needed, and then absorbs the open tile that ends at
// `end`, if any. It returns how many values on the wire are in the tile.
func (e *entry) take(end int64, out *[NumWidths][]Sample) (samples uint64) {
	if len(e.open) == 0 || e.open[0].end != end {
		return 0
	}
	samples = e.open[0].samples
	out[finest] = e.begin(out[finest], finest, end)
	e.combines().absorb(e, &e.open[0])
	e.started, e.owes = true, [NumWidths]bool{true, true}
	e.open = append(e.open[:0], e.open[1:]...)
	return samples
}

// handOutTimed hands out the stamped points up to boundary. A point at the boundary is a duplicate
// of the tile that ends there, and is not handed out.
func (e *entry) handOutTimed(boundary int64, out *[NumWidths][]Sample) (duplicates uint64) {
	if len(e.has().timed) == 0 { // nearly always
		return 0
	}
	r := e.rare
	for len(r.timed) > 0 && r.timed[0].t <= boundary {
		p := r.timed[0]
		r.timed = r.timed[1:]
		if p.t == boundary && (e.started || len(e.open) > 0 && e.open[0].end == boundary) {
			duplicates += p.samples
			continue
		}
		for w := range out {
			out[w] = append(out[w], Sample{Series: e.series, T: p.t, V: p.v, Timed: true})
		}
		out[finest][len(out[finest])-1].Raw = p.samples
	}
	if len(r.timed) == 0 {
		r.timed = nil
	}
	return duplicates
}

// handOut appends the samples of width w at boundary t. A store first gets all counts that it is
// owed, even if the series has expired meanwhile. The stale marker then follows at the next
// boundary. If `full` is set, handOut repeats no values.
func (e *entry) handOut(out []Sample, w Width, t int64, expired, full bool) []Sample {
	switch {
	case e.owes[w]:
		if w != finest {
			out = e.begin(out, w, t)
		}
		e.owes[w], e.live[w] = false, true
		return e.combines().appendSamples(e, out, w, t, form{})
	case !e.live[w]:
		return out
	case expired:
		e.live[w] = false
		return e.combines().appendSamples(e, out, w, t, form{stale: true})
	case full:
		return out
	}
	return e.combines().appendSamples(e, out, w, t, form{})
}

// begin appends the sample that precedes a new or returning counter or timer, so that rate and increase
// see its first increment. This sample is zero. In the finest width, as long as the store of another
// width lacks the earlier total, the sample is that total instead. The time of the sample is the start
// of the tile that ends at `end`, or just after the newest stored sample. For a live series, begin does
// nothing.
func (e *entry) begin(out []Sample, w Width, end int64) []Sample {
	if e.live[w] || !e.combines().rises() {
		return out
	}
	start := (end - 1) - (end-1)%w.Millis() // start of the tile, even if a query sees only a part of the tile
	t := max(start, e.lastStored[w]+1)
	if t >= end {
		return out
	}
	return e.combines().appendSamples(e, out, w, t, form{zero: w != finest || !e.started})
}

// idle reports whether the series can be forgotten: it is live in no store, owes no store a sample,
// and has been silent for so long that its next sample will be later than any stored one.
func (e *entry) idle(boundary int64) bool {
	if len(e.open) > 0 || len(e.has().timed) > 0 {
		return false
	}
	for w := range Width(NumWidths) {
		if e.live[w] || e.started || boundary-boundary%w.Millis() <= e.lastStored[w] {
			return false
		}
	}
	return true
}
