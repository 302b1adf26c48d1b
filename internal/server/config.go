package server

import (
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/settings"
)

// inForce returns the present configuration.
func (s *server) inForce() settings.Config { return *s.current.Load() }

// has reports whether the process has a role.
func (s *server) has(role string) bool { return s.config.Roles().Has(role) }

// reloader has the parts that a reload needs: the source of the configuration, and the metrics of
// reloads.
type reloader struct {
	source *settings.Source
	asked  chan os.Signal // one signal may wait during a reload; the next reload reads the newest file
	mu     sync.Mutex     // one reload at a time

	reloads    *prometheus.CounterVec
	successful prometheus.Gauge
	succeeded  prometheus.Gauge
	refused    atomic.Bool  // the last reload was refused
	read       atomic.Int64 // Unix nanoseconds, when the configuration in force was read
}

func newReloader(from *settings.Source, dataDir string, reg prometheus.Registerer) *reloader {
	from.KeepBelow(dataDir) // a reload cannot change the data directory
	f := promauto.With(reg)
	r := &reloader{
		source: from,
		asked:  make(chan os.Signal, 1),
		reloads: f.NewCounterVec(prometheus.CounterOpts{Name: "freshet_config_reloads_total",
			Help: "Reloads of the configuration, by result. A refused reload changed nothing."}, []string{"result"}),
		successful: f.NewGauge(prometheus.GaugeOpts{Name: "freshet_config_last_reload_successful",
			Help: "Whether the last reload, or the start, was successful. 0: the configuration on disk is not the one in " +
				"force; the log says why."}),
		succeeded: f.NewGauge(prometheus.GaugeOpts{Name: "freshet_config_last_reload_success_timestamp_seconds",
			Help: "When the configuration in force was read."}),
	}
	signal.Notify(r.asked, answer.ReloadSignal) // stays in effect until the process ends
	for _, result := range []string{"applied", "refused"} {
		r.reloads.WithLabelValues(result)
	}
	r.inForce()
	return r
}

// inForce notes that the last configuration that was read is now in force.
func (r *reloader) inForce() {
	r.successful.Set(1)
	r.succeeded.SetToCurrentTime()
	r.refused.Store(false)
	r.read.Store(time.Now().UnixNano())
}

// inCluster reports whether the process belongs to a cluster: as a node, or as a collector or a gateway
// beside the nodes.
func (s *server) inCluster() bool { return len(s.config.Cluster.Nodes) > 0 }

// discards reports whether the process has nobody to hand its windows to.
func (s *server) discards() bool { return !s.has(settings.RoleAggregator) && !s.inCluster() }

// inGroup reports whether requests and windows go through the log of a group.
func (s *server) inGroup() bool { return s.inCluster() || os.Getenv(groupVariable) != "" }

// groupVariable is the environment variable that makes a server a group of one. Tests use it to run the
// code for several members. It is not a setting, since a group of one costs more and has no benefit.
const groupVariable = "FRESHET_GROUP_OF_ONE"
