package collector

import (
	"context"
	"math/rand/v2"
	"sync"

	"github.com/freshet-io/freshet/internal/settings"
)

// New binds the sockets, and starts nothing. If Run is never called, Close releases the sockets.
func New(o Options) (*Collector, error) {
	c := &Collector{
		shared: shared{
			Options: o,
			// Each listener has at most one window in the channel. There is room for twice as many,
			// since each listener that a reload removes hands over a last window.
			closed:  make(chan closedWindow, 2*settings.MaxSockets),
			windows: newProgress(),
		},
		reloads: make(chan *Reload),
	}
	r, err := c.Prepare(o.Config, o.Mapper, o.Host)
	if err != nil {
		return nil, err
	}
	c.inputs, c.buffer = r.inputs, r.buffer
	c.top = newTops(c.Now, c.watchSenders)
	c.flusher = newFlusher(&c.Options, c.windows, &c.top.metrics, rand.Uint64())
	c.limits = &limits{
		Options: &c.Options, watch: c.watchSenders, listensFor: c.listensFor, told: map[offence]*telling{},
		others: map[string]int64{},
	}
	o.Registry.MustRegister(&exporter{&c.shared, c.listeners}, &c.taps, c.limits, c.top)
	return c, nil
}

// Through returns the time, in Unix milliseconds, before which all windows were pushed.
func (c *Collector) Through() int64 { return c.windows.through(c.Now().Unix()) * 1000 }

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
	for ctx.Err() == nil { // also without any socket, since Run must not end before ctx is done
		select {
		case r := <-c.reloads:
			c.change(ctx, stop, r)
		case <-ctx.Done():
		}
	}
	c.readers.Wait()
	// Every reader has handed over its last window, so there will be no more.
	close(c.closed)
	flusher.Wait()
	looking.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}
