package server

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"strconv"
	"time"

	prom "github.com/prometheus/prometheus/tsdb"
	v1 "github.com/prometheus/prometheus/web/api/v1"

	"github.com/freshet-io/freshet/internal/adapter/promapi"
	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/lib/build"
	"github.com/freshet-io/freshet/internal/role/querier"
	"github.com/freshet-io/freshet/internal/settings"
)

// openQuerier builds the querier, which answers PromQL.
func (s *server) openQuerier() error {
	s.engine = promapi.NewEngine(s.config.Query, queryMemory(s.memory), s.logger, s.registry)
	s.engine.Damaged, s.engine.Suspect = s.stores.DamageOf, s.stores.Suspect
	s.querier = querier.New(s.stores, s.aggregator, s.config.Query.LookbackDelta, time.Now)
	s.querier.Doubt = s.doubt
	if h := s.clusterHistory; h != nil {
		s.querier.Lacking = h.lacking
	}
	s.engine.Source = s.querier
	return nil
}

// serveQuerier answers the Prometheus API.
func (s *server) serveQuerier(mux *routes) {
	api := s.rulesOfLeader(s.promAPI())
	mux.Handle("/api/v1/", api)
	mux.Handle("GET /federate", api)
	mux.Handle("POST /api/v1/admin/history/read", readAsked(api))
	if s.config.Self.Metrics {
		mux.Handle("/self/api/v1/", selfAPI(api))
		mux.Handle("GET /self/api/v1/status/rules", selfAPI(http.HandlerFunc(s.serveRules)))
	}
	mux.Handle("GET /api/v1/status/config", api)
	mux.Handle("GET /api/v1/status/flags", api)
	mux.Handle("/prometheus/api/v1/", likeMimir(api))
	mux.HandleFunc("GET /prometheus/api/v1/status/buildinfo", s.serveMimirBuild)
}

// likeMimir serves the Prometheus API below /prometheus, as Mimir does. It leaves out what shows the whole
// process, as Mimir does, too.
func likeMimir(api http.Handler) http.Handler {
	return http.StripPrefix("/prometheus", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/status/config" || r.URL.Path == "/api/v1/status/flags" {
			http.NotFound(w, r)
			return
		}
		api.ServeHTTP(w, r)
	}))
}

// serveMimirBuild describes this server like Mimir. Grafana lets people edit rules of a data source only if
// its buildinfo has this name and this feature.
func (s *server) serveMimirBuild(w http.ResponseWriter, _ *http.Request) {
	b := build.This()
	w.Header().Set("Content-Type", "application/json")
	// Fails only if the client is gone.
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{
		"application": "Grafana Mimir", "version": b.Version, "revision": b.Revision, "goVersion": b.Go,
		"features": map[string]string{
			"ruler_config_api": strconv.FormatBool(s.ruleSets != nil), "alertmanager_config_api": "false",
			"query_sharding": "false", "federated_rules": "false",
		},
	}})
}

// serveNoQuerier answers the paths of the Prometheus API in a process without a querier, in the form
// that clients of the API expect. So far, the only process without a querier is one that stores nothing.
// Such a process still shows its configuration.
func (s *server) serveNoQuerier(mux *routes) {
	because := "nothing is stored here: " + settings.NothingStored + "; ask a server whose role is all"
	if s.inCluster() {
		because = "nothing is stored here: this collector pushes its windows to the nodes of cluster.nodes; ask one of them"
	}
	mux.HandleFunc("/api/v1/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotImplemented)
		// Fails if the client is gone.
		_ = json.NewEncoder(w).Encode(map[string]string{"status": "error", "errorType": "not_stored", "error": because})
	})
	mux.HandleFunc("GET /api/v1/status/config", s.serveOwnConfig)
}

func (s *server) promAPI() http.Handler {
	b := build.This()
	return promapi.New(promapi.Options{
		Engine: s.engine, Queryable: s.querier, Exemplars: s.querier,
		Metadata: names(s.describe), Families: s.metadata, Stats: storeStats{s.stores}, Rules: s.rulesOf,
		Tenant: tenantOf, Sender: s.senderOf, Ready: s.readable, Now: time.Now,
		Build:   v1.PrometheusVersion{Version: b.Version, Revision: b.Revision, GoVersion: b.Go},
		Runtime: s.runtimeInfo,
		Config:  func() string { return s.inForce().YAML() },
		Flags:   s.config.Flags(),
		Logger:  s.logger, Registerer: s.registry,
	})
}

// selfAPI serves an API for the tenant with our own metrics, below /self.
func selfAPI(api http.Handler) http.Handler {
	return http.StripPrefix("/self", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		api.ServeHTTP(w, r.WithContext(tenant.NewContext(r.Context(), tenant.Own)))
	}))
}

// newest runs an instant query that returns at most one series, and returns the value of this series.
func (s *server) newest(ctx context.Context, expr string) (v float64, found bool, err error) {
	q, err := promapi.Own{Engine: s.engine}.NewInstantQuery(ctx, s.querier, nil, expr, time.Now())
	if err != nil {
		return 0, false, err
	}
	defer q.Close()
	vector, err := q.Exec(ctx).Vector()
	if err != nil || len(vector) == 0 {
		return 0, false, err
	}
	return vector[0].F, true, nil
}

// runtimeInfo answers as Prometheus does, with the data directory as the working directory. Damage to
// write-ahead logs is logged, and not counted here.
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

// storeStats describes three stores of a tenant: raw samples, results of rules, and the finest tiles. A
// series is in one of them, unless a rule records under a name that senders use.
type storeStats struct{ stores *tsdb.Stores }

func (s storeStats) Stats(tenant string, limit int) (all []*prom.Stats, err error) {
	for _, store := range []string{tsdb.Raw, tsdb.Rules, tile.Width10s.String()} {
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
