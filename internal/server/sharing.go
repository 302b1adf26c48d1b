package server

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/adapter/peer"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/usage"
	"github.com/freshet-io/freshet/internal/settings"
)

// sharesLimits reports whether the process takes samples for a cluster.
func (s *server) sharesLimits() bool {
	return s.inCluster() && (s.has(settings.RoleCollector) || s.has(settings.RoleDistributor))
}

// shareLimits runs until ctx is done. Once a second it tells the leader of the cluster how much tenants
// use of their limits in this process. It counts their use in other processes against the same limits.
// While there is no leader, each process goes on with the last sums. A collector also tells its books, a last time
// when ctx is done: by then all parts that post to them have stopped.
func (s *server) shareLimits(ctx context.Context) error {
	failed := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "freshet_limits_unshared_total",
		Help: "Seconds in which this process could not learn what tenants use of their limits in other processes of the " +
			"cluster. Rising: there is no leader, or no way to it, and a tenant may exceed a limit meanwhile.",
	})
	s.registry.MustRegister(failed)
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return err
	}
	process := binary.LittleEndian.Uint64(random[:])
	producer, err := s.producer()
	if err != nil {
		return err
	}
	tick := time.NewTicker(usage.Interval)
	defer tick.Stop()
	for calls := 0; ; calls++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			if s.config.Cluster.Node == "" {
				_ = s.exchangeUse(context.WithoutCancel(ctx), s.shared(process, producer, true)) // the next process has other books
			}
			return nil
		}
		x := s.shared(process, producer, false)
		if x.Books != nil && calls%stagesEvery == 0 {
			x.Stages = s.watch.Stats()
		}
		if err := s.exchangeUse(ctx, x); err != nil && ctx.Err() == nil {
			failed.Inc()
			s.logger.Debug("the use of limits is not shared", "error", err)
		}
	}
}

// shared returns what this process tells the leader. Nodes tell no books, since they ask each other.
func (s *server) shared(process, producer uint64, final bool) peer.Shared {
	x := peer.Shared{Process: process, Uses: s.limiter.Use()}
	if s.distributor != nil {
		s.distributor.Use(x.Uses)
	}
	if s.config.Cluster.Node == "" {
		books := s.ledger.Books()
		x.Books = &ledger.Claim{Producer: producer, Started: s.started.UnixMilli(), Boundary: books.Boundary, Final: final,
			Tenants: books.Tenants}
	}
	return x
}

// exchangeUse tells the leader how much tenants use here, and learns how much they use elsewhere.
func (s *server) exchangeUse(ctx context.Context, x peer.Shared) error {
	ctx, cancel := context.WithTimeout(ctx, usage.Interval)
	defer cancel()
	return s.gateway.Once(ctx, func(ctx context.Context, node string) (err error) {
		var a usage.Answer
		if node == s.config.Cluster.Node {
			a, err = s.nodes.handler.Share(ctx, node, x)
		} else {
			a, err = s.nodes.peers.Share(ctx, node, x)
		}
		if err != nil {
			return err
		}
		s.limiter.Share(a)
		if s.distributor != nil {
			s.distributor.Share(a)
		}
		return nil
	})
}

// Share implements peer.Handler. It keeps the books of a collector even if this node does not lead, since there may
// be no leader.
func (h peerHandler) Share(_ context.Context, from string, x peer.Shared) (usage.Answer, error) {
	if x.Books != nil {
		h.books.note(from, x.Books, x.Stages)
	}
	g, err := h.member()
	if err != nil {
		return usage.Answer{}, fmt.Errorf("%w: %w", replica.ErrNotLeader, err)
	}
	status := g.Status()
	if !status.Leads {
		return usage.Answer{}, h.notLeader(g, replica.ErrNotLeader)
	}
	a, err := h.uses.Exchange(status.Term, time.Now(), x.Process, x.Uses)
	if err != nil {
		return a, err
	}
	a.Bounds = make(map[string]usage.Bounds, len(x.Uses))
	limits := h.all().Limits
	for tenant := range x.Uses {
		of := limits.Of(tenant)
		a.Bounds[tenant] = usage.Bounds{
			Series: of.MaxSeries, MetricSeries: of.MaxSeriesPerMetric, NewSeries: of.MaxNewSeriesPerMinute,
		}
	}
	return a, nil
}
