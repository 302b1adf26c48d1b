package tile

import (
	"encoding/binary"
)

// Flags of an entry.
const (
	flagStarted = 1
	flagLive    = 2              // shifted by the width
	flagOwes    = 2 << NumWidths // shifted by the width
	flagDelta   = 2 << (2 * NumWidths)
)

// append appends the series to the state of its tenant. Layout: docs/format/checkpoint.md.
func (e *entry) append(dst []byte) []byte {
	var flags byte
	if e.started {
		flags |= flagStarted
	}
	for w, live := range e.live {
		if live {
			flags |= flagLive << w
		}
		if e.owes[w] {
			flags |= flagOwes << w
		}
	}
	if e.has().lastDelta != 0 {
		flags |= flagDelta
	}
	dst = append(dst, flags)
	dst = appendString(dst, e.key)
	dst = appendString(dst, e.policyBytes)
	dst = binary.AppendVarint(dst, e.lastSeen)
	if e.has().lastDelta != 0 {
		dst = binary.AppendVarint(dst, e.rare.lastDelta)
	}
	for _, t := range e.lastStored {
		dst = binary.AppendVarint(dst, t)
	}
	dst = e.combines().append(e, nil, dst)
	dst = binary.AppendUvarint(dst, uint64(len(e.has().timed)))
	for _, p := range e.has().timed {
		dst = binary.AppendVarint(dst, p.t)
		dst = appendFloat(dst, p.v)
		dst = binary.AppendUvarint(dst, p.samples)
	}
	dst = binary.AppendUvarint(dst, uint64(len(e.open)))
	for i := range e.open {
		t := &e.open[i]
		dst = binary.AppendVarint(dst, t.end)
		dst = binary.AppendUvarint(dst, t.samples)
		dst = e.combines().append(e, t, dst)
	}
	return dst
}

// parseEntry reads a series that entry.append of this or an older program wrote.
func parseEntry(d *decoder) *entry {
	flags := d.byte()
	key, policy := d.bytes(), d.bytes()
	if d.err != nil {
		return nil
	}
	e, err := newEntry(key, policy)
	if err != nil {
		d.fail()
		return nil
	}
	e.started = flags&flagStarted != 0
	for w := range e.live {
		e.live[w] = flags&(flagLive<<w) != 0
		e.owes[w] = flags&(flagOwes<<w) != 0
	}
	e.lastSeen = d.varint()
	if flags&flagDelta != 0 {
		e.needs().lastDelta = d.varint()
	}
	for w := range e.lastStored {
		e.lastStored[w] = d.varint()
	}
	e.combines().parse(e, nil, d)
	for range d.count(9) {
		p := timedPoint{t: d.varint(), v: d.float(), samples: 1}
		if d.version > 1 {
			p.samples = d.uvarint()
		}
		e.needs().timed = append(e.needs().timed, p)
	}
	for range d.count(4) {
		t := openTile{end: d.varint(), samples: d.uvarint()}
		e.combines().parse(e, &t, d)
		t.newest = forgotten
		if n := len(e.open); n > 0 && e.open[n-1].end >= t.end {
			d.fail()
		}
		e.open = append(e.open, t)
	}
	return e
}
