package slogring

import "sync/atomic"

// ring holds the lines between the logging goroutines and the writer. It has a buffer of bytes, and a
// word for each record in the buffer. Many goroutines push, and one takes.
//
// A push reserves the next word and the bytes after the last line in one compare-and-swap, copies its
// line there, and stores the word: then the line is ready. Between these steps it calls no code of
// users, so every reserved line is soon ready. The writer takes lines in the order of their words, and
// writes them directly from the ring.
type ring struct {
	// tail is the place of the next record, and head the place of the oldest. The upper half of a
	// place is the record's number, and the lower half its first byte; both only count up. tail and
	// head are two cache lines apart, since processors also prefetch the neighbouring line.
	tail atomic.Uint64
	_    [120]byte
	head atomic.Uint64
	_    [120]byte

	bytes []byte          // a power of two; a line takes at most half of it
	words []atomic.Uint64 // a power of two
	line  int             // largest length of a line, in bytes
}

// The bit `closed` in tail means that nothing can be pushed any more. The other 31 bits of the upper half
// are the record's number.
const closed, numbers = 1 << 63, 1<<31 - 1

// A word is 0, or describes a line that is ready: its length in 30 bits, and its first byte in 32 bits.
const ready, isCut = 1 << 63, 1 << 62

func newRing(size, line int) *ring {
	return &ring{bytes: make([]byte, size), words: make([]atomic.Uint64, size/minRecord), line: line}
}

func place(number, first uint32) uint64 { return uint64(number&numbers)<<32 | uint64(first) }

// between returns the number of records from head to tail. tail may have the bit `closed`.
func between(head, tail uint64) int { return int(uint32(tail>>32-head>>32) & numbers) }

func span(word uint64) (first, n uint32) { return uint32(word), uint32(word>>32) & (1<<30 - 1) }

// word returns the word of a record, by its number.
func (r *ring) word(number uint32) *atomic.Uint64 {
	return &r.words[number%uint32(len(r.words))]
}

// full reports whether there might be no room for the longest line.
func (r *ring) full() bool {
	for {
		head := r.head.Load()
		tail := r.tail.Load()
		used := uint32(tail) - uint32(head)
		if tail&closed == 0 && int(used)+r.line <= len(r.bytes) && between(head, tail) < len(r.words) {
			return false
		}
		if r.head.Load() == head { // if head has moved, lines were released meanwhile: look again
			return true
		}
	}
}

// push copies `line` into the ring, if there is room. `high` reports whether at least half of the ring
// is in use afterwards.
func (r *ring) push(line []byte, cut bool) (pushed, high bool) {
	size, n := uint32(len(r.bytes)), uint32(len(line))
	for {
		tail := r.tail.Load()
		head := r.head.Load()
		if tail&closed != 0 {
			return false, false
		}
		number, first := uint32(tail>>32), uint32(tail)
		if rest := size - first%size; rest < n {
			first += rest // a line is contiguous, so that the writer can write it directly
		}
		used, waiting := first+n-uint32(head), between(head, tail)
		if used > size || waiting >= len(r.words) {
			if r.tail.Load() != tail {
				continue // tail was read too early, and head may be beyond it
			}
			return false, false
		}
		if !r.tail.CompareAndSwap(tail, place(number+1, first+n)) {
			continue
		}
		copy(r.bytes[first%size:], line)
		word := ready | uint64(n)<<32 | uint64(first)
		if cut {
			word |= isCut
		}
		r.word(number).Store(word)
		return true, used > size/2 || waiting > len(r.words)/2
	}
}

// close makes every later push fail.
func (r *ring) close() { r.tail.Or(closed) }

// end returns the position after the last record that was pushed, or is being pushed.
func (r *ring) end() uint64 { return r.tail.Load() }

// passed reports whether all records before `end` have been released.
func (r *ring) passed(end uint64) bool {
	left := between(r.head.Load(), end)
	return left == 0 || left > len(r.words) // more records than words mean that head has passed end
}

// len returns the number of records that have not been released.
func (r *ring) len() int {
	head := r.head.Load()
	return between(head, r.end())
}

// isReady reports whether take would return lines.
func (r *ring) isReady() bool { return r.word(uint32(r.head.Load()>>32)).Load() != 0 }

// take returns ready lines that are contiguous, and their number. It returns one line, or several lines
// that together have at most `most` bytes. They stay in the ring until they are released.
func (r *ring) take(most int) (lines []byte, n int) {
	number, size := uint32(r.head.Load()>>32), uint32(len(r.bytes))
	var begin, end uint32
	for n < len(r.words) {
		word := r.word(number + uint32(n)).Load()
		first, length := span(word)
		if word == 0 || n > 0 && (first%size == 0 || int(first+length-begin) > most) {
			break
		}
		if n == 0 {
			begin = first
		}
		end = first + length
		n++
	}
	at := begin % size
	return r.bytes[at : at+end-begin], n
}

// release removes the `n` lines of the last take from the ring. The writer wrote the first `written`
// bytes of them. release counts the lines that were written to their end: it returns how many of these
// are whole, and how many are cut.
func (r *ring) release(n, written int) (whole, cut uint64) {
	number := uint32(r.head.Load() >> 32)
	var end uint32
	for range n {
		word := r.word(number)
		first, length := span(word.Load())
		end = first + length
		switch written -= int(length); {
		case written < 0:
		case word.Load()&isCut != 0:
			cut++
		default:
			whole++
		}
		word.Store(0) // cleared before head moves, because a push may then reuse the word
		number++
	}
	r.head.Store(place(number, end))
	return whole, cut
}
