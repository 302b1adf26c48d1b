package server

import (
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// serveMetrics answers an operator with all metrics, and a tenant with the metrics that have its
// name in the label tenant. Metrics without this label count all tenants together, which would show
// a tenant how much other tenants send.
func (s *server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	if s.operator(r) {
		s.metrics.ServeHTTP(w, r)
		return
	}
	own := ownMetrics{s.registry, tenantOf(r)}
	promhttp.HandlerFor(own, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

// ownMetrics gathers the metrics of one tenant: those with its name in the label tenant.
type ownMetrics struct {
	all    prometheus.Gatherer
	tenant string
}

// Gather implements prometheus.Gatherer.
func (o ownMetrics) Gather() (families []*dto.MetricFamily, err error) {
	families, err = o.all.Gather()
	for _, f := range families {
		f.Metric = slices.DeleteFunc(f.Metric, func(m *dto.Metric) bool {
			return !slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool {
				return l.GetName() == "tenant" && l.GetValue() == o.tenant
			})
		})
	}
	return slices.DeleteFunc(families, func(f *dto.MetricFamily) bool { return len(f.Metric) == 0 }), err
}
