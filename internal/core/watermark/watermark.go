// Package watermark knows up to when a tenant's data are complete: all that its senders are expected to
// have sent until then has been delivered. Rules wait for it.
//
// Three things hold the watermark back: windows that are not folded yet, requests that are being
// written or that we asked senders to send again, and senders that are late. The caller hands in times,
// as Unix milliseconds, and every request as it ends. core/watermark decides nothing about rules.
package watermark

import (
	"iter"
	"slices"
	"sync"
)

// Marks are the watermarks of one moment.
type Marks struct {
	// Complete is the time up to which everything expected has been delivered.
	Complete int64
	// InTime is the time up to which nothing is late. It is the present if nothing is, even though the
	// next requests of the senders have yet to come.
	InTime int64
	// Late says what holds InTime back, the oldest first.
	Late []Late
}

// Late is one thing that is late.
type Late struct {
	Sender string // empty if it is not a sender
	Reason Reason
	Since  int64 // when the sender was last heard, or when the trouble began
	Mark   int64 // the time up to which it has delivered
}

// Reason says why something is late.
type Reason string

// The reasons.
const (
	Silent    Reason = "silent"  // a sender has missed its time to send
	Behind    Reason = "behind"  // a sender sends, but old samples: it drains a backlog
	Uneven    Reason = "uneven"  // a sender sends old samples besides fresh ones, which holds nothing back
	Refused   Reason = "refused" // we ask senders to send again later
	Queued    Reason = "queued"  // a request waits to be written
	Unwritten Reason = "windows" // windows wait for the journal
)

const (
	second = 1000 // in milliseconds

	// patience is how much later than usual something may be before it is late.
	patience = 5 * second

	// refusals is how long after the last refusal the refused senders may take to come again. Prometheus
	// tries again within 5 s.
	refusals = 10 * second

	// MaxSenders bounds the senders of a tenant that are watched.
	MaxSenders = 10_000
)

// All has the watermarks of the tenants with rules. It costs other tenants one look-up for a request. A
// nil All has none.
type All struct{ tenants sync.Map } // string to *Tenant

// Of returns the watermark of a tenant, or nil if the tenant is not watched.
func (a *All) Of(tenant string) *Tenant {
	if a == nil {
		return nil
	}
	t, _ := a.tenants.Load(tenant)
	of, _ := t.(*Tenant)
	return of
}

// All yields the watched tenants.
func (a *All) All() iter.Seq2[string, *Tenant] {
	return func(yield func(string, *Tenant) bool) {
		a.tenants.Range(func(name, t any) bool { return yield(name.(string), t.(*Tenant)) })
	}
}

// Watch returns the watermark of a tenant, which is watched from now on.
func (a *All) Watch(tenant string, timeout int64) *Tenant {
	t, _ := a.tenants.LoadOrStore(tenant, NewTenant(timeout))
	return t.(*Tenant)
}

// Tenant is the watermark of one tenant. Its methods are safe for concurrent use.
type Tenant struct {
	mu        sync.Mutex
	senders   map[Key]*state
	begun     map[int64]int // requests under way, by their arrival
	refused   span
	timeout   int64
	unwatched uint64
}

// span is a time of refusals. It is zero if there were none.
type span struct{ from, to int64 }

// NewTenant returns a watermark that nothing holds back. A sender that is silent for `timeout` no longer
// counts.
func NewTenant(timeout int64) *Tenant {
	return &Tenant{senders: map[Key]*state{}, begun: map[int64]int{}, timeout: timeout}
}

// SetTimeout changes how long a sender may be silent.
func (t *Tenant) SetTimeout(timeout int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timeout = timeout
}

// Begin notes that a request has arrived, and is now being written.
func (t *Tenant) Begin(at int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun[at]++
}

// Written notes that the request that arrived at `begun` is written, and when: queries see its samples.
// `newest` is the time of its newest sample.
func (t *Tenant) Written(k Key, begun, newest, now int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end(begun)
	s := t.senders[k]
	if s == nil {
		if len(t.senders) >= MaxSenders {
			t.unwatched++
			return
		}
		s = newState(now)
		t.senders[k.clone()] = s
	}
	s.sent(now, min(newest, now), t.timeout)
}

