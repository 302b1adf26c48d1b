package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/lib/build"
	"github.com/freshet-io/freshet/internal/role/distributor"
	"github.com/freshet-io/freshet/internal/role/forwarder"
	"github.com/freshet-io/freshet/internal/settings"
)

// openForwarders opens the queues of all backends, below forward/ in the data directory.
func (s *server) openForwarders() error {
	for _, b := range s.config.Forward.Backends {
		var dirs []segment.FS
		for i := 0; ; i++ {
			path := s.path("forward", b.Name, strconv.Itoa(i))
			if _, err := os.Stat(path); i >= max(1, b.Connections) && errors.Is(err, os.ErrNotExist) {
				break // the loop also opens queues that are left from a larger number of connections
			}
			dir, err := files.Open(path)
			if err != nil {
				return fmt.Errorf("queue of backend %s: %w", b.Name, err)
			}
			dirs = append(dirs, dir)
		}
		f, err := forwarder.New(forwarder.Options{
			Backend: b, Dirs: dirs, UserAgent: build.UserAgent(),
			Group: s.inGroup(), Registry: s.registry, Logger: s.logger,
		})
		if err != nil {
			return err
		}
		s.forwarders = append(s.forwarders, f)
	}
	return nil
}

// runForwarders sends until ctx is done. By then everything that pushes to the queues has ended.
func (s *server) runForwarders(ctx context.Context) error {
	var all errgroup.Group
	for _, f := range s.forwarders {
		all.Go(func() error { return f.Run(ctx) })
	}
	<-ctx.Done()
	return all.Wait()
}

// backend adapts a forwarder to the interface of the distributor.
type backend struct {
	*forwarder.Forwarder
	config settings.Backend
}

// Push implements distributor.Backend.
func (b backend) Push(from entry.Span, tenant string, version int, parts outcome.Counts, body []byte) error {
	return b.Forwarder.Push(forwarder.Request{
		Span: from, Tenant: tenant, Version: version, Samples: parts.Samples, Histograms: parts.Histograms, Body: body,
	})
}

// TakesRequests implements distributor.Backend.
func (b backend) TakesRequests() bool { return b.config.TakesRequests() }

// TakesTiles implements distributor.Backend.
func (b backend) TakesTiles(width tile.Width) bool { return b.config.TakesTiles(width.String()) }

// backends returns all backends.
func (s *server) backends() (all []distributor.Backend) {
	for i, f := range s.forwarders {
		all = append(all, backend{f, s.config.Forward.Backends[i]})
	}
	return all
}

// groupBackends adapts the forwarders to the interface of a group.
type groupBackends struct {
	*distributor.Distributor
	forwarders []*forwarder.Forwarder
}

// Lead implements group.Backends.
func (b groupBackends) Lead(leads bool) {
	for _, f := range b.forwarders {
		f.Lead(leads)
	}
}

// Settle implements group.Backends.
func (b groupBackends) Settle(of func(backend string) uint64) {
	for _, f := range b.forwarders {
		f.Settle(of(f.Name()))
	}
}

// Reached implements group.Backends.
func (b groupBackends) Reached(unstored uint64) map[string]uint64 {
	all := map[string]uint64{}
	for _, f := range b.forwarders {
		all[f.Name()] = f.Reached(unstored)
	}
	return all
}
