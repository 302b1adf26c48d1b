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

// Reload is another configuration, checked and with its sockets bound, that is
// not in force yet: either Apply or Abandon ends it.
type Reload struct {
	collector *Collector
	inputs    []*input // what is to be read; those that are read already among them
	bound     []*listener
	terms     map[*input]*terms
	buffer    int           // kernel receive buffer of UDP sockets, bytes
	done      chan struct{} // closed once Run has taken it over
}

// exporter reads the listeners' counts when somebody asks: counting them costs
// the reading threads nothing.
type exporter struct{ *Collector }
