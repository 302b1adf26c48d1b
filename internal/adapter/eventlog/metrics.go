package eventlog

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	stored  prometheus.Counter
	removed *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		stored: prometheus.NewCounter(prometheus.CounterOpts{Namespace: "freshet", Subsystem: "eventlog",
			Name: "events_stored_total",
			Help: "Events written to the log."}),
		removed: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "freshet", Subsystem: "eventlog",
			Name: "events_removed_total",
			Help: "Events removed from the log, by reason: age, older than events.retention; bound, " +
				"the tenant had more than events.max_events. bound rising: a sender sends too many, " +
				"or events.max_events is too low for events.retention."},
			[]string{"reason"}),
	}
	reg.MustRegister(m.stored, m.removed)
	return m
}
