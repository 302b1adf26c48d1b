// Package ruler evaluates alerting and recording rules, and notifies Alertmanagers. Prometheus'
// rules.Manager and notifier.Manager do the work, unchanged, one of each for a tenant with rules. The
// package gives them our storage, the tenant of each query, and our configuration.
//
// adapter/rulefiles reads the files, the querier answers the queries, and the distributor takes the
// results.
package ruler
