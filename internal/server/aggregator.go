package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/role/aggregator"
	"github.com/freshet-io/freshet/internal/role/collector"
)

// openJournal replays the journal.
func (s *server) openJournal() error {
	dir, err := files.Open(s.path("journal"))
	if err != nil {
		return err
	}
	begun := time.Now()
	log, report, err := s.openLog(dir)
	if err != nil {
		return err
	}
	a, err := aggregator.New(aggregator.Options{
		Config: s.config.Aggregator, MaxPending: int64(s.config.Store.Pending),
		Log: log, Writer: s.distributor, Tenants: s.tenants, Ledger: s.ledger, Watch: s.watch, Boot: boot(),
		Now: time.Now, Registry: s.registry, Logger: s.logger,
	})
	if err != nil {
		return err
	}
	s.aggregator = a
	if report.Frames > 0 {
		s.logger.Info("restored from the journal", "frames", report.Frames, "lost_frames", report.LostFrames,
			"took", time.Since(begun).Round(time.Millisecond))
	}
	return nil
}

// openLog opens the journal, and reports what is damaged or missing.
func (s *server) openLog(dir segment.FS) (log *journal.Log, report journal.Report, err error) {
	var mark [4]byte
	if _, err = rand.Read(mark[:]); err != nil {
		return nil, report, err
	}
	log, report, err = journal.Open(dir, journal.Options{Mark: binary.LittleEndian.Uint32(mark[:]), Boot: boot()})
	if err != nil {
		return nil, report, err
	}
	for _, d := range report.Damage {
		s.logger.Error("the journal is damaged; its undamaged part is used", "place", d.String())
	}
	if report.Unsynced {
		s.logger.Warn("stores were not synced before the machine went down: their samples are written again from the journal",
			"checkpoint", report.Checkpoint)
	}
	s.checkJournal("journal",
		report.Checkpoint == "" && report.Sections == 0 && report.Segments == 0 && len(report.Damage) == 0)
	return log, report, nil
}

// runAggregator gives restored series their places in the collector's limits. Then it passes windows on
// to the aggregator, which folds them until ctx is done. By then the collector has ended.
func (s *server) runAggregator(ctx context.Context) error {
	byAge := func(a, b tile.Held) int { return cmp.Compare(a.LastSeen, b.LastSeen) }
	for _, held := range slices.SortedFunc(s.aggregator.Series(), byAge) {
		if !held.Delta { // only series of DogStatsD have places in the limits
			s.collector.Restored(held.Tenant, []byte(held.Key), held.Source, time.UnixMilli(held.LastSeen))
		}
	}
	if s.inGroup() {
		return s.runMember(ctx)
	}
	s.opening.open(s.aggregator, s.events)
	return s.aggregator.Run(ctx)
}

// runMember passes the windows and events of this node's collector on to the leader. This node's member
// runs until ctx is done and, as far as possible, the windows and events are handed over. In a group of
// one, the member itself takes the windows.
func (s *server) runMember(ctx context.Context) error {
	s.openEvents(s.writer())
	senders := []func(context.Context) error{s.outgoing.Run}
	var windows collector.Aggregator = s.aggregator
	if s.inCluster() {
		out, err := s.openOutbox()
		if err != nil {
			s.opening.fail()
			return err
		}
		windows, senders = out, append(senders, out.Run)
	}
	s.opening.open(windows, s.outgoing)
	sending, stop := context.WithCancel(ctx)
	sent := make(chan error, len(senders))
	ended := make(chan struct{})
	var wg sync.WaitGroup
	for _, run := range senders {
		wg.Go(func() { sent <- run(sending) })
	}
	go func() {
		wg.Wait()
		close(ended)
	}()
	err := s.skippable(s.aggregator.Run(s.untilHandedOver(ctx, ended)))
	stop()
	for range senders {
		err = errors.Join(err, <-sent)
	}
	return err
}

// checkJournal reports an empty journal, or an empty log of a group, if tiles were stored earlier. In
// that case the journal was deleted, or only a part of a backup was restored. `path` is relative to the
// data directory.
func (s *server) checkJournal(path string, nothing bool) {
	missing := promauto.With(s.registry).NewGauge(prometheus.GaugeOpts{Name: "freshet_aggregator_journal_missing",
		Help: "1 if the journal was empty at the start of the process although stores of tiles exist. Totals of " +
			"counters restarted at 0; totals of up/down counters, and samples not stored yet, are lost. Restore " +
			"journal/ and tsdb/ of the same backup, or ignore the loss: the next start that finds a journal sets 0."})
	if !nothing || !s.stores.Exist(tile.Width10s.String(), tile.Width1m.String()) {
		return
	}
	missing.Set(1)
	s.logger.Error("the journal is empty, but tiles were stored: it was deleted, or only a part of a backup was "+
		"restored. "+
		"Totals of counters restart at 0, which rate() and increase() treat as a reset; totals of up/down counters are "+
		"wrong from now on; open tiles, and samples not stored yet, are lost",
		"journal", s.path(path), "way_out", "stop the server and restore "+path+"/ and tsdb/ of the same backup, or "+
			"go on without these samples")
}
