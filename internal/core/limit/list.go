package limit

import "sync/atomic"

// chunkLen is how many values a chunk of a list has.
const chunkLen = 512

// list holds values by number. A value never moves, so a goroutine that has the value's number may
// read it without a lock while others add values. All other calls are for one goroutine at a time.
// Numbers begin at 1.
type list[T any] struct {
	chunks atomic.Pointer[[]*[chunkLen]T]
	next   uint32   // first number never given out
	free   []uint32 // numbers that were given back
}

func (l *list[T]) at(number uint32) *T {
	return &(*l.chunks.Load())[number/chunkLen][number%chunkLen]
}

// add adds a zero value, and returns its number.
func (l *list[T]) add() uint32 {
	if n := len(l.free); n > 0 {
		number := l.free[n-1]
		l.free = l.free[:n-1]
		return number
	}
	if l.next%chunkLen == 0 {
		var chunks []*[chunkLen]T
		if old := l.chunks.Load(); old != nil {
			chunks = *old // reuses the array: readers of the old list see nothing beyond its end
		}
		chunks = append(chunks, new([chunkLen]T))
		l.chunks.Store(&chunks)
		l.next = max(l.next, 1)
	}
	l.next++
	return l.next - 1
}

// drop gives a number back. The caller must have set the value to zero for the next add.
func (l *list[T]) drop(number uint32) { l.free = append(l.free, number) }
