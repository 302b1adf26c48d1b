package collector

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
)

// Collector is the role's state.
type Collector struct {
	shared
	reloads chan *Reload
	readers sync.WaitGroup
	limits  *limits
	buffer  int // receive buffer of UDP sockets in the present configuration, bytes

	mu       sync.Mutex
	inputs   []*input // in the order of the configuration; changed by Run
	failure  error    // errors of readers
	watchers int      // callers that want reports of senders
}

// input has the sockets of one address.
type input struct {
	address   address
	listeners []*listener
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

// Listening describes one bound socket, for the log and the API.
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

// read starts to read a listener in a goroutine, which ends when ctx is done or a reload removes the
// listener. A read failure stops the whole collector, so that an operator notices the failure.
func (c *Collector) read(ctx context.Context, stopAll func(), l *listener) {
	ctx, l.stop = context.WithCancel(ctx)
	c.watchNew(l)
	c.windows.begin(l.mark, c.Now().Unix())
	c.readers.Go(func() {
		defer close(l.ended)
		defer c.windows.end(l.mark)
		defer l.stop()
		if err := l.run(ctx); err != nil {
			c.mu.Lock()
			c.failure = errors.Join(c.failure, err)
			c.mu.Unlock()
			stopAll()
		}
	})
}

// Tap opens a tap. The caller must close it.
func (c *Collector) Tap(o TapOptions) (*Tap, error) { return c.taps.begin(o, c.watchSenders) }

// watchSenders counts the callers that want reports of senders. Sockets report senders while there is
// such a caller.
func (c *Collector) watchSenders(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.watchers > 0
	if on {
		c.watchers++
	} else {
		c.watchers--
	}
	if before == (c.watchers > 0) {
		return
	}
	for _, in := range c.inputs {
		for _, l := range in.listeners {
			c.watch(l, on)
		}
	}
}

// watchNew makes a new listener report senders, if a caller wants them.
func (c *Collector) watchNew(l *listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watchers > 0 {
		c.watch(l, true)
	}
}

func (c *Collector) watch(l *listener, on bool) {
	if err := l.socket.Watch(on); err != nil && !errors.Is(err, net.ErrClosed) {
		c.Logger.Warn("the senders to a socket cannot be identified", "error", err)
	}
}

// Renew lets each listener resolve its contexts again from its next window on, since more is known of pods. After a
// reload at the same time they are resolved again anyway.
func (c *Collector) Renew() {
	for _, l := range c.listeners() {
		now := l.next.Load()
		again := *now
		l.next.CompareAndSwap(now, &again)
	}
}

// listensFor reports whether a tenant has a listener.
func (c *Collector) listensFor(tenant string) bool {
	return slices.ContainsFunc(c.listeners(), func(l *listener) bool { return l.next.Load().tenant == tenant })
}

// Reload is a new configuration that is checked and whose sockets are bound, but that is not in
// force yet. The caller must call Apply or Abandon.
type Reload struct {
	collector *Collector
	inputs    []*input // all inputs to read, including inputs that are already read
	bound     []*listener
	terms     map[*input]*terms
	buffer    int           // kernel receive buffer of UDP sockets, bytes
	done      chan struct{} // Run closes it when the reload is in force
}
