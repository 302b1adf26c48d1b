// Package collector is the role that reads DogStatsD sockets and hands what it
// counted to the aggregator, once a second. Each listener has a table of its own
// and shares nothing until a window closes; one flusher turns windows into
// batches. Sockets are adapter/sockets' business, tables core/window's.
package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/adapter/sockets"
	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/event"
	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/core/placement"
	"github.com/freshet-io/freshet/internal/core/window"
)

// Aggregator takes the batches of a window.
type Aggregator interface {
	// Push returns nil once they are acknowledged. After an error none of them
	// counts, and they are pushed again unless it wraps batch.ErrRefused.
	Push(ctx context.Context, batches []batch.Batch) error
}

// Events takes what is no measurement.
type Events interface {
	Append(ctx context.Context, events []event.Event) error
}

// Names keeps the catalogue, so that a name's owner is the same after a restart.
type Names interface {
	Save([]catalogue.Entry) error
}

// Options are what a collector works with.
type Options struct {
	Config      Config
	Mapper      *mapping.Mapper
	Catalogue   *catalogue.Catalogue
	Names       Names
	Placement   *placement.Placement
	Aggregators map[string]Aggregator // by instance; one for each that owns shards
	Events      Events
	Sender      uint64 // this collector, the same after a restart
	Host        string // of events whose sender named none
	Now         func() time.Time
	Registry    prometheus.Registerer
	Logger      *slog.Logger
}

// Collector is the role's state.
type Collector struct {
	Options
	listeners []*listener
	closed    chan closedWindow
	flusher   *flusher
	reports   reports
}

// reports counts what the catalogue found worth telling.
type reports struct{ conflicts, forms, collisions, full atomic.Uint64 }

// New binds the sockets. It starts nothing; Close gives them back if Run is never
// called.
func New(o Options) (*Collector, error) {
	c := &Collector{Options: o}
	mode, err := o.Config.socketMode()
	if err != nil {
		return nil, fmt.Errorf("dogstatsd.socket_mode: %w", err)
	}
	for _, address := range o.Config.addresses() {
		readers := 1
		if address.Network == "udp" {
			readers = o.Config.Readers
		}
		bound, err := sockets.Listen(sockets.Config{
			Network: address.Network, Address: address.Address, Mode: mode,
			Listeners: readers, MaxPacket: int(o.Config.MaxPacket), ReceiveBuffer: int(o.Config.ReceiveBuffer),
		})
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		for _, socket := range bound {
			c.listeners = append(c.listeners, newListener(c, socket, address))
		}
	}
	// Each listener has at most one window in the channel, so none ever waits.
	c.closed = make(chan closedWindow, len(c.listeners))
	c.flusher = newFlusher(&c.Options, rand.Uint64())
	o.Registry.MustRegister(&exporter{c})
	return c, nil
}

// Close unbinds the sockets.
func (c *Collector) Close() error {
	var errs []error
	for _, l := range c.listeners {
		errs = append(errs, l.socket.Close())
	}
	return errors.Join(errs...)
}

// Listening is one bound socket, for those who tell where to send.
type Listening struct {
	Network, Address, Tenant string
	Warnings                 []string
}

// Listening returns the bound sockets in the order of the configuration.
func (c *Collector) Listening() []Listening {
	var all []Listening
	for _, l := range c.listeners {
		all = append(all, Listening{l.network, l.socket.Addr().String(), l.tenant, l.socket.Warnings()})
	}
	return all
}

// Run reads and flushes until ctx is done. Then it reads what the kernel has
// accepted already, and hands over everything, open windows included.
func (c *Collector) Run(ctx context.Context) error {
	var readers, flusher sync.WaitGroup
	errs := make([]error, len(c.listeners))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for i, l := range c.listeners {
		readers.Go(func() {
			if errs[i] = l.run(ctx); errs[i] != nil {
				stop() // one that cannot read must not go unnoticed
			}
		})
	}
	flusher.Go(func() { c.flusher.run(ctx, c.closed) })
	<-ctx.Done() // even with no socket to read, since an end before is a failure
	readers.Wait()
	// Every reader has handed over its last window: there will be no other.
	close(c.closed)
	flusher.Wait()
	return errors.Join(errs...)
}

// closedWindow is what a listener hands to the flusher.
type closedWindow struct {
	listener *listener
	window   *window.Window // nil if there are only events
	events   []event.Event
}
