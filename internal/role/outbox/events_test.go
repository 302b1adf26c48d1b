package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/event"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/outcome"
)

// eventsGroup is a group that takes events, and recognizes those that come again.
type eventsGroup struct {
	mu     sync.Mutex
	err    error // the answer to each call
	counts bool  // calls that get err count nevertheless
	full   bool  // there is no room for tenants
	seen   map[uint64]bool
	titles []string
	calls  int
}

func (g *eventsGroup) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

func (g *eventsGroup) Write(_ context.Context, e *entry.Entry) (*outcome.Outcome, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls++
	if err := member.CheckEvents(&e.Events); e.Kind != entry.KindEvents || err != nil {
		panic(fmt.Sprint(e.Kind, err))
	}
	o := new(outcome.Outcome)
	if (g.err == nil || g.counts) && !g.seen[e.Events.Hash] && !g.full {
		g.seen[e.Events.Hash] = true
		for part := range e.Events.List.All() {
			var one event.Event
			if err := one.ParseDated(part); err != nil {
				panic(err)
			}
			g.titles = append(g.titles, e.Events.Tenant+" "+one.Title)
		}
	}
	if g.full {
		o.Refuse(outcome.TooManyTenants, outcome.Counts{Samples: 1})
	}
	return o, g.err
}

// startEvents runs Events in a synctest bubble. stop ends them.
func startEvents(t *testing.T) (g *eventsGroup, e *Events, stop func()) {
	g = &eventsGroup{seen: map[uint64]bool{}}
	e = NewEvents(EventsOptions{Leader: g, Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- e.Run(ctx) }()
	return g, e, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func (e *Events) lostFor(reason string) float64 {
	return testutil.ToFloat64(e.lost.WithLabelValues(reason))
}

func appendTitles(t *testing.T, e *Events, tenant string, titles ...string) {
	t.Helper()
	var all []event.Event
	for _, title := range titles {
		all = append(all, event.Event{Tenant: tenant, Title: title})
	}
	if err := e.Append(t.Context(), all); err != nil {
		t.Fatal(err)
	}
}

// Events reach the leader once and in order, even if answers are lost, or there is no leader for a
// while.
func TestEventsReachTheLeaderOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, e, stop := startEvents(t)
		if err := e.Append(t.Context(), []event.Event{
			{Tenant: "a", Title: "1"}, {Tenant: "b", Title: "1"}, {Tenant: "a", Title: "2"},
		}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		g.set(func() { g.err, g.counts = fmt.Errorf("the answer: %w", member.ErrLost), true })
		appendTitles(t, e, "a", "3")
		time.Sleep(5 * time.Minute)
		g.set(func() { g.err, g.counts = errors.New("no leader"), false })
		appendTitles(t, e, "a", "4")
		time.Sleep(3 * time.Minute)
		g.set(func() { g.err = nil })
		time.Sleep(2 * time.Second)
		stop()
		if want := []string{"a 1", "a 2", "b 1", "a 3", "a 4"}; !slices.Equal(g.titles, want) {
			t.Errorf("the leader has %q, want %q", g.titles, want)
		}
		for _, reason := range []string{lostFull, lostForgotten, lostTenants, lostStop} {
			if n := e.lostFor(reason); n != 0 {
				t.Errorf("%v events are lost for the reason %s, want 0", n, reason)
			}
		}
	})
}

// Events that cannot reach a leader are counted.
func TestLostEventsAreCounted(t *testing.T) {
	many := strings.Split(strings.Repeat("x,", maxEvents/10-1)+"x", ",")
	for reason, lost := range map[string]func(g *eventsGroup, e *Events) (want float64){
		lostForgotten: func(g *eventsGroup, e *Events) float64 {
			g.set(func() { g.err = member.ErrUnknown })
			appendTitles(t, e, "a", "1", "2")
			synctest.Wait()
			g.set(func() { g.err = errors.New("no leader") })
			time.Sleep(forgettingEvents + time.Minute)
			return 2
		},
		lostFull: func(g *eventsGroup, e *Events) float64 {
			g.set(func() { g.err = errors.New("no leader") })
			for range 12 {
				appendTitles(t, e, "a", many...)
			}
			return float64(2 * len(many))
		},
		lostTenants: func(g *eventsGroup, e *Events) float64 {
			g.set(func() { g.full = true })
			appendTitles(t, e, "a", "1", "2", "3")
			synctest.Wait()
			return 3
		},
		lostStop: func(g *eventsGroup, e *Events) float64 {
			g.set(func() { g.err = errors.New("no leader") })
			appendTitles(t, e, "a", "1")
			return 1
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			g, e, stop := startEvents(t)
			want := lost(g, e)
			if reason == lostStop {
				stop()
			}
			if got := e.lostFor(reason); got != want {
				t.Errorf("%s: %v events are counted, want %v", reason, got, want)
			}
			if reason != lostStop {
				stop()
			}
		})
	}
}

// The process ends once a leader has taken what waits, or after 3 s.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, e, stop := startEvents(t)
		defer stop()
		appendTitles(t, e, "a", "1")
		if e.Drain(); len(g.titles) != 1 {
			t.Errorf("the leader has %q", g.titles)
		}
		g.set(func() { g.err = errors.New("no leader") })
		appendTitles(t, e, "a", "2")
		begun := time.Now()
		if e.Drain(); time.Since(begun) < stopTime || e.lostFor(lostStop) != 1 {
			t.Errorf("Drain lost %v events after %v, want 1 after at least 3 s", e.lostFor(lostStop), time.Since(begun))
		}
	})
}
