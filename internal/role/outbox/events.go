package outbox

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/event"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/lib/retry"
)

// EventsLeader is the leader of the group, wherever it is.
type EventsLeader interface {
	// Write hands over an entry with events, and waits until it counts. The error is member.ErrLost or ErrUnknown
	// if it may count nevertheless.
	Write(ctx context.Context, e *entry.Entry) (*outcome.Outcome, error)
}

// EventsOptions are the parts of Events. All are required.
type EventsOptions struct {
	Leader   EventsLeader
	Registry prometheus.Registerer
	Logger   *slog.Logger
}

const (
	// maxEvents bounds the events that wait in memory for a leader, as many as in one window of a collector.
	maxEvents = 10_000

	// eventsBytes bounds an entry with events. A single event is much smaller.
	eventsBytes = 512 << 10

	// forgettingEvents bounds the time from the first try whose answer was lost to the last try. The
	// group recognizes repeated events for seen.Keep, which is 10 minutes.
	forgettingEvents = 9 * time.Minute
)

// Reasons for which events are lost.
const (
	lostFull      = "full"
	lostForgotten = "forgotten"
	lostTenants   = "tenants"
	lostStop      = "stop"
)

// Events hands the events of a collector to the leader of a group. They wait in memory while there is no leader.
// Those that come again at another leader count once.
type Events struct {
	EventsOptions
	lost    *prometheus.CounterVec
	wake    chan struct{} // signals events that were appended
	backoff retry.Backoff

	mu      sync.Mutex
	waiting []*heldEvents // oldest first; the first may be on its way
	count   int           // of the events in waiting
}

// heldEvents is an entry that waits.
type heldEvents struct {
	entry entry.Events
	count int
	tried time.Time // of the first try whose answer was lost; zero if there was none
}

// NewEvents returns Events. Run sends them.
func NewEvents(o EventsOptions) *Events {
	m := promauto.With(o.Registry)
	e := &Events{EventsOptions: o, wake: make(chan struct{}, 1),
		backoff: retry.Backoff{Min: 50 * time.Millisecond, Max: time.Second},
		lost: m.NewCounterVec(prometheus.CounterOpts{Name: "freshet_outbox_lost_events_total",
			Help: "Events of this process' collector that no node of the cluster has. full: no leader took them before 10,000 " +
				"events waited. forgotten: the answer was lost, and there was no leader for 9 minutes after that. tenants: " +
				"store.max_tenants has no room for their tenant. stop: the process ended before a leader took them."},
			[]string{"reason"}),
	}
	for _, reason := range []string{lostFull, lostForgotten, lostTenants, lostStop} {
		e.lost.WithLabelValues(reason) // with the value 0, so that queries see the first increase
	}
	m.NewGaugeFunc(prometheus.GaugeOpts{Name: "freshet_outbox_waiting_events",
		Help: "Events in memory that no leader has acknowledged yet. At 10,000 the oldest are given up."},
		func() float64 {
			e.mu.Lock()
			defer e.mu.Unlock()
			return float64(e.count)
		})
	return e
}

// Append implements collector.Events. It does not wait for the leader.
func (e *Events) Append(_ context.Context, events []event.Event) error {
	if len(events) == 0 {
		return nil
	}
	open := map[string]*heldEvents{} // by tenant
	var all []*heldEvents
	for i := range events {
		one := &events[i]
		h := open[one.Tenant]
		if h == nil || h.count == member.MaxEvents || len(h.entry.List) > eventsBytes {
			h = &heldEvents{entry: entry.Events{Tenant: one.Tenant, Hash: rand.Uint64()}}
			open[one.Tenant] = h
			all = append(all, h)
		}
		h.entry.List = h.entry.List.Append(one.AppendDated(nil))
		h.count++
	}
	e.mu.Lock()
	e.waiting = append(e.waiting, all...)
	e.count += len(events)
	given := 0
	for e.count > maxEvents && len(e.waiting) > 1 {
		given += e.waiting[0].count
		e.pop()
	}
	e.mu.Unlock()
	e.lose(given, lostFull, nil)
	select {
	case e.wake <- struct{}{}:
	default: // Run is already signalled
	}
	return nil
}

// pop removes the oldest events. The caller holds mu.
func (e *Events) pop() {
	e.count -= e.waiting[0].count
	e.waiting[0] = nil // frees it
	e.waiting = e.waiting[1:]
}

// first returns the oldest events, or nil.
func (e *Events) first() *heldEvents {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.waiting) == 0 {
		return nil
	}
	return e.waiting[0]
}

// done removes events, unless they were given up meanwhile. It reports whether it removed them.
func (e *Events) done(h *heldEvents) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.waiting) == 0 || e.waiting[0] != h {
		return false
	}
	e.pop()
	return true
}

func (e *Events) lose(n int, reason string, cause error) {
	if n > 0 {
		e.lost.WithLabelValues(reason).Add(float64(n))
		e.Logger.Error("events are lost", "events", n, "reason", reason, "error", cause)
	}
}

// Run hands over the waiting events until ctx is done, and a little longer.
func (e *Events) Run(ctx context.Context) error {
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stopTime, stop) })()
	var saidAt time.Time
	for sending.Err() == nil {
		h := e.first()
		if h == nil {
			if ctx.Err() != nil {
				break
			}
			select {
			case <-e.wake:
			case <-ctx.Done():
			}
			continue
		}
		err := e.send(sending, h)
		if err == nil {
			e.backoff.Reset()
			continue
		}
		if time.Since(saidAt) >= time.Minute {
			saidAt = time.Now()
			e.Logger.Warn("events wait until a leader takes them", "events", h.count, "error", err)
		}
		_ = retry.Wait(sending, e.backoff.Next()) // the loop checks the context
	}
	e.loseAll()
	return nil
}

// Drain waits until no events are left, or until stopTime is over. The remaining events are lost with
// the process.
func (e *Events) Drain() {
	for deadline := time.Now().Add(stopTime); e.first() != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			e.loseAll()
			return
		}
	}
}

// loseAll gives up all events.
func (e *Events) loseAll() {
	e.mu.Lock()
	left := e.count
	e.waiting, e.count = nil, 0
	e.mu.Unlock()
	e.lose(left, lostStop, nil)
}

// send tries once to hand over events. The error says why they still wait.
func (e *Events) send(ctx context.Context, h *heldEvents) error {
	if !h.tried.IsZero() && time.Since(h.tried) > forgettingEvents {
		if e.done(h) {
			e.lose(h.count, lostForgotten, nil)
		}
		return nil
	}
	trying, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	began := time.Now()
	// The entry must not change while a call uses it, which may be after its context has ended.
	o, err := e.Leader.Write(trying, &entry.Entry{Kind: entry.KindEvents, Events: h.entry})
	if err != nil {
		if h.tried.IsZero() && (errors.Is(err, member.ErrLost) || errors.Is(err, member.ErrUnknown)) {
			h.tried = began
		}
		return err
	}
	if e.done(h) && o.NoTenant() {
		e.lose(h.count, lostTenants, nil)
	}
	return nil
}
