package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	prom "github.com/prometheus/prometheus/tsdb"
	v1 "github.com/prometheus/prometheus/web/api/v1"
	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/internal/adapter/promapi"
	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/role/querier"
)

// httpConfig is the "http" section of the configuration file.
type httpConfig struct {
	Listen    string         `yaml:"listen" help:"HOST:PORT of the API; it has no passwords, so keep it on loopback or behind a proxy"`
	Tenant    string         `yaml:"tenant" help:"tenant whose series are seen there"`
	Listeners []httpListener `yaml:"listeners" help:"further addresses, each with its tenant"`
}

// httpListener is one further address.
type httpListener struct {
	Listen string `yaml:"listen" help:"HOST:PORT"`
	Tenant string `yaml:"tenant" help:"tenant whose series are seen there"`
}

const defaultHTTP = "127.0.0.1:7125"

// Validate is part of conf.Validator.
func (c httpConfig) Validate() []conf.Problem {
	var problems []conf.Problem
	check := func(prefix string, l httpListener) {
		if why := conf.AddressProblem(l.Listen, defaultHTTP); why != "" {
			problems = append(problems, conf.Problem{Key: prefix + "listen", Text: why})
		}
		if err := tenant.Check(l.Tenant); err != nil {
			problems = append(problems, conf.Problem{Key: prefix + "tenant", Text: err.Error()})
		}
	}
	check("", httpListener{c.Listen, c.Tenant})
	for i, l := range c.Listeners {
		check(fmt.Sprintf("listeners[%d].", i), l)
	}
	return problems
}

// httpServers are bound addresses, each with the server that will answer there.
// The first is that of http.listen.
type httpServers []*httpServer

type httpServer struct {
	listener net.Listener
	address  string // as the configuration spells it
	tenant   string
	server   *http.Server
	served   chan error // what Serve returned
}

// listenHTTP binds all addresses, but for those that are open already, and begins
// to answer there, for a start may take a while and probes ask meanwhile. After an
// error the ones it returns must be closed.
func listenHTTP(c httpConfig, handler http.Handler, inherited *inheritance) (all httpServers, err error) {
	for _, l := range append([]httpListener{{c.Listen, c.Tenant}}, c.Listeners...) {
		listener, err := inherited.tcp(l.Listen)
		if err == nil && listener == nil {
			listener, err = net.Listen("tcp", l.Listen)
		}
		if err != nil {
			return all, httpError(l.Listen, err)
		}
		h := &httpServer{listener: listener, address: l.Listen, tenant: l.Tenant, served: make(chan error, 1), server: &http.Server{
			Handler: handler,
			// A client that never ends its request must not hold a connection; bodies
			// are small here. How long an answer takes is limited by the query.
			ReadTimeout: time.Minute,
			IdleTimeout: 5 * time.Minute,
			// Without authentication, the address says on whose behalf a request asks.
			BaseContext: func(net.Listener) context.Context { return tenant.NewContext(context.Background(), l.Tenant) },
		}}
		go func() { h.served <- h.server.Serve(listener) }()
		all = append(all, h)
	}
	return all, nil
}

func httpError(address string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("listen on http %s: the port is in use; stop the process that has it, or choose another by --http-listen", address)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("listen on http %s: permission denied; choose a port above 1023 by --http-listen", address)
	}
	return fmt.Errorf("listen on http %s: %w", address, err)
}

func (h *httpServer) addr() string { return h.listener.Addr().String() }

// file is the socket once more, for a successor.
func (h *httpServer) file() (*os.File, error) {
	tcp, ok := h.listener.(*net.TCPListener)
	if !ok {
		panic(fmt.Sprintf("BUG: HTTP listens on a %T", h.listener))
	}
	file, err := tcp.File()
	if err != nil {
		return nil, fmt.Errorf("hand over http %s: %w", h.addr(), err)
	}
	return file, nil
}

// run answers until ctx is done, then lets the running requests end.
func (all httpServers) run(ctx context.Context, drain time.Duration) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, h := range all {
		group.Go(func() error { return h.run(ctx, drain) })
	}
	return group.Wait()
}

func (h *httpServer) run(ctx context.Context, drain time.Duration) error {
	select {
	case err := <-h.served:
		return fmt.Errorf("answer on http %s: %w", h.addr(), err)
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain/3)
	defer cancel()
	if err := h.server.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("requests were cut off: %w", err), h.server.Close())
	}
	return nil
}

// close ends what run has not ended.
func (all httpServers) close() error {
	var errs []error
	for _, h := range all {
		errs = append(errs, h.server.Close())
	}
	return errors.Join(errs...)
}

