package slogring

import (
	"hash/maphash"
	"log/slog"
	"strings"
	"sync/atomic"
)

const (
	messages = 1024 // tracked at a time
	nearby   = 8    // slots in which a message may be
	textKept = 256  // bytes of a message that are kept for its line of suppressed records
)

// sampler counts records of the same level and message. Each record is in the count of
// exactly one period.
type sampler struct {
	first  uint64 // records of a message that pass in a period
	places [messages]atomic.Pointer[tally]
	past   uint64 // suppressed in periods that have ended; under the writer's lock
}

// tally is the count of one level and message. Callers add to it, and at the end of a period the
// writer takes the sum. If the sum is zero, the writer seals the count and removes the tally: a
// caller that had found the tally before sees the seal, and knows that its record was not counted.
type tally struct {
	hash  uint64 // seeded; two messages collide with probability 2^-64
	level slog.Level
	text  string // the message's beginning, copied: it may be part of something large
	n     atomic.Uint64

	unsaid uint64 // suppressed in ended periods, not yet written in a line; owned by the writer
}

const sealed = 1 << 63

var seed = maphash.MakeSeed()

// pass counts a record, and reports whether it is among the first of the period.
func (s *sampler) pass(level slog.Level, message string) bool {
	hash := maphash.String(seed, message) ^ uint64(level)*0x9e3779b97f4a7c15
	for {
		t := s.find(hash, level, message)
		if t == nil {
			return true
		}
		if n := t.n.Add(1); n&sealed == 0 {
			return n <= s.first
		}
	}
}

// find returns the message's tally. It makes one if there is none, and returns nil if there is no
// slot for it. If a slot becomes free just then, two callers may each make a tally. Both tallies
// count; the tally that find no longer reaches is soon removed.
func (s *sampler) find(hash uint64, level slog.Level, message string) *tally {
	var made *tally
	for {
		var free *atomic.Pointer[tally]
		for i := range uint64(nearby) {
			at := &s.places[(hash+i)%messages]
			switch t := at.Load(); {
			case t == nil:
				free = at
			case t.hash == hash && t.n.Load()&sealed == 0:
				return t
			}
		}
		if free == nil {
			return nil
		}
		if made == nil {
			made = &tally{hash: hash, level: level, text: strings.Clone(beginning(message, textKept))}
		}
		if free.CompareAndSwap(nil, made) {
			return made
		}
	}
}

// settle ends a period. It appends to `due` the tallies with unwritten counts, and reports whether
// anything was counted. After the last period every record passes, and nothing is counted. The
// caller holds the writer's lock.
func (s *sampler) settle(last bool, due []*tally) (_ []*tally, any bool) {
	for i := range s.places {
		at := &s.places[i]
		t := at.Load()
		if last {
			t = at.Swap(noPlace)
		}
		if t == nil || t == noPlace {
			continue
		}
		if !last && t.unsaid == 0 && t.n.CompareAndSwap(0, sealed) {
			at.Store(nil)
			continue
		}
		var n uint64
		if last {
			n = t.n.Swap(sealed)
		} else {
			n = t.n.Swap(0)
		}
		s.past += s.beyond(n)
		if t.unsaid += s.beyond(n); t.unsaid > 0 {
			due = append(due, t)
		}
		any = true
	}
	return due, any
}

// noPlace takes every slot when the last period ends, and stays there. So find returns nil from then
// on, and every record passes without being counted.
var noPlace = func() *tally {
	t := new(tally)
	t.n.Store(sealed)
	return t
}()

// beyond returns how many of `n` records did not pass.
func (s *sampler) beyond(n uint64) uint64 {
	if n&sealed != 0 || n <= s.first {
		return 0
	}
	return n - s.first
}

// suppressed returns all records that did not pass. The caller holds the writer's lock.
func (s *sampler) suppressed() uint64 {
	sum := s.past
	for i := range s.places {
		if t := s.places[i].Load(); t != nil {
			sum += s.beyond(t.n.Load())
		}
	}
	return sum
}
