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
			Help: "Kept traces of batches that exceeded the budget of a stage, and of slow queries. Rising: " +
				"the page shows them under Records."}),
		skipped: f.NewCounter(prometheus.CounterOpts{Name: "freshet_traces_skipped_total",
			Help: "Slow batches and queries whose trace was not kept, because there were more than ten in the same second. " +
				"Rising: nearly everything is slow; the kept traces show why."}),
		sent: f.NewCounter(prometheus.CounterOpts{Name: "freshet_traces_spans_sent_total",
			Help: "Spans of kept traces that self.traces.endpoint accepted."}),
		unsent: f.NewCounter(prometheus.CounterOpts{Name: "freshet_traces_spans_unsent_total",
			Help: "Spans of kept traces that self.traces.endpoint did not get: it is down, refuses them, " +
				"or is so slow that too many waited. Rising: the log says which; this process still holds the traces."}),
	}
}
