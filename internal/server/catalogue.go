package server

import (
	"context"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/cataloguefile"
	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/series"
)

// openCatalogue loads the names that earlier processes have seen, except names that have been unused
// for too long.
func (s *server) openCatalogue() (err error) {
	if s.catalogueFile, err = cataloguefile.Open(s.path("names.db"), s.logger); err != nil {
		return err
	}
	metrics, err := s.catalogueFile.Load()
	if err != nil {
		return err
	}
	s.catalogue = catalogue.New(catalogue.DefaultMaxNames)
	s.catalogue.KeepFor(s.keptNames)
	if refused := s.catalogue.Load(metrics); refused > 0 {
		s.logger.Warn("names are not remembered: the tenant has too many names", "names", refused)
	}
	now := time.Now()
	return s.catalogueFile.Forget(s.catalogue.Forget(now.UnixMilli(), now.Add(-s.unusedNames()).UnixMilli()))
}

// forgetNames removes, once a day, the names that have been unused for too long.
func (s *server) forgetNames(ctx context.Context) error {
	for ticker := time.NewTicker(24 * time.Hour); ; {
		select {
		case now := <-ticker.C:
			unused := s.catalogue.Forget(now.UnixMilli(), now.Add(-s.unusedNames()).UnixMilli())
			if err := s.catalogueFile.Forget(unused); err != nil {
				s.logger.Warn("unused names are remembered for another day", "error", err)
			}
		case <-ctx.Done():
			ticker.Stop()
			return nil
		}
	}
}

// unusedNames is how long a name keeps its owner after its last sample: as long as the stores keep
// samples.
func (s *server) unusedNames() time.Duration { return s.inForce().Store.Retention.Tile1m }

// keptNames is the shortest time for which a name keeps its owner after its last sample, even if the
// tenant has reached its limit of names. The collector remembers the names of its contexts. If a name
// changed its owner earlier, the collector would still write live series under it.
func (s *server) keptNames(kind series.Kind) time.Duration {
	c := s.config.Aggregator
	ttl := c.CounterTTL
	switch kind {
	case series.Gauge:
		ttl = c.GaugeTTL
	case series.Check:
		ttl = c.CheckTTL
	case series.UpDown:
		ttl = c.UpDownTTL
	}
	return s.inForce().DogStatsD.IdleContexts + ttl + catalogue.TouchedEvery
}
