package tsdb

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/core/tile"
)

// metrics are the package's own metrics, and those of tsdb, which begin with prometheus_tsdb_.
type metrics struct {
	open      prometheus.Gauge
	broken    *prometheus.GaugeVec
	damaged   *prometheus.GaugeVec
	cut       *prometheus.CounterVec
	stored    *prometheus.CounterVec
	repeated  *prometheus.CounterVec
	lateReads *prometheus.CounterVec
	unplaced  *prometheus.CounterVec
	conflicts *prometheus.CounterVec
	refused   *prometheus.CounterVec
	failed    *prometheus.CounterVec
	restored  prometheus.Counter

	exemplars, exemplarsNotKept prometheus.Counter

	sums map[string]*sums // by kind of store
}

// storeMarks are the metrics of one store. It has them from its first opening on: most tenants use one store of four.
type storeMarks struct {
	broken  prometheus.Gauge   // 1 while `broken` or `ill` of the store is set
	damaged prometheus.Gauge   // 1 while `hurt` is set, or `broken` says that the store is damaged
	cut     prometheus.Counter // bytes that repairs removed
}

func (m *metrics) marks(tenant, store string) *storeMarks {
	return &storeMarks{m.broken.WithLabelValues(tenant, store), m.damaged.WithLabelValues(tenant, store),
		m.cut.WithLabelValues(tenant, store)}
}

func newMetrics(reg prometheus.Registerer) *metrics {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		opts := prometheus.CounterOpts{Namespace: "freshet", Subsystem: "store", Name: name, Help: help}
		return prometheus.NewCounterVec(opts, labels)
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "freshet", Subsystem: "store", Name: name, Help: help})
	}
	m := &metrics{
		open: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "freshet", Subsystem: "store", Name: "open_databases",
			Help: "Open databases, up to five for each tenant. Each takes 0.45 MB, or 4 MB while at most eight are " +
				"open, three goroutines, and the memory of its series."}),
		broken: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "freshet", Subsystem: "store", Name: "broken",
			Help: "1 while a store is broken: it cannot be opened, and so answers no queries and takes no " +
				"samples; or it is open, but its directory is missing or its disk takes no writes. /-/ready and " +
				"freshet diagnose show the cause and the way out. The store opens by itself once the cause is removed."},
			[]string{"tenant", "store"}),
		damaged: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "freshet", Subsystem: "store", Name: "damaged",
			Help: "1 while a file of a store is known to be damaged: the opening, a query or the scrub found it. A node " +
				"of a cluster then does not answer from this store. The log names the file."},
			[]string{"tenant", "store"}),
		cut: vec("wal_cut_bytes_total",
			"Bytes that repairs of a damaged log removed when a store was opened. The removed samples are lost unless a "+
				"block has them. Above 0: check the disk, because a written log never changes.", "tenant", "store"),
		stored: vec("samples_stored_total",
			"Samples that were written for the first time.", "store"),
		repeated: vec("samples_repeated_total",
			"Samples that were already stored with the same value, which is a success. Rising: writes are repeated, as after "+
				"a restart or a lost answer.", "store"),
		lateReads: vec("late_reads_total",
			"How often the store was read to find the place of a late sample of a request, which takes some microseconds. "+
				"Rising as fast as late samples come: a backlog is sent with the newest samples first, or more series get late "+
				"samples than the memory for them has place for, see docs/remote-write.md.", "store"),
		unplaced: vec("late_unplaced_total",
			"Reads of the store for a late sample after which nothing was remembered, because the memory for that, 64 MB for "+
				"all tenants, was full: the next late sample of the series reads the store again, which costs time alone.",
			"store"),
		conflicts: vec("tile_conflicts_total",
			"Samples whose time already has another value; the first value stays. Always a bug, because a written tile is "+
				"final: the log has the series.", "store"),
		refused: vec("samples_refused_total",
			"Samples of tiles that the store cannot take, by reason; samples of requests are in "+
				"freshet_distributor_refused_total. Rising: too_old, they were delayed too long, see store.out_of_order; "+
				"invalid, a bug of the writer; duplicate, a client sends two values with one timestamp (|T), "+
				"and the first stays.", "store", "reason"),
		failed: vec("writes_failed_total",
			"Writes that stored nothing. Rising: the disk is full or broken; the log has the cause.", "store"),
		restored: counter("restored_metadata_total",
			"Damaged files with the metadata of a block that were restored from their copies: nothing is lost. "+
				"Above 0: check the disk, because a written block never changes; the log names the files."),
		exemplars: counter("exemplars_stored_total",
			"Exemplars of tiles: those written now, and those stored already; exemplars of requests are in "+
				"freshet_distributor_written_exemplars_total."),
		exemplarsNotKept: counter("exemplars_not_kept_total",
			"Exemplars of tiles: those that were not kept, though their samples were. Rising: store.exemplars is "+
				"0, so senders need not send exemplars; or a sender's clock is ahead by more than 10 minutes, or behind other "+
				"senders of its series by store.out_of_order."),
	}
	for _, store := range []string{tile.Width10s.String(), tile.Width1m.String()} {
		m.count(store, &tile.Written{}) // so that all counters exist and begin at 0
		m.failed.WithLabelValues(store)
	}
	for _, store := range []string{Raw, Rules} {
		m.countRaw(store, 0, 0, 0, 0)
		m.failed.WithLabelValues(store)
	}
	reg.MustRegister(m.open, m.broken, m.damaged, m.cut, m.stored, m.repeated, m.lateReads, m.unplaced, m.conflicts,
		m.refused, m.failed, m.restored, m.exemplars, m.exemplarsNotKept)
	m.sums = map[string]*sums{}
	for _, kind := range kinds {
		m.sums[kind] = newSums(kind)
		reg.MustRegister(m.sums[kind])
	}
	return m
}

