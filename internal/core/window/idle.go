package window

import (
	"encoding/binary"

	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/lib/arena"
)

// What a reader does when a window closes is bounded, since packets wait for it.
const (
	// sweepShare is the share of the series that is looked at for idleness: a full
	// round takes so many windows.
	sweepShare = 64

	// leaveMost is how many series leave at most for each of two reasons, because they
	// are idle or because a flood took their places: 3 ms.
	leaveMost = 4096

	// recoverLook is how many series are looked at after a flood: 1 ms.
	recoverLook = 64 * chunkRecords
)

// idle reports whether what had its last sample in a window has had none for long.
// One window without is not long, whatever the options say: with a window that
// closes, the flusher may have the one before.
func (t *Table) idle(used uint32) bool { return t.ordinal-used > max(t.options.IdleWindows, 1) }

// leaveIdle removes series and contexts that have had no sample for long. The last
// context of a series stays while others come, of which there are too many to be
// remembered.
func (t *Table) leaveIdle(now int64) {
	left := 0
	for looked := uint32(0); looked <= t.last/sweepShare && left < leaveMost; looked++ {
		if t.sweep++; t.sweep > t.last {
			t.sweep = 1
			if t.last == 0 {
				return
			}
		}
		r := t.records.at(t.sweep)
		switch {
		case !r.is(live):
		case t.idle(r.used):
			t.remove(t.sweep, now)
			left++
		case r.spellings > 1:
			t.forgetIdle(r)
		}
	}
}

// forgetIdle forgets the contexts of a series that have had no sample for long.
func (t *Table) forgetIdle(r *record) {
	var before arena.Ref
	for ref := r.first; ref != 0 && r.spellings > 1; {
		head := t.keys.Bytes(ref, headerSize)
		if !t.idle(binary.LittleEndian.Uint32(head[usedAt:])) {
			before, ref = ref, arena.Ref(binary.LittleEndian.Uint32(head[nextAt:]))
			continue
		}
		ref = t.forget(ref)
		r.spellings--
		if before == 0 {
			r.first = ref
		} else {
			binary.LittleEndian.PutUint32(t.keys.Bytes(before, headerSize)[nextAt:], uint32(ref))
		}
	}
}

// remove takes a series out of the table, or a context that a rule drops. It is in
// no window.
func (t *Table) remove(number uint32, now int64) {
	r := t.records.at(number)
	for ref := r.first; ref != 0; {
		ref = t.forget(ref)
	}
	if r.is(drops) {
		t.dropped--
		t.freeRecord(number)
		return
	}
	t.held--
	t.series.Remove(t.hash(t.key(r), t.source(r)), number)
	t.freeSeries(number, now)
}

// freeSeries gives up the record of a series, and its place.
func (t *Table) freeSeries(number uint32, now int64) {
	r := t.records.at(number)
	if r.is(ownKey) {
		t.keys.Free(arena.Ref(r.place), lengthSize+len(t.key(r)))
	} else {
		t.options.Limits.Leave(now, limit.Place(r.place))
	}
	t.freeRecord(number)
}

// Release gives up the place of every series, for a table that takes over from this
// one or for the end. It is called once, instead of any further sample and when no
// window is with the flusher any more, by whichever goroutine. now is Unix
// nanoseconds.
func (t *Table) Release(now int64) {
	for number := uint32(1); number <= t.last; number++ {
		if r := t.records.at(number); r.flags&(live|drops|ownKey) == live {
			t.options.Limits.Release(now, limit.Place(r.place), r.is(passerBy))
		}
	}
}
