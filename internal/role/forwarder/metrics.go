package forwarder

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/freshet-io/freshet/internal/core/queue"
)

// Reasons for unsent requests.
const (
	unsentFull    = "queue_full"
	unsentDamaged = "damaged"
	unsentDisk    = "queue_error"
)

type metrics struct {
	acknowledged, refused, unsent fate
	elsewhere                     fate
	retries                       *prometheus.CounterVec
	queueErrors                   prometheus.Counter
	requestSeconds                prometheus.Histogram
}

// fate counts the requests, samples and bytes of one fate.
type fate struct{ requests, samples, bytes *prometheus.CounterVec }

func (f fate) add(a queue.Amount, reason ...string) {
	f.requests.WithLabelValues(reason...).Add(float64(a.Frames))
	f.samples.WithLabelValues(reason...).Add(float64(a.Samples))
	f.bytes.WithLabelValues(reason...).Add(float64(a.Bytes))
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := promauto.With(reg)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return m.NewCounterVec(prometheus.CounterOpts{Name: "freshet_forwarder_" + name, Help: help}, labels)
	}
	newFate := func(name, help string, labels ...string) fate {
		return fate{
			requests: counter(name+"_requests_total", "Requests "+help, labels...),
			samples:  counter(name+"_samples_total", "Samples and histograms "+help, labels...),
			bytes:    counter(name+"_bytes_total", "Bytes of requests, compressed, "+help, labels...),
		}
	}
	all := &metrics{
		acknowledged: newFate("acknowledged", "that the backend has taken."),
		refused: newFate("refused",
			"that the backend refused for good, by the status of its answer. Rising: the log has the backend's words. "+
				"conversion and frame: Freshet could not make a request from the queue's contents.", "reason"),
		unsent: newFate("unsent",
			"that will never be sent. queue_full: the backend was away until the queue was full, "+
				"and the oldest requests were given up. "+
				"queue_error: the disk is full or broken. damaged: the disk lost what was written.", "reason"),
		elsewhere: newFate("elsewhere", "that another node of the cluster has sent, so that this node dropped its copy. "+
			"The node that leads sends."),
		retries: counter("retries_total",
			"Requests that are sent again, by status or cause. Rising: the backend is overloaded, away or badly configured.",
			"reason"),
		queueErrors: m.NewCounter(prometheus.CounterOpts{Name: "freshet_forwarder_queue_errors_total",
			Help: "Reads of the queue that failed, and read positions that could not be saved. Rising: " +
				"the disk is full or broken; after a restart requests may be sent again."}),
		requestSeconds: m.NewHistogram(prometheus.HistogramOpts{Name: "freshet_forwarder_request_seconds",
			Help: "Time from sending a request to its answer, even if it was an error. Rising: " +
				"the backend or the network is slow.",
			NativeHistogramBucketFactor: 1.1, Buckets: prometheus.ExponentialBuckets(0.001, 4, 8)}),
	}
	all.acknowledged.add(queue.Amount{})
	all.elsewhere.add(queue.Amount{})
	// Each reason begins at 0, so that queries see the first increase.
	for _, reason := range []string{unsentFull, unsentDamaged, unsentDisk} {
		all.unsent.add(queue.Amount{}, reason)
	}
	return all
}

// watch registers gauges that read the queues at each scrape.
func watch(reg prometheus.Registerer, waiting func() (queue.Amount, int64)) {
	m := promauto.With(reg)
	gauge := func(name, help string, value func(queue.Amount) float64) {
		m.NewGaugeFunc(prometheus.GaugeOpts{Name: "freshet_forwarder_" + name, Help: help}, func() float64 {
			sum, _ := waiting()
			return value(sum)
		})
	}
	const rising = " Rising without end: the backend takes less than arrives, or nothing."
	gauge("waiting_requests", "Requests on disk that the backend has not acknowledged yet."+rising,
		func(a queue.Amount) float64 { return float64(a.Frames) })
	gauge("waiting_samples", "Samples and histograms on disk that the backend has not acknowledged yet."+rising,
		func(a queue.Amount) float64 { return float64(a.Samples) })
	gauge("waiting_bytes", "Compressed bytes of requests on disk that the backend has not acknowledged yet. "+
		"The queue's files may take up to a sixteenth more than the queue's limit.",
		func(a queue.Amount) float64 { return float64(a.Bytes) })
	m.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "freshet_forwarder_oldest_seconds",
		Help: "Age of the oldest request that waits; how far the backend is behind. 0 if none waits.",
	}, func() float64 {
		_, oldest := waiting()
		if oldest == 0 {
			return 0
		}
		return max(0, time.Since(time.UnixMilli(oldest)).Seconds())
	})
}
