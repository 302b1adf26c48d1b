package server

import (
	"fmt"
	"net/http"
)

// exposure says which clients may ask a route. A server has many tenants if it asks for tokens or
// trusts the tenant header.
type exposure int

const (
	// probes tell everybody whether the process lives.
	probes exposure = iota + 1

	// pages are files that are the same for everybody and show no data.
	pages

	// reads show a tenant its own data, or facts that are the same for all tenants: the version,
	// the costs of the whole process.
	reads

	// writes add to a tenant's own data.
	writes

	// readsHere are reads for operators only, since they show raw bytes as they arrived.
	readsHere

	// operates shows or changes the whole process with all its tenants. Only operators may ask: by
	// operator.sock, with an operator's token, or on loopback.
	operates

	// operatesMany means `operates` if the server has many tenants, since the answer names them
	// all. Otherwise it means `reads`.
	operatesMany

	// splits shows operators the whole process, and a tenant its own part.
	splits
)

// exposures has every route; to register another is a bug. A test tries each route as a tenant that
// wants another tenant's data.
var exposures = map[string]exposure{
	"GET /-/healthy": probes,
	"GET /-/ready":   probes,

	"GET /{$}":           pages, // for browsers; for other clients the guard of reads applies
	"GET /flow":          pages,
	"GET /explore":       pages,
	"GET /series":        pages,
	"GET /tail":          pages,
	"GET /records":       pages,
	"GET /status":        pages,
	"GET /licenses.txt":  pages,
	"GET /assets/{file}": pages,

	"/api/v1/":                   reads,
	"GET /federate":              reads,
	"/api/v1/events":             reads,
	"/api/v1/status/explain":     reads,
	"GET /api/v1/status/ledger":  reads,
	"GET /api/v1/status/process": reads,
	"GET /api/v1/status/top":     reads,

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
	"POST /api/v1/admin/tsdb/snapshot":          operates,
	"PUT /api/v1/admin/tsdb/snapshot":           operates,
	"POST /api/v1/status/diff":                  operates,

	"/self/api/v1/":             operatesMany,
	"GET /api/v1/status/traces": operatesMany,
	"GET /api/v1/status/config": operatesMany,
	"GET /api/v1/status/flags":  operatesMany,

	"GET /api/v1/status/limits": splits,
	"GET /metrics":              splits,
}

// routes are the HTTP routes, each behind a guard.
type routes struct {
	*http.ServeMux
	guard func(exposure, http.Handler) http.Handler
}

// Handle registers a handler for a pattern of exposures, as http.ServeMux does.
func (r *routes) Handle(pattern string, h http.Handler) {
	e, decided := exposures[pattern]
	if !decided {
		panic(fmt.Sprintf("BUG: it is undecided who may ask %q: add it to exposures", pattern))
	}
	r.ServeMux.Handle(pattern, r.guard(e, h))
}

// HandleFunc registers a function for a pattern of exposures, as http.ServeMux does.
func (r *routes) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	r.Handle(pattern, http.HandlerFunc(h))
}
