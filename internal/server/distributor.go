package server

import (
	"context"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/receive"
	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/metadata"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/watermark"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/role/distributor"
	"github.com/freshet-io/freshet/internal/role/group"
	"github.com/freshet-io/freshet/internal/settings"
)

// laterAggregator stands in for the aggregator, which is built after the distributor. Its methods are
// called only after both are built.
type laterAggregator struct{ aggregator *tiles }

// Push implements distributor.Aggregator.
func (l laterAggregator) Push(ctx context.Context, batches []batch.Batch) error {
	return (*l.aggregator).Push(ctx, batches)
}

// Kinds implements distributor.Aggregator.
func (l laterAggregator) Kinds(_ context.Context, tenant string, keys [][]byte) ([]series.Kind, error) {
	return (*l.aggregator).Kinds(tenant, keys), nil
}

// TenantSeries implements distributor.Aggregator.
func (l laterAggregator) TenantSeries(_ context.Context, tenant string) (int, error) {
	return (*l.aggregator).TenantSeries(tenant), nil
}

// laterGroup stands in for the requests of a group, which is built after the distributor.
type laterGroup struct{ requests **group.Requests }

// Push implements distributor.Group.
func (l laterGroup) Push(ctx context.Context, r *write.Request) error {
	return (*l.requests).Push(ctx, r)
}

// PushDeltas implements distributor.Group.
func (l laterGroup) PushDeltas(ctx context.Context, r *write.Request) error {
	return (*l.requests).PushDeltas(ctx, r)
}

// openDistributor builds the distributor, which accepts remote write, OTLP and tiles.
func (s *server) openDistributor() error {
	producer, err := s.producer()
	if err != nil {
		return err
	}
	s.metadata = metadata.New()
	if s.has(settings.RoleRuler) {
		s.watermarks = new(watermark.All)
	}
	var requests distributor.Group
	gate := s.tenants
	if s.inGroup() {
		requests, gate = laterGroup{&s.requests}, nil
	}
	s.distributor = distributor.New(distributor.Options{
		Config: s.config.Distributor, Ingester: s.ingester,
		Tiles: s.stores, Aggregator: laterAggregator{&s.aggregator}, Group: requests, Cluster: s.inCluster(), Tenants: gate,
		Producer: producer, Backends: s.backends(),
		Metadata: s.metadata, Watermarks: s.watermarks, Ledger: s.ledger, Lookback: s.config.Query.LookbackDelta,
		OutOfOrder: s.config.Store.OutOfOrder,
		Now:        time.Now, Registry: s.registry, Logger: s.logger,
	})
	s.receiver = receive.New(receive.Options{
		Distributor: s.distributor, Tenant: tenantOf, Sender: s.senderOf, Token: tokenOf,
		MaxMemory: int64(s.config.Distributor.MaxMemory), Watch: s.watch, Registry: s.registry,
	})
	return nil
}

// serveDistributor accepts remote write and OTLP over HTTP.
func (s *server) serveDistributor(mux *routes) {
	mux.HandleFunc("/api/v1/write", s.receiver.RemoteWrite)
	mux.HandleFunc("/api/v1/otlp/v1/metrics", s.receiver.OTLP)
	mux.HandleFunc("/v1/metrics", s.receiver.OTLP)
}

// reloadDistributor applies new rules and limits.
func (s *server) reloadDistributor(next settings.Config) { s.distributor.Reload(next.Distributor) }
