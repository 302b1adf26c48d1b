package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/freshet-io/freshet/internal/adapter/peer"
	"github.com/freshet-io/freshet/internal/core/top"
	"github.com/freshet-io/freshet/internal/lib/build"
	"github.com/freshet-io/freshet/internal/role/webui"
	"github.com/freshet-io/freshet/internal/settings"
	"github.com/freshet-io/freshet/ui"
)

// serveHTTP registers all handlers of HTTP.
func (s *server) serveHTTP() {
	mux := &routes{http.NewServeMux(), s.guard}
	mux.HandleFunc("GET /api/v1/status/cluster", s.serveCluster)
	mux.HandleFunc("POST /api/v1/admin/cluster/drain", s.serveChange(peer.Drain))
	mux.HandleFunc("POST /api/v1/admin/cluster/undrain", s.serveChange(peer.Undrain))
	mux.HandleFunc("POST /api/v1/admin/cluster/remove", s.serveChange(peer.Remove))
	mux.HandleFunc("POST /api/v1/admin/cluster/replace", s.serveChange(peer.Replace))
	mux.HandleFunc("GET /api/v1/status/ledger", s.serveLedger)
	mux.HandleFunc("GET /api/v1/status/limits", s.serveLimits)
	mux.HandleFunc("GET /api/v1/status/process", s.serveProcess)
	if s.has(settings.RoleQuerier) {
		mux.HandleFunc("GET /api/v1/status/queries", s.serveQueries)
	}
	mux.HandleFunc("GET /api/v1/status/rules", s.serveRules)
	if !s.has(settings.RoleGateway) { // a gateway passes the question on to a node, which knows the senders
		mux.HandleFunc("GET /api/v1/status/senders", s.serveSenders)
	}
	mux.HandleFunc("GET /api/v1/status/top", s.serveTop)
	mux.HandleFunc("GET /api/v1/status/traces", s.serveTraces)
	mux.HandleFunc("/api/v1/status/explain", s.serveExplain)
	s.metrics = promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{Registry: s.registry})
	mux.HandleFunc("GET /metrics", s.serveMetrics)
	mux.HandleFunc("GET /-/healthy", serveHealthy)
	mux.HandleFunc("GET /-/ready", s.serveReady)

	s.serveRoles(mux)
	s.serveRuleSets(mux)
	// A proxy must not pass the following routes on. docs/operations.md lists them. Their exposure
	// restricts them to operators.
	s.newTapAPI().register(mux)
	mux.HandleFunc("POST /api/v1/status/diff", s.serveDiff)
	mux.HandleFunc("POST /-/reload", s.serveReload)
	mux.HandleFunc("POST /-/record", s.serveRecord)
	mux.HandleFunc("GET /api/v1/status/records", s.serveRecords)
	mux.HandleFunc("GET /api/v1/status/records/{id}", s.serveRecordFile)
	mux.HandleFunc("GET /api/v1/status/records/{id}/diagnosis", s.serveDiagnosis)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	page := webui.New(ui.Files())
	for _, path := range webui.Paths {
		mux.Handle("GET "+path, page)
	}
	mux.Handle("GET /{$}", page.Or(s.guard(reads, http.HandlerFunc(s.serveIndex))))
	s.handler.Store(mux.ServeMux)
}

// ownFigures returns this node's own figures as JSON, for the other nodes.
func (s *server) ownFigures(of peer.Figures, tenant string) ([]byte, error) {
	switch of {
	case peer.Ledger:
		l := s.ownLedger(tenant)
		l.Collectors = s.collectorBooks.of(tenant)
		return json.Marshal(l)
	case peer.Limits:
		return json.Marshal(s.ownLimits(tenant, tenant == ""))
	case peer.Senders:
		a := s.ownSenders(tenant)
		a.Cut(top.MaxRows)
		return json.Marshal(a)
	case peer.Queries:
		return json.Marshal(s.ownQueries(tenant))
	case peer.History:
		return json.Marshal(s.clusterHistory.own(tenant))
	}
	return nil, fmt.Errorf("node %s does not know figures of kind %d: upgrade it", s.config.Cluster.Node, of)
}

// ServeHTTP answers only probes while the server starts. Then it also answers routes that need no
// stores. Once the server is ready, it answers all routes. After a restart in place, this address has
// answered before, so a request waits until the journal is replayed.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.noteProxy(r.Header)
	if s.retirement.begun.Load() {
		w.Header().Set("Connection", "close") // the client's next request then goes to another process
	}
	if s.inherited.answered && !strings.HasPrefix(r.URL.Path, "/-/") {
		_ = s.opening.wait(r.Context()) // after an error, the answer below is that the server is not ready
	}
	mux := s.handler.Load()
	switch {
	case mux != nil && (!needsStores(r.URL.Path) || s.readiness() == nil):
		mux.ServeHTTP(w, r)
	case r.URL.Path == "/-/healthy":
		serveHealthy(w, r)
	case r.URL.Path == "/-/ready":
		s.serveReady(w, r)
	default:
		refuseStarting(w)
	}
}

func serveHealthy(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "Freshet is healthy.") }

func (s *server) serveIndex(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintf(w, "%s\n\n", build.This())
	var answered []string
	if s.has(settings.RoleQuerier) {
		answered = append(answered, "/api/v1/query?query=...   PromQL; the whole Prometheus API is below /api/v1/")
	}
	if s.ruleSets != nil {
		answered = append(answered, "/config/v1/rules          takes rules, as Mimir's ruler does")
	}
	if s.has(settings.RoleIngester) {
		answered = append(answered, "/api/v1/events            events, newest first")
	}
	if s.has(settings.RoleDistributor) {
		answered = append(answered, "/api/v1/write             takes Prometheus remote write, 1.0 and 2.0",
			"/v1/metrics               takes OpenTelemetry's metrics, OTLP")
	}
	if s.has(settings.RoleGateway) {
		answered = append(answered,
			"Writes and queries below /api/v1/ and at /v1/metrics go on to the nodes of the cluster.\n")
	}
	if s.discards() {
		answered = append(answered, "Nothing is stored: "+settings.NothingStored+".\n")
	}
	for _, line := range append(answered,
		"/api/v1/status/ledger     what became of every sample and datagram",
		"/metrics                  this process' own metrics",
		"/explore                  the web page, which a browser gets at / too",
		"/-/ready  /-/healthy      for probes",
		"/debug/pprof/             profiles, for operators",
	) {
		fmt.Fprintln(w, line)
	}
}