// serveHTTP puts everything that answers HTTP in its place.
func (s *server) serveHTTP() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/status/ledger", s.serveLedger)
	mux.HandleFunc("GET /api/v1/status/process", s.serveProcess)
	mux.HandleFunc("GET /api/v1/status/top", s.serveTop)
	mux.HandleFunc("/api/v1/status/explain", s.serveExplain)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{Registry: s.registry}))
	mux.HandleFunc("GET /-/healthy", serveHealthy)
	mux.HandleFunc("GET /-/ready", s.serveReady)

	// A proxy must not pass these on: docs/operations.md lists them.
	local := func(pattern string, h http.HandlerFunc) { mux.HandleFunc(pattern, s.onLoopback(h)) }
	if s.config.stores() {
		mux.Handle("/api/v1/", s.promAPI())
		mux.Handle("/api/v1/events", s.events.Handler())
		s.newSnapshots().register(local)
	} else {
		s.serveNothing(mux)
	}
	s.newTapAPI().register(local)
	local("POST /api/v1/status/diff", s.serveDiff)
	local("POST /-/reload", s.reloader.ServeHTTP)
	local("/debug/pprof/", pprof.Index)
	local("/debug/pprof/cmdline", pprof.Cmdline)
	local("/debug/pprof/profile", pprof.Profile)
	local("/debug/pprof/symbol", pprof.Symbol)
	local("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /{$}", s.serveIndex)
	s.handler.Store(mux)
}

// tenantOf says on whose behalf a request asks: a tenant header is ignored.
func tenantOf(r *http.Request) string {
	name, ok := tenant.FromContext(r.Context())
	if !ok {
		panic("BUG: a request came by no listener")
	}
	return name
}

var errNotReady = errors.New("starting or stopping; ask again in a moment")

func (s *server) readiness() error {
	if !s.ready.Load() {
		return errNotReady
	}
	return nil
}

// ServeHTTP answers probes while the server starts, and then with everything. Who
// asks across a restart waits, since this address has answered before.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.inherited.answered && !strings.HasPrefix(r.URL.Path, "/-/") {
		_ = s.opening.wait(r.Context()) // what it could say is said below
	}
	if mux := s.handler.Load(); mux != nil {
		mux.ServeHTTP(w, r)
		return
	}
	if r.URL.Path == "/-/healthy" {
		serveHealthy(w, r)
		return
	}
	http.Error(w, "Freshet is not ready: "+errNotReady.Error(), http.StatusServiceUnavailable)
}

func serveHealthy(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "Freshet is healthy.") }

func (s *server) serveReady(w http.ResponseWriter, _ *http.Request) {
	if err := s.readiness(); err != nil {
		http.Error(w, "Freshet is not ready: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "Freshet is ready.")
}

func (s *server) serveIndex(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintf(w, "%s\n\n", thisBuild())
	stored := []string{
		"/api/v1/query?query=...   PromQL; the whole Prometheus API is below /api/v1/",
		"/api/v1/events            events, newest first",
	}
	if !s.config.stores() {
		stored = []string{"Nothing is stored: " + nothingStored + ".\n"}
	}
	for _, line := range append(stored,
		"/api/v1/status/ledger     what became of every sample and datagram",
		"/metrics                  this process' own metrics",
		"/-/ready  /-/healthy      for probes",
		"/debug/pprof/             profiles, on loopback",
	) {
		fmt.Fprintln(w, line)
	}
}

func (s *server) promAPI() http.Handler {
	engine := promapi.NewEngine(s.config.Query, s.logger, s.registry)
	q := querier.New(s.stores, s.aggregator, s.config.Query.LookbackDelta, time.Now)
	b := thisBuild()
	return promapi.New(promapi.Options{
		Engine: engine, Queryable: q, Exemplars: q, Metadata: s.catalogue, Stats: storeStats{s.stores},
		Tenant: tenantOf, Ready: s.readiness,
		Build:   v1.PrometheusVersion{Version: b.Version, Revision: b.Revision, GoVersion: b.Go},
		Runtime: s.runtimeInfo,
		Config:  func() string { return s.inForce().yaml() },
		Flags:   s.config.flags,
		Logger:  s.logger, Registerer: s.registry,
	})
}

func (s *server) runtimeInfo() (v1.RuntimeInfo, error) {
	return v1.RuntimeInfo{
		StartTime:        s.started,
		CWD:              s.config.DataDir,
		GoroutineCount:   runtime.NumGoroutine(),
		GOMAXPROCS:       runtime.GOMAXPROCS(0),
		StorageRetention: s.inForce().Store.Retention.Tile1m.String(),
	}, nil
}

// storeStats describes those stores of a tenant that share no series: samples as
// they came, and the finest tiles.
type storeStats struct{ stores *tsdb.Stores }

func (s storeStats) Stats(tenant string, limit int) (all []*prom.Stats, err error) {
	for _, store := range []string{tsdb.Raw, tile.Width10s.String()} {
		stats, err := s.stores.Stats(tenant, store, "__name__", limit)
		if err != nil {
			return nil, err
		}
		if stats != nil {
			all = append(all, stats)
		}
	}
	return all, nil
}
