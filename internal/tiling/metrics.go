package tiling

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/freshet-io/freshet/internal/core/tile"
)

// Metrics has the metrics that the code increments. Open.Register registers the metrics whose values
// are computed at each scrape.
type Metrics struct {
	Folded, Late, Ahead, LateGauges      prometheus.Counter
	Refused, Repeated, Again             prometheus.Counter
	Tiled, Duplicates, Replayed, Damaged prometheus.Counter
	JournalErrors                        prometheus.Counter
	WriteErrors, PendingRefused          *prometheus.CounterVec // labelled by tenant
	Checkpoints, CheckpointErrors        prometheus.Counter
	CheckpointSeconds                    prometheus.Gauge
	CheckpointUnsynced                   prometheus.Gauge
	FlushSeconds                         prometheus.Histogram
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: "freshet_aggregator_" + name, Help: help})
	}
	byTenant := func(name, help string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Name: "freshet_aggregator_" + name, Help: help}, []string{"tenant"})
	}
	return &Metrics{
		Folded: counter("journalled_samples_total",
			"Samples that were journalled and joined a tile. From here on they survive the death of the process."),
		Late: counter("late_samples_total",
			"Journalled samples whose tile was closed, so the oldest open tile took them. Rising: "+
				"a sender's clock is off, or lateness is too short."),
		Ahead: counter("ahead_samples_total",
			"Journalled samples whose time was more than a minute ahead, so the last open tile took them. Rising: "+
				"a sender's clock is fast."),
		LateGauges: counter("late_gauge_samples_total",
			"Gauges and checks that came after their tile was closed, and were refused. Rising: "+
				"a sender's clock is off, or lateness is too short."),
		Refused: counter("refused_samples_total",
			"Samples whose sum would be beyond what a float holds, or that do not fit their series. Rising: "+
				"a client sends absurd values."),
		Repeated: counter("repeated_samples_total",
			"Values of OpenTelemetry's delta temporality for a time that their series has already counted. Rising: "+
				"a sender repeats values that were acknowledged, or two senders send one series."),
		Tiled: counter("tiled_samples_total",
			"Samples in closed tiles."),
		Duplicates: counter("duplicate_samples_total",
			"Gauge samples whose own time (|T) is the end of a tile that already has its sample."),
		Replayed: counter("replayed_batches_total",
			"Batches that were read from the journal at the start."),
		Damaged: counter("damaged_batches_total",
			"Batches that could not be read to the end. Above 0: a bug, or a damaged disk."),
		JournalErrors: counter("journal_errors_total",
			"Writes and syncs of the journal that failed. Rising: the disk is full or broken; collectors hold their "+
				"windows. With aggregator.fsync: commit, nothing is acknowledged between a failed sync and the end of the "+
				"checkpoint that follows it."),
		Again: counter("repeated_batches_total",
			"Batches that came again: their producer's sequence shows that they are already counted. "+
				"Rising with freshet_aggregator_journal_errors_total: windows that could not be synced are pushed again. "+
				"Rising alone: a bug of a producer."),
		WriteErrors: byTenant("store_errors_total",
			"Writes of tiles that the store of a tenant did not take. Rising: its directory is damaged, "+
				"or the disk is full or broken; its tiles wait."),
		PendingRefused: byTenant("pending_refused_samples_total",
			"Samples of windows that were refused, since the tenant's store takes nothing and the tiles that wait "+
				"for it fill store.pending. Rising: data of this tenant is lost; freshet diagnose names the store."),
		Checkpoints: counter("checkpoints_total",
			"Checkpoints written."),
		CheckpointErrors: counter("checkpoint_errors_total",
			"Checkpoints that failed. Rising: the disk is full or broken; the journal grows."),
		CheckpointSeconds: f.NewGauge(prometheus.GaugeOpts{Name: "freshet_aggregator_checkpoint_seconds",
			Help: "Time that the last checkpoint took. It is slow on purpose: its writes are spread over time."}),
		CheckpointUnsynced: f.NewGauge(prometheus.GaugeOpts{Name: "freshet_aggregator_checkpoint_unsynced_entries",
			Help: "Entries of the journal, or of a cluster's log, between the last checkpoint for which all stores were " +
				"synced and the newest, if the disks of some stores hang or they are broken. They are kept, up to 4 GiB. " +
				"0: all stores are synced."}),
		FlushSeconds: f.NewHistogram(prometheus.HistogramOpts{Name: "freshet_aggregator_flush_seconds",
			Help:                        "Time to store the tiles of the shards that were due together.",
			NativeHistogramBucketFactor: 1.1, Buckets: prometheus.ExponentialBuckets(0.001, 4, 8)}),
	}
}

