package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/event"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/settings"
)

// runDiscarding stands in for runAggregator in a process that stores nothing.
func (s *server) runDiscarding(ctx context.Context) error {
	s.logger.Warn("nothing is stored: " + settings.NothingStored)
	discard := newDiscarding(s.ledger, s.registry)
	s.opening.open(discard, discard)
	<-ctx.Done()
	return nil
}

// runPushing stands in for runAggregator in a collector, which pushes to the nodes of a cluster.
func (s *server) runPushing(ctx context.Context) error {
	s.openGateway(nil)
	if !s.has(settings.RoleCollector) { // a gateway reads no sockets
		discard := newDiscarding(s.ledger, s.registry)
		s.opening.open(discard, discard)
		<-ctx.Done()
		return nil
	}
	out, err := s.openOutbox()
	if err != nil {
		s.opening.fail()
		return err
	}
	s.openEvents(s.gateway)
	s.opening.open(out, s.outgoing)
	sent := make(chan error, 1)
	go func() { sent <- s.outgoing.Run(ctx) }()
	err = out.Run(ctx)
	return errors.Join(err, <-sent)
}

// discarding stands in for the aggregator and the event log in a process that stores nothing.
type discarding struct {
	ledger *ledger.Ledger
	events prometheus.Counter
}

func newDiscarding(books *ledger.Ledger, reg prometheus.Registerer) discarding {
	return discarding{books, promauto.With(reg).NewCounter(prometheus.CounterOpts{Name: "freshet_discarded_events_total",
		Help: "Events that this process read and discarded, because it has only the role collector."})}
}

// Push implements collector.Aggregator.
func (d discarding) Push(_ context.Context, batches []batch.Batch) error {
	for _, b := range batches {
		h, err := batch.ParseHeader(b.Bytes)
		if err != nil {
			return fmt.Errorf("%w: %w", batch.ErrRefused, err)
		}
		d.ledger.Post(string(h.Tenant), ledger.Transfer{
			From: ledger.Window, To: ledger.Discarded, Reason: reasonNoAggregator, Samples: b.Samples,
		})
	}
	return nil
}

// Through implements collector.Aggregator.
func (d discarding) Through(int64) {}

// Append implements collector.Events.
func (d discarding) Append(_ context.Context, events []event.Event) error {
	d.events.Add(float64(len(events)))
	return nil
}
