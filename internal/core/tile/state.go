package tile

import (
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/distinct"
	"github.com/freshet-io/freshet/internal/core/histogram"
	"github.com/freshet-io/freshet/internal/core/series"
)

// stateVersion 2 says how many values on the wire a stamped point stands for. In
// version 1 it is taken to be one. Version 3 knows when a sender's own deltas ended,
// version 4 the exemplars of open tiles. Version 5 has the timed window of the last
// boundary, and the samples that wait to be stored. Version 6 may hold up/down counters; a
// shard without any is written as version 5, which the program before can read.
const stateVersion = 6

// AppendState appends the state of the shard to dst: its section of a checkpoint.
// Layout: docs/format/checkpoint.md.
func (s *Shard) AppendState(dst []byte) []byte {
	version := byte(stateVersion)
	if !s.HasUpDown() {
		version = 5
	}
	dst = append(dst, version)
	dst = binary.AppendVarint(dst, s.closed)
	dst = binary.AppendVarint(dst, s.timedWindow)
	dst = binary.AppendUvarint(dst, uint64(len(s.senders)))
	for id, last := range s.senders {
		dst = binary.LittleEndian.AppendUint64(dst, id.ID)
		dst = binary.LittleEndian.AppendUint64(dst, id.Incarnation)
		dst = binary.LittleEndian.AppendUint64(dst, last.Sequence)
		dst = binary.AppendVarint(dst, last.Boundary)
	}
	dst = binary.AppendUvarint(dst, uint64(len(s.tenants)))
	for _, t := range s.tenants {
		dst = appendString(dst, t.name)
		dst = binary.AppendUvarint(dst, uint64(len(t.entries)))
		for _, e := range t.entries {
			dst = e.append(dst)
		}
		dst = t.appendWaiting(dst)
	}
	return dst
}

// Flags of an entry.
const (
	flagStarted = 1
	flagLive    = 2              // shifted by the width
	flagOwes    = 2 << NumWidths // shifted by the width
	flagDelta   = 2 << (2 * NumWidths)
)

// Flags of an amount.
const (
	flagRelative = 1 << iota
	flagTimer
	flagClassic
	flagSet
)

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
	if e.lastDelta != 0 {
		flags |= flagDelta
	}
	dst = append(dst, flags)
	dst = appendString(dst, e.key)
	dst = appendString(dst, e.policyBytes)
	dst = binary.AppendVarint(dst, e.lastSeen)
	if e.lastDelta != 0 {
		dst = binary.AppendVarint(dst, e.lastDelta)
	}
	for _, t := range e.lastStored {
		dst = binary.AppendVarint(dst, t)
	}
	dst = e.total.append(dst)
	dst = appendSources(dst, e.sources)
	if e.kind == series.Set {
		dst = e.minute.Append(dst)
	}
	dst = binary.AppendUvarint(dst, uint64(len(e.timed)))
	for _, p := range e.timed {
		dst = binary.AppendVarint(dst, p.t)
		dst = appendFloat(dst, p.v)
		dst = binary.AppendUvarint(dst, p.samples)
	}
	dst = binary.AppendUvarint(dst, uint64(len(e.open)))
	for i := range e.open {
		t := &e.open[i]
		dst = binary.AppendVarint(dst, t.end)
		dst = binary.AppendUvarint(dst, t.samples)
		dst = t.amount.append(dst)
		dst = appendSources(dst, t.sources)
		if e.kind == series.Timer {
			dst = appendExemplar(dst, e.exemplars[t.end])
		}
	}
	return dst
}

// appendExemplar writes a 0 for none, in the place of the length of a trace.
func appendExemplar(dst []byte, x *batch.Exemplar) []byte {
	if x == nil {
		return append(dst, 0)
	}
	return x.Append(dst, 0)
}

func (a *amount) append(dst []byte) []byte {
	var flags byte
	if a.relative {
		flags |= flagRelative
	}
	if a.timer != nil {
		flags |= flagTimer
	}
	if a.classic != nil {
		flags |= flagClassic
	}
	if a.set != nil {
		flags |= flagSet
	}
	dst = append(dst, flags)
	dst = appendFloat(dst, a.value)
	dst = binary.AppendVarint(dst, a.at)
	if a.timer != nil {
		dst = a.timer.Append(dst)
	}
	if a.classic != nil {
		dst = binary.AppendUvarint(dst, uint64(len(a.classic)))
		for _, c := range a.classic {
			dst = appendFloat(dst, c)
		}
		dst = appendFloat(dst, a.sum)
	}
	if a.set != nil {
		dst = a.set.Append(dst)
	}
	return dst
}

func appendSources(dst []byte, sources map[uint64]sourceValue) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(sources)))
	for _, id := range slices.Sorted(maps.Keys(sources)) {
		dst = binary.LittleEndian.AppendUint64(dst, id)
		dst = appendFloat(dst, sources[id].value)
		dst = binary.AppendVarint(dst, sources[id].at)
	}
	return dst
}

