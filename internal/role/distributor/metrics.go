package distributor

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/core/outcome"
)

type metrics struct {
	written, exemplars, notKept, elections prometheus.Counter
	dropped, refused, retries              *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "freshet", Subsystem: "distributor", Name: name, Help: help,
		})
	}
	vec := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "freshet", Subsystem: "distributor", Name: name, Help: help,
		}, []string{"reason"})
	}
	m := &metrics{
		written: counter("written_samples_total", "Samples and histograms of remote write and OTLP that were "+
			"acknowledged: stored now, or stored already."),
		exemplars: counter("written_exemplars_total", "Exemplars that were acknowledged."),
		dropped: vec("dropped_samples_total", "Samples that the configuration drops, by reason: rule, by "+
			"distributor.relabel; replica, from the HA pair's server that is not elected."),
		elections: counter("ha_elections_total", "How often the election of an HA pair changed to its other server; "+
			"the log names the server. Rising: the servers are down in turn, or distributor.ha.timeout is shorter "+
			"than their pauses."),
		notKept: counter("exemplars_not_kept_total", "Exemplars for which there was no room, or which were older than the "+
			"newest of their series. Rising: store.exemplars is too small for what senders send."),
		refused: vec("refused_total", "Samples, histograms and exemplars that were refused, by reason; a series that "+
			"had none of these counts as one. The sender got 400, 429 for a limit, or a partial success (OTLP), "+
			"with the first series. "+
			"Rising: the answer and the sender's log name the series; too_many_series, a tenant has more than "+
			"distributor.max_series; duplicate, two senders send the same series; too_old, a sender was late by more than "+
			"store.out_of_order; delta, an OpenTelemetry SDK adds a value that is not a number, or lowers a monotonic sum."),
		retries: vec("retries_total", "Requests that senders must repeat (503), by reason. Rising: rate, a tenant sends "+
			"more than distributor.rate; memory, requests take all of distributor.max_memory; unavailable, the disk does not "+
			"keep up or is full, or a cluster has no leader: the log has the cause."),
	}
	for reason := range outcome.NumReasons {
		m.refused.WithLabelValues(reason.String()) // a reason that has not occurred yet is 0, not absent
	}
	for _, reason := range []string{overRate, unavailable, noMemory} {
		m.retries.WithLabelValues(reason)
	}
	for _, reason := range []string{droppedRule, droppedReplica} {
		m.dropped.WithLabelValues(reason)
	}
	reg.MustRegister(m.written, m.exemplars, m.dropped, m.notKept, m.elections, m.refused, m.retries)
	return m
}
