package limit

// index finds places by a hash of what is in them: a hash table with open addressing,
// and nothing in it for the garbage collector to scan.
//
// It is cut up by the hash, so that a claim which finds its segment full moves a
// segment's share of the places only, 5,000 of a million or 30 µs, while the readers
// of sockets wait.
type index struct {
	segments [1 << segmentBits]segment
}

const segmentBits = 8 // of a hash, the upper ones, that choose the segment

// minSlots is the size of a segment that is not empty.
const minSlots = 8

// segment has slots of any number. A place stands in the slot that its hash says, its
// home, or after it, with no empty slot between.
type segment struct {
	slots []slot
	used  int
}

type slot struct {
	hash  uint32 // the lower half
	place Place  // 0 if the slot is empty
}

func (x *index) segment(hash uint64) *segment { return &x.segments[hash>>(64-segmentBits)] }

// find returns the place with a hash that is the one.
func (x *index) find(hash uint64, is func(Place) bool) Place {
	s := x.segment(hash)
	if s.used == 0 {
		return 0
	}
	for i := s.home(uint32(hash)); s.slots[i].place != 0; i = s.after(i) {
		if s.slots[i].hash == uint32(hash) && is(s.slots[i].place) {
			return s.slots[i].place
		}
	}
	return 0
}

func (x *index) insert(hash uint64, p Place) {
	s := x.segment(hash)
	if 4*(s.used+1) > 3*len(s.slots) {
		s.grow()
	}
	s.put(slot{uint32(hash), p})
	s.used++
}

// grow makes a segment larger by a quarter: between 60 and 75 % of the slots are in
// use then, 11 to 13 bytes a place.
func (s *segment) grow() {
	old := s.slots
	s.slots = make([]slot, max(minSlots, len(old)+len(old)/4))
	for _, o := range old {
		if o.place != 0 {
			s.put(o)
		}
	}
}

func (s *segment) put(o slot) {
	i := s.home(o.hash)
	for s.slots[i].place != 0 {
		i = s.after(i)
	}
	s.slots[i] = o
}

func (x *index) remove(hash uint64, p Place) {
	s := x.segment(hash)
	gap := s.home(uint32(hash))
	for s.slots[gap].place != p {
		gap = s.after(gap)
	}
	// Close the gap, so that probing needs no tombstones: whoever stands further from
	// home than the gap moves into it.
	for i := s.after(gap); s.slots[i].place != 0; i = s.after(i) {
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