// Ended notes that the request that arrived at `begun` has ended, and says nothing about its sender.
func (t *Tenant) Ended(begun int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end(begun)
}

// SentBack notes that a sender was asked to send a request again later.
func (t *Tenant) SentBack(now int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.refused.lasts(now) {
		t.refused.from = now
	}
	t.refused.to = now
}

// Refusal says for how long senders have been asked to send again later, as ages in milliseconds.
type Refusal struct {
	Since int64 // since the first of them
	Last  int64 // since the last one, at most Since
}

// Refusing returns the tenants whose senders are asked to send again later. A nil All has none.
func (a *All) Refusing(now int64) (all map[string]Refusal) {
	if a == nil {
		return nil
	}
	for name, t := range a.All() {
		if r, is := t.refusing(now); is {
			if all == nil {
				all = map[string]Refusal{}
			}
			all[name] = r
		}
	}
	return all
}

func (t *Tenant) refusing(now int64) (r Refusal, is bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Refusal{now - t.refused.from, max(0, now-t.refused.to)}, t.refused.lasts(now)
}

// lasts reports whether refused senders may still hold data.
func (s span) lasts(now int64) bool { return s != (span{}) && now-s.to <= refusals }

// SentBackElsewhere notes that another node asks senders to send again later.
func (t *Tenant) SentBackElsewhere(now int64, r Refusal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	there := span{now - r.Since, now - r.Last}
	switch {
	case !there.lasts(now):
	case !t.refused.lasts(now):
		t.refused = there
	default:
		t.refused = span{min(t.refused.from, there.from), max(t.refused.to, there.to)}
	}
}

func (t *Tenant) end(begun int64) {
	if t.begun[begun]--; t.begun[begun] <= 0 {
		delete(t.begun, begun)
	}
}

// Gone removes the senders that were not heard for too long, and returns those that were expected to send: Refused if
// senders are asked to send again later, else Silent. It also returns senders that are newly found to send old samples
// besides fresh ones, for which rules do not wait: Uneven.
func (t *Tenant) Gone(now int64) (gone []Late) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, s := range t.senders {
		if s.uneven > 0 && !s.told {
			s.told = true
			gone = append(gone, Late{k.String(), Uneven, s.heard, s.newest})
		}
		if now-s.arrival < t.timeout {
			continue
		}
		delete(t.senders, k)
		if !s.expected() {
			continue
		}
		late := Late{k.String(), Silent, s.heard, s.newest}
		if t.refused.lasts(now) && t.refused.from <= s.arrival+s.allowance() {
			late.Reason, late.Since = Refused, t.refused.from
		}
		gone = append(gone, late)
	}
	slices.SortFunc(gone, byMark)
	return gone
}

// Unwatched returns how many requests came from senders beyond MaxSenders.
func (t *Tenant) Unwatched() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unwatched
}

// Marks returns the watermarks. `windows` is the time up to which all windows are folded.
func (t *Tenant) Marks(now, windows int64) Marks {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := Marks{Complete: min(now, windows), InTime: now}
	if now-windows > patience {
		m.late(Late{Reason: Unwritten, Since: windows, Mark: windows})
	}
	for at := range t.begun {
		m.Complete = min(m.Complete, at)
		if now-at > patience {
			m.late(Late{Reason: Queued, Since: at, Mark: at})
		}
	}
	refusing := t.refused.lasts(now) && now-t.refused.from < t.timeout
	if refusing {
		m.late(Late{Reason: Refused, Since: t.refused.from, Mark: t.refused.from})
	}
	for k, s := range t.senders {
		if !s.expected() || now-s.arrival >= t.timeout {
			continue
		}
		mark := s.mark()
		m.Complete = min(m.Complete, mark)
		switch {
		case s.awaited, now-s.arrival > s.allowance():
			m.late(Late{k.String(), Silent, s.heard, mark})
		case s.behind:
			m.late(Late{k.String(), Behind, s.heard, mark})
		case refusing && s.arrival < t.refused.from: // it holds data because we told it to
			m.late(Late{k.String(), Refused, s.heard, mark})
		}
	}
	slices.SortFunc(m.Late, byMark)
	return m
}

func (m *Marks) late(l Late) {
	m.Late = append(m.Late, l)
	m.InTime, m.Complete = min(m.InTime, l.Mark), min(m.Complete, l.Mark)
}
