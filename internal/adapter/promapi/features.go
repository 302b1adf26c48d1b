package promapi

import (
	"fmt"
	"net/url"

	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/util/features"
	"github.com/prometheus/prometheus/util/notifications"
	v1 "github.com/prometheus/prometheus/web/api/v1"
)

// newFeatures lists the features of this server under Prometheus' names, for clients that ask
// before they use a feature.
func newFeatures(p parser.Parser) features.Collector {
	r := features.NewRegistry()
	p.RegisterFeatures(r)
	for _, name := range []string{"at_modifier", "negative_offset", "per_query_lookback_delta", "subqueries"} {
		r.Enable(features.PromQL, name)
	}
	for _, name := range []string{"per_step_stats", "delayed_name_removal", "type_and_unit_labels"} {
		r.Disable(features.PromQL, name) // see NewEngine
	}
	for name, enabled := range map[string]bool{
		"label_values_match": true, "query_warnings": true, "query_stats": true, "time_range_series": true,
		"time_range_labels":     true,
		"remote_write_receiver": true, "otlp_write_receiver": true, "lifecycle": true,
		"admin": false, "search": false, "exclude_alerts": false, "openapi_3.1": false, "openapi_3.2": false,
	} {
		r.Set(features.API, name, enabled)
	}
	r.Enable(features.OTLPReceiver, "delta_conversion")
	r.Disable(features.OTLPReceiver, "native_delta_ingestion")
	r.Enable(features.Prometheus, "server_mode")
	r.Disable(features.Prometheus, "agent_mode")
	return r
}

// noNotifications is the empty list of messages for Prometheus' own page.
func noNotifications() []notifications.Notification { return []notifications.Notification{} }

// RuleSource returns the rules of a tenant, and the Alertmanagers that are notified.
type RuleSource func(tenant string) TenantRules

// TenantRules are what Prometheus' handlers answer from.
type TenantRules interface {
	v1.RulesRetriever
	v1.AlertmanagerRetriever
}

// NoRules is the RuleSource of a server without rules.
func NoRules(string) TenantRules { return noRules{} }

type noRules struct{}

func (noRules) Alertmanagers() []*url.URL            { return nil }
func (noRules) DroppedAlertmanagers() []*url.URL     { return nil }
func (noRules) RuleGroups() []*rules.Group           { return nil }
func (noRules) AlertingRules() []*rules.AlertingRule { return nil }

// noScraping tells Prometheus' handlers that there are no targets.
type noScraping struct{}

func (noScraping) ScrapePools() []string                       { return []string{} }
func (noScraping) TargetsActive() map[string][]*scrape.Target  { return nil }
func (noScraping) TargetsDropped() map[string][]*scrape.Target { return nil }
func (noScraping) TargetsDroppedCounts() map[string]int        { return map[string]int{} }
func (noScraping) ScrapePoolConfig(pool string) (*config.ScrapeConfig, error) {
	return nil, fmt.Errorf("there is no scrape pool %q", pool)
}
