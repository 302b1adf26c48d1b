package receive

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/core/top"
)

type metrics struct {
	seconds *prometheus.HistogramVec
	unread  *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, sources *top.Sources) *metrics {
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
	reg.MustRegister(m.seconds, m.unread, prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "freshet",
		Subsystem: "receive", Name: "unlisted_requests_total",
		Help: "Requests of senders that are not on the list of senders, since it had 4,096 others that sent in the last " +
			"10 seconds. Rising: one program names itself anew in each request.",
	}, func() float64 { return float64(sources.Unlisted()) }))
	return m
}

func (m *metrics) answer(status int, took time.Duration) {
	m.seconds.WithLabelValues(strconv.Itoa(status)).Observe(took.Seconds())
}
