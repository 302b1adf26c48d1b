package server

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/lib/build"
)

// buildGauge is always 1; its information is in the labels.
func buildGauge(b build.Info) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "freshet_build_info",
		Help: "Always 1. The labels are the version and commit of this binary, and what it was built with. " +
			"Several values among instances: they run different versions.",
		ConstLabels: prometheus.Labels{
			"version": b.Version, "revision": b.Revision, "goversion": b.Go, "goos": runtime.GOOS, "goarch": runtime.GOARCH,
		}})
	g.Set(1)
	return g
}
