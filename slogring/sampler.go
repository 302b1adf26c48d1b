package slogring

import (
	"hash/maphash"
	"log/slog"
	"strings"
	"sync/atomic"
)

const (
	messages = 1024 // number of messages that are counted at a time
	nearby   = 8    // number of slots in which a message may be
	textKept = 256  // length of the part of a message, in bytes, that its summary shows
)

// sampler counts records of the same level and message. It counts each record in exactly one period.
type sampler struct {
	first  uint64 // records of a message that pass in a period
	places [messages]atomic.Pointer[tally]
	past   uint64 // records suppressed in ended periods; guarded by the writer's lock
}

// tally is the count of one level and message. Callers increment it, and at the end of a period the writer
// takes the sum. If the sum is zero, the writer seals the count and removes the tally. A caller that
// found the tally earlier sees the seal, and looks for a tally again.
type tally struct {
	hash  uint64 // seeded; two messages collide with probability 2^-64
	level slog.Level
	text  string // a copy of the message's beginning, since the message may be part of a large string
	n     atomic.Uint64

	unsaid uint64 // records suppressed in ended periods that no summary has counted yet; only the writer uses it
}

const sealed = 1 << 63

var seed = maphash.MakeSeed()

// pass counts a record, and reports whether it is one of the first in the period, which are written.
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

// find returns the message's tally. If there is none, it makes one, or returns nil if no slot is free. If a
// slot becomes free at that moment, two callers may each make a tally. Both tallies count, but from then
// on find returns only one of them, and the other is soon removed.
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

// settle ends a period. It appends to `due` the tallies with suppressed records that no summary has
// counted, and reports whether the period had any records. With `last`, no further period begins: every
// later record passes without being counted. The caller holds the writer's lock.
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

// noPlace fills every slot when the last period ends, and is never removed. So find returns nil from then
// on, and every record passes without being counted.
var noPlace = func() *tally {
	t := new(tally)
	t.n.Store(sealed)
	return t
}()

// beyond returns how many of the `n` records of a message in a period did not pass.
func (s *sampler) beyond(n uint64) uint64 {
	if n&sealed != 0 || n <= s.first {
		return 0
	}
	return n - s.first
}

// suppressed returns the number of all records that did not pass. The caller holds the writer's lock.
func (s *sampler) suppressed() uint64 {
	sum := s.past
	for i := range s.places {
		if t := s.places[i].Load(); t != nil {
			sum += s.beyond(t.n.Load())
		}
	}
	return sum
}
