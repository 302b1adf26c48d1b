// Package changes remembers how far back data have changed, so that results of earlier queries need not be
// evaluated again. A writer notes the time of its oldest sample. A reader takes a mark before it reads,
// and may ask later what the oldest change since that mark was.
package changes

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// Log has the changes of some data. A note costs a writer one atomic load, unless it is older than all notes
// since the last mark. All methods are safe for concurrent use.
type Log struct {
	oldest atomic.Int64 // the oldest note of the current period, Unix ms; none if there is no note

	mu     sync.Mutex
	period uint64   // a mark ends the current period if the period has a note
	past   []oldest // both fields ascend: an older period matters only if its note is older
}

// oldest is the oldest note of some periods, of which `period` is the last.
type oldest struct {
	period uint64
	t      int64 // Unix ms
}

// none is the time of no note.
const none = math.MaxInt64

// All is the time to note if everything may have changed.
const All = math.MinInt64

const (
	// slotMillis is the precision of notes of past periods. So a query each millisecond needs no more memory than a
	// query each second.
	slotMillis = 1000

	// maxPast bounds the periods. At one entry for each second of notes in order of time, it is an hour. A mark that is
	// older sees the oldest change of a longer time than its own.
	maxPast = 3600
)

// Mark is a moment in a Log. The zero Mark is of no Log.
type Mark struct {
	of     *Log
	period uint64
}

// New returns a Log without notes.
func New() *Log {
	l := &Log{}
	l.oldest.Store(none)
	return l
}

// Note notes that data at or after time t, Unix milliseconds, change. The caller notes a change before readers can see
// it, and once more when they can: then Since shows the change to a reader who saw the data before as well as to a
// reader who took a mark in between.
func (l *Log) Note(t int64) {
	if t >= l.oldest.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.oldest.Store(min(t, l.oldest.Load()))
}

// Mark returns the present moment. What a reader reads afterwards has all changes that were noted, for the second time,
// before.
func (l *Log) Mark() Mark {
	if l == nil {
		return Mark{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.oldest.Load(); t != none {
		l.oldest.Store(none)
		l.pass(t)
		l.period++
	}
	return Mark{l, l.period}
}

// pass notes the oldest change of the period that ends.
func (l *Log) pass(t int64) {
	if t >= All+slotMillis {
		t -= (t%slotMillis + slotMillis) % slotMillis
	}
	for n := len(l.past); n > 0 && l.past[n-1].t >= t; n-- {
		l.past = l.past[:n-1]
	}
	l.past = append(l.past, oldest{l.period, t})
	if len(l.past) > maxPast {
		l.past[1].t = l.past[0].t
		l.past = slices.Delete(l.past, 0, 1)
	}
}

// Since returns the time of the oldest change since a mark, Unix milliseconds; math.MaxInt64 if there is none. It
// returns All for a mark of another Log. A nil Log is of data that do not exist, and has the zero Mark.
func (l *Log) Since(m Mark) int64 {
	switch {
	case l != m.of:
		return All
	case l == nil:
		return none
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	first, _ := slices.BinarySearchFunc(l.past, m.period, func(o oldest, period uint64) int {
		if o.period < period {
			return -1
		}
		return 1
	})
	if first < len(l.past) {
		return min(l.past[first].t, l.oldest.Load())
	}
	return l.oldest.Load()
}
