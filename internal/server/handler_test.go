package server

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/settings"
)

// A start may take long. Meanwhile probes see that the process lives and is not ready, and no other
// request is answered.
func TestProbesWhileStarting(t *testing.T) {
	s := &server{inherited: new(inheritance)}
	for path, want := range map[string]int{
		"/-/healthy": 200, "/-/ready": 503, "/api/v1/query?query=1": 503, "/metrics": 503,
	} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("%s: got %d, want %d", path, w.Code, want)
		}
	}
	s.handler.Store(http.NewServeMux())
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusNotFound {
		t.Errorf("after the start, the request did not reach the handler: status %d", w.Code)
	}
}

// The index lists only the paths that this process answers. Each line belongs to a role. The test also
// covers the roles querier, ingester and distributor alone, which no configuration gives a process so
// far.
func TestTheIndexNamesWhatTheRolesAnswer(t *testing.T) {
	const query, events, write, otlp = "/api/v1/query?", "/api/v1/events ", "/api/v1/write ", "/v1/metrics "
	c := settings.Default()
	for role, want := range map[string][]string{
		settings.RoleAll:         {query, events, write, otlp},
		settings.RoleQuerier:     {query},
		settings.RoleIngester:    {events},
		settings.RoleDistributor: {write, otlp},
		settings.RoleCollector:   nil,
	} {
		c.Role = role
		w := httptest.NewRecorder()
		(&server{config: c}).serveIndex(w, nil)
		text := w.Body.String()
		for _, line := range []string{query, events, write, otlp} {
			if got := strings.Contains(text, "\n"+line); got != slices.Contains(want, line) {
				t.Errorf("role %s: the index has the line %s: %t, want %t", role, line, got, !got)
			}
		}
		stored := !strings.Contains(text, "\nNothing is stored: ")
		if role == settings.RoleAll && !stored || role == settings.RoleCollector && stored {
			t.Errorf("role %s: the index says that data is stored: %t, want %t", role, stored, !stored)
		}
	}
}
