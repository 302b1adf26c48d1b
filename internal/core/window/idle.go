package window

import (
	"encoding/binary"

	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/lib/arena"
)

// These constants bound the work at the close of a window, since packets wait for it.
const (
	// Each window checks 1/sweepShare of the series for idleness, so a full round takes sweepShare
	// windows.
	sweepShare = 64

	// leaveMost is the most series that leave in a window for each of two reasons: idleness, and a
	// flood that wants their places. That takes 3 ms.
	leaveMost = 4096

	// recoverLook is how many series a window checks after a flood, which takes 1 ms.
	recoverLook = 64 * chunkRecords
)

// idle reports whether a series or context with its last sample in window `used` is idle. It is idle
// only after more than one window, whatever the options say, since the flusher may still have the
// previous window.
func (t *Table) idle(used uint32) bool { return t.ordinal-used > max(t.options.IdleWindows, 1) }

// leaveIdle removes idle series and contexts. It keeps the last context of a series that is in use,
// since the series' samples may come in spellings that are not remembered.
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

// forgetIdle removes the idle contexts of a series, but not the last one.
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

// remove removes a series, or a context that a rule drops, from the table. A series must be in no
// window.
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

// Release gives up the place of every series when another table takes over or the program ends. Call it
// once, from any goroutine, after the last sample and once the flusher has no window. `now` is Unix
// nanoseconds.
func (t *Table) Release(now int64) {
	for number := uint32(1); number <= t.last; number++ {
		if r := t.records.at(number); r.flags&(live|drops|ownKey) == live {
			t.options.Limits.Release(now, limit.Place(r.place), r.is(passerBy))
		}
	}
}
