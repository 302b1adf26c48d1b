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
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "freshet", Subsystem: "receive",
			Name: "request_seconds",
			Help: "Time of remote write and OTLP requests from the first byte to the answer, by HTTP status; gRPC counts " +
				"under the HTTP status for the same outcome. Rising: freshet_stage_seconds shows in which stage.",
			Buckets:                     prometheus.ExponentialBuckets(0.0005, 3, 9),
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
		}, []string{"status"}),
		unread: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "freshet", Subsystem: "receive",
			Name: "unread_requests_total",
			Help: "Requests that could not be read, by reason. Rising: content_type, a sender speaks another protocol; " +
				"too_large, more than distributor.max_body; malformed, a broken sender or a cut connection; stalled, a sender " +
				"stopped in the middle of a request and was asked to retry."}, []string{"reason"}),
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
