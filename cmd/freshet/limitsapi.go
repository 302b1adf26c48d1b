package main

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/freshet-io/freshet/internal/role/collector"
)

// tenantLimits is how far a tenant is from its limits: GET /api/v1/status/limits.
// What is over a limit, and who makes it so, is in /api/v1/status/top.
type tenantLimits struct {
	Tenant  string     `json:"tenant"`
	Series  int        `json:"series"` // that have a place now
	Folded  uint64     `json:"folded_samples"`
	Refused uint64     `json:"refused_samples"`
	Limits  limitsJSON `json:"limits"`
}

// limitsJSON has the names of the configuration. 0 is no limit.
type limitsJSON struct {
	MaxSeries             int   `json:"max_series"`
	MaxSeriesPerMetric    int   `json:"max_series_per_metric"`
	MaxNewSeriesPerMinute int   `json:"max_new_series_per_minute"`
	MaxSeriesBytes        int64 `json:"max_series_bytes"`
}

// serveLimits answers with all tenants that have series by DogStatsD, or with the
// one that asks.
func (s *server) serveLimits(w http.ResponseWriter, r *http.Request) {
	name, all := tenantOf(r), s.collector.Limits()
	if !s.operator(r) {
		all = slices.DeleteFunc(all, func(l collector.LimitReport) bool { return l.Tenant != name })
	}
	if !slices.ContainsFunc(all, func(l collector.LimitReport) bool { return l.Tenant == name }) {
		all = append(all, collector.LimitReport{Tenant: name}) // which has none yet
	}
	slices.SortFunc(all, func(a, b collector.LimitReport) int { return cmp.Compare(a.Tenant, b.Tenant) })
	limits, tenants := s.inForce().Limits, []tenantLimits{}
	for _, l := range all {
		of := limits.Of(l.Tenant)
		t := tenantLimits{Tenant: l.Tenant, Series: l.Series, Limits: limitsJSON{
			of.MaxSeries, of.MaxSeriesPerMetric, of.MaxNewSeriesPerMinute, int64(of.MaxSeriesBytes),
		}}
		for reason := range l.Folded {
			t.Folded += l.Folded[reason]
			t.Refused += l.Refused[reason]
		}
		tenants = append(tenants, t)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{"tenant": name, "tenants": tenants}}) // fails if the client went away
}
