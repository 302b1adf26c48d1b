package window

import "unsafe"

// index leads from hashes to numbers, of contexts or of series: a hash table with
// open addressing, and nothing in it for the garbage collector to scan. Whoever
// asks compares what the numbers stand for.
//
// It is cut up by the hash, so that the one who grows it waits for a small part of
// it to move: 16,000 of a million, a tenth of a millisecond.
type index [1 << segmentBits]segment

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

// minSlots is the size of a new segment.
const minSlots = 8

func newIndex() (x index) {
	for i := range x {
		x[i].slots = make([]slot, minSlots)
	}
	return x
}

func (x *index) segment(hash uint64) *segment { return &x[hash>>(64-segmentBits)] }

// find returns the number with a hash that is the one, 0 if there is none.
func (x *index) find(hash uint64, is func(number uint32) bool) uint32 {
	s := x.segment(hash)
	for i := s.home(uint32(hash)); s.slots[i].number != 0; i = s.after(i) {
		if s.slots[i].hash == uint32(hash) && is(s.slots[i].number) {
			return s.slots[i].number
		}
	}
	return 0
}

// at returns where the search for a hash begins.
func (x *index) at(hash uint64) unsafe.Pointer {
	s := x.segment(hash)
	return unsafe.Pointer(&s.slots[s.home(uint32(hash))])
}

// first returns the first number with a hash, 0 if there is none.
func (x *index) first(hash uint64) uint32 {
	s := x.segment(hash)
	i := s.home(uint32(hash))
	for s.slots[i].number != 0 && s.slots[i].hash != uint32(hash) {
		i = s.after(i)
	}
	return s.slots[i].number
}

func (x *index) insert(hash uint64, number uint32) {
	s := x.segment(hash)
	if 2*(s.used+1) > len(s.slots) {
		s.grow()
	}
	s.put(slot{uint32(hash), number})
	s.used++
}

// grow makes a segment larger by a quarter: between 40 and 50 % of the slots are in
// use then, 16 to 20 bytes each. With more of them in use, a search takes longer:
// 2 ns at 75 %.
func (s *segment) grow() {
	old := s.slots
	s.slots = make([]slot, len(old)+len(old)/4)
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

// remove takes a number out that is there.
func (x *index) remove(hash uint64, number uint32) {
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
