package main

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/promapi"
	"github.com/freshet-io/freshet/internal/adapter/tracing"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/lib/build"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/role/prober"
	"github.com/freshet-io/freshet/internal/role/recorder"
	"github.com/freshet-io/freshet/internal/role/scraper"
)

// openSelf opens what looks at the process, which must be there before what it looks at.
func (s *server) openSelf() (err error) {
	s.watch.SetBudgets(s.config.Self.Budgets.Stages())
	s.registry.MustRegister(stages{s.watch})
	if s.tracing, err = tracing.New(s.config.Self.Traces, build.This().Version, s.watch, s.registry, s.logger); err != nil {
		return conf.Mistake(err)
	}
	s.recorder = recorder.New(recorder.Options{
		Config: s.config.Self.Recorder, Dir: s.path("records"), Gatherer: s.registry, Top: s.topOfAll, Broken: s.looked, Growing: s.growing, Queries: s.queryCosts, Sent: s.sent, Build: build.This().String(),
		Registry: s.registry, Logger: s.logger,
	})
	s.watch.OnOver(s.overBudget)
	s.watch.OnEnd(s.stir)
	return nil
}

// stir is told of each batch, and wakes the flight recorder by those that others sent: what
// Freshet sends itself, and tiles of what was sent before, come to an idle server, too.
// Batches of datagrams have no tenant yet; their windows do.
func (s *server) stir(t *stage.Trip) {
	if t.Input != stage.Tiles && t.Tenant != "" && t.Tenant != tenant.Own {
		s.recorder.Stir()
	}
}

// overBudget is told of each batch that was over its budget in a stage.
func (s *server) overBudget(t *stage.Trip) {
	budgets := s.watch.Budgets()
	if in, spent, over := budgets.Over(t); over { // a reload may have changed them
		s.tracing.Slow(t, in, spent)
		s.recorder.Over(in, spent, budgets[in])
	}
}

// serveTraces answers with the slow traces that are held, newest first; with id=ID only with
// that one, and with spans=root without what is below the root, which is most of it.
func (s *server) serveTraces(w http.ResponseWriter, r *http.Request) {
	held := s.tracing.Traces()
	if id := r.FormValue("id"); id != "" {
		held = slices.DeleteFunc(held, func(t *tracing.Trace) bool { return t.ID != id })
	}
	if r.FormValue("spans") == "root" {
		for i, t := range held {
			short := *t // others may read t at the same time
			short.Spans = t.Spans[:1]
			held[i] = &short
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": append([]*tracing.Trace{}, held...)}) // fails if the client went away
}

// runScraper keeps the process' own metrics until ctx is done.
func (s *server) runScraper(ctx context.Context) error {
	host, _ := os.Hostname()
	return scraper.New(scraper.Options{
		Gatherer: s.registry, Distributor: s.ingest.distributor, Tenant: tenant.Own, Interval: s.config.Self.Interval,
		Labels: map[string]string{"job": "freshet", "instance": cmp.Or(host, instance)},
		Now:    time.Now, Logger: s.logger,
	}).Run(ctx)
}

// selfAPI is the Prometheus API for the tenant that has our own metrics, below /self.
func selfAPI(api http.Handler) http.Handler {
	return http.StripPrefix("/self", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		api.ServeHTTP(w, r.WithContext(tenant.NewContext(r.Context(), tenant.Own)))
	}))
}

// runProber measures freshness until ctx is done.
func (s *server) runProber(ctx context.Context) error {
	return prober.New(prober.Options{
		Targets: s.probed, Write: http.HandlerFunc(s.ingest.receiver.RemoteWrite), Query: s.newest, Mark: s.collector.Probe, Registry: s.registry, Logger: s.logger,
	}).Run(ctx)
}

// probing reports whether freshness is measured.
func (s *server) probing() bool { return s.config.Stores() && s.config.Self.Probe }

// probed are the sockets that a probe can send to. One of a stream has no datagrams.
func (s *server) probed() (all []prober.Target) {
	for _, l := range s.collector.Listening() {
		if l.Network != "unix" {
			all = append(all, prober.Target{Tenant: l.Tenant, Network: l.Network, Address: l.Address})
		}
	}
	return all
}

// newest is the value of an instant query, of one series at most.
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
