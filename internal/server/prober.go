package server

import (
	"context"
	"net/http"

	"github.com/freshet-io/freshet/internal/role/prober"
)

// openProber builds the probe, which measures freshness.
func (s *server) openProber() error {
	s.prober = prober.New(prober.Options{
		Targets: s.probed, Write: http.HandlerFunc(s.receiver.RemoteWrite), Query: s.newest,
		Mark: s.collector.Probe, Registry: s.registry, Logger: s.logger,
	})
	return nil
}

func (s *server) runProber(ctx context.Context) error { return s.prober.Run(ctx) }

// probed returns the sockets to which probes can be sent. A probe is a datagram, so stream sockets are
// left out.
func (s *server) probed() (all []prober.Target) {
	for _, l := range s.collector.Listening() {
		if l.Network != "unix" {
			all = append(all, prober.Target{Tenant: l.Tenant, Network: l.Network, Address: l.Address})
		}
	}
	return all
}
