package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/core/record"
)

// startRetry is the Retry-After of a request that comes before the server is ready.
const startRetry = 5 * time.Second

// answering returns a channel that is closed once requests are answered. After a restart in place
// clients have waited since the previous image stopped, so their requests are answered as soon as
// the journal is replayed. A request then waits only for the store that it needs.
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

// brokenStores returns the stores that cannot be opened. It returns none before the journal is
// replayed.
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

// looked checks the open stores, and returns the broken ones.
func (s *server) looked() []record.BrokenStore {
	if s.handler.Load() != nil && s.stores != nil {
		s.stores.Look()
	}
	return s.brokenStores()
}

// serveReady says whether the server answers at its usual speed, or else what it waits for. A
// broken store does not make the server unready: otherwise one broken file would take all tenants
// out of service. A probe may send any Host, so every Host is answered. But only operators see the
// names of tenants. A web page whose host name was made to resolve to this address does not see
// them.
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
// of remote write and OTLP then send the request again.
func refuseStarting(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", strconv.Itoa(int(startRetry.Seconds())))
	w.WriteHeader(http.StatusServiceUnavailable)
	_ = json.NewEncoder(w).Encode(map[string]string{"status": "error", "errorType": "unavailable",
		// Fails if the client is gone.
		"error": "Freshet is not ready: " + errNotReady.Error() + "; /-/ready says what it waits for"})
}
