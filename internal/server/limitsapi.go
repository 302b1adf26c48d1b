package server

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"

	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/role/collector"
)

// tenantLimits says how much of its limits a tenant uses, for GET /api/v1/status/limits. The first
// fields are about DogStatsD; Distributor has the limits of remote write and OTLP.
// /api/v1/status/top has the metrics over a limit, and the senders that cause it.
type tenantLimits struct {
	Tenant      string             `json:"tenant"`
	Series      int                `json:"series"` // DogStatsD series that have a place now
	Folded      uint64             `json:"folded_samples"`
	Refused     uint64             `json:"refused_samples"`
	Limits      limitsJSON         `json:"limits"`
	Distributor *distributorLimits `json:"distributor,omitempty"` // nil if the process stores nothing
}

// limitsJSON are limits under the names of the configuration. 0 means no limit.
type limitsJSON struct {
	MaxSeries             int   `json:"max_series"`
	MaxSeriesPerMetric    int   `json:"max_series_per_metric"`
	MaxNewSeriesPerMinute int   `json:"max_new_series_per_minute"`
	MaxSeriesBytes        int64 `json:"max_series_bytes"`
}

// distributorLimits are the limits of remote write and OTLP, and their use. MaxSeries bounds Series and
// Totals separately.
type distributorLimits struct {
	Series  int                  `json:"series"`           // recent series of remote write, and of OTLP without deltas
	Totals  int                  `json:"totals"`           // series with totals: OTLP deltas and DogStatsD
	Refused uint64               `json:"refused_samples"`  // samples refused by a limit of series or labels
	Delayed uint64               `json:"delayed_requests"` // requests over the rate, which were told to retry later
	Sender  *answer.TopRequester `json:"sender,omitempty"` // the sender of the most samples now
	Limits  distributorJSON      `json:"limits"`
}

// distributorJSON are limits under the names of the configuration.
type distributorJSON struct {
	Rate          int `json:"rate"`
	MaxSeries     int `json:"max_series"`
	MaxLabels     int `json:"max_labels"`
	MaxLabelName  int `json:"max_label_name"`
	MaxLabelValue int `json:"max_label_value"`
}

// serveLimits answers an operator with the limits of all tenants that have series, and a tenant
// with its own limits.
func (s *server) serveLimits(w http.ResponseWriter, r *http.Request) {
	name, asked := tenantOf(r), map[string]bool{}
	asked[name] = true // it may have no series yet
	dogstatsd, stored := map[string]collector.LimitReport{}, map[string]int{}
	for _, report := range s.collector.Limits() {
		dogstatsd[report.Tenant] = report
	}
	if s.stores != nil {
		stored = s.stores.InMemory(tsdb.Raw)
	}
	if s.operator(r) {
		for tenant := range dogstatsd {
			asked[tenant] = true
		}
		for tenant := range stored {
			asked[tenant] = true
		}
	}
	limits, senders, tenants := s.inForce().Limits, s.requestSenders(), []tenantLimits{}
	for _, tenant := range slices.Sorted(maps.Keys(asked)) {
		of, report := limits.Of(tenant), dogstatsd[tenant]
		t := tenantLimits{Tenant: tenant, Series: report.Series, Limits: limitsJSON{
			of.MaxSeries, of.MaxSeriesPerMetric, of.MaxNewSeriesPerMinute, int64(of.MaxSeriesBytes),
		}}
		for reason := range report.Folded {
			t.Folded += report.Folded[reason]
			t.Refused += report.Refused[reason]
		}
		if s.stores != nil {
			series := stored[tenant] // until the first write, all stored series count as recent
			if recent := s.ingester.Recent(tenant); recent > 0 {
				series = recent
			}
			t.Distributor = s.distributorLimits(tenant, series, senders[tenant])
		}
		tenants = append(tenants, t)
	}
	w.Header().Set("Content-Type", "application/json")
	// This fails only if the client is gone.
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success",
		"data": map[string]any{"tenant": name, "tenants": tenants}})
}

// distributorLimits returns a tenant's limits of remote write and OTLP, and their use. `series` is the
// number of the tenant's recent series, and `senders` are its senders.
func (s *server) distributorLimits(tenant string, series int, senders []answer.TopRequester) *distributorLimits {
	c := s.inForce().Distributor
	own := c.Tenants[tenant]
	l := &distributorLimits{
		Series: series, Totals: s.aggregator.TenantSeries(tenant), Delayed: s.distributor.Delayed(tenant),
		Limits: distributorJSON{
			own.Rate.Or(c.Rate), own.MaxSeries.Or(c.MaxSeries), c.MaxLabels, c.MaxLabelName, c.MaxLabelValue,
		},
	}
	if len(senders) > 0 {
		l.Sender = &senders[0]
	}
	refused := s.ledger.Books().Of(tenant).Samples.Refused
	for reason := range outcome.NumReasons {
		if reason.IsLimit() {
			l.Refused += refused[reason.String()]
		}
	}
	return l
}
