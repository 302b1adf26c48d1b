package server

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/eventlog"
	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/metadata"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/role/distributor"
	"github.com/freshet-io/freshet/internal/role/group"
)

const (
	// queuedBytes bounds the requests that wait for the raw store of a tenant, in bytes: about 20
	// minutes at 10,000 samples a second.
	queuedBytes = 64 << 20

	// queuedSum bounds the requests that wait for the raw stores of all tenants, in bytes. They are
	// in memory, and in each checkpoint.
	queuedSum = 512 << 20
)

// openAggregator opens the role that makes tiles.
func (s *server) openAggregator() error {
	if s.inGroup() {
		return s.openGroup()
	}
	return s.openJournal()
}

// openGroup restores this process' member of a group, either of the cluster's group or of a group of
// one.
func (s *server) openGroup() error {
	dir, err := files.Open(s.path(answer.GroupPath))
	if err != nil {
		return err
	}
	var random [12]byte
	if _, err := rand.Read(random[:]); err != nil {
		return err
	}
	tookOver, err := s.takeOver(dir)
	if err != nil {
		return s.wayOut(err)
	}
	skips, err := s.readSkips()
	if err != nil {
		return err
	}
	begun := time.Now()
	o := group.Options{
		Skips:  skips,
		Number: 0, Member: 1, Voters: []uint64{1},
		Config: s.config.Aggregator, MaxPending: int64(s.config.Store.Pending),
		MaxQueued: queuedBytes, MaxQueuedSum: queuedSum, MaxBehind: member.MaxBehind, MaxTenants: s.config.Store.MaxTenants,
		ReplaceAfter: s.config.Cluster.ReplaceAfter, UpgradeAfter: s.config.Cluster.UpgradeAfter,
		FS: dir, Mark: binary.LittleEndian.Uint32(random[:]), Seed: binary.LittleEndian.Uint64(random[4:]),
		Writer:     groupWriter{s.distributor, s.stores, s.events, tookOver, s.mayBeRestored()},
		KeptEvents: s.keptEvents, Names: s.nameTerms,
		Told:   told{s.metadata, s.stores, s.distributor},
		Ledger: s.ledger, Watch: s.watch, Boot: boot(),
		Now: time.Now, Registry: s.registry, Logger: s.logger,
	}
	if i := s.identity.Load(); i != nil {
		o.Node, o.Member, o.Voters, o.Network, o.Short = i.Node, i.Member, nil, s.nodes, s.short
	}
	if len(s.forwarders) > 0 {
		o.Backends = groupBackends{s.distributor, s.forwarders}
	}
	g, err := group.New(o)
	if err != nil {
		return s.wayOut(err)
	}
	s.stores.NeverRepair(s.inCluster()) // Others is not known before the member runs: see followDamage
	g.Demote(s.damaged.Load() != nil)
	s.aggregator, s.requests = g, group.NewRequests(g)
	if s.inCluster() {
		s.openGateway(g)
		s.clusterHistory = s.newClusterHistory(g)
		s.requests = group.NewRequests(s.gateway)
	}
	s.removeJournal()
	restored := g.Restored()
	if !tookOver { // takeOver has checked the journal
		s.checkJournal(answer.GroupPath, restored.New)
	}
	if restored.Entries > 0 {
		s.logger.Info("restored from the log of the group", "entries", restored.Entries,
			"took", time.Since(begun).Round(time.Millisecond))
	}
	return nil
}

// told receives the parts of requests that are not samples.
type told struct {
	*metadata.Store
	*tsdb.Stores
	distributor *distributor.Distributor
}

// Series implements group.Told.
func (t told) Series(tenant, name string, r *remotewrite.Request, m remotewrite.Metadata) {
	t.Store.Series(tenant, name, r, m)
}

// Elected implements group.Told.
func (t told) Elected(tenant, cluster, replica string) {
	t.distributor.Elected(tenant, cluster, replica)
}

// Came implements group.Told.
func (t told) Came(r *write.Request) { t.distributor.Came(r) }

// groupWriter stores what the entries in the log of a group contain.
type groupWriter struct {
	*distributor.Distributor
	stores *tsdb.Stores
	events *eventlog.Log
	cut    bool // takeOver has called CutBack
	older  bool // the log may be an older copy than the event log
}

// WriteTiles implements group.Writer. The group itself forwards the tiles: see groupBackends.
func (w groupWriter) WriteTiles(
	ctx context.Context, tenant string, width tile.Width, samples []tile.Sample,
) (tile.Written, error) {
	return w.StoreTiles(ctx, tenant, width, samples)
}

// WriteRequests implements group.Writer.
func (w groupWriter) WriteRequests(
	ctx context.Context, tenant string, state *write.State, requests []*write.Request,
) error {
	return w.stores.WriteRequests(ctx, tenant, state, requests)
}

// WriteEvents implements group.Writer.
func (w groupWriter) WriteEvents(ctx context.Context, events []*member.Events) error {
	return w.events.AppendEntries(ctx, groupNumber, events)
}

// LogEnds implements group.Writer.
func (w groupWriter) LogEnds(last uint64) error {
	if !w.older {
		return nil
	}
	return w.events.Reaches(groupNumber, last)
}

// mayBeRestored reports whether the directory may come from a backup. A node that joined a cluster does not. If it was
// filled, its event log may be ahead of its log, with events of entries that the leader sends it.
func (s *server) mayBeRestored() bool { return !s.inCluster() || s.founded() }

// CutBack implements group.Writer.
func (w groupWriter) CutBack(boot string, requests map[string]uint64) {
	if !w.cut {
		w.stores.CutBack(boot, requests)
	}
}
