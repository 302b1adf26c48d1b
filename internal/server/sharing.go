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
			_ = s.exchangeUse(context.WithoutCancel(ctx), s.shared(process, producer, true)) // the next process has other books
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
	x := peer.Shared{Process: process, Uses: s.limiter.Use(), Refusals: s.watermarks.Refusing(time.Now().UnixMilli())}
	if s.distributor != nil {
		s.distributor.Use(x.Uses)
	}
	if s.config.Cluster.Node == "" {
		books := s.ledger.Books()
		x.Books = &ledger.Claim{Producer: producer, Started: s.started.UnixMilli(), Boundary: books.Boundary, Final: final,
			Tenants: books.Tenants}
	}
	if s.has(settings.RoleCollector) {
		x.Delivered = &peer.Delivered{Producer: producer, Through: s.delivered(), Final: final}
	}
	return x
}

// delivered returns the time up to which the group's log has all windows of this process, in Unix milliseconds.
func (s *server) delivered() int64 {
	out := s.outbox.Load()
	if out == nil {
		return s.started.UnixMilli()
	}
	through := s.collector.Through()
	if waiting, age := out.Waiting(); waiting.Frames > 0 {
		through = min(through, time.Now().Add(-age).UnixMilli())
	}
	return through
}

// exchangeUse tells the leader how much tenants use here, and learns how much they use elsewhere.
func (s *server) exchangeUse(ctx context.Context, x peer.Shared) error {
	ctx, cancel := context.WithTimeout(ctx, usage.Interval)
	defer cancel()
	return s.gateway.Once(ctx, func(ctx context.Context, node string) (err error) {
		var a peer.ShareAnswer
		if node == s.config.Cluster.Node {
			a, err = s.nodes.handler.Share(ctx, node, x)
		} else {
			a, err = s.nodes.peers.Share(ctx, node, x)
		}
		if err != nil {
			return err
		}
		s.limiter.Share(a.Answer)
		if s.distributor != nil {
			s.distributor.Share(a.Answer)
		}
		if node != s.config.Cluster.Node {
			s.delivers.learn(time.Now(), a.Heard)
		}
		return nil
	})
}

// Share implements peer.Handler. It keeps the books of a collector even if this node does not lead, since there may
// be no leader.
func (h peerHandler) Share(_ context.Context, from string, x peer.Shared) (a peer.ShareAnswer, err error) {
	if x.Books != nil {
		h.books.note(from, x.Books, x.Stages)
	}
	g, err := h.member()
	if err != nil {
		return a, fmt.Errorf("%w: %w", replica.ErrNotLeader, err)
	}
	status := g.Status()
	if !status.Leads {
		return a, h.notLeader(g, replica.ErrNotLeader)
	}
	now := time.Now()
	for tenant, r := range x.Refusals {
		if w := h.watermarks().Of(tenant); w != nil {
			w.SentBackElsewhere(now.UnixMilli(), r)
		}
	}
	if d := x.Delivered; d != nil {
		h.delivered.note(status.Term, now, d)
	}
	if a.Answer, err = h.uses.Exchange(status.Term, now, x.Process, x.Uses); err != nil {
		return a, err
	}
	if x.Books == nil { // a node
		a.Heard = h.delivered.heard(now, h.all().Rules.SenderTimeout)
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
