package window

import (
	"hash/maphash"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
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

// add gives a new context its place and returns its series and its factor.
func (t *Table) add(key []byte, resolved Resolution) (*record, float64) {
	t.stats.Resolved++
	r := &record{drop: true}
	if !resolved.Drop {
		if r = t.seriesOf(&resolved); r.spellings == maxSpellings {
			t.stats.Respellings++
			return r, resolved.Scale
		}
	}
	r.spellings++
	t.insert(key, r, resolved.Scale)
	return r, resolved.Scale
}

// seriesOf returns the series that a context was resolved to, new if need be.
func (t *Table) seriesOf(resolved *Resolution) *record {
	r := t.series[sourced{string(resolved.Key), resolved.Source}]
	if r == nil {
		r = &record{
			key:         resolved.Key,
			shard:       resolved.Shard,
			policy:      resolved.Policy,
			policyBytes: series.AppendPolicy(nil, resolved.Policy),
			source:      resolved.Source,
			note:        resolved.Note,
		}
		t.series[r.sourced()] = r
	}
	return r
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

// leaveIdle removes contexts that have had no sample for long.
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
		if e := &t.entries[t.sweep]; e.series != nil && t.ordinal-e.used > t.options.IdleWindows {
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
	if r.spellings--; r.spellings == 0 && !r.drop {
		delete(t.series, r.sourced())
	}
}
