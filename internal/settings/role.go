package settings

import "slices"

// The values of the key `role` that stand for a set of roles. The key may also be RoleCollector,
// RoleGateway, or both with a comma between them.
const (
	RoleAll   = "all"
	RoleStore = "store" // all roles that need no DogStatsD socket; only a node of a cluster
)

// The roles that a process may have.
const (
	RoleCollector   = "collector"   // reads the DogStatsD sockets, and hands its windows to an aggregator
	RoleAggregator  = "aggregator"  // journals windows and makes tiles of them
	RoleDistributor = "distributor" // accepts remote write and OTLP, and passes tiles on
	RoleIngester    = "ingester"    // writes into the stores
	RoleForwarder   = "forwarder"   // also sends requests and tiles to other backends
	RoleQuerier     = "querier"     // answers PromQL
	RoleGateway     = "gateway"     // passes requests on to the nodes of a cluster, and keeps nothing
	RoleRuler       = "ruler"       // evaluates rules and notifies Alertmanagers
	RoleScraper     = "scraper"     // stores the process' own metrics
	RoleProber      = "prober"      // measures freshness
)

// Roles is a set of roles.
type Roles []string

// Has reports whether a role is in the set.
func (r Roles) Has(role string) bool { return slices.Contains(r, role) }

// NothingStored tells users that a process stores nothing.
const NothingStored = "this process has only the role collector, and no aggregator is named, " +
	"so its counts are discarded at the end of each window"
