package server

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/lib/build"
)

// buildGauge is always 1: the value of freshet_build_info is in its labels.
func buildGauge(b build.Info) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "freshet_build_info",
		Help:        "Always 1, with the version and the commit of this binary, and what it was built with, as labels. More than one value among several instances: they are not of one version.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Revision, "goversion": b.Go, "goos": runtime.GOOS, "goarch": runtime.GOARCH}})
	g.Set(1)
	return g
}
