package server

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/settings"
)

// A node whose clock is wrong answers queries of the present with data of another time. So nobody should send it any.
func TestANodeWithAWrongClockIsNotReady(t *testing.T) {
	s := &server{config: settings.Default(), inherited: new(inheritance), stores: &tsdb.Stores{}}
	s.handler.Store(http.NewServeMux())
	s.ready.Store(true)
	for _, tt := range []struct {
		ahead *float64
		ready bool
	}{{new(-3600.0), false}, {new(1.9), true}, {new(2.1), false}, {nil, true}} {
		s.lookAtClock(tt.ahead)
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/-/ready", nil)
		s.serveReady(w, r.WithContext(tenant.NewContext(r.Context(), tenant.Default)))
		if ready := w.Code == http.StatusOK; ready != tt.ready || !ready && !strings.Contains(w.Body.String(), "clock") {
			t.Errorf("with a clock that is %v s ahead: %d %s, want ready %v", tt.ahead, w.Code, w.Body, tt.ready)
		}
	}
}

// Every client may ask whether the server is ready, but a tenant must not see the names of other
// tenants.
func TestReadyNamesTenantsToOperatorsAlone(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "tsdb", "secret-team", "10s")
	if err := errors.Join(os.MkdirAll(filepath.Dir(broken), 0o700), os.WriteFile(broken, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	stores, err := tsdb.Open(tsdb.DefaultConfig(), dir, time.Now, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := &server{config: settings.Default(), inherited: new(inheritance), stores: stores}
	s.handler.Store(http.NewServeMux())
	s.ready.Store(true)
	ask := func(from, host string) string {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, "http://"+host+"/-/ready", nil)
		r.RemoteAddr = from
		r = r.WithContext(tenant.NewContext(r.Context(), tenant.Default))
		w := httptest.NewRecorder()
		s.serveReady(w, r)
		var state readyState
		if err := json.Unmarshal(w.Body.Bytes(), &state); err != nil || w.Code != http.StatusOK || !state.Ready ||
			state.Broken != 1 {
			t.Errorf("%d %s %v", w.Code, w.Body, err)
		}
		return w.Body.String()
	}
	const here, elsewhere, address = "127.0.0.1:5000", "192.0.2.1:5000", "127.0.0.1:7125"
	// A web page with this host name could read the answer.
	if got := ask(here, "evil.example:7125"); strings.Contains(got, "secret-team") || strings.Contains(got, dir) {
		t.Errorf("a server with one tenant, asked under a foreign host name, names the tenant or a path: %s", got)
	}
	if got := ask(elsewhere, address); !strings.Contains(got, "secret-team") {
		t.Errorf("a server with one tenant does not name the tenant: %s", got)
	}
	s.access.Store(tenant.ByHeader(nil))
	if got := ask(elsewhere, address); strings.Contains(got, "secret-team") || strings.Contains(got, dir) {
		t.Errorf("a server with many tenants, asked from another machine, names a tenant or a path: %s", got)
	}
	if got := ask(here, address); !strings.Contains(got, "secret-team") ||
		!strings.Contains(got, "move the file "+broken+" away") {
		t.Errorf("a server with many tenants, requested from this machine, does not name the tenant and the fix: %s", got)
	}
}
