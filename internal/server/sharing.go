package server

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
// While there is no leader, each process goes on with the last sums.
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
	tick := time.NewTicker(usage.Interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if err := s.exchangeUse(ctx, process); err != nil && ctx.Err() == nil {
			failed.Inc()
			s.logger.Debug("the use of limits is not shared", "error", err)
		}
	}
}

// exchangeUse tells the leader how much tenants use here, and learns how much they use elsewhere.
func (s *server) exchangeUse(ctx context.Context, process uint64) error {
	ctx, cancel := context.WithTimeout(ctx, usage.Interval)
	defer cancel()
	uses := s.limiter.Use()
	if s.distributor != nil {
		s.distributor.Use(uses)
	}
	return s.gateway.Once(ctx, func(ctx context.Context, node string) (err error) {
		var a usage.Answer
		if node == s.config.Cluster.Node {
			a, err = s.nodes.handler.Share(ctx, process, uses)
		} else {
			a, err = s.nodes.peers.Share(ctx, node, process, uses)
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

// Share implements peer.Handler.
func (h peerHandler) Share(_ context.Context, process uint64, uses map[string]usage.Use) (usage.Answer, error) {
	g, err := h.member()
	if err != nil {
		return usage.Answer{}, fmt.Errorf("%w: %w", replica.ErrNotLeader, err)
	}
	status := g.Status()
	if !status.Leads {
		return usage.Answer{}, h.notLeader(g, replica.ErrNotLeader)
	}
	a, err := h.uses.Exchange(status.Term, time.Now(), process, uses)
	if err != nil {
		return a, err
	}
	a.Bounds = make(map[string]usage.Bounds, len(uses))
	limits := h.all().Limits
	for tenant := range uses {
		of := limits.Of(tenant)
		a.Bounds[tenant] = usage.Bounds{
			Series: of.MaxSeries, MetricSeries: of.MaxSeriesPerMetric, NewSeries: of.MaxNewSeriesPerMinute,
		}
	}
	return a, nil
}
