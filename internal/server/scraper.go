package server

import (
	"cmp"
	"context"
	"time"

	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/role/scraper"
)

// openScraper builds the scraper, which stores the process' own metrics.
func (s *server) openScraper() error {
	host, _ := s.config.Host()
	s.scraper = scraper.New(scraper.Options{
		Gatherer: s.registry, Distributor: s.distributor, Tenant: tenant.Own, Interval: s.config.Self.Interval,
		Labels: map[string]string{"job": "freshet", "instance": cmp.Or(s.config.Cluster.Node, host, instance)},
		Now:    time.Now, Logger: s.logger,
	})
	return nil
}

func (s *server) runScraper(ctx context.Context) error { return s.scraper.Run(ctx) }

// instance is the name of this process in its own metrics if the host has no name.
const instance = "local"