// countRaw counts a write of requests.
func (m *metrics) countRaw(store string, stored, repeated, lateReads, unplaced int) {
	m.unplaced.WithLabelValues(store).Add(float64(unplaced))
	m.lateReads.WithLabelValues(store).Add(float64(lateReads))
	m.stored.WithLabelValues(store).Add(float64(stored))
	m.repeated.WithLabelValues(store).Add(float64(repeated))
}

// count counts a write to a store of tiles.
func (m *metrics) count(store string, w *tile.Written) {
	m.stored.WithLabelValues(store).Add(float64(w.Stored.Samples))
	m.repeated.WithLabelValues(store).Add(float64(w.Repeated.Samples))
	m.conflicts.WithLabelValues(store).Add(float64(w.Refused[tile.Conflict].Samples))
	m.exemplars.Add(float64(w.Exemplars))
	m.exemplarsNotKept.Add(float64(w.ExemplarsNotKept))
	for _, reason := range []tile.Reason{tile.TooOld, tile.Invalid, tile.Duplicate} {
		m.refused.WithLabelValues(store, reason.String()).Add(float64(w.Refused[reason].Samples))
	}
}

// quiet is a log handler that turns tsdb's "info" into "debug": tsdb logs each step of opening
// and compacting, for each database. It does the same with replacedLock.
type quiet struct{ slog.Handler }

func (q quiet) Enabled(ctx context.Context, level slog.Level) bool {
	return q.Handler.Enabled(ctx, quieter(level))
}

func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	r.Level = quieter(r.Level)
	if r.Message == replacedLock {
		r.Level = slog.LevelDebug
	}
	if !q.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return q.Handler.Handle(ctx, r)
}

// replacedLock is tsdb's warning of a lock file that a process left. A restart in place leaves all of them. Two
// processes never have a store: the data directory has a lock of its own.
const replacedLock = "A lockfile from a previous execution already existed. It was replaced"

func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }
func (q quiet) WithGroup(name string) slog.Handler       { return quiet{q.Handler.WithGroup(name)} }

func quieter(level slog.Level) slog.Level {
	if level == slog.LevelInfo {
		return slog.LevelDebug
	}
	return level
}
