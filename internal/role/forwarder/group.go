package forwarder

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/queue"
)

// Name returns the backend's name, by which the log of a group knows it.
func (f *Forwarder) Name() string { return f.config.Name }

// Lead says whether this member sends: see member.Node's Sends. The caller must first tell Settle what
// earlier leaders sent.
func (f *Forwarder) Lead(leads bool) {
	if f.leads.Swap(leads) == leads {
		return
	}
	for _, l := range f.lanes {
		if leads {
			l.count()
		} else {
			select {
			case l.turned <- struct{}{}:
			default: // it is already signalled
			}
		}
		l.signal()
	}
}

// Settle says that the backend has everything from the entries up to an index.
func (f *Forwarder) Settle(index uint64) {
	if !raise(&f.settled, index) {
		return
	}
	for _, l := range f.lanes {
		l.signal()
	}
}

// Reached returns the index of the last entry up to which everything has left the queues. It returns 0
// if the log already covers everything that has left them. The caller has already pushed everything from
// entries before `unstored`.
func (f *Forwarder) Reached(unstored uint64) uint64 {
	reached, ended := uint64(math.MaxUint64), uint64(0)
	for _, l := range f.lanes {
		n := l.reached.Load()
		if amount, _ := l.queue.Waiting(); amount.Frames == 0 {
			n = max(n, unstored-1)
		}
		reached, ended = min(reached, n), max(ended, l.ended.Load())
	}
	if ended <= f.settled.Load() {
		return 0
	}
	return reached
}

// has reports whether the backend is known to have all of a span.
func (f *Forwarder) has(s entry.Span) bool { return s.Last != 0 && s.Last <= f.settled.Load() }

// turn notes the span of the oldest request, and reports whether the request leaves the queue now.
func (l *lane) turn(s entry.Span) bool {
	if s == (entry.Span{}) {
		return true
	}
	l.missed.before(s.First-1, l.settled.Load()) // before the others learn what this lane has reached
	raise(&l.reached, s.First-1)
	if l.gaveUp.Swap(false) {
		raise(&l.ended, s.First-1) // otherwise the other members' queues would keep what was given up
	}
	return l.leads.Load() || l.has(s)
}

// drop removes the oldest frame, which the backend already has according to the log.
func (l *lane) drop(frame queue.Frame, of entry.Span) {
	if l.done(of) {
		l.metrics.elsewhere.add(frame.Amount())
	}
}

// missed counts the requests that a queue lost while another member led. That member may send them. So
// they count as unsent only if this member leads before it is known that they were sent.
type missed struct {
	mu         sync.Mutex
	full, disk queue.Amount
	upTo       uint64 // the last entry of all that is lost; valid unless `unknown`
	unknown    bool   // upTo is unknown until the next look at the oldest request
}

// lost counts the requests that the queue gave up or could not take. upTo is their last entry; 0 if it
// is not known.
func (l *lane) lost(a queue.Amount, reason string, upTo uint64) {
	if a.Frames == 0 {
		return
	}
	if l.leads.Load() {
		l.gaveUp.Store(reason == unsentFull)
		l.unsent(a, reason)
		return
	}
	m := &l.missed
	m.mu.Lock()
	defer m.mu.Unlock()
	if reason == unsentFull {
		m.full.Add(a)
	} else {
		m.disk.Add(a)
	}
	m.upTo = max(m.upTo, upTo)
	m.unknown = m.unknown || upTo == 0
}

// before learns that all lost requests came from entries up to `index`. It forgets these losses once the
// entries are settled.
func (m *missed) before(index, settled uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unknown {
		m.upTo, m.unknown = max(m.upTo, index), false
	}
	if m.upTo <= settled {
		m.full, m.disk = queue.Amount{}, queue.Amount{}
	}
}

// count counts the lost requests as unsent, because this member leads from now on.
func (l *lane) count() {
	m := &l.missed
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unknown || m.upTo > l.settled.Load() {
		l.unsent(m.full, unsentFull)
		l.unsent(m.disk, unsentDisk)
	}
	m.full, m.disk = queue.Amount{}, queue.Amount{}
}

func (l *lane) unsent(a queue.Amount, reason string) {
	if a.Frames == 0 {
		return
	}
	l.metrics.unsent.add(a, reason)
	if reason == unsentFull {
		l.logger.Warn("the queue is full; the oldest requests are given up", "requests", a.Frames,
			"samples", a.Samples, "bytes", a.Bytes)
	}
}

// raise raises x to n, and reports whether x was lower.
func raise(x *atomic.Uint64, n uint64) bool {
	for {
		before := x.Load()
		if n <= before {
			return false
		}
		if x.CompareAndSwap(before, n) {
			return true
		}
	}
}
