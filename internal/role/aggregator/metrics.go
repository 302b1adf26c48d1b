package aggregator

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/freshet-io/freshet/internal/core/tile"
)

type metrics struct {
	folded, late, ahead, lateGauges      prometheus.Counter
	refused, repeated, again             prometheus.Counter
	tiled, duplicates, replayed, damaged prometheus.Counter
	journalErrors                        prometheus.Counter
	writeErrors, pendingRefused          *prometheus.CounterVec // by tenant
	checkpoints, checkpointErrors        prometheus.Counter
	checkpointSeconds                    prometheus.Gauge
	flushSeconds                         prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: "freshet_aggregator_" + name, Help: help})
	}
	byTenant := func(name, help string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Name: "freshet_aggregator_" + name, Help: help}, []string{"tenant"})
	}
	return &metrics{
		folded: counter("journalled_samples_total",
			"Samples that were journalled and joined a tile. From here on they survive the death of the process."),
		late: counter("late_samples_total",
			"Journalled samples whose tile was closed, so the oldest open tile took them. Rising: "+
				"a sender's clock is off, or lateness is too short."),
		ahead: counter("ahead_samples_total",
			"Journalled samples whose time lay over a minute ahead, so the last open tile took them. Rising: "+
				"a sender's clock is fast."),
		lateGauges: counter("late_gauge_samples_total",
			"Gauges and checks that came after their tile was closed, and were dropped. Rising: as for late samples."),
		refused: counter("refused_samples_total",
			"Samples whose sum would be beyond what a float holds, or that do not fit their series. Rising: "+
				"a client sends absurd values."),
		repeated: counter("repeated_samples_total",
			"Values of OpenTelemetry's delta temporality for a time that their series has already counted. Rising: "+
				"a sender repeats values that were acknowledged, or two senders send one series."),
		tiled: counter("tiled_samples_total",
			"Samples in closed tiles."),
		duplicates: counter("duplicate_samples_total",
			"Gauge samples whose own time (|T) is the end of a tile, where the tile already has its sample."),
		replayed: counter("replayed_batches_total",
			"Batches that were read from the journal at the start."),
		damaged: counter("damaged_batches_total",
			"Batches that could not be read to the end. Above 0: a bug, or a damaged disk."),
		journalErrors: counter("journal_errors_total",
			"Writes to the journal that failed. Rising: the disk is full or broken; collectors hold their windows."),
		again: counter("repeated_batches_total",
			"Batches that came again: their producer's sequence shows that they are already counted. "+
				"Rising with freshet_aggregator_journal_errors_total: windows that could not be synced are pushed again. "+
				"Rising alone: a bug of a producer."),
		writeErrors: byTenant("store_errors_total",
			"Writes of tiles that the store of a tenant did not take. Rising: its directory is damaged, "+
				"or the disk is full or broken; its tiles wait."),
		pendingRefused: byTenant("pending_refused_samples_total",
			"Samples of windows that were refused, since the tenant's store takes nothing and tiles up to "+
				"store.pending already wait. "+
				"Rising: data of this tenant is lost; freshet diagnose names the store."),
		checkpoints: counter("checkpoints_total",
			"Checkpoints written."),
		checkpointErrors: counter("checkpoint_errors_total",
			"Checkpoints that failed. Rising: the disk is full or broken; the journal grows."),
		checkpointSeconds: f.NewGauge(prometheus.GaugeOpts{Name: "freshet_aggregator_checkpoint_seconds",
			Help: "Time that the last checkpoint took. It is slow on purpose: its writes are spread over time."}),
		flushSeconds: f.NewHistogram(prometheus.HistogramOpts{Name: "freshet_aggregator_flush_seconds",
			Help:                        "Time to store the tiles of the shards that were due together.",
			NativeHistogramBucketFactor: 1.1, Buckets: prometheus.ExponentialBuckets(0.001, 4, 8)}),
	}
}

func (m *metrics) countFolded(f *tile.Folded) {
	m.folded.Add(float64(f.Samples))
	m.late.Add(float64(f.Late))
	m.ahead.Add(float64(f.Ahead))
	m.lateGauges.Add(float64(f.LateGauge))
	m.refused.Add(float64(f.Refused))
	m.repeated.Add(float64(f.Repeated))
	m.again.Add(float64(f.Again))
}
