package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/memory"
	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/core/record"
)

const (
	// progressTime is how often the log reports the progress of a start.
	progressTime = 5 * time.Second

	// startRetry is the Retry-After of a request that comes before the server is ready.
	startRetry = 5 * time.Second

	// openingGarbage is GOGC while stores are opened: their replay then takes little more memory
	// than they keep, for 13 % more processor time.
	openingGarbage = 25
)

// runOpening opens the stores in use once the journal is replayed, and then says that the server is
// ready. Meanwhile the sockets are read and windows are folded.
func (s *server) runOpening(ctx context.Context, opened func() error) error {
	s.openUsed(ctx)
	if ctx.Err() == nil {
		s.ready.Store(true)
		close(s.readied)
		if err := opened(); err != nil {
			return err
		}
		if err := memory.FreeStart(); err != nil { // memory that only the start needed
			s.logger.Warn("memory that only the start needed is not freed", "error", err)
		}
	}
	<-ctx.Done()
	return nil
}

// openUsed opens the stores that were in use before the start, and logs its progress.
func (s *server) openUsed(ctx context.Context) {
	if s.stores == nil {
		return
	}
	if _, said := os.LookupEnv("GOGC"); !said {
		defer debug.SetGCPercent(debug.SetGCPercent(openingGarbage))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.stores.OpenUsed(ctx)
	}()
	begun := time.Now()
	for tick := time.NewTicker(progressTime); ; {
		select {
		case <-tick.C:
			p := s.stores.Opening()
			s.logger.Info("not ready yet: stores in use are opened", "done", p.Done, "of", p.Total,
				"now", strings.Join(p.Now, " "))
			continue
		case <-done:
			tick.Stop()
		}
		break
	}
	if p := s.stores.Opening(); p.Total > 0 && ctx.Err() == nil {
		s.logger.Info("stores in use are open", "stores", p.Total, "broken", len(s.stores.Broken()),
			"took", time.Since(begun).Round(time.Millisecond))
	}
}

// answering is closed once requests are answered. After a restart in place that is when the journal
// is replayed, since clients have waited since the previous image; a request then waits only for
// the store that it needs.
func (s *server) answering() <-chan struct{} {
	if s.inherited.answered {
		return s.opening.opened
	}
	return s.readied
}

var errNotReady = errors.New("starting or stopping; try again in a moment")

// readiness returns nil while requests are answered.
func (s *server) readiness() error {
	if s.ready.Load() || s.inherited.answered && s.opening.isOpen() {
		return nil
	}
	return errNotReady
}

// readyState is the answer of /-/ready: 200 if Ready, otherwise 503.
type readyState struct {
	Ready    bool           `json:"ready"`
	WaitsFor string         `json:"waits_for,omitempty"`
	Seconds  float64        `json:"seconds"`          // since the start
	Stores   *tsdb.Progress `json:"stores,omitempty"` // while they are opened
	Broken   int            `json:"broken"`           // stores that cannot be opened; all others answer

	BrokenStores []record.BrokenStore `json:"broken_stores,omitempty"` // for operators
}

// brokenStores returns the stores that cannot be opened; none before the journal is replayed.
func (s *server) brokenStores() []record.BrokenStore {
	found := []record.BrokenStore{}
	if s.handler.Load() == nil || s.stores == nil {
		return found
	}
	for _, b := range s.stores.Broken() {
		found = append(found, record.BrokenStore{
			Tenant: b.Tenant, Store: b.Store, Since: b.Since, Error: b.Cause.Error(), WayOut: b.WayOut, Open: b.Open,
		})
	}
	return found
}

// looked returns the broken stores after checking those that are open.
func (s *server) looked() []record.BrokenStore {
	if s.handler.Load() != nil && s.stores != nil {
		s.stores.Look()
	}
	return s.brokenStores()
}

// serveReady says whether the server answers at its usual speed, or else what it waits for. Broken
// stores do not make it unready: one broken file would take all tenants out of service. Only
// operators see the names of tenants, and no page whose name resolves to this address does: a probe
// may send any Host.
func (s *server) serveReady(w http.ResponseWriter, r *http.Request) {
	state := readyState{Ready: s.ready.Load(), Seconds: time.Since(s.started).Round(time.Millisecond).Seconds()}
	if s.handler.Load() == nil {
		state.WaitsFor = "the journal is replayed"
	} else {
		operator := s.operator(r) && s.rebound(r) == nil
		broken := s.brokenStores()
		if state.Broken = len(broken); operator {
			state.BrokenStores = broken
		}
		if !state.Ready && s.stores != nil {
			p := s.stores.Opening()
			if !operator {
				p.Now = nil
			}
			state.WaitsFor, state.Stores = "the stores that were in use are opened", &p
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if !state.Ready {
		w.Header().Set("Retry-After", strconv.Itoa(int(startRetry.Seconds())))
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(state) // fails if the client is gone
}

// needsStores reports whether a path reads or writes stores, and so is not answered before the
// server is ready.
func needsStores(path string) bool {
	return strings.HasPrefix(path, "/api/v1/") && !strings.HasPrefix(path, "/api/v1/status/") ||
		strings.HasPrefix(path, "/self/") || path == "/v1/metrics"
}

// refuseStarting answers a request that came too early, in the form of the Prometheus API. Senders
// of remote write and OTLP retry it.
func refuseStarting(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", strconv.Itoa(int(startRetry.Seconds())))
	w.WriteHeader(http.StatusServiceUnavailable)
	_ = json.NewEncoder(w).Encode(map[string]string{"status": "error", "errorType": "unavailable",
		// Fails if the client is gone.
		"error": "Freshet is not ready: " + errNotReady.Error() + "; /-/ready says what it waits for"})
}
