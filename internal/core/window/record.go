package window

import (
	"encoding/binary"
	"math"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/distinct"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/lib/arena"
)

// record is one series and what it counted in each of the two windows, or a context that a rule
// drops.
//
// Shape: 64 bytes without pointers, so that counting a sample touches one cache line of the series.
//
// The flusher reads a record while the reader fills the other window. The flusher reads only the fields
// of its own window, and fields that never change while the series lives: `place`, `class` and, if
// `marks` says so, `extra`.
type record struct {
	values  [2]float64 // in each window: the sum of a counter or an up/down counter, the last value of a gauge or check
	ats     [2]int64   // Unix nanoseconds at which a gauge or check was read
	samples [2]uint32  // values on the wire without a time of their own; saturates at math.MaxUint32

	place uint32    // limit.Place; with ownKey, the arena.Ref of the key
	first arena.Ref // its newest context
	used  uint32    // ordinal of the last window with a sample, in any spelling; in a free record, the next free record
	extra uint32    // see Table.extras; 0 for none
	class uint32    // shard and policy

	spellings uint8 // contexts that lead to it, at most maxSpellings
	flags     uint8
	marks     [2]uint8 // for each window: relative, traced, and the flags that the flusher must know
}

// Flags of a record.
const (
	live     = 1 << iota // leaves when it is idle: a series, or a context that a rule drops
	drops                // a rule drops its context
	passerBy             // the series came in one window only
	ownKey               // the series has no place, so its key is in the table's memory
	extended             // extra holds data of the window
	relative             // a gauge that was changed in the window but not set
	traced               // extra has an exemplar of the window
	upDown               // its increments may be negative
)

// classOf packs a shard, of which there are 1,024, and the number of a policy.
func classOf(shard uint16, policy uint32) uint32 { return policy<<10 | uint32(shard) }

func (r *record) shard() uint16  { return uint16(r.class % series.Shards) }
func (r *record) policy() uint32 { return r.class >> 10 }

func (r *record) is(flag uint8) bool { return r.flags&flag != 0 }

// add counts samples of a window.
func (r *record) add(window uint8, samples uint64) {
	r.samples[window] = saturate(uint64(r.samples[window]) + samples)
}

// saturate caps a number of samples at the largest number that a batch can count. Only a window that
// stays open for hours, while the flusher keeps the previous one, can have more samples.
func saturate(samples uint64) uint32 { return uint32(min(samples, math.MaxUint32)) }

// extra holds the state that only few series have. It is not laid out for the cache, and the
// garbage collector scans it.
type extra struct {
	source  uint64 // distinguishes the sources of a merged gauge
	windows [2]struct {
		timer *timer
		set   *distinct.Set
		timed timed
	}

	// exemplars has one place for each window, valid where the record's marks say so. It is one
	// pointer because every timer has an extra and few timers have exemplars: this keeps an extra at
	// 96 bytes. It is set once, so that the flusher may follow it while the reader fills the other
	// place.
	exemplars *[2]batch.Exemplar
}

// records are the series of a table by number, from 1. They never move.
type records []*[chunkRecords]record

// chunkRecords is how many records are made at once: 64 KiB.
const chunkRecords = 1024

func (r records) at(number uint32) *record { return &r[number/chunkRecords][number%chunkRecords] }

// policy is the policy of a rule's series, with its encoding in a batch.
type policy struct {
	*series.Policy
	encoded []byte // series.AppendPolicy
}

// newRecord returns the number of an empty record.
func (t *Table) newRecord() uint32 {
	number := t.free
	if number != 0 {
		r := t.records.at(number)
		t.free = r.used
		*r = record{}
		return number
	}
	t.last++
	if int(t.last/chunkRecords) == len(t.records) {
		t.records = append(t.records, new([chunkRecords]record))
	}
	return t.last
}

// freeRecord puts a record on the free list.
func (t *Table) freeRecord(number uint32) {
	r := t.records.at(number)
	if r.extra != 0 {
		t.extras[r.extra] = nil
		t.freeExtras = append(t.freeExtras, r.extra)
	}
	*r = record{used: t.free}
	t.free = number
}

// extend returns the extra of a record, and makes one if it has none.
func (t *Table) extend(r *record) *extra {
	if r.extra == 0 {
		if n := len(t.freeExtras); n > 0 {
			r.extra = t.freeExtras[n-1]
			t.freeExtras = t.freeExtras[:n-1]
			t.extras[r.extra] = new(extra)
		} else {
			r.extra = uint32(len(t.extras))
			t.extras = append(t.extras, new(extra))
		}
		r.flags |= extended
		r.marks[t.open] |= extended
	}
	return t.extras[r.extra]
}

// policyOf returns the number of a policy.
func (t *Table) policyOf(p *series.Policy) uint32 {
	t.scratch = series.AppendPolicy(t.scratch[:0], p)
	number, ok := t.policyNumbers[string(t.scratch)]
	if !ok {
		number = uint32(len(t.policies))
		t.policies = append(t.policies, policy{p, append([]byte(nil), t.scratch...)})
		t.policyNumbers[string(t.scratch)] = number
	}
	return number
}

// keyOf returns the key of a series. The caller must hold the series.
func keyOf(r *record, own bool, limits *limit.Tenant, keys *arena.Arena) []byte {
	if !own {
		return limits.Key(limit.Place(r.place))
	}
	length := binary.LittleEndian.Uint32(keys.Bytes(arena.Ref(r.place), lengthSize))
	return keys.Bytes(arena.Ref(r.place), lengthSize+int(length))[lengthSize:]
}

// lengthSize is the size of the length before a key in the table's memory.
const lengthSize = 4

// maxOwnKey is the longest key that a series without a place can have.
const maxOwnKey = arena.MaxLen - lengthSize

// setKey copies a key into the table's memory.
func (t *Table) setKey(r *record, key []byte) {
	ref, block := t.keys.Alloc(lengthSize + len(key))
	binary.LittleEndian.PutUint32(block, uint32(len(key)))
	copy(block[lengthSize:], key)
	r.place = uint32(ref)
	r.flags |= ownKey
}

func (t *Table) key(r *record) []byte { return keyOf(r, r.is(ownKey), t.options.Limits, &t.keys) }

func (t *Table) source(r *record) uint64 {
	if r.extra == 0 {
		return 0
	}
	return t.extras[r.extra].source
}
