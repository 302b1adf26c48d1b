package slogring

import "sync/atomic"

// ring has the lines between those who log and the one who writes. It is a buffer of
// bytes, and a word for each record that is in it. Many push, one takes.
//
// Who pushes takes the next word and the bytes that follow the last line, both by one
// compare-and-swap, copies its line there, and stores the word: the line is ready. No
// other code runs between the two, so that nobody waits long for a line that is not. The
// one who takes finds lines in the order of their words, to be written where they are.
type ring struct {
	// tail is where the next record goes, head where the oldest is: its number in the
	// upper half, its first byte in the lower, both counted on and on. Each has a cache
	// line of its own, and the one beside it that processors fetch too.
	tail atomic.Uint64
	_    [120]byte
	head atomic.Uint64
	_    [120]byte

	bytes []byte          // a power of two, for lines of at most half of it
	words []atomic.Uint64 // a power of two
	line  int             // bytes of the longest line
}

// closed in tail says that nothing is pushed any more. Numbers have the other 31 bits.
const closed, numbers = 1 << 63, 1<<31 - 1

// A word is 0 or that of a line that is ready: its length in 30 bits, its first byte in 32.
const ready, isCut = 1 << 63, 1 << 62

func newRing(size, line int) *ring {
	return &ring{bytes: make([]byte, size), words: make([]atomic.Uint64, size/minRecord), line: line}
}

func place(number, first uint32) uint64 { return uint64(number&numbers)<<32 | uint64(first) }

// between is the records from head to tail, which may be closed.
func between(head, tail uint64) int { return int(uint32(tail>>32-head>>32) & numbers) }

func span(word uint64) (first, n uint32) { return uint32(word), uint32(word>>32) & (1<<30 - 1) }

// word is that of a record's number.
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
		if r.head.Load() == head { // or else tail is of later, and there is more room
			return true
		}
	}
}

// push copies line into the ring, if there is room. It reports whether half of the ring
// is in use then.
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
			first += rest // a line is in one piece, so that it can be written as it is
		}
		used, waiting := first+n-uint32(head), between(head, tail)
		if used > size || waiting >= len(r.words) {
			if r.tail.Load() != tail {
				continue // head is of later, and may be beyond it
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

// close has nothing pushed any more.
func (r *ring) close() { r.tail.Or(closed) }

// end is behind the last record that was pushed, or is just being pushed.
func (r *ring) end() uint64 { return r.tail.Load() }

// passed reports whether all records before end have been released.
func (r *ring) passed(end uint64) bool {
	left := between(r.head.Load(), end)
	return left == 0 || left > len(r.words) // the latter is a negative number
}

// len is the records that have not been released.
func (r *ring) len() int {
	head := r.head.Load()
	return between(head, r.end())
}

// isReady reports whether take would return something.
func (r *ring) isReady() bool { return r.word(uint32(r.head.Load()>>32)).Load() != 0 }

// take returns lines that are ready and lie one after the other, up to the end of the
// bytes, and how many they are: one, or more of at most so many bytes together. They stay
// until they are released.
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

// release gives back the n lines that take returned, of which so many bytes were written,
// and returns how many lines that was, whole ones and cut ones.
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
		word.Store(0) // before head: then it may be taken again
		number++
	}
	r.head.Store(place(number, end))
	return whole, cut
}
