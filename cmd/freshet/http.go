package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"runtime"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/exporter-toolkit/web"
	prom "github.com/prometheus/prometheus/tsdb"
	v1 "github.com/prometheus/prometheus/web/api/v1"
	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/internal/adapter/connections"
	"github.com/freshet-io/freshet/internal/adapter/promapi"
	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/lib/build"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/role/querier"
	"github.com/freshet-io/freshet/internal/role/webui"
	"github.com/freshet-io/freshet/internal/settings"
	"github.com/freshet-io/freshet/ui"
)

// httpServers are bound addresses, each with the server that will answer there.
// The first is that of http.listen.
type httpServers []*httpServer

type httpServer struct {
	listener net.Listener
	address  string // as the configuration spells it
	scheme   string // http or https
	tenant   string
	server   *http.Server
	served   chan error // what Serve returned
}

const (
	// idleTimeout is how long a connection stays open on which nobody asks.
	idleTimeout = 5 * time.Minute

	// headerTimeout is how long a request may take until its header is there: some packets.
	headerTimeout = 10 * time.Second
)

// listenHTTP binds all addresses, but for those that are open already, and begins
// to answer there, for a start may take a while and probes ask meanwhile. After an
// error the ones it returns must be closed.
func listenHTTP(c settings.HTTP, handler http.Handler, inherited *inheritance, bound *connections.Bound, logger *slog.Logger) (all httpServers, err error) {
	for _, l := range c.All() {
		scheme := "http"
		if secure, err := tlsConfig(l.WebConfig); err != nil {
			return all, conf.Mistake(fmt.Errorf("listen on http %s: %w", l.Listen, err))
		} else if secure != nil {
			scheme = "https"
		}
		listener, err := inherited.tcp(l.Listen)
		if err == nil && listener == nil {
			listener, err = net.Listen("tcp", l.Listen)
		}
		if err != nil {
			return all, httpError(l.Listen, err)
		}
		h := newHTTPServer(listener, l, scheme, handler, logger)
		counted := bound.Serve(h.server, listener)
		go func() {
			if l.WebConfig == "" {
				h.served <- h.server.Serve(counted)
				return
			}
			h.served <- web.Serve(counted, h.server, &web.FlagConfig{WebConfigFile: &l.WebConfig}, logger)
		}()
		all = append(all, h)
	}
	return all, nil
}

// newHTTPServer makes the server of a listener, which does not answer yet.
func newHTTPServer(listener net.Listener, l settings.HTTPListener, scheme string, handler http.Handler, logger *slog.Logger) *httpServer {
	return &httpServer{listener: listener, address: l.Listen, scheme: scheme, tenant: l.Tenant, served: make(chan error, 1), server: &http.Server{
		Handler: handler,
		// Panics of handlers and, with TLS, handshakes that fail.
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		// A client that never ends its request must not hold a connection. How long
		// an answer takes is limited by the query.
		ReadTimeout:       time.Minute,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		// Unless the request says more, the address says on whose behalf it asks.
		BaseContext: func(net.Listener) context.Context { return tenant.NewContext(context.Background(), l.Tenant) },
	}}
}

func httpError(address string, err error) error {
	return listenError("http", address, "--http-listen", err)
}

// listenError says what to do about an address that cannot be bound.
func listenError(what, address, flag string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("listen on %s %s: the port is in use; stop the process that has it, or choose another by %s", what, address, flag)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("listen on %s %s: permission denied; choose a port above 1023 by %s", what, address, flag)
	}
	return fmt.Errorf("listen on %s %s: %w", what, address, err)
}

func (h *httpServer) addr() string { return h.listener.Addr().String() }

// file is the socket once more, for a successor.
func (h *httpServer) file() (*os.File, error) { return fileOf(h.listener, "http") }

func fileOf(listener net.Listener, what string) (*os.File, error) {
	socket, ok := listener.(interface{ File() (*os.File, error) })
	if !ok {
		panic(fmt.Sprintf("BUG: %s listens on a %T", what, listener))
	}
	file, err := socket.File()
	if err != nil {
		return nil, fmt.Errorf("hand over %s %s: %w", what, listener.Addr(), err)
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
	mux := &routes{http.NewServeMux(), s}
	mux.HandleFunc("GET /api/v1/status/ledger", s.serveLedger)
	mux.HandleFunc("GET /api/v1/status/limits", s.serveLimits)
	mux.HandleFunc("GET /api/v1/status/process", s.serveProcess)
	mux.HandleFunc("GET /api/v1/status/top", s.serveTop)
	mux.HandleFunc("GET /api/v1/status/traces", s.serveTraces)
	mux.HandleFunc("/api/v1/status/explain", s.serveExplain)
	s.metrics = promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{Registry: s.registry})
	mux.HandleFunc("GET /metrics", s.serveMetrics)
	mux.HandleFunc("GET /-/healthy", serveHealthy)
	mux.HandleFunc("GET /-/ready", s.serveReady)

	// A proxy must not pass these on: docs/operations.md lists them. Their exposure has
	// them answered to operators only.
	local := func(pattern string, h http.HandlerFunc) { mux.HandleFunc(pattern, h) }
	if s.config.Stores() {
		api := s.promAPI()
		mux.Handle("/api/v1/", api)
		mux.Handle("GET /federate", api)
		if s.config.Self.Metrics {
			mux.Handle("/self/api/v1/", selfAPI(api))
		}
		mux.Handle("GET /api/v1/status/config", api)
		mux.Handle("GET /api/v1/status/flags", api)
		mux.Handle("/api/v1/events", s.events.Handler())
		mux.HandleFunc("/api/v1/write", s.ingest.receiver.RemoteWrite)
		mux.HandleFunc("/api/v1/otlp/v1/metrics", s.ingest.receiver.OTLP)
		mux.HandleFunc("/v1/metrics", s.ingest.receiver.OTLP)
		s.newSnapshots().register(local)
	} else {
		s.serveNothing(mux)
	}
	s.newTapAPI().register(local)
	local("POST /api/v1/status/diff", s.serveDiff)
	local("POST /-/reload", s.reloader.ServeHTTP)
	local("POST /-/record", s.serveRecord)
	local("GET /api/v1/status/records", s.serveRecords)
	local("GET /api/v1/status/records/{id}", s.serveRecordFile)
	local("GET /api/v1/status/records/{id}/diagnosis", s.serveDiagnosis)
	local("/debug/pprof/", pprof.Index)
	local("/debug/pprof/cmdline", pprof.Cmdline)
	local("/debug/pprof/profile", pprof.Profile)
	local("/debug/pprof/symbol", pprof.Symbol)
	local("/debug/pprof/trace", pprof.Trace)
	page := webui.New(ui.Files())
	for _, path := range webui.Paths {
		mux.Handle("GET "+path, page)
	}
	mux.Handle("GET /{$}", page.Or(s.guard(reads, http.HandlerFunc(s.serveIndex))))
	s.handler.Store(mux.ServeMux)
}

