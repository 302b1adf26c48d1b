package server

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/freshet-io/freshet/internal/adapter/tracing"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/lib/build"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/role/recorder"
	"github.com/freshet-io/freshet/internal/settings"
)

// openSelf opens the parts that observe the process. They must exist before the parts that they
// observe.
func (s *server) openSelf() (err error) {
	s.watch.SetBudgets(s.config.Self.Budgets.Stages())
	s.registry.MustRegister(stages{s.watch})
	s.tracing, err = tracing.New(s.config.Self.Traces, build.This().Version, s.watch, s.registry, s.logger)
	if err != nil {
		return conf.Mistake(err)
	}
	s.recorder = recorder.New(recorder.Options{
		Config: s.config.Self.Recorder, Dir: s.path("records"), Gatherer: s.registry,
		Top: s.topOfAll, Broken: s.looked, Growing: s.growing, Queries: s.queryCosts, Sent: s.sent,
		Cluster: func(ctx context.Context) any { return s.clusterStatus(ctx) }, Node: s.config.Cluster.Node,
		Build:    build.This().String(),
		Registry: s.registry, Logger: s.logger,
	})
	s.watch.OnOver(s.overBudget)
	if !slices.Equal(s.config.Roles(), settings.Roles{settings.RoleCollector}) {
		// In a collector alone, the flight recorder runs only while a record is made, and up to a minute longer. Each
		// second it reads tables of the program and writes its own: 3 to 4 MB, nearly a tenth of such a process.
		s.watch.OnEnd(s.stir)
	}
	return nil
}

// stir is called with each batch. It wakes the flight recorder if the batch shows that a client
// sends. An idle server also gets batches, with its own metrics and with tiles of earlier samples,
// and these do not wake the recorder. A batch of datagrams has no tenant yet; the window made from
// it has a tenant.
func (s *server) stir(t *stage.Trip) {
	if t.Input != stage.Tiles && t.Tenant != "" && t.Tenant != tenant.Own {
		s.recorder.Stir()
	}
}

// overBudget is called with each batch that exceeded its budget in a stage.
func (s *server) overBudget(t *stage.Trip) {
	budgets := s.watch.Budgets()
	if in, spent, over := budgets.Over(t); over { // a reload may have changed the budgets
		s.tracing.Slow(t, in, spent)
		s.recorder.Over(in, spent, budgets[in])
	}
}

// serveTraces answers with the slow traces in memory, newest first. The parameter id=ID selects one
// trace. With spans=root the answer has only root spans, which are a small part of a trace.
func (s *server) serveTraces(w http.ResponseWriter, r *http.Request) {
	held := s.tracing.Traces()
	if id := r.FormValue("id"); id != "" {
		held = slices.DeleteFunc(held, func(t *tracing.Trace) bool { return t.ID != id })
	}
	if r.FormValue("spans") == "root" {
		for i, t := range held {
			short := *t // t itself must not change, since other requests may read it
			short.Spans = t.Spans[:1]
			held[i] = &short
		}
	}
	w.Header().Set("Content-Type", "application/json")
	// Fails if the client is gone.
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": append([]*tracing.Trace{}, held...)})
}
