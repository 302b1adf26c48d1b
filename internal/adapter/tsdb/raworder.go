package tsdb

import (
	"fmt"
	"math"

	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// rawOrder decides which times of the series that is being written are accepted.
type rawOrder struct {
	before    int64 // Unix milliseconds; the series had no newer sample when it, or the commit, began
	lateNewer int64 // Unix milliseconds; the newest out-of-order sample that waits for the commit
}

// beginOrder prepares the order after the look-up.
func (w *rawWrite) beginOrder() {
	w.lateNewer = math.MinInt64
	w.before = math.MinInt64
	if w.n == 0 {
		w.before = w.db.blocksMaxT() // the series is not in the head, so at most on disk
		return
	}
	if e := w.cache.At(w.n); e.Commit != w.commit {
		w.before = e.LastT
	}
}

// lastT returns a time, in Unix milliseconds, after which the series has no sample, stored or
// waiting.
func (w *rawWrite) lastT() int64 {
	if w.n != 0 {
		return w.cache.At(w.n).LastT
	}
	return w.before
}

// appended notes a sample that now waits for the commit.
func (w *rawWrite) appended(t int64, v float64, float bool) {
	e := w.cache.At(w.n)
	e.Commit = w.commit
	if t > e.LastT {
		e.LastT, e.Bits, e.Float = t, math.Float64bits(v), float
	} else {
		w.lateNewer = t
	}
}

// settle handles a sample that is not newer than everything that the series has. done means
// that its fate is decided; otherwise the caller appends it.
//
// tsdb would silently lose a repeat of a sample that waits for the commit, and would let an
// out-of-order sample replace a stored one.
func (w *rawWrite) settle(t int64, v float64, h nativeHistogram, part outcome.Counts) (done bool, err error) {
	if w.n != 0 {
		e := w.cache.At(w.n)
		if t == e.LastT && e.Float && e.Commit != 0 && h == (nativeHistogram{}) {
			w.meet(part, tile.Point{T: t, V: math.Float64frombits(e.Bits)}, tile.Point{T: t, V: v})
			return true, nil
		}
		// Samples that wait for the commit cannot be looked up. Late samples that come in the
		// order of time, like a backlog, cannot meet each other.
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

// meet decides about a sample whose time already has one.
func (w *rawWrite) meet(part outcome.Counts, there, now tile.Point) {
	if same(there, now) {
		w.repeated++
		w.request.Outcome.Written.Add(part)
		return
	}
	w.refuse(outcome.Duplicate, part, fmt.Errorf("at %s another value is stored: %s, not %s", stamp(now.T), format(there), format(now)))
}

// flush commits the gathered samples and goes on.
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
