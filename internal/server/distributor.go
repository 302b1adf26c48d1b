package server

import (
	"context"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/receive"
	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/metadata"
	"github.com/freshet-io/freshet/internal/role/aggregator"
	"github.com/freshet-io/freshet/internal/role/distributor"
	"github.com/freshet-io/freshet/internal/settings"
)

// laterAggregator is the aggregator to the distributor, which is made before it. It is asked when
// both are.
type laterAggregator struct{ aggregator **aggregator.Aggregator }

// Push is part of distributor.Aggregator.
func (l laterAggregator) Push(ctx context.Context, batches []batch.Batch) error {
	return (*l.aggregator).Push(ctx, batches)
}

// Holds is part of distributor.Aggregator.
func (l laterAggregator) Holds(tenant string, shard uint16, key []byte) bool {
	return (*l.aggregator).Holds(tenant, shard, key)
}

// TenantSeries is part of distributor.Aggregator.
func (l laterAggregator) TenantSeries(tenant string) int { return (*l.aggregator).TenantSeries(tenant) }

// openDistributor opens the way in of samples that are no DogStatsD, and of tiles.
func (s *server) openDistributor() error {
	producer, err := s.producer()
	if err != nil {
		return err
	}
	s.metadata = metadata.New()
	s.distributor = distributor.New(distributor.Options{
		Config: s.config.Distributor, Ingester: s.ingester,
		Tiles: s.stores, Aggregator: laterAggregator{&s.aggregator}, Producer: producer, Backends: s.backends(),
		Metadata: s.metadata, Ledger: s.ledger, Lookback: s.config.Query.LookbackDelta,
		Now: time.Now, Registry: s.registry, Logger: s.logger,
	})
	s.receiver = receive.New(receive.Options{
		Distributor: s.distributor, Tenant: tenantOf, MaxMemory: int64(s.config.Distributor.MaxMemory),
		Watch: s.watch, Registry: s.registry,
	})
	return nil
}

// serveDistributor takes remote write and OTLP over HTTP.
func (s *server) serveDistributor(mux *routes) {
	mux.HandleFunc("/api/v1/write", s.receiver.RemoteWrite)
	mux.HandleFunc("/api/v1/otlp/v1/metrics", s.receiver.OTLP)
	mux.HandleFunc("/v1/metrics", s.receiver.OTLP)
}

// reloadDistributor puts other rules and limits in force.
func (s *server) reloadDistributor(next settings.Config) { s.distributor.Reload(next.Distributor) }
