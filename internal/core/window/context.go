package window

import (
	"bytes"
	"hash/maphash"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/series"
)

// contextKey writes the raw bytes that tell one context from another into the
// table's scratch memory. Name and tags are separated by bytes that neither can
// hold: a line ends at \n and a field at |.
func (t *Table) contextKey(kind byte, name, tags, host []byte, o *dogstatsd.Origin) []byte {
	k := append(t.scratch[:0], kind)
	k = append(k, name...)
	k = append(k, '\n')
	k = append(k, tags...)
	if host != nil {
		k = append(k, '|')
		k = append(k, host...)
	}
	if t.options.OriginLabels {
		for _, field := range [...][]byte{o.Container, o.External, o.Cardinality} {
			k = append(k, '\n')
			k = append(k, field...)
		}
	}
	t.scratch = k
	return k
}

func (t *Table) hash(key []byte) uint32 { return uint32(maphash.Bytes(t.seed, key) >> 32) }

// lookup returns the series of a context and the factor of its values, nil if the
// table does not hold it.
func (t *Table) lookup(key []byte) (*record, float64) {
	hash := t.hash(key)
	mask := uint32(len(t.slots) - 1)
	for i := hash & mask; t.slots[i].entry != 0; i = (i + 1) & mask {
		if t.slots[i].hash != hash {
			continue
		}
		if e := &t.entries[t.slots[i].entry]; string(e.key) == string(key) {
			e.used = t.ordinal
			return e.series, e.scale
		}
	}
	return nil, 0
}

// add gives a new context its place and returns its series and its factor. A
// context whose series has no place leaves nothing behind: a flood of them must not
// grow the table. Its samples go to an overflow series, or, if nil is returned,
// they are refused and counted.
func (t *Table) add(key []byte, resolved *Resolution, samples uint64, now int64) (*record, float64) {
	t.stats.Resolved++
	long := t.options.Limits != nil && t.options.Limits.TooLong(len(key)) // too long to be remembered
	if resolved.Drop {
		r := &record{drop: true, spellings: 1}
		if t.dropped < maxDropped && !long {
			t.dropped++
			t.insert(key, r, 1)
		}
		return r, 1
	}
	r := t.series[sourced{string(resolved.Key), resolved.Source}]
	if r == nil {
		var verdict limit.Verdict
		if t.options.Limits != nil {
			verdict = t.options.Limits.Admit(now, &limit.Claim{
				Key: resolved.Key, Source: resolved.Source, Unnamed: resolved.Unnamed,
				Length: len(key), Samples: samples, Sender: resolved.Sender, Container: resolved.Container,
			})
		}
		if verdict.Fate != limit.Admitted {
			return t.overLimit(verdict, resolved, samples), resolved.Scale
		}
		r = t.newSeries(resolved, verdict.Place)
		t.series[r.sourced()] = r
	}
	if r.spellings == maxSpellings || long {
		t.stats.Respellings++
		return r, resolved.Scale
	}
	r.spellings++
	t.insert(key, r, resolved.Scale)
	return r, resolved.Scale
}

// newSeries makes the record of a series that has a place, or needs none.
func (t *Table) newSeries(resolved *Resolution, place limit.Place) *record {
	return &record{
		key:         bytes.Clone(resolved.Key), // the place's own is gone when the series leaves, and a window may be with the flusher
		policy:      resolved.Policy,
		policyBytes: series.AppendPolicy(nil, resolved.Policy),
		source:      resolved.Source,
		place:       place,
		shard:       resolved.Shard,
		born:        t.ordinal,
		used:        t.ordinal,
	}
}

func (r *record) sourced() sourced { return sourced{string(r.key), r.source} }

func (t *Table) insert(key []byte, r *record, scale float64) {
	e := entry{key: append([]byte(nil), key...), series: r, scale: scale, hash: t.hash(key), used: t.ordinal}
	var at uint32
	if n := len(t.free); n > 0 {
		at = t.free[n-1]
		t.free = t.free[:n-1]
		t.entries[at] = e
	} else {
		at = uint32(len(t.entries))
		t.entries = append(t.entries, e)
	}
	if t.held()*2 > len(t.slots) {
		t.grow()
		return
	}
	t.place(slot{hash: e.hash, entry: at})
}

// held is the number of contexts in the table.
func (t *Table) held() int { return len(t.entries) - 1 - len(t.free) }

func (t *Table) place(s slot) {
	mask := uint32(len(t.slots) - 1)
	i := s.hash & mask
	for t.slots[i].entry != 0 {
		i = (i + 1) & mask
	}
	t.slots[i] = s
}

func (t *Table) grow() {
	t.slots = make([]slot, 2*len(t.slots))
	for at := 1; at < len(t.entries); at++ {
		if t.entries[at].series != nil {
			t.place(slot{hash: t.entries[at].hash, entry: uint32(at)})
		}
	}
}

// sweepShare is the share of the entries that is looked at for idleness when a
// window closes: a full round takes so many windows, and no window pays for all.
const sweepShare = 64

// leaveIdle removes contexts that have had no sample for long. The last one of a
// series stays while others come, of which there are too many to be remembered.
func (t *Table) leaveIdle() {
	n := len(t.entries)/sweepShare + 1
	for range n {
		t.sweep++
		if t.sweep >= uint32(len(t.entries)) {
			t.sweep = 1
			if len(t.entries) == 1 {
				return
			}
		}
		e := &t.entries[t.sweep]
		if e.series == nil || t.ordinal-e.used <= t.options.IdleWindows {
			continue
		}
		if r := e.series; r.drop || r.spellings > 1 || t.ordinal-r.used > t.options.IdleWindows {
			t.remove(t.sweep)
		}
	}
}

// remove takes an entry out of the table. Its series leaves with its last
// spelling; a window that is being flushed keeps the record by itself.
func (t *Table) remove(at uint32) {
	e := &t.entries[at]
	mask := uint32(len(t.slots) - 1)
	i := e.hash & mask
	for t.slots[i].entry != at {
		i = (i + 1) & mask
	}
	// Close the gap, so that probing needs no tombstones: whoever stands further
	// from home than the gap moves into it.
	for gap := i; ; {
		i = (i + 1) & mask
		if t.slots[i].entry == 0 {
			t.slots[gap] = slot{}
			break
		}
		home := t.slots[i].hash & mask
		if (i-home)&mask >= (i-gap)&mask {
			t.slots[gap] = t.slots[i]
			gap = i
		}
	}
	r := e.series
	*e = entry{}
	t.free = append(t.free, at)
	if r.spellings--; r.spellings > 0 {
		return
	}
	if r.drop {
		t.dropped--
		return
	}
	delete(t.series, r.sourced())
	if r.place != 0 {
		t.options.Limits.Leave(r.place)
	}
}
