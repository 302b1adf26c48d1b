package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/peer"
	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/record"
	"github.com/freshet-io/freshet/internal/role/filler"
	"github.com/freshet-io/freshet/internal/role/group"
)

// startRetry is the Retry-After of a request that comes before the server is ready.
const startRetry = 5 * time.Second

// answering returns a channel that is closed once requests are answered. After a restart in place,
// clients have waited since the previous image stopped. So their requests are answered as soon as the
// journal is replayed, and a request waits only for the store that it needs.
func (s *server) answering() <-chan struct{} {
	if s.inherited.answered {
		return s.opening.opened
	}
	return s.readied
}

var errNotReady = errors.New("starting or stopping; try again in a moment")

// readiness returns nil while requests are answered, and otherwise an error that says why they are not.
func (s *server) readiness() error {
	if s.ready.Load() || s.inherited.answered && s.opening.isOpen() {
		return nil
	}
	return errNotReady
}

// readable returns why queries cannot be answered here; nil if they can. A node with a damaged state may have stored
// wrong values. It answers all the same, with a warning, if no other node is left to ask: see doubt.
func (s *server) readable() error {
	if d := s.damaged.Load(); d != nil && s.othersVote() {
		return fmt.Errorf("this node is damaged, so it answers no queries; ask another node: %s", d.What)
	}
	return s.readiness()
}

// readyState is the answer of /-/ready: 200 if Ready, otherwise 503.
type readyState struct {
	Ready    bool           `json:"ready"`
	WaitsFor string         `json:"waits_for,omitempty"`
	Seconds  float64        `json:"seconds"`          // time since the start
	Stores   *tsdb.Progress `json:"stores,omitempty"` // the progress of opening stores

	Fill *answer.ClusterFill `json:"fill,omitempty"` // the progress of a node that is being filled

	Broken int `json:"broken"` // number of stores that cannot be opened; all other stores answer

	Damage *answer.Damage `json:"damage,omitempty"` // of this node's data; only for operators

	BrokenStores []record.BrokenStore `json:"broken_stores,omitempty"` // only for operators
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

// looked returns the stores that are still broken after another attempt to open them.
func (s *server) looked() []record.BrokenStore {
	if s.handler.Load() != nil && s.stores != nil {
		s.stores.Look()
	}
	return s.brokenStores()
}

// serveReady answers whether the server works at its usual speed, or else what it still waits for. A
// broken store does not make the server unready: otherwise one broken file would take all tenants out of
// service. Probes may send any Host, so every Host gets an answer. But only operators see the names of
// tenants. So a web page whose host name was made to resolve to this address cannot read the names.
func (s *server) serveReady(w http.ResponseWriter, r *http.Request) {
	state := readyState{
		Ready: s.nodeReady(), Seconds: time.Since(s.started).Round(time.Millisecond).Seconds(),
	}
	switch i := s.identity.Load(); {
	case s.retirement.begun.Load():
		state.WaitsFor = "nothing: this process is stopping"
	case i != nil && s.filler.Progress() != nil:
		state.WaitsFor, state.Fill = "this node has the data of another node", toldFill(fillOf(s.filler))
	case i != nil && !i.Joined():
		state.WaitsFor = "a leader lets this node join the cluster"
	case s.handler.Load() == nil:
		state.WaitsFor = "the journal is replayed"
	default:
		operator := s.operator(r) && s.rebound(r) == nil
		broken := s.brokenStores()
		if state.Broken = len(broken); operator {
			state.BrokenStores = broken
		}
		switch {
		case state.Ready:
		case s.relay != nil:
			state.WaitsFor = "a node of the cluster is ready"
		case s.stores == nil:
		case s.damage() != nil:
			state.WaitsFor = "this node is damaged; operators see what is"
			if operator {
				state.Damage = s.damage()
				state.WaitsFor = "this node is damaged: " + state.Damage.What
			}
		case s.drained():
			state.WaitsFor = "this node is drained; freshet cluster undrain " + s.config.Cluster.Node + " ends that"
		case s.clockWrong.Load():
			state.WaitsFor = "the clock of this node is set: it is more than 2 s off the other nodes' clocks"
		case s.ready.Load():
			state.WaitsFor = "this node votes or is a spare, knows the leader and lags less than 5 s"
		default:
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

// nodeReady reports whether the server answers at its usual speed. If the server is a node of a cluster,
// its member must also vote or be a spare, lag little, and be neither drained nor damaged, and its clock must be right.
// If it is a gateway, a node must be ready.
func (s *server) nodeReady() bool {
	if !s.ready.Load() || s.retirement.begun.Load() {
		return false
	}
	if s.damage() != nil || s.clockWrong.Load() {
		return false
	}
	if s.relay != nil && !s.relay.Ready() {
		return false
	}
	g, is := s.aggregator.(*group.Group)
	return !is || !s.inCluster() || g.Ready()
}

// drained reports whether this process is a node that is drained.
func (s *server) drained() bool {
	g, is := s.aggregator.(*group.Group)
	return is && s.inCluster() && g.Status().Drained[s.config.Cluster.Node] != 0
}

// fillOf returns the progress of a fill of this node, nil if there is none.
func fillOf(f *filler.Filler) *peer.Fill {
	p := f.Progress()
	if p == nil {
		return nil
	}
	return &peer.Fill{From: p.From, Bytes: uint64(p.Has), OfBytes: uint64(p.Of), Seconds: p.Took.Seconds(),
		ETA: p.ETA.Seconds(), Failures: p.Failures, Error: p.Error}
}

// toldFill returns the progress of a fill in the form of an answer.
func toldFill(f *peer.Fill) *answer.ClusterFill {
	if f == nil {
		return nil
	}
	told := &answer.ClusterFill{From: f.From, Bytes: f.Bytes, OfBytes: f.OfBytes, Seconds: f.Seconds,
		Failures: f.Failures, Error: f.Error}
	if f.ETA >= 0 {
		told.ETASeconds = &f.ETA
	}
	return told
}

// needsStores reports whether requests of a path read or write stores, so that they must wait until the
// server is ready.
func needsStores(path string) bool {
	return strings.HasPrefix(path, "/api/v1/") && !strings.HasPrefix(path, "/api/v1/status/") ||
		strings.HasPrefix(path, "/self/") || path == "/v1/metrics" ||
		strings.HasPrefix(path, "/config/") || strings.HasPrefix(path, "/prometheus/")
}

// refuseStarting answers a request that comes too early, in the form of the Prometheus API. Senders of
// remote write and OTLP then retry.
func refuseStarting(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", strconv.Itoa(int(startRetry.Seconds())))
	w.WriteHeader(http.StatusServiceUnavailable)
	_ = json.NewEncoder(w).Encode(map[string]string{"status": "error", "errorType": "unavailable",
		// Fails if the client is gone.
		"error": "Freshet is not ready: " + errNotReady.Error() + "; /-/ready says what it waits for"})
}
