package server

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/freshet-io/freshet/internal/role/gateway"
)

// openRelay makes the role that passes requests on to the nodes.
func (s *server) openRelay() error {
	s.relay = gateway.NewRelay(gateway.RelayOptions{
		Look: s.lookAtNodes, MaxMemory: int64(s.config.Distributor.MaxMemory),
		Registry: s.registry, Logger: s.logger,
	})
	return nil
}

// runRelay asks the nodes for their state until ctx is done. By then the HTTP servers have ended.
func (s *server) runRelay(ctx context.Context) error { return s.relay.Run(ctx) }

// lookAtNodes asks all nodes at once for their state.
func (s *server) lookAtNodes(ctx context.Context) (all []gateway.Node) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, a := range s.config.Cluster.Nodes {
		wg.Go(func() {
			l, err := s.nodes.ask(ctx, a.Node)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, gateway.Node{
				Name: a.Node, URL: l.Self.HTTP, Host: hostOf(a.Address), Ready: l.Self.Ready, Leads: l.Name == a.Node,
				Lag: time.Duration(l.Self.Lag * float64(time.Second)),
			})
		})
	}
	wg.Wait()
	return all
}

// serveRelay registers the paths whose requests go on to the nodes. A node applies its own access rules
// to each request. This process checks only the host name, because a node cannot see under which name a
// web page reached this process.
func (s *server) serveRelay(mux *routes) {
	pass := func(e exposure, h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := s.foreign(e, r); err != nil {
				s.refuse(w, err)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
	read, write := pass(reads, s.relay.Reads()), pass(writes, s.relay.Writes())
	for _, path := range []string{"/api/v1/write", "/api/v1/otlp/v1/metrics", "/v1/metrics"} {
		mux.ServeMux.Handle(path, write)
	}
	mux.ServeMux.Handle("PUT /api/v1/admin/history/{block}", pass(writes, s.relay.Imports()))
	mux.ServeMux.Handle("/api/v1/", read)
	mux.ServeMux.Handle("GET /federate", read)
	mux.HandleFunc("GET /api/v1/status/config", s.serveOwnConfig)
}

// serveOwnConfig answers with the configuration of this process, in the form of the Prometheus API.
func (s *server) serveOwnConfig(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	// This fails only if the client is gone.
	_ = json.NewEncoder(w).Encode(map[string]any{
		"status": "success", "data": map[string]string{"yaml": s.inForce().YAML()},
	})
}
