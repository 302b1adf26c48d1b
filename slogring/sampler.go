package slogring

import (
	"hash/maphash"
	"log/slog"
	"strings"
	"sync/atomic"
)

const (
	messages = 1024 // that are known at a time
	nearby   = 8    // places where one may be
	textKept = 256  // bytes of a message, for the line that says how often it came
)

// sampler counts records of the same level and message. Each record is in the count of
// exactly one period.
type sampler struct {
	first  uint64 // so many pass in a period
	places [messages]atomic.Pointer[tally]
	past   uint64 // suppressed in periods that have ended; under the writer's lock
}

// tally is the count of one level and message. Callers add to it, and at the end of a
// period the writer takes out what was added. If that was nothing, it seals the count and
// removes the tally: who had found it before sees the seal, and that it did not count.
type tally struct {
	hash  uint64 // seeded; different messages have the same once in 2^64 pairs
	level slog.Level
	text  string // the message's beginning, copied: it may be part of something large
	n     atomic.Uint64

	unsaid uint64 // suppressed in periods that have ended, and no line says so yet; the writer's
}

const sealed = 1 << 63

var seed = maphash.MakeSeed()

// pass counts a record and reports whether it is among the first.
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

// find returns the message's tally, a new one if it has none, and nil if there is no place
// for it. If a place becomes free just then, two callers may each make one. Both count;
// the one that is found no more is soon removed.
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

// settle ends a period. It returns the tallies of which something is unsaid, appended to
// due, and whether anything was counted. After the last one everything passes and nothing
// is counted any more. The caller has the writer's lock.
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

// noPlace is where no tally may be put any more.
var noPlace = func() *tally {
	t := new(tally)
	t.n.Store(sealed)
	return t
}()

// beyond is how many of n did not pass.
func (s *sampler) beyond(n uint64) uint64 {
	if n&sealed != 0 || n <= s.first {
		return 0
	}
	return n - s.first
}

// suppressed is all that did not pass. The caller has the writer's lock.
func (s *sampler) suppressed() uint64 {
	sum := s.past
	for i := range s.places {
		if t := s.places[i].Load(); t != nil {
			sum += s.beyond(t.n.Load())
		}
	}
	return sum
}
