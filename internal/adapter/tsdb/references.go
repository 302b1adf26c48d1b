package tsdb

import (
	"sync"

	"github.com/freshet-io/freshet/internal/core/tile"
)

// reference is what the database remembers of a series of tiles between two writes, to avoid
// looking up its labels again.
type reference struct {
	series *tile.Series
	ref    uint64     // in the head; 0 if the head does not have the series yet
	lastT  int64      // Unix milliseconds; the database has no newer sample of the series
	next   *reference // reference of the next series in the last write, or nil
}

// references belong to one open database. Another database gives its series other references.
type references struct {
	mu      sync.Mutex // held during a whole write
	of      map[*tile.Series]*reference
	touched map[uint64]uint64 // by ref/64, a bit for each series written to since the opening
	room    int               // how many references there may be before the next sweep
}

const (
	// A sweep needs more than fewReferences references.
	fewReferences = 1024

	// quietMillis is how long a series must have had no writes before a sweep forgets it. A live
	// series is written with each of its tiles.
	quietMillis = 3_600_000
)

func newReferences() *references {
	return &references{of: map[*tile.Series]*reference{}, touched: map[uint64]uint64{}, room: fewReferences}
}

// find returns the reference of a series, nil if there is none. `before` is the reference of the
// previous sample in the same write, or nil. Writes usually have their series in the same order, so
// find mostly needs one comparison and no look into the map.
func (r *references) find(before *reference, series *tile.Series) *reference {
	if before == nil {
		return r.of[series]
	}
	if guess := before.next; guess != nil && guess.series == series {
		return guess
	}
	before.next = r.of[series]
	return before.next
}

func (r *references) touch(ref uint64) { r.touched[ref/64] |= 1 << (ref % 64) }

func (r *references) isTouched(ref uint64) bool { return r.touched[ref/64]&(1<<(ref%64)) != 0 }

// sweep forgets series that ended, once there are twice as many references as after the last sweep.
// `newest` is the time of the newest sample of a write. A forgotten series that returns is looked
// up again.
func (r *references) sweep(newest int64) {
	if len(r.of) <= r.room {
		return
	}
	for series, ref := range r.of {
		ref.next = nil // the reference in next may be deleted
		if ref.lastT < newest-quietMillis {
			delete(r.of, series)
		}
	}
	r.room = max(fewReferences, 2*len(r.of))
}
