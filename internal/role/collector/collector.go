package collector

import (
	"context"
	"errors"
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
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/core/probe"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/window"
	"github.com/freshet-io/freshet/internal/settings"
)

// Aggregator takes the batches of a window.
type Aggregator interface {
	// Push returns nil once they are acknowledged. After an error none of them
	// counts, and they are pushed again unless it wraps batch.ErrRefused, or is a
	// batch.FullError: those of the tenants that it names are refused then, the
	// others count.
	Push(ctx context.Context, batches []batch.Batch) error
	// Through says that a producer has pushed all windows that end at or before t, Unix
	// milliseconds. It is called about once a second by any goroutine, and does not wait.
	Through(producer uint64, t int64)
}

// Events takes what is no measurement.
type Events interface {
	Append(ctx context.Context, events []event.Event) error
}

// CatalogueFile keeps the catalogue, so that a name's owner is the same after a restart.
type CatalogueFile interface {
	Save([]catalogue.Entry) error
	Forget([]catalogue.Entry) error
}

// Options are what a collector works with. A reload changes Config, Mapper and Host.
type Options struct {
	Config        settings.DogStatsD
	Mapper        *mapping.Mapper
	Catalogue     *catalogue.Catalogue
	Limiter       *limit.Limiter
	CatalogueFile CatalogueFile
	Ledger        *ledger.Ledger
	Watch         *stage.Watch // nil for none
	Aggregator    Aggregator
	Events        Events
	Producer      uint64      // the number of this collector, the same after a restart
	Connections   int         // open at once on all Unix stream sockets together; 0 for as many as each takes
	Host          string      // of events whose sender named none
	Probe         *probe.Mark // on what Freshet sends itself; nil for nothing
	Now           func() time.Time
	Registry      prometheus.Registerer
	Logger        *slog.Logger

	// Inherited returns the sockets for an address of Config that are open already.
	// nil: there are none.
	Inherited func(network, address string) []sockets.Inherited
}

// Collector is the role's state.
type Collector struct {
	Options
	closed  chan closedWindow
	reloads chan *Reload
	flusher *flusher
	windows *progress
	reports reports
	readers sync.WaitGroup
	taps    taps
	limits  *limits
	top     *tops
	buffer  int // receive buffer of UDP sockets by the configuration in force, bytes

	mu       sync.Mutex
	inputs   []*input // in the order of the configuration; changed by Run
	failure  error    // of readers
	watchers int      // who want to know who sends
}

// input is the sockets of one address.
type input struct {
	address   address
	listeners []*listener
}

// address is where a socket listens. Two cannot be the same.
type address struct{ network, address string }

func addressOf(l settings.Listener) address { return address{l.Network, l.Address} }

// reports counts what the catalogue found worth telling.
type reports struct{ conflicts, forms, collisions, full atomic.Uint64 }

// New binds the sockets. It starts nothing; Close gives them back if Run is never
// called.
func New(o Options) (*Collector, error) {
	c := &Collector{
		Options: o,
		// Each listener has at most one window in the channel. Those that a reload
		// removed add theirs, so that there is room for twice as many.
		closed:  make(chan closedWindow, 2*settings.MaxSockets),
		reloads: make(chan *Reload),
		windows: newProgress(),
	}
	r, err := c.Prepare(o.Config, o.Mapper, o.Host)
	if err != nil {
		return nil, err
	}
	c.inputs, c.buffer = r.inputs, r.buffer
	c.top = newTops(c)
	c.flusher = newFlusher(&c.Options, c.windows, &c.top.metrics, rand.Uint64())
	c.limits = &limits{collector: c, told: map[offence]*telling{}, others: map[string]int64{}}
	o.Registry.MustRegister(&exporter{c}, &c.taps, c.limits, c.top)
	return c, nil
}

// Close unbinds the sockets.
func (c *Collector) Close() error {
	var errs []error
	for _, l := range c.listeners() {
		errs = append(errs, l.socket.Close())
	}
	return errors.Join(errs...)
}

// listeners are those of all inputs.
func (c *Collector) listeners() (all []*listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, in := range c.inputs {
		all = append(all, in.listeners...)
	}
	return all
}

// Listening is one bound socket, for those who tell where to send.
type Listening struct {
	Network, Address, Tenant string
	Warnings                 []string
}

// Listening returns the bound sockets in the order of the configuration.
func (c *Collector) Listening() []Listening {
	var all []Listening
	for _, l := range c.listeners() {
		all = append(all, Listening{l.address.network, l.socket.Addr().String(), l.next.Load().tenant, l.socket.Warnings()})
	}
	return all
}

// Run reads and flushes until ctx is done. Then it reads what the kernel has
// accepted already, and hands over everything, open windows included.
func (c *Collector) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var flusher, looking sync.WaitGroup
	flusher.Go(func() { c.flusher.run(ctx, c.closed) })
	looking.Go(func() { c.limits.run(ctx) })
	looking.Go(func() { c.top.run(ctx) })
	for _, l := range c.listeners() {
		c.read(ctx, stop, l)
	}
	for ctx.Err() == nil { // even with no socket to read, since an end before is a failure
		select {
		case r := <-c.reloads:
			c.change(ctx, stop, r)
		case <-ctx.Done():
		}
	}
	c.readers.Wait()
	// Every reader has handed over its last window: there will be no other.
	close(c.closed)
	flusher.Wait()
	looking.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}

// read starts to read a listener, until ctx is done or a reload removes it. One
// that cannot read stops all, since it must not go unnoticed.
func (c *Collector) read(ctx context.Context, stopAll func(), l *listener) {
	ctx, l.stop = context.WithCancel(ctx)
	c.watchNew(l)
	c.windows.begin(l, c.Now().Unix())
	c.readers.Go(func() {
		defer close(l.ended)
		defer c.windows.end(l)
		defer l.stop()
		if err := l.run(ctx); err != nil {
			c.mu.Lock()
			c.failure = errors.Join(c.failure, err)
			c.mu.Unlock()
			stopAll()
		}
	})
}

// closedWindow is what a listener hands to the flusher.
type closedWindow struct {
	listener *listener
	tenant   string
	at       time.Time      // when it was closed
	window   *window.Window // nil if nothing happened in it
	probed   *window.Window // of the probes; nil for none
	left     *window.Table  // the table that it was the last window of, to be released; nil if it is in use
	events   []event.Event
}
