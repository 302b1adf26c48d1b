package receive

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	seconds *prometheus.HistogramVec
	unread  *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "freshet", Subsystem: "receive", Name: "request_seconds",
			Help:    "How long requests of remote write and OTLP take from the first byte to the answer, by status, which for gRPC is what HTTP would have answered. Rising: freshet_stage_seconds says in which stage.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 3, 9), NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160}, []string{"status"}),
		unread: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "freshet", Subsystem: "receive", Name: "unread_requests_total",
			Help: "Requests that could not be read, by reason. Rising: content_type, a sender that speaks something else; too_large, distributor.max_body; malformed, a broken sender, or a connection that was cut; stalled, a sender that began a request and did not go on, which is asked to send it again."}, []string{"reason"}),
	}
	for _, reason := range []string{"content_type", "too_large", "malformed", "stalled"} {
		m.unread.WithLabelValues(reason)
	}
	reg.MustRegister(m.seconds, m.unread)
	return m
}

func (m *metrics) answer(status int, took time.Duration) {
	m.seconds.WithLabelValues(strconv.Itoa(status)).Observe(took.Seconds())
}
