package ingester

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	pushed prometheus.Histogram
	group  prometheus.Histogram
	full   prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, g *Ingester) *metrics {
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "freshet", Subsystem: "ingester", Name: name, Help: help,
			Buckets: buckets, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
		})
	}
	m := &metrics{
		pushed: histogram("push_seconds", "Time that a request waits and is written, until it survives the death "+
			"of the process. Rising: see its parts, the stages queue and append of freshet_stage_seconds. "+
			"freshet_receive_request_seconds also contains reading, decoding and answering.",
			prometheus.ExponentialBuckets(0.0001, 4, 9)),
		group: histogram("group_requests", "Requests of one tenant that were written in one commit. Rising: many came "+
			"while the one before was written, which saves work.",
			prometheus.ExponentialBuckets(1, 2, 7)),
		full: prometheus.NewCounter(prometheus.CounterOpts{Namespace: "freshet", Subsystem: "ingester",
			Name: "queue_full_total",
			Help: "Requests that found the queue full, or their tenant's share of it, and must be sent again. Rising: the " +
				"disk or the processors do not keep up."}),
	}
	reg.MustRegister(m.pushed, m.group, m.full,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "freshet", Subsystem: "ingester", Name: "waiting_requests",
			Help: "Requests that wait to be written or are being written. At the limit, ingester.queue, further " +
				"requests are answered with 503."},
			func() float64 { return float64(g.waiting.Load()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "freshet", Subsystem: "ingester",
			Name: "workers_replaced_total",
			Help: "Workers that were replaced by new ones with a small stack: on average, one worker after every " +
				"thousand pieces of work."},
			func() float64 { return float64(g.pool.Replaced()) }))
	return m
}