func appendString[T string | []byte](dst []byte, s T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// appendFloat writes all bits: a total may be anything that a float can be.
func appendFloat(dst []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(v))
}

var errState = errors.New("state of a shard is malformed")

// ParseState returns the shard whose state AppendState wrote.
func ParseState(config *Config, b []byte) (*Shard, error) {
	d := decoder{b: b}
	if d.version = d.byte(); d.version < 1 || d.version > stateVersion {
		return nil, errState
	}
	s := New(config, d.varint())
	if s.closed%finest.Millis() != 0 {
		return nil, errState
	}
	if d.version > 4 {
		s.timedWindow = d.varint()
	}
	for range d.count(25) {
		id := Sender{d.fixed(), d.fixed()}
		s.senders[id] = &Received{d.fixed(), d.varint()}
	}
	for range d.count(2) {
		t := s.tenant(string(d.bytes()))
		for range d.count(8) {
			e := d.entry()
			if d.err != nil {
				return nil, d.err
			}
			if t.entries[e.key] != nil {
				return nil, errState
			}
			t.insert(e)
			s.count(e, 1)
		}
		if d.version > 4 {
			d.waiting(t, s.closed)
		}
	}
	if d.err == nil && len(d.b) > 0 {
		d.err = errState
	}
	return s, d.err
}

// decoder reads what is left in b. After an error it yields zeros.
type decoder struct {
	version byte
	b       []byte
	err     error
}

func (d *decoder) fail() {
	d.err = errState
	d.b = nil
}

func (d *decoder) entry() *entry {
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
		e.lastDelta = d.varint()
	}
	for w := range e.lastStored {
		e.lastStored[w] = d.varint()
	}
	d.amount(e, &e.total)
	e.sources = d.sources()
	if e.kind == series.Set {
		d.set(&e.minute)
	}
	for range d.count(9) {
		p := timedPoint{t: d.varint(), v: d.float(), samples: 1}
		if d.version > 1 {
			p.samples = d.uvarint()
		}
		e.timed = append(e.timed, p)
	}
	for range d.count(4) {
		t := openTile{end: d.varint(), samples: d.uvarint()}
		d.amount(e, &t.amount)
		t.newest = forgotten
		t.sources = d.sources()
		if d.version > 3 && e.kind == series.Timer {
			if x := d.exemplar(); x != nil {
				e.keepExemplar(t.end, x)
			}
		}
		if n := len(e.open); n > 0 && e.open[n-1].end >= t.end {
			d.fail()
		}
		e.open = append(e.open, t)
	}
	return e
}

func (d *decoder) amount(e *entry, a *amount) {
	flags := d.byte()
	a.relative = flags&flagRelative != 0
	a.value = d.float()
	a.at = d.varint()
	if flags&flagTimer != 0 {
		a.timer = new(histogram.Exponential)
		rest, err := a.timer.Parse(d.b)
		if err != nil || e.kind != series.Timer {
			d.fail()
			return
		}
		d.b = rest
	}
	if flags&flagClassic != 0 {
		n := d.count(8)
		if n != len(e.policy.Bounds)+1 {
			d.fail()
			return
		}
		for range n {
			a.classic = append(a.classic, d.float())
		}
		a.sum = d.float()
	}
	if flags&flagSet != 0 {
		a.set = new(distinct.Set)
		d.set(a.set)
	}
}

func (d *decoder) set(s *distinct.Set) {
	rest, err := s.Parse(d.b)
	if err != nil {
		d.fail()
		return
	}
	d.b = rest
}

func (d *decoder) sources() map[uint64]sourceValue {
	n := d.count(17)
	if n == 0 {
		return nil
	}
	sources := make(map[uint64]sourceValue, n)
	for range n {
		id := d.fixed()
		sources[id] = sourceValue{value: d.float(), at: d.varint()}
	}
	return sources
}

// exemplar is the inverse of appendExemplar.
func (d *decoder) exemplar() *batch.Exemplar {
	if len(d.b) > 0 && d.b[0] == 0 {
		d.b = d.b[1:]
		return nil
	}
	x := new(batch.Exemplar)
	rest, err := x.Parse(d.b, 0)
	if err != nil {
		d.fail()
		return nil
	}
	d.b = rest
	return x
}

// count reads a number of things that take at least size bytes each.
func (d *decoder) count(size int) int {
	n := d.uvarint()
	if n > uint64(len(d.b)/size) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail()
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *decoder) bytes() []byte {
	n := d.uvarint()
	if n > uint64(len(d.b)) {
		d.fail()
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) fixed() uint64 {
	if len(d.b) < 8 {
		d.fail()
		return 0
	}
	v := binary.LittleEndian.Uint64(d.b)
	d.b = d.b[8:]
	return v
}

func (d *decoder) float() float64 { return math.Float64frombits(d.fixed()) }

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}