// tenantOf says on whose behalf a request asks: what guard has found out, and until
// then the tenant of the address.
func tenantOf(r *http.Request) string {
	name, ok := tenant.FromContext(r.Context())
	if !ok {
		panic("BUG: a request came by no listener")
	}
	return name
}

// ServeHTTP answers probes while the server starts, then what needs no stores, and when
// it is ready everything. A request across a restart waits until the journal is replayed,
// since this address has answered before.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.noteProxy(r.Header)
	if s.inherited.answered && !strings.HasPrefix(r.URL.Path, "/-/") {
		_ = s.opening.wait(r.Context()) // what it could say is said below
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
	stored := []string{
		"/api/v1/query?query=...   PromQL; the whole Prometheus API is below /api/v1/",
		"/api/v1/events            events, newest first",
		"/api/v1/write             takes Prometheus remote write, 1.0 and 2.0",
		"/v1/metrics               takes OpenTelemetry's metrics, OTLP",
	}
	if !s.config.Stores() {
		stored = []string{"Nothing is stored: " + settings.NothingStored + ".\n"}
	}
	for _, line := range append(stored,
		"/api/v1/status/ledger     what became of every sample and datagram",
		"/metrics                  this process' own metrics",
		"/explore                  the web page, which a browser gets at / too",
		"/-/ready  /-/healthy      for probes",
		"/debug/pprof/             profiles, for operators",
	) {
		fmt.Fprintln(w, line)
	}
}

func (s *server) promAPI() http.Handler {
	s.engine = promapi.NewEngine(s.config.Query, queryMemory(s.memory), s.logger, s.registry)
	s.querier = querier.New(s.stores, s.aggregator, s.config.Query.LookbackDelta, time.Now)
	b := build.This()
	return promapi.New(promapi.Options{
		Engine: s.engine, Queryable: s.querier, Exemplars: s.querier, Metadata: s.catalogue, Families: s.ingest.metadata, Stats: storeStats{s.stores},
		Tenant: tenantOf, Ready: s.readiness, Now: time.Now,
		Build:   v1.PrometheusVersion{Version: b.Version, Revision: b.Revision, GoVersion: b.Go},
		Runtime: s.runtimeInfo,
		Config:  func() string { return s.inForce().YAML() },
		Flags:   s.config.Flags(),
		Logger:  s.logger, Registerer: s.registry,
	})
}

// runtimeInfo is Prometheus', but for the directory, which is that of the data. Damage to
// write-ahead logs is in the log and is not counted here.
func (s *server) runtimeInfo() (v1.RuntimeInfo, error) {
	host, err := os.Hostname()
	if err != nil {
		return v1.RuntimeInfo{}, fmt.Errorf("the host's name: %w", err)
	}
	percent := []runtimemetrics.Sample{{Name: "/gc/gogc:percent"}}
	runtimemetrics.Read(percent)
	gogc := strconv.FormatUint(percent[0].Value.Uint64(), 10)
	if percent[0].Value.Uint64() == math.MaxUint64 {
		gogc = "off"
	}
	return v1.RuntimeInfo{
		StartTime:           s.started.UTC(),
		CWD:                 s.config.DataDir,
		Hostname:            host,
		ServerTime:          time.Now().UTC(),
		ReloadConfigSuccess: !s.reloader.refused.Load(),
		LastConfigTime:      time.Unix(0, s.reloader.read.Load()).UTC(),
		GoroutineCount:      runtime.NumGoroutine(),
		GOMAXPROCS:          runtime.GOMAXPROCS(0),
		GOMEMLIMIT:          debug.SetMemoryLimit(-1),
		GOGC:                gogc,
		GODEBUG:             os.Getenv("GODEBUG"),
		StorageRetention:    s.inForce().Store.Retention.Tile1m.String(),
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
