package window

import (
	"iter"
	"math/bits"
	"sync/atomic"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/lib/arena"
)

// Window has the counts of one window of a table, for the flusher. It shows the table as it was
// when the window closed. Until the flusher gives it back, its series keep their records and keys.
type Window struct {
	Second int64 // Unix seconds
	Birth  int64 // Unix nanoseconds, when the first sample was read

	begun    int64 // Unix nanoseconds
	index    uint8
	touched  []uint64 // one bit for each record: whether it is in the window
	series   int      // how many records are in the window
	observed []observation
	flushing atomic.Bool // set by the table, cleared by the flusher

	// Copied from the table:
	ordinal  uint32
	records  records
	extras   []*extra
	policies []policy
	limits   *limit.Tenant
	keys     *arena.Arena

	// Used by the flusher only:
	noted   *noted
	scratch batch.Increment
}

// enter puts a series into the window. It first clears the values that the flusher left in the
// record.
func (w *Window) enter(number uint32, r *record, now int64) {
	if w.series == 0 {
		w.Birth = now
	}
	w.series++
	for int(number/64) >= len(w.touched) {
		w.touched = append(w.touched, make([]uint64, chunkRecords/64)...)
	}
	w.touched[number/64] |= 1 << (number % 64)
	i := w.index & 1
	r.values[i], r.ats[i], r.samples[i] = 0, 0, 0
	r.marks[i] = r.flags & (ownKey | extended | passerBy)
}

// numbers yields the records that are in the window.
func (w *Window) numbers() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for at, word := range w.touched {
			for ; word != 0; word &= word - 1 {
				if !yield(uint32(at*64 + bits.TrailingZeros64(word))) {
					return
				}
			}
		}
	}
}

func (w *Window) begin(now int64) { w.begun, w.Second = now, now/1e9 }

func (w *Window) key(r *record) []byte {
	return keyOf(r, r.marks[w.index]&ownKey != 0, w.limits, w.keys)
}

// Series is a series of a window, with its samples in that window.
type Series struct {
	Key     []byte // valid until the window is flushed
	Samples uint64 // values on the wire
}

// Series yields each series of the window. Call it before Flush.
func (w *Window) Series() iter.Seq[Series] {
	return func(yield func(Series) bool) {
		for number := range w.numbers() {
			r := w.records.at(number)
			if !yield(Series{w.key(r), r.all(w.index, w.extras)}) {
				return
			}
		}
	}
}

// all returns the number of values on the wire that a series has in a window.
func (r *record) all(window uint8, extras []*extra) uint64 {
	n := uint64(r.samples[window])
	if r.marks[window]&extended != 0 {
		for _, v := range extras[r.extra].windows[window].timed {
			n += v.samples
		}
	}
	return n
}

// noted has the turn in which InUse last yielded each record.
type noted []uint8

// noteWindows is the length of a turn: 17 minutes, if windows are seconds.
const noteWindows = 1024

// InUse yields the keys of series in use, for a caller that need not know all of them at once. It
// yields a series in its first window, and then once in about noteWindows windows, as long as
// samples come. Call it before Flush, once for each window in order.
func (w *Window) InUse() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		*w.noted = append(*w.noted, make(noted, max(0, len(w.touched)*64-len(*w.noted)))...)
		for number := range w.numbers() {
			r := w.records.at(number)
			// The record's number shifts the turn, so that series do not all come in the same window. A
			// series in its first window always comes, since its number may be that of a series that
			// left.
			turn := uint8((w.ordinal+number)/noteWindows) | 1<<7
			if (*w.noted)[number] != turn || r.marks[w.index]&passerBy != 0 {
				(*w.noted)[number] = turn
				if !yield(w.key(r)) {
					return
				}
			}
		}
	}
}

// Flush adds increments of the window to `out` until all are added or `out` has the given number of
// bytes. It reports whether all are added. `out` must have begun with the window's second. When all
// are added, the window goes back to its table.
func (w *Window) Flush(out *batch.Writer, bytes int) (done bool) {
	w.fill(w.records, w.extras, w.policies)
	for number := range w.numbers() {
		if out.Size() >= bytes {
			return false
		}
		w.flush(out, w.records.at(number))
		w.touched[number/64] &^= 1 << (number % 64)
	}
	w.series, w.records, w.extras, w.policies = 0, nil, nil, nil
	w.flushing.Store(false)
	return true
}

func (w *Window) flush(out *batch.Writer, r *record) {
	i := w.index & 1
	inc := &w.scratch
	*inc = batch.Increment{Key: w.key(r), Policy: w.policies[r.policy()].encoded}
	if r.marks[i]&extended != 0 {
		w.flushExtra(out, r, inc)
	}
	if r.samples[i] == 0 {
		return
	}
	inc.Samples, inc.Value, inc.At, inc.Relative = r.samples[i], r.values[i], r.ats[i], r.marks[i]&relative != 0
	out.Add(r.shard(), inc)
	if inc.Set != nil {
		inc.Set.Reset()
	}
}

// flushExtra adds the timed values, and fills in the fields of inc that come from the extra.
func (w *Window) flushExtra(out *batch.Writer, r *record, inc *batch.Increment) {
	x := w.extras[r.extra]
	in := &x.windows[w.index]
	inc.Source = x.source
	for _, v := range in.timed {
		inc.Samples, inc.Time, inc.Value, inc.At = saturate(v.samples), v.time, v.value, v.at
		out.Add(r.shard(), inc)
	}
	inc.Time = 0
	in.timed.reset()
	if in.timer != nil {
		inc.Timer = &in.timer.buckets
		inc.Timer.Sum = r.values[w.index] // not the sum of the noted values, since some of them stand for others
		if bounds := w.policies[r.policy()].Bounds; bounds != nil {
			inc.Classic, inc.Sum = in.timer.classic, r.values[w.index]
		}
	}
	inc.Set = in.set
	if r.marks[w.index]&traced != 0 {
		inc.Exemplar = &x.exemplars[w.index]
	}
}
