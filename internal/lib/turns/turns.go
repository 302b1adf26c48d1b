// Package turns shares something of which there is only so much, such as slots or
// memory, among parties that want it at once. Each party waits in a queue of its own,
// and the queues are served in turns: a party that asks for a thousand pieces does not
// keep another from its first one. It knows nothing of what is shared.
package turns

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// ErrFull means that as many of the party wait already as may.
var ErrFull = errors.New("too many wait already")

// Shares is a capacity and what is taken of it. All methods may be called at any time.
type Shares struct {
	capacity, each int64
	waiting        int

	mu      sync.Mutex
	used    int64
	late    int64             // of it, what parties have for too long
	served  int64             // how often anybody was
	parties map[string]*party // those that have something, or wait
	wanting []*party          // those that wait, in the order of their coming
}

type party struct {
	name   string
	used   int64
	late   int64     // below 0 for a moment if OnTime comes before its Late
	served int64     // when it had its last turn, by twice the count of all
	queue  []*waiter // in the order of their coming
}

type waiter struct {
	n       int64
	granted chan struct{}
}

// New returns shares of a capacity, of which one party may have each at most, and for
// which waiting of one party may wait.
func New(capacity, each int64, waiting int) *Shares {
	return &Shares{capacity: capacity, each: each, waiting: waiting, parties: map[string]*party{}}
}

// Take waits until the party has n more, and returns the context's error if that ends
// first, or ErrFull at once.
func (s *Shares) Take(ctx context.Context, name string, n int64) error {
	return s.take(ctx, name, n, false)
}

// Retake is Take for work that has begun: it goes before what else of its party waits,
// and is never refused.
func (s *Shares) Retake(ctx context.Context, name string, n int64) error {
	return s.take(ctx, name, n, true)
}

func (s *Shares) take(ctx context.Context, name string, n int64, begun bool) error {
	if n > s.each {
		panic(fmt.Sprintf("BUG: %d are asked for of shares of which a party may have %d", n, s.each))
	}
	s.mu.Lock()
	p := s.party(name)
	if len(p.queue) == 0 && s.fits(p, n) {
		s.serve(p, n)
		s.mu.Unlock()
		return nil
	}
	if !begun && len(p.queue) >= s.waiting {
		s.forget(p)
		s.mu.Unlock()
		return ErrFull
	}
	w := &waiter{n: n, granted: make(chan struct{})}
	if len(p.queue) == 0 {
		s.wanting = append(s.wanting, p)
	}
	at := len(p.queue)
	if begun {
		at = 0
	}
	p.queue = slices.Insert(p.queue, at, w)
	s.mu.Unlock()

	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(p.queue, w); i >= 0 {
		s.unqueue(p, i)
	} else { // it was granted meanwhile
		s.add(p, -n)
	}
	s.grant()
	s.forget(p)
	return ctx.Err()
}

// Try takes n if the party can have it at once, and reports whether it could.
func (s *Shares) Try(name string, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.party(name)
	ok := s.fits(p, n)
	if ok {
		s.add(p, n)
	}
	s.forget(p)
	return ok
}

// Give gives back n of what the party has.
func (s *Shares) Give(name string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.party(name)
	s.add(p, -n)
	s.grant()
	s.forget(p)
}

// Late tells that the party has one piece for too long and cannot be asked to give it
// back. Until OnTime, one piece more than the capacity is there for parties that have none
// for too long; however many are late, it is one.
func (s *Shares) Late(name string) { s.addLate(name, 1) }

// OnTime takes a Late back. It comes before the Give of that piece, which would pass the
// one more on otherwise. Late may be called after its OnTime.
func (s *Shares) OnTime(name string) { s.addLate(name, -1) }

func (s *Shares) addLate(name string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.party(name)
	p.late += n
	s.late += n
	s.grant()
	s.forget(p)
}

// Wanted reports whether the party should give back what it has: another one waits, or
// more is out than the capacity.
func (s *Shares) Wanted(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used > s.capacity || len(s.wanting) > 1 || len(s.wanting) == 1 && s.wanting[0].name != name
}

// Each yields what every party has and how many of it wait. A party that has nothing
// and waits for nothing is not known.
func (s *Shares) Each(yield func(name string, used int64, waiting int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.parties {
		yield(p.name, p.used, len(p.queue))
	}
}

func (s *Shares) party(name string) *party {
	p := s.parties[name]
	if p == nil {
		// Nobody remembers its last turn. It comes before whoever had the last one, and
		// behind all others that wait: parties that come and go would otherwise be
		// served before one that stays, always.
		p = &party{name: name, served: 2*s.served - 1}
		s.parties[name] = p
	}
	return p
}

func (s *Shares) forget(p *party) {
	if p.used == 0 && p.late == 0 && len(p.queue) == 0 {
		delete(s.parties, p.name)
	}
}

func (s *Shares) fits(p *party, n int64) bool {
	capacity := s.capacity
	if s.late > 0 && p.late <= 0 {
		capacity++
	}
	return s.used+n <= capacity && p.used+n <= s.each
}

func (s *Shares) add(p *party, n int64) {
	s.used += n
	p.used += n
	if s.used < 0 || p.used < 0 {
		panic(fmt.Sprintf("BUG: %s gave back %d more than it had", p.name, -p.used))
	}
}

// serve is a turn of the party.
func (s *Shares) serve(p *party, n int64) {
	s.add(p, n)
	s.served++
	p.served = 2 * s.served
}

// unqueue takes a waiter out of its party's queue, and a party that waits for nothing
// more out of those that do.
func (s *Shares) unqueue(p *party, i int) {
	p.queue = slices.Delete(p.queue, i, i+1)
	if len(p.queue) == 0 {
		s.wanting = slices.DeleteFunc(s.wanting, func(other *party) bool { return other == p })
	}
}

// grant serves the queues: of the parties whose oldest wish fits the one whose last
// turn is the longest ago.
func (s *Shares) grant() {
	for {
		var next *party
		for _, p := range s.wanting {
			if s.fits(p, p.queue[0].n) && (next == nil || p.served < next.served) {
				next = p
			}
		}
		if next == nil {
			return
		}
		w := next.queue[0]
		s.unqueue(next, 0)
		s.serve(next, w.n)
		close(w.granted)
	}
}