// Count adds up the samples of a window in the metrics.
func (m *Metrics) Count(f *tile.Folded) {
	m.Folded.Add(float64(f.Samples))
	m.Late.Add(float64(f.Late))
	m.Ahead.Add(float64(f.Ahead))
	m.LateGauges.Add(float64(f.LateGauge))
	m.Refused.Add(float64(f.Refused))
	m.Repeated.Add(float64(f.Repeated))
	m.Again.Add(float64(f.Again))
}

// Register registers the metrics whose values are computed at each scrape. `logBytes` returns the
// size of the log since the last checkpoint began.
func (o *Open) Register(reg prometheus.Registerer, now func() time.Time, logBytes func() int64) {
	f := promauto.With(reg)
	reg.MustRegister(pendingExporter{now, o.Pending, o.Shards.Unstored})
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "freshet_aggregator_series",
		Help: "Series that the aggregator holds, with their open tiles. Memory grows with their number.",
	}, func() float64 { return float64(o.Shards.Len()) })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "freshet_aggregator_live_age_seconds",
		Help: "Age of the last second whose windows are all counted. Queries of open tiles see nothing newer. " +
			"About 1 to 2 s is normal. Rising: the collector or the journal stalls.",
	}, func() float64 { return float64(now().UnixMilli()-o.stamp.Load()) / 1000 })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "freshet_aggregator_journal_bytes",
		Help: "Size of the journal since the last checkpoint began. A restart reads about as much. Rising without end: " +
			"checkpoints fail.",
	}, func() float64 { return float64(logBytes()) })
}

func describePending(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("freshet_aggregator_pending_"+name, help, []string{"tenant"}, nil)
}

var (
	descPendingBytes = describePending("bytes",
		"Memory of the closed tiles that wait for a tenant's store. Rising without end: the store takes no "+
			"writes; at store.pending the tenant's new samples are refused.")
	descPendingSamples = describePending("samples",
		"Values on the wire in the closed tiles that wait for a tenant's store. They are in the journal or a checkpoint, "+
			"and survive the death of the process.")
	descPendingSeconds = describePending("seconds",
		"Time since the end of a tenant's oldest tile that is not stored yet. Up to aggregator.lateness "+
			"plus 4 s is normal; above that, the tenant's store does not keep up, or takes no writes.")
)

// pendingExporter shows the samples that wait for the stores. store.max_tenants bounds the number
// of tenants.
type pendingExporter struct {
	now      func() time.Time
	pending  func() map[string]Pending
	unstored func() map[string]int64
}

// Describe is part of prometheus.Collector.
func (e pendingExporter) Describe(out chan<- *prometheus.Desc) {
	out <- descPendingBytes
	out <- descPendingSamples
	out <- descPendingSeconds
}

// Collect is part of prometheus.Collector.
func (e pendingExporter) Collect(out chan<- prometheus.Metric) {
	put := func(desc *prometheus.Desc, tenant string, v float64) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, tenant)
	}
	for tenant, p := range e.pending() {
		put(descPendingBytes, tenant, float64(p.Bytes))
		put(descPendingSamples, tenant, float64(p.Samples))
	}
	now := e.now().UnixMilli()
	for tenant, end := range e.unstored() {
		put(descPendingSeconds, tenant, max(0, float64(now-end)/1000))
	}
}
