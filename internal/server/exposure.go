package server

import (
	"fmt"
	"net/http"
)

// exposure says which clients may request a route. Below, a server with many tenants is a server that
// requires tokens or trusts the tenant header.
type exposure int

const (
	// probes are for everybody: they show whether the process lives.
	probes exposure = iota + 1

	// pages are files that are the same for all clients and show no data.
	pages

	// reads are routes that show a tenant its own data, or facts that are the same for all tenants, such
	// as the version and the costs of the whole process.
	reads

	// writes are routes that add data to the request's tenant.
	writes

	// readsHere are for operators only, since they show raw bytes as they arrive.
	readsHere

	// operates is for operators only: the route shows or changes the whole process with all its
	// tenants. Operators come by operator.sock, with an operator's token, or on loopback.
	operates

	// operatesMany is the same as `operates` on a server with many tenants, since the answer names all
	// of them. On other servers it is the same as `reads`.
	operatesMany

	// splits are routes that show operators the whole process, and a tenant its own part.
	splits
)

// exposures lists every route. Registering a route that is not listed is a bug. A test requests each
// route as a tenant that tries to see another tenant's data.
var exposures = map[string]exposure{
	"GET /-/healthy": probes,
	"GET /-/ready":   probes,

	"GET /{$}":           pages, // the page for browsers; the index for other clients is guarded like reads
	"GET /flow":          pages,
	"GET /cluster":       pages,
	"GET /explore":       pages,
	"GET /alerts":        pages,
	"GET /rules":         pages,
	"GET /series":        pages,
	"GET /tail":          pages,
	"GET /records":       pages,
	"GET /senders":       pages,
	"GET /queries":       pages,
	"GET /status":        pages,
	"GET /licenses.txt":  pages,
	"GET /assets/{file}": pages,

	"/api/v1/":                   reads,
	"GET /federate":              reads,
	"/api/v1/events":             reads,
	"/api/v1/status/explain":     reads,
	"GET /api/v1/status/ledger":  reads,
	"GET /api/v1/status/process": reads,
	"GET /api/v1/status/rules":   reads,
	"GET /api/v1/status/senders": reads,
	"GET /api/v1/status/top":     reads,

	"GET /config/v1/rules":                                reads,
	"GET /config/v1/rules/{namespace}":                    reads,
	"GET /config/v1/rules/{namespace}/{group}":            reads,
	"GET /prometheus/config/v1/rules":                     reads,
	"GET /prometheus/config/v1/rules/{namespace}":         reads,
	"GET /prometheus/config/v1/rules/{namespace}/{group}": reads,
	"/prometheus/api/v1/":                                 reads,
	"GET /prometheus/api/v1/status/buildinfo":             reads,

	"POST /config/v1/rules/{namespace}":                      writes,
	"DELETE /config/v1/rules/{namespace}":                    writes,
	"DELETE /config/v1/rules/{namespace}/{group}":            writes,
	"POST /prometheus/config/v1/rules/{namespace}":           writes,
	"DELETE /prometheus/config/v1/rules/{namespace}":         writes,
	"DELETE /prometheus/config/v1/rules/{namespace}/{group}": writes,

	"/api/v1/write":           writes,
	"/api/v1/otlp/v1/metrics": writes,
	"/v1/metrics":             writes,

	"GET /api/v1/status/capture": readsHere,
	"GET /api/v1/status/tail":    readsHere,

	"/debug/pprof/":                             operates,
	"/debug/pprof/cmdline":                      operates,
	"/debug/pprof/profile":                      operates,
	"/debug/pprof/symbol":                       operates,
	"/debug/pprof/trace":                        operates,
	"POST /-/reload":                            operates,
	"POST /-/record":                            operates,
	"GET /api/v1/status/records":                operates,
	"GET /api/v1/status/records/{id}":           operates,
	"GET /api/v1/status/records/{id}/diagnosis": operates,
	"POST /api/v1/admin/snapshot":               operates,
	"GET /api/v1/admin/history":                 operates,
	"POST /api/v1/admin/history/read":           operates,
	"PUT /api/v1/admin/history/{block}":         operates,
	"DELETE /api/v1/admin/history/{block}":      operates,
	"POST /api/v1/admin/cluster/drain":          operates,
	"POST /api/v1/admin/cluster/remove":         operates,
	"POST /api/v1/admin/cluster/replace":        operates,
	"POST /api/v1/admin/cluster/undrain":        operates,
	"POST /api/v1/admin/tsdb/clean_tombstones":  operates,
	"POST /api/v1/admin/tsdb/delete_series":     operates,
	"POST /api/v1/admin/tsdb/snapshot":          operates,
	"PUT /api/v1/admin/tsdb/clean_tombstones":   operates,
	"PUT /api/v1/admin/tsdb/delete_series":      operates,
	"PUT /api/v1/admin/tsdb/snapshot":           operates,
	"POST /api/v1/status/diff":                  operates,

	"/self/api/v1/":                 operatesMany,
	"GET /self/api/v1/status/rules": operatesMany,
	"GET /api/v1/status/traces":     operatesMany,
	"GET /api/v1/status/cluster":    operatesMany,
	"GET /api/v1/status/config":     operatesMany,
	"GET /api/v1/status/flags":      operatesMany,

	"GET /api/v1/status/limits":  splits,
	"GET /api/v1/status/queries": splits,
	"GET /metrics":               splits,
}

// routes registers HTTP routes, each behind a guard.
type routes struct {
	*http.ServeMux
	guard func(exposure, http.Handler) http.Handler
}

// Handle registers a handler, like http.ServeMux.Handle. The pattern must be in `exposures`.
func (r *routes) Handle(pattern string, h http.Handler) {
	e, decided := exposures[pattern]
	if !decided {
		panic(fmt.Sprintf("BUG: the route %q is missing in exposures, which says which clients may request it", pattern))
	}
	r.ServeMux.Handle(pattern, r.guard(e, h))
}

// HandleFunc registers a function, like http.ServeMux.HandleFunc. The pattern must be in `exposures`.
func (r *routes) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	r.Handle(pattern, http.HandlerFunc(h))
}
