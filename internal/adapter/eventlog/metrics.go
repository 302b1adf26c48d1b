package eventlog

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	stored  prometheus.Counter
	removed *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		stored: prometheus.NewCounter(prometheus.CounterOpts{Namespace: "freshet", Subsystem: "eventlog", Name: "events_stored_total",
			Help: "Events that were written to the log."}),
		removed: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "freshet", Subsystem: "eventlog", Name: "events_removed_total",
			Help: "Events that were removed, by reason: age, they were older than events.retention; bound, their tenant had more than events.max_events. The second rising: somebody sends too many, or the bound is too low to reach back as far as retention promises."},
			[]string{"reason"}),
	}
	reg.MustRegister(m.stored, m.removed)
	return m
}
