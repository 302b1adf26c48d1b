package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/core/tenants"
	"github.com/freshet-io/freshet/internal/role/group"
	"github.com/freshet-io/freshet/internal/role/ingester"
	"github.com/freshet-io/freshet/internal/settings"
)

// openIngester opens the stores and the event log, and makes the ingester.
func (s *server) openIngester() (err error) {
	if s.stores, err = tsdb.Open(s.config.Store, s.config.DataDir, time.Now, s.registry, s.logger); err != nil {
		return err
	}
	s.tenants = tenants.NewGate(s.config.Store.MaxTenants)
	s.tenants.Restore(s.stores.Tenants()...)
	if err := s.openEventLog(); err != nil {
		return err
	}
	s.ingester = ingester.New(s.config.Ingester, s.stores, s.registry)
	return nil
}

// serveIngester registers routes that only need the stores.
func (s *server) serveIngester(mux *routes) {
	mux.Handle("/api/v1/events", s.events.Handler(s.currentEvents))
	s.newSnapshots().register(mux)
	s.newHistory().register(mux)
	for _, route := range []string{"delete_series", "clean_tombstones"} {
		mux.HandleFunc("POST /api/v1/admin/tsdb/"+route, refuseDeletion)
		mux.HandleFunc("PUT /api/v1/admin/tsdb/"+route, refuseDeletion)
	}
}

// currentEvents waits until the event log has all events that any node of the group has acknowledged.
func (s *server) currentEvents(ctx context.Context, tenant string) error {
	if err := s.readable(); err != nil {
		return err
	}
	g, is := s.aggregator.(*group.Group)
	if d := s.eventDamage.Load(); is && d != nil && g.Others() {
		return fmt.Errorf("events of this node are damaged; ask another node: %s", d.What)
	}
	if is {
		return g.CurrentEvents(ctx, tenant)
	}
	return nil // a server in no group writes an event before answering
}

// keptEvents returns how many events of a tenant are kept, and for how many milliseconds.
func (s *server) keptEvents() (most int, retention int64) {
	c := s.inForce().Events
	return c.MaxEvents, min(c.Retention, maxRetention).Milliseconds()
}

// maxRetention is the longest retention that an entry can have: a century.
const maxRetention = 100 * 365 * 24 * time.Hour

// reloadIngester applies new retention times.
func (s *server) reloadIngester(next settings.Config) {
	s.events.Configure(next.Events)
	if err := s.stores.SetRetention(next.Store.Retention); err != nil {
		s.logger.Error("a store's new retention was not applied; it keeps the old one until the next reload or "+
			"restart", "error", err)
	}
}

// runIngester writes requests until ctx is done. By then the HTTP servers have ended.
func (s *server) runIngester(ctx context.Context) error { return s.ingester.Run(ctx) }

// tendStores closes unused stores and tries to reopen broken stores, until ctx is done.
func (s *server) tendStores(ctx context.Context) error {
	for ticker := time.NewTicker(time.Minute); ; {
		select {
		case <-ticker.C:
			if err := s.stores.Tend(ctx); err != nil {
				s.logger.Warn("closing an unused store, or reopening a broken one, failed; a store closed with an error opens "+
					"again from its WAL", "error", err)
			}
		case <-ctx.Done():
			ticker.Stop()
			return nil
		}
	}
}

// saveHeads saves the heads of the stores every few minutes, until ctx is done.
func (s *server) saveHeads(ctx context.Context) error { return s.stores.SaveHeads(ctx) }

// refuseDeletion answers Prometheus' routes that delete samples in the stores. The nodes of a cluster have the same
// samples because everything comes to them through the log, in the same order. A deletion on one node alone would part
// them.
func refuseDeletion(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotImplemented)
	// Fails if the client is gone.
	_ = json.NewEncoder(w).Encode(map[string]string{"status": "error", "errorType": "not_implemented",
		"error": "single series cannot be deleted: blocks are deleted as a whole, once they are older than " +
			"store.retention; to store a series no more, drop it by a rule of mapping or distributor.relabel"})
}
