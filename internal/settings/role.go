package settings

import "slices"

// The roles that a process may have. The key `role` names one of them, or RoleAll. So far only the
// collector runs without the other roles.
const (
	RoleAll = "all"

	RoleCollector   = "collector"   // reads the DogStatsD sockets, and hands its windows to an aggregator
	RoleAggregator  = "aggregator"  // journals windows and makes tiles of them
	RoleDistributor = "distributor" // accepts remote write and OTLP, and passes tiles on
	RoleIngester    = "ingester"    // writes into the stores
	RoleForwarder   = "forwarder"   // also sends requests and tiles to other backends
	RoleQuerier     = "querier"     // answers PromQL
	RoleScraper     = "scraper"     // stores the process' own metrics
	RoleProber      = "prober"      // measures freshness
)

// Roles is a set of roles.
type Roles []string

// Has reports whether a role is in the set.
func (r Roles) Has(role string) bool { return slices.Contains(r, role) }

// Roles returns the roles of a process with this configuration.
func (c Config) Roles() Roles {
	if c.Role != RoleAll {
		return Roles{c.Role}
	}
	all := Roles{RoleCollector, RoleAggregator, RoleDistributor, RoleIngester, RoleForwarder, RoleQuerier}
	if c.Self.Metrics {
		all = append(all, RoleScraper)
	}
	if c.Self.Probe {
		all = append(all, RoleProber)
	}
	return all
}

// NothingStored tells users that a process stores nothing.
const NothingStored = "this process has only the role collector, and no aggregator is named, " +
	"so its counts are discarded at the end of each window"
