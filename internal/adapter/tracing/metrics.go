package tracing

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct{ kept, skipped, sent, unsent prometheus.Counter }

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		kept: f.NewCounter(prometheus.CounterOpts{Name: "freshet_traces_kept_total",
			Help: "Traces of batches that were over budget in a stage, and of slow queries. Rising: the page shows them under Records."}),
		skipped: f.NewCounter(prometheus.CounterOpts{Name: "freshet_traces_skipped_total",
			Help: "Slow batches and queries that no trace is kept of, since there were more than ten in the second. Rising: nearly everything is slow; those that are kept tell as much."}),
		sent: f.NewCounter(prometheus.CounterOpts{Name: "freshet_traces_spans_sent_total",
			Help: "Spans of kept traces that self.traces.endpoint took."}),
		unsent: f.NewCounter(prometheus.CounterOpts{Name: "freshet_traces_spans_unsent_total",
			Help: "Spans of kept traces that self.traces.endpoint did not get: it is away, refuses them, or is so slow that too many waited. Rising: the log says which; the traces themselves are still held."}),
	}
}
