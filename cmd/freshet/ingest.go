package main

import (
	"context"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/receive"
	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/metadata"
	"github.com/freshet-io/freshet/internal/role/distributor"
	"github.com/freshet-io/freshet/internal/role/ingester"
)

// ingest is the way in of samples that are no DogStatsD: what reads the requests, what
// lets them in, and what writes them.
type ingest struct {
	receiver    *receive.Receiver
	distributor *distributor.Distributor
	ingester    *ingester.Ingester
	metadata    *metadata.Store // what senders say of their metrics
}

// totals is the aggregator to the distributor, which is made before it. It is asked when
// both are.
type totals struct{ *server }

// Push is part of distributor.Windows.
func (t totals) Push(ctx context.Context, batches []batch.Batch) error {
	return t.aggregator.Push(ctx, batches)
}

// Holds is part of distributor.Windows.
func (t totals) Holds(tenant string, shard uint16, key []byte) bool {
	return t.aggregator.Holds(tenant, shard, key)
}

// TenantSeries is part of distributor.Windows.
func (t totals) TenantSeries(tenant string) int { return t.aggregator.TenantSeries(tenant) }

// openIngest needs the stores.
func (s *server) openIngest() error {
	sender, err := s.sender()
	if err != nil {
		return err
	}
	i := ingest{metadata: metadata.New(), ingester: ingester.New(s.config.Ingester, s.stores, s.registry)}
	i.distributor = distributor.New(distributor.Options{
		Config: s.config.Distributor, Ingester: i.ingester,
		Tiles: s.stores, Windows: totals{s}, Sender: sender, Backends: s.backends(),
		Metadata: i.metadata, Ledger: s.ledger, Lookback: s.config.Query.LookbackDelta, Now: time.Now, Registry: s.registry, Logger: s.logger,
	})
	i.receiver = receive.New(receive.Options{
		Distributor: i.distributor, Tenant: tenantOf, MaxMemory: int64(s.config.Distributor.MaxMemory), Watch: s.watch, Registry: s.registry,
	})
	s.ingest = i
	return nil
}

// tendStores closes the stores that nobody uses and tries the broken ones again, until
// ctx is done.
func (s *server) tendStores(ctx context.Context) error {
	for ticker := time.NewTicker(time.Minute); ; {
		select {
		case <-ticker.C:
			if err := s.stores.Tend(ctx); err != nil {
				s.logger.Warn("the stores are not in order; a store that was closed with an error opens again from its WAL", "error", err)
			}
		case <-ctx.Done():
			ticker.Stop()
			return nil
		}
	}
}

// runIngester writes what comes in until ctx is done; the HTTP servers have ended then.
func (s *server) runIngester(ctx context.Context) error { return s.ingest.ingester.Run(ctx) }
