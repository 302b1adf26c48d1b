// Package index leads from hashes to numbers: a hash table with open addressing, and
// nothing in it for the garbage collector to scan. What the numbers stand for is the
// caller's: whoever searches compares it.
package index

import "unsafe"

// Index holds a number other than 0 for each hash that was inserted, which need not
// differ. The zero Index is empty. It belongs to one goroutine at a time.
//
// It is cut up by the hash, so that the one who grows it waits for a small part of
// it to move: 16,000 of a million, a tenth of a millisecond.
//
// Shape: 2 kB, and 11 to 13 bytes a number.
type Index struct {
	segments [1 << segmentBits]segment
}

const segmentBits = 6 // of a hash, the upper ones, that choose the segment

// segment has slots of any number. What is in it stands in the slot that its hash
// says, its home, or after it, with no empty slot between.
type segment struct {
	slots []slot
	used  int
}

type slot struct {
	hash   uint32 // the lower half
	number uint32 // 0 if the slot is empty
}

// minSlots is the size of a segment that is not empty.
const minSlots = 8

func (x *Index) segment(hash uint64) *segment { return &x.segments[hash>>(64-segmentBits)] }

// Search is a search for the numbers with one hash. It ends with the next change.
type Search struct {
	slots []slot
	at    int
	hash  uint32
}

// Search begins a search. Of two hashes that differ it may take one for the other.
func (x *Index) Search(hash uint64) Search {
	s := x.segment(hash)
	return Search{s.slots, s.home(uint32(hash)), uint32(hash)}
}

// Next returns the next number with the hash, 0 if there is no other.
func (s *Search) Next() uint32 {
	if len(s.slots) == 0 {
		return 0
	}
	for {
		found := s.slots[s.at]
		if found.number == 0 {
			return 0
		}
		if s.at++; s.at == len(s.slots) {
			s.at = 0
		}
		if found.hash == s.hash {
			return found.number
		}
	}
}

// Begin is where in memory a search begins, for who fetches it before; nil while
// there is nothing.
func (x *Index) Begin(hash uint64) unsafe.Pointer {
	s := x.segment(hash)
	if len(s.slots) == 0 {
		return nil
	}
	return unsafe.Pointer(&s.slots[s.home(uint32(hash))])
}

// Insert adds a number that is not there yet under this hash.
func (x *Index) Insert(hash uint64, number uint32) {
	s := x.segment(hash)
	if 4*(s.used+1) > 3*len(s.slots) {
		s.grow()
	}
	s.put(slot{uint32(hash), number})
	s.used++
}

// Len is how many numbers there are.
func (x *Index) Len() (n int) {
	for i := range x.segments {
		n += x.segments[i].used
	}
	return n
}

// grow makes a segment larger by a quarter: between 60 and 75 % of the slots are in
// use then.
func (s *segment) grow() {
	old := s.slots
	s.slots = make([]slot, max(minSlots, len(old)+len(old)/4))
	for _, o := range old {
		if o.number != 0 {
			s.put(o)
		}
	}
}

func (s *segment) put(o slot) {
	i := s.home(o.hash)
	for s.slots[i].number != 0 {
		i = s.after(i)
	}
	s.slots[i] = o
}

// Remove takes a number out that is there.
func (x *Index) Remove(hash uint64, number uint32) {
	s := x.segment(hash)
	gap := s.home(uint32(hash))
	for s.slots[gap].number != number {
		gap = s.after(gap)
	}
	// Close the gap, so that probing needs no tombstones: whoever stands further
	// from home than the gap moves into it.
	for i := s.after(gap); s.slots[i].number != 0; i = s.after(i) {
		if s.distance(s.home(s.slots[i].hash), i) >= s.distance(gap, i) {
			s.slots[gap] = s.slots[i]
			gap = i
		}
	}
	s.slots[gap] = slot{}
	s.used--
}

// home is hash / 2^32 x the number of slots.
func (s *segment) home(hash uint32) int { return int(uint64(hash) * uint64(len(s.slots)) >> 32) }

func (s *segment) after(i int) int {
	if i++; i < len(s.slots) {
		return i
	}
	return 0
}

func (s *segment) distance(from, to int) int {
	if from > to {
		to += len(s.slots)
	}
	return to - from
}
