// Package turns shares a limited resource, such as slots or memory, among parties. Each party has
// its own queue, and the queues are served in turns: a party that asks for a thousand pieces does
// not keep another party from its first piece.
package turns

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// ErrFull means that the party's queue is full.
var ErrFull = errors.New("the queue is full")

// Shares is a capacity, and how much of it is in use. All methods are safe for concurrent use.
type Shares struct {
	capacity, each int64
	waiting        int

	mu      sync.Mutex
	used    int64
	late    int64             // the part of `used` that parties have kept for too long
	served  int64             // turns given so far
	parties map[string]*party // parties that have pieces or wait for some
	wanting []*party          // parties that wait, in order of arrival
}

type party struct {
	name   string
	used   int64
	late   int64     // negative for a moment if OnTime comes before its Late
	served int64     // twice the number of its last turn; an odd number before its first turn
	queue  []*waiter // waiters in order of arrival
}

type waiter struct {
	n       int64
	granted chan struct{}
}

// New returns Shares of `capacity` pieces. A party may have at most `each` pieces, and at most `waiting`
// requests in its queue.
func New(capacity, each int64, waiting int) *Shares {
	return &Shares{capacity: capacity, each: each, waiting: waiting, parties: map[string]*party{}}
}

// Take waits until the party gets n more pieces. It returns the context's error if the context ends
// first, and ErrFull at once if the queue is full.
func (s *Shares) Take(ctx context.Context, name string, n int64) error {
	return s.take(ctx, name, n, false)
}

// Retake is Take for work that has begun: it goes to the front of its party's queue, and is
// never refused.
func (s *Shares) Retake(ctx context.Context, name string, n int64) error {
	return s.take(ctx, name, n, true)
}

func (s *Shares) take(ctx context.Context, name string, n int64, begun bool) error {
	if n > s.each {
		panic(fmt.Sprintf("BUG: a request for %d pieces exceeds the limit of a party, %d", n, s.each))
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
	} else { // the request was granted meanwhile
		s.add(p, -n)
	}
	s.grant()
	s.forget(p)
	return ctx.Err()
}

// Try takes n pieces if the party can have them at once, and reports whether it took them.
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

// Give gives back n of the party's pieces.
func (s *Shares) Give(name string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.party(name)
	s.add(p, -n)
	s.grant()
	s.forget(p)
}

// Late is called when the party has kept one piece for too long and cannot return it now. Until
// OnTime, parties that are not late share one more piece. The capacity grows by only one piece,
// however many pieces are late.
func (s *Shares) Late(name string) { s.addLate(name, 1) }

// OnTime undoes a Late. Call it before the Give of that piece: otherwise Give would pass on the extra
// piece. A Late may come after its OnTime.
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

// Wanted reports whether the party should return its pieces: another party waits, or parties have
// more pieces than the capacity.
func (s *Shares) Wanted(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used > s.capacity || len(s.wanting) > 1 || len(s.wanting) == 1 && s.wanting[0].name != name
}

// Each yields the pieces and the queue length of every party that has pieces or waits.
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
		// The last turn of a new party is unknown. The new party goes before the party that was
		// served last, and behind all others that wait. Otherwise parties that come and go would
		// always be served before a party that stays.
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
		panic(fmt.Sprintf("BUG: %s returned %d more pieces than it had", p.name, -p.used))
	}
}

// serve gives the party a turn.
func (s *Shares) serve(p *party, n int64) {
	s.add(p, n)
	s.served++
	p.served = 2 * s.served
}

// unqueue removes a waiter from its party's queue. If the queue is then empty, it removes the party
// from the waiting parties.
func (s *Shares) unqueue(p *party, i int) {
	p.queue = slices.Delete(p.queue, i, i+1)
	if len(p.queue) == 0 {
		s.wanting = slices.DeleteFunc(s.wanting, func(other *party) bool { return other == p })
	}
}

// grant serves the queues. Of the parties whose oldest request fits, the party whose last turn was
// longest ago goes first.
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
