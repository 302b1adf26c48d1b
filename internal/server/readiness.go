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
	// progressTime is how often the log says how far a start has come.
	progressTime = 5 * time.Second

	// startRetry is what a request that comes before the server is ready is told to wait.
	startRetry = 5 * time.Second

	// openingGarbage is GOGC while stores are opened: their replay then takes little more
	// memory than what they keep, for 13 % more processor time.
	openingGarbage = 25
)

// runOpening opens the stores in use once the journal is replayed, and then says that the
// server is ready. The sockets are read and windows are folded meanwhile.
func (s *server) runOpening(ctx context.Context, opened func() error) error {
	s.openUsed(ctx)
	if ctx.Err() == nil {
		s.ready.Store(true)
		close(s.readied)
		if err := opened(); err != nil {
			return err
		}
		if err := memory.FreeStart(); err != nil { // what only the start needed
			s.logger.Warn("what only the start needed stays in memory", "error", err)
		}
	}
	<-ctx.Done()
	return nil
}

// openUsed opens the stores that were in use before the start, and tells the log how far
// it has come.
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
			s.logger.Info("not ready yet: stores in use are opened", "done", p.Done, "of", p.Total, "now", strings.Join(p.Now, " "))
			continue
		case <-done:
			tick.Stop()
		}
		break
	}
	if p := s.stores.Opening(); p.Total > 0 && ctx.Err() == nil {
		s.logger.Info("stores in use are open", "stores", p.Total, "broken", len(s.stores.Broken()), "took", time.Since(begun).Round(time.Millisecond))
	}
}

// answering is closed once requests are answered. After a restart in place that is when
// the journal is replayed, since clients have waited since the image before: a request
// then waits for the store that it needs, and for no other.
func (s *server) answering() <-chan struct{} {
	if s.inherited.answered {
		return s.opening.opened
	}
	return s.readied
}

var errNotReady = errors.New("starting or stopping; ask again in a moment")

// readiness returns nil while requests are answered.
func (s *server) readiness() error {
	if s.ready.Load() || s.inherited.answered && s.opening.isOpen() {
		return nil
	}
	return errNotReady
}

// readyState is the answer of /-/ready: 200 with Ready, and else 503.
type readyState struct {
	Ready    bool           `json:"ready"`
	WaitsFor string         `json:"waits_for,omitempty"`
	Seconds  float64        `json:"seconds"`          // since the start
	Stores   *tsdb.Progress `json:"stores,omitempty"` // while they are opened
	Broken   int            `json:"broken"`           // stores that cannot be opened: all others answer

	BrokenStores []record.BrokenStore `json:"broken_stores,omitempty"` // for operators
}

// brokenStores are the stores that cannot be opened, none before the journal is replayed.
func (s *server) brokenStores() []record.BrokenStore {
	found := []record.BrokenStore{}
	if s.handler.Load() == nil || s.stores == nil {
		return found
	}
	for _, b := range s.stores.Broken() {
		found = append(found, record.BrokenStore{Tenant: b.Tenant, Store: b.Store, Since: b.Since, Error: b.Cause.Error(), WayOut: b.WayOut, Open: b.Open})
	}
	return found
}

// looked are the broken stores after a look at those that are open.
func (s *server) looked() []record.BrokenStore {
	if s.handler.Load() != nil && s.stores != nil {
		s.stores.Look()
	}
	return s.brokenStores()
}

// serveReady says whether the server answers at its usual speed, and else what it waits
// for. Stores that are broken do not make it unready: one broken file would take all
// tenants out of service. Which tenants there are is told to operators alone, and to no
// page whose name leads here: a probe may send any Host.
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
	_ = json.NewEncoder(w).Encode(state) // fails if the client went away
}

// needsStores reports whether a path reads or writes stores, and so is not answered
// before the server is ready.
func needsStores(path string) bool {
	return strings.HasPrefix(path, "/api/v1/") && !strings.HasPrefix(path, "/api/v1/status/") ||
		strings.HasPrefix(path, "/self/") || path == "/v1/metrics"
}

// refuseStarting answers a request that came too early, in the form of the Prometheus
// API. Senders of remote write and OTLP send it again.
func refuseStarting(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", strconv.Itoa(int(startRetry.Seconds())))
	w.WriteHeader(http.StatusServiceUnavailable)
	_ = json.NewEncoder(w).Encode(map[string]string{"status": "error", "errorType": "unavailable",
		"error": "Freshet is not ready: " + errNotReady.Error() + "; /-/ready says what it waits for"}) // fails if the client went away
}
