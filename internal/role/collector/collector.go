package collector

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"

	"github.com/freshet-io/freshet/internal/settings"
)

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
	buffer  int // receive buffer of UDP sockets in the present configuration, bytes

	mu       sync.Mutex
	inputs   []*input // in the order of the configuration; changed by Run
	failure  error    // of readers
	watchers int      // callers that want senders to be known
}

// input is the sockets of one address.
type input struct {
	address   address
	listeners []*listener
}

// New binds the sockets. It starts nothing. Close releases them if Run is never called.
func New(o Options) (*Collector, error) {
	c := &Collector{
		Options: o,
		// Each listener has at most one window in the channel. Twice the room, for listeners
		// that a reload removes.
		closed:  make(chan closedWindow, 2*settings.MaxSockets),
		reloads: make(chan *Reload),
		windows: newProgress(),
	}
	r, err := c.Prepare(o.Config, o.Mapper, o.Host)
	if err != nil {
		return nil, err
	}
	c.inputs, c.buffer = r.inputs, r.buffer
	c.top = newTops(c.Now, c.watchSenders)
	c.flusher = newFlusher(&c.Options, c.windows, &c.top.metrics, rand.Uint64())
	c.limits = &limits{Options: &c.Options, watch: c.watchSenders, listensFor: c.listensFor, told: map[offence]*telling{}, others: map[string]int64{}}
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

// listeners returns the listeners of all inputs.
func (c *Collector) listeners() (all []*listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, in := range c.inputs {
		all = append(all, in.listeners...)
	}
	return all
}

// Listening is one bound socket, for log and API.
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

// Run reads and flushes until ctx is done. Then it reads what the kernel has already accepted,
// and hands over everything, including open windows.
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
	for ctx.Err() == nil { // even without a socket, since an early end is a failure
		select {
		case r := <-c.reloads:
			c.change(ctx, stop, r)
		case <-ctx.Done():
		}
	}
	c.readers.Wait()
	// Every reader has handed over its last window: there will be no more.
	close(c.closed)
	flusher.Wait()
	looking.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}

// read starts reading a listener, until ctx is done or a reload removes it. A read failure
// stops the whole collector, so that it is noticed.
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

// Reload is another configuration that is checked and whose sockets are bound, but is not in
// force yet. Apply or Abandon ends it.
type Reload struct {
	collector *Collector
	inputs    []*input // the inputs to read, including those read already
	bound     []*listener
	terms     map[*input]*terms
	buffer    int           // kernel receive buffer of UDP sockets, bytes
	done      chan struct{} // closed once Run has taken it over
}

// exporter reads the listeners' counts at each scrape, so counting costs the reading threads
// nothing more.
type exporter struct{ *Collector }
