package aggregator

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// register registers the metrics that are read from the aggregator at each scrape.
func (a *Aggregator) register(reg prometheus.Registerer) {
	f := promauto.With(reg)
	reg.MustRegister(pendingExporter{a.now, a.Pending, a.shards.Unstored})
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "freshet_aggregator_series",
		Help: "Series that the aggregator holds, with their open tiles. Memory grows with their number.",
	}, func() float64 { return float64(a.shards.Len()) })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "freshet_aggregator_live_age_seconds",
		Help: "Age of the last second whose windows are all counted. Queries of open tiles see nothing newer. " +
			"About 1 to 2 s is normal. Rising: the collector or the journal stalls.",
	}, func() float64 { return float64(a.now().UnixMilli()-a.stamp.Load()) / 1000 })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "freshet_aggregator_journal_bytes",
		Help: "Size of the journal since the last checkpoint began. A restart reads about as much. Rising without end: " +
			"checkpoints fail.",
	}, func() float64 { return float64(a.log.Size()) })
}

func describePending(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("freshet_aggregator_pending_"+name, help, []string{"tenant"}, nil)
}

var (
	descPendingBytes = describePending("bytes",
		"Memory of the closed tiles that wait for a tenant's store. Rising without end: the store takes nothing; "+
			"at store.pending the tenant's new samples are refused.")
	descPendingSamples = describePending("samples",
		"Values on the wire in the closed tiles that wait for a tenant's store. They are in the journal or a checkpoint, "+
			"and survive the death of the process.")
	descPendingSeconds = describePending("seconds",
		"Time since the end of the oldest tile of a tenant that is not stored. Up to aggregator.lateness "+
			"plus 4 s is normal; above that, the tenant's store does not keep up, or takes nothing.")
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
