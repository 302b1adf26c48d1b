package collector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/sockets"
	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/settings"
)

// Prepare does every step of a reload that can fail, and changes nothing that is in force. A reload
// must end before the next one is prepared.
func (c *Collector) Prepare(config settings.DogStatsD, mapper *mapping.Mapper, host string) (*Reload, error) {
	mode, err := config.Mode()
	if err != nil {
		return nil, fmt.Errorf("dogstatsd.socket_mode: %w", err)
	}
	r := &Reload{collector: c, terms: map[*input]*terms{}, buffer: int(config.ReceiveBuffer), done: make(chan struct{})}
	c.mu.Lock()
	left := slices.Clone(c.inputs)
	c.mu.Unlock()
	for _, wanted := range config.Sockets() {
		t := &terms{
			tenant: wanted.Tenant, mapper: mapper, host: host,
			relativeGauges: config.RelativeGauges, idleWindows: uint32(config.IdleContexts / time.Second),
		}
		if at := slices.IndexFunc(left, func(in *input) bool { return in.address == addressOf(wanted) }); at >= 0 {
			if now := left[at].listeners[0].next.Load(); now.same(t) {
				t = now // the terms are the same, so the listener keeps its table and its known contexts
			}
			r.inputs = append(r.inputs, left[at])
			r.terms[left[at]] = t
			left = slices.Delete(left, at, at+1)
			continue
		}
		readers := 1
		if wanted.Network == "udp" {
			readers = config.Readers
		}
		var timed func(sockets.Timing)
		if c.Watch != nil {
			timed = c.timed
		}
		in, err := c.bind(addressOf(wanted), t, sockets.Config{
			Network: wanted.Network, Address: wanted.Address, Mode: mode,
			Listeners: readers, MaxPacket: int(config.MaxPacket), ReceiveBuffer: int(config.ReceiveBuffer), GRO: config.GRO,
			Inherited: c.inherited(wanted), Timed: timed, Connections: c.connections(config),
		})
		if err != nil {
			return nil, errors.Join(err, r.Abandon())
		}
		r.inputs = append(r.inputs, in)
		r.bound = append(r.bound, in.listeners...)
	}
	return r, nil
}

func (c *Collector) bind(a address, t *terms, config sockets.Config) (*input, error) {
	bound, err := sockets.Listen(config)
	if err != nil {
		return nil, err
	}
	in := &input{address: a}
	for _, socket := range bound {
		in.listeners = append(in.listeners, newListener(&c.shared, socket, a, t))
	}
	return in, nil
}

// Abandon releases the sockets that Prepare bound.
func (r *Reload) Abandon() error {
	var errs []error
	for _, l := range r.bound {
		errs = append(errs, l.socket.Close())
	}
	return errors.Join(errs...)
}

// Apply puts the configuration in force. Listeners that stay use it from their next window on, and
// new listeners are read. When Apply returns, removed listeners have handed over everything, unless
// ctx was done before.
func (r *Reload) Apply(ctx context.Context) error {
	before := r.collector.listeners()
	select {
	case r.collector.reloads <- r:
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("reload: %w", context.Cause(ctx)), r.Abandon())
	}
	<-r.done
	after := r.collector.listeners()
	for _, l := range before {
		if slices.Contains(after, l) {
			continue
		}
		select {
		case <-l.ended:
		case <-ctx.Done():
			return nil // the removed listener ends later
		}
	}
	return nil
}

// change puts a reload in force. Run calls it.
func (c *Collector) change(ctx context.Context, stopAll func(), r *Reload) {
	defer close(r.done)
	c.mu.Lock()
	before := c.inputs
	c.inputs = r.inputs
	c.mu.Unlock()
	for _, in := range before {
		t := r.terms[in]
		for _, l := range in.listeners {
			if t == nil {
				l.stop()
				continue
			}
			if !l.next.Load().same(t) { // Renew may have made the same terms anew
				l.next.Store(t)
			}
			if r.buffer == c.buffer {
				continue // an inherited socket may have a larger buffer, which must not shrink
			}
			if err := l.socket.SetReceiveBuffer(r.buffer); err != nil {
				c.Logger.Error("the receive buffer of a socket could not be changed", "error", err)
			}
		}
	}
	c.buffer = r.buffer
	for _, l := range r.bound {
		c.read(ctx, stopAll, l)
	}
}

// connections returns how many connections may be open on one Unix stream socket. 0 means the
// socket's own limit.
func (c *Collector) connections(config settings.DogStatsD) int {
	streams := 0
	for _, l := range config.Sockets() {
		if l.Network == "unix" {
			streams++
		}
	}
	if c.Connections == 0 || streams == 0 {
		return 0
	}
	return min(sockets.DefaultConnections, max(1, c.Connections/streams))
}
