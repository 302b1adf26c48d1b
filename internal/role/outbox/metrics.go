package outbox

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/freshet-io/freshet/internal/core/queue"
)

// Reasons in the ledger. docs/ledger.md explains them.
const (
	unsentFull      = "outbox_full"
	unsentDamaged   = "outbox_damaged"
	unsentForgotten = "forgotten"

	reasonNotTaken = "not_taken"     // the leader can never take the window
	reasonPending  = "store_pending" // the backlog of the tenant's store is full
)

type metrics struct {
	written, coalesced prometheus.Counter
	errors             prometheus.Counter
	unsent             *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := promauto.With(reg)
	all := &metrics{
		written: m.NewCounter(prometheus.CounterOpts{Name: "freshet_outbox_written_windows_total",
			Help: "Windows that went into the outbox, since no leader acknowledged them within 1 s, or since others waited " +
				"there. Rising: the cluster has no leader, or this process cannot reach it."}),
		coalesced: m.NewCounter(prometheus.CounterOpts{Name: "freshet_outbox_coalesced_windows_total",
			Help: "Windows that waited in the outbox for more than 10 s, and were coalesced with the others of their tile."}),
		errors: m.NewCounter(prometheus.CounterOpts{Name: "freshet_outbox_errors_total",
			Help: "Reads and writes of the outbox that failed. Rising: the disk is full or broken, and windows wait in " +
				"memory until a leader takes them."}),
		unsent: m.NewCounterVec(prometheus.CounterOpts{Name: "freshet_outbox_unsent_samples_total",
			Help: "Samples in the outbox that were given up. outbox_full: no leader came before cluster.outbox was reached. " +
				"outbox_damaged: the disk lost what was written. forgotten: a leader may have had them for an hour."},
			[]string{"reason"}),
	}
	// with the value 0, so that queries see the first increase
	for _, reason := range []string{unsentFull, unsentDamaged, unsentForgotten} {
		all.unsent.WithLabelValues(reason)
	}
	return all
}

// watch registers gauges that read the file's amounts at each scrape.
func watch(reg prometheus.Registerer, waiting func() (sum queue.Amount, age time.Duration)) {
	m := promauto.With(reg)
	gauge := func(name, help string, value func(sum queue.Amount, age time.Duration) float64) {
		m.NewGaugeFunc(prometheus.GaugeOpts{Name: "freshet_outbox_" + name, Help: help}, func() float64 {
			return value(waiting())
		})
	}
	const rising = " Rising without end: the cluster has no leader, or this process cannot reach it."
	gauge("waiting_windows", "Windows on disk that no leader has acknowledged yet. Those of a tile that were coalesced "+
		"are one."+rising,
		func(sum queue.Amount, _ time.Duration) float64 { return float64(sum.Frames) })
	gauge("waiting_samples", "Samples on disk that no leader has acknowledged yet."+rising,
		func(sum queue.Amount, _ time.Duration) float64 { return float64(sum.Samples) })
	gauge("waiting_bytes", "Bytes of windows on disk that no leader has acknowledged yet. At cluster.outbox the oldest "+
		"are given up.",
		func(sum queue.Amount, _ time.Duration) float64 { return float64(sum.Bytes) })
	gauge("oldest_seconds", "Age of the oldest window in the outbox; how far this process is behind. 0 if none waits.",
		func(_ queue.Amount, age time.Duration) float64 { return age.Seconds() })
}
