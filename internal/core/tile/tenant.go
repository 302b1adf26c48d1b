package tile

import (
	"cmp"
	"encoding/binary"
	"iter"
	"maps"
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// tenant holds a tenant's series by key and by name, and the samples that its stores do not have
// yet.
type tenant struct {
	name      string
	entries   map[string]*entry
	ordered   []*entry // by key, without the newcomers: the one order in which series are handed out and written
	newcomers []*entry // the series that came after `ordered` was made, in any order
	byName    map[string][]*entry
	last      *entry     // the series of the last increment; the next batch probably begins with its `next`
	waiting   []*Waiting // closed tiles, by boundary
	folded    int64      // end of the newest window that this process folded, Unix ms
}

func newTenant(name string) *tenant {
	return &tenant{name: name, entries: map[string]*entry{}, byName: map[string][]*entry{}}
}

func (t *tenant) insert(e *entry) {
	t.entries[e.key] = e
	t.newcomers = append(t.newcomers, e)
	t.addNames(e)
}

// remove forgets a series, except for its place in the order; see keep.
func (t *tenant) remove(e *entry) {
	t.removeNames(e)
	delete(t.entries, e.key)
	e.key, e.next = "", nil // no batch may find this series, and next must not keep other series in memory
	if t.last == e {
		t.last = nil
	}
}

// setPolicy applies the policy of the last increment. If the buckets change, the series gets other
// names.
func (t *tenant) setPolicy(e *entry, policy []byte) (unfit uint64, err error) {
	t.removeNames(e)
	defer t.addNames(e)
	return e.setPolicy(policy)
}

func (t *tenant) addNames(e *entry) {
	for _, s := range e.stored() {
		name := s.Labels.Get(model.MetricNameLabel)
		same := t.byName[name]
		if n := len(same); n > 0 && same[n-1] == e { // classic buckets share a name
			continue
		}
		t.byName[name] = append(same, e)
	}
}

func (t *tenant) removeNames(e *entry) {
	for _, s := range e.stored() {
		name := s.Labels.Get(model.MetricNameLabel)
		same := t.byName[name]
		i := slices.Index(same, e)
		if i < 0 {
			continue
		}
		if len(same) == 1 {
			delete(t.byName, name)
			continue
		}
		same[i] = same[len(same)-1]
		t.byName[name] = slices.Delete(same, len(same)-1, len(same))
	}
}

// byKey returns all series in order of their keys. It merges the newcomers from the last to the
// first: it finds the place of each by binary search, and moves each later series only once.
func (t *tenant) byKey() []*entry {
	byKey := func(a, b *entry) int { return cmp.Compare(a.key, b.key) }
	slices.SortFunc(t.newcomers, byKey)
	end := len(t.ordered)
	t.ordered = append(t.ordered, t.newcomers...)
	for i, e := range slices.Backward(t.newcomers) {
		at, _ := slices.BinarySearchFunc(t.ordered[:end], e, byKey)
		copy(t.ordered[at+i+1:], t.ordered[at:end])
		t.ordered[at+i], end = e, at
	}
	t.newcomers = nil
	return t.ordered
}

// keep replaces the ordered series by `kept`, whose memory must be the start of byKey's result.
func (t *tenant) keep(kept []*entry) {
	clear(t.ordered[len(kept):])
	t.ordered = kept
}

// holds reports whether the tenant has series or waiting samples.
func (t *tenant) holds() bool { return len(t.entries)+len(t.waiting) > 0 }

// begin returns a place for the samples of the tile up to `boundary`, with room for a sample of
// each series in each width that ends there.
func (t *tenant) begin(boundary int64) *Waiting {
	w := &Waiting{Tenant: t.name, Boundary: boundary}
	for width := range w.Samples {
		if boundary%Width(width).Millis() == 0 {
			w.Samples[width] = make([]Sample, 0, len(t.entries))
		}
	}
	return w
}

// stored forgets the waiting tiles up to `boundary`.
func (t *tenant) stored(boundary int64) {
	n := 0
	for n < len(t.waiting) && t.waiting[n].Boundary <= boundary {
		n++
	}
	t.waiting = slices.Delete(t.waiting, 0, n)
}

// live is Shard.Live for one tenant.
func (t *tenant) live(v *view, matchers []*labels.Matcher) (out []Live) {
	waiting := t.waitingSamples(v.width, matchers)
	for e := range t.named(matchers) {
		var matching []*Series
		for _, s := range e.stored() {
			if matches(s.Labels, matchers) {
				matching = append(matching, s)
			}
		}
		if len(matching) == 0 {
			continue
		}
		var samples []Sample
		if waiting != nil {
			for _, s := range matching {
				samples = append(samples, waiting[s]...)
				delete(waiting, s)
			}
		}
		out = appendPoints(out, matching, v.append(samples, e))
	}
	return appendWaiting(out, waiting)
}

// named yields the series that may match: only those of one name, if the matchers require it.
func (t *tenant) named(matchers []*labels.Matcher) iter.Seq[*entry] {
	for _, m := range matchers {
		if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual {
			return slices.Values(t.byName[m.Value])
		}
	}
	return maps.Values(t.entries)
}

// waitingSamples returns, by series, the waiting samples of a width whose series match. It returns
// nil if there are none.
func (t *tenant) waitingSamples(w Width, matchers []*labels.Matcher) map[*Series][]Sample {
	if len(t.waiting) == 0 {
		return nil
	}
	found := map[*Series][]Sample{}
	other := map[*Series]bool{}
	for _, waiting := range t.waiting {
		for _, sample := range waiting.Samples[w] {
			samples, known := found[sample.Series]
			switch {
			case !known && other[sample.Series]:
			case !known && !matches(sample.Series.Labels, matchers):
				other[sample.Series] = true
			default:
				found[sample.Series] = append(samples, sample)
			}
		}
	}
	return found
}

// append appends the state of the tenant to `dst`.
func (t *tenant) append(dst []byte) []byte {
	dst = appendString(dst, t.name)
	dst = binary.AppendUvarint(dst, uint64(len(t.entries)))
	for _, e := range t.byKey() {
		dst = e.append(dst)
	}
	return appendTiles(dst, t.waiting)
}

// parse reads the part of tenant.append's output that follows the name.
func (t *tenant) parse(d *decoder, closed int64) {
	for range d.count(8) {
		e := parseEntry(d)
		if d.err == nil && t.entries[e.key] != nil {
			d.fail()
		}
		if d.err != nil {
			return
		}
		t.insert(e)
	}
	if d.version < 5 {
		return
	}
	t.waiting = d.tiles(t.name, closed, func() map[string]*Series {
		held := map[string]*Series{}
		for _, e := range t.byKey() {
			for _, s := range e.stored() {
				held[string(seriesKey(s))] = s
			}
		}
		return held
	})
}
