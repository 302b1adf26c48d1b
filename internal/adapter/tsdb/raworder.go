package tsdb

import (
	"fmt"
	"math"

	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// rawOrder says which times of the series that is being written are taken.
type rawOrder struct {
	before    int64 // Unix milliseconds; the series had nothing newer when it, or the commit, began
	lateNewer int64 // Unix milliseconds; of the samples that wait for the commit out of order, the newest
}

// beginOrder follows the look-up.
func (w *rawWrite) beginOrder() {
	w.lateNewer = math.MinInt64
	w.before = math.MinInt64
	if w.n == 0 {
		w.before = w.db.blocksMaxT() // it is not in the head, so on disk at most
		return
	}
	if e := w.cache.At(w.n); e.Commit != w.commit {
		w.before = e.LastT
	}
}

// lastT is a time, in Unix milliseconds, after which the series has nothing, stored or waiting.
func (w *rawWrite) lastT() int64 {
	if w.n != 0 {
		return w.cache.At(w.n).LastT
	}
	return w.before
}

// appended notes a sample that waits for the commit from now on.
func (w *rawWrite) appended(t int64, v float64, float bool) {
	e := w.cache.At(w.n)
	e.Commit = w.commit
	if t > e.LastT {
		e.LastT, e.Bits, e.Float = t, math.Float64bits(v), float
	} else {
		w.lateNewer = t
	}
}

// settle handles a sample that is not newer than everything that the series has. It
// reports whether the sample met its fate here. Otherwise it is to be appended.
//
// tsdb would lose a repeat of what waits for the commit without a word, and would let a
// sample out of order replace one that is stored.
func (w *rawWrite) settle(t int64, v float64, h nativeHistogram, part outcome.Counts) (done bool, err error) {
	if w.n != 0 {
		e := w.cache.At(w.n)
		if t == e.LastT && e.Float && e.Commit != 0 && h == (nativeHistogram{}) {
			w.meet(part, tile.Point{T: t, V: math.Float64frombits(e.Bits)}, tile.Point{T: t, V: v})
			return true, nil
		}
		// What waits for the commit cannot be looked up. Late samples that come in the
		// order of time, as those of a backlog, cannot meet each other.
		if e.LastT != w.before || t <= w.lateNewer {
			if err := w.flush(); err != nil {
				return false, err
			}
		}
	}
	w.spell()
	earlier, err := w.db.at(w.ctx, w.ls, t)
	if err != nil {
		return false, fmt.Errorf("look for %s at %d: %w", w.ls, t, err)
	}
	if earlier == nil {
		return false, nil
	}
	now := tile.Point{T: t, V: v}
	if h != (nativeHistogram{}) {
		now.H = h.floats()
	}
	w.meet(part, *earlier, now)
	return true, nil
}

// meet is for a sample at whose time there is one.
func (w *rawWrite) meet(part outcome.Counts, there, now tile.Point) {
	if same(there, now) {
		w.repeated++
		w.request.Outcome.Written.Add(part)
		return
	}
	w.refuse(outcome.Duplicate, part, fmt.Errorf("at %s there is another value: %s, not %s", stamp(now.T), format(there), format(now)))
}

// flush commits what there is so far and goes on.
func (w *rawWrite) flush() error {
	if err := w.store.commit(w.app); err != nil {
		return err
	}
	w.open()
	w.begin()
	w.lateNewer = math.MinInt64
	w.before = w.cache.At(w.n).LastT
	return nil
}
