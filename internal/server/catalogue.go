package server

import (
	"context"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/cataloguefile"
	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/role/group"
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

// nameTerms returns the limits by which the group gives names to their owners.
func (s *server) nameTerms() entry.Names {
	kept := func(kind series.Kind) int64 { return min(s.keptNames(kind), longest).Milliseconds() }
	return entry.Names{
		MaxNames: catalogue.DefaultMaxNames, Unused: min(s.unusedNames(), longest).Milliseconds(),
		CounterTTL: kept(series.Counter), GaugeTTL: kept(series.Gauge), CheckTTL: kept(series.Check),
		UpDownTTL: kept(series.UpDown),
	}
}

// longest is the upper bound of each time that nameTerms puts into an entry: a century.
const longest = 100 * 365 * 24 * time.Hour

// peekName returns the name that a claim would get. On a node, the answer is only what the node's member
// knows.
func (s *server) peekName(claim *catalogue.Claim) (name string, known bool, report catalogue.Report) {
	if g, is := s.aggregator.(*group.Group); is {
		return g.Names().Peek(claim)
	}
	return s.catalogue.Peek(claim)
}

// names returns the DogStatsD metrics of a tenant, for the API.
type names func(tenant string) []catalogue.Metric

// Metadata implements promapi.MetadataSource.
func (n names) Metadata(tenant string) []catalogue.Metric { return n(tenant) }

// describe returns the metrics of a tenant. In a group, their kinds come from the group, and their units
// and help from this node's rules.
func (s *server) describe(tenant string) []catalogue.Metric {
	g, is := s.aggregator.(*group.Group)
	if !is {
		return s.catalogue.Metadata(tenant)
	}
	type owner struct {
		base string
		kind series.Kind
	}
	own := map[owner]catalogue.Metric{}
	for _, m := range s.catalogue.Metadata(tenant) {
		own[owner{m.Base, m.Kind}] = m
	}
	all := g.Names().Metadata(tenant)
	for i := range all {
		m := own[owner{all[i].Base, all[i].Kind}]
		all[i].Unit, all[i].Help = m.Unit, m.Help
	}
	return all
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
