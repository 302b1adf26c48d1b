package server

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// A start may take a while: probes learn that the process lives and is not ready, and nothing else
// is answered yet.
func TestProbesWhileStarting(t *testing.T) {
	s := &server{inherited: new(inheritance)}
	for path, want := range map[string]int{
		"/-/healthy": 200, "/-/ready": 503, "/api/v1/query?query=1": 503, "/metrics": 503,
	} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
	s.handler.Store(http.NewServeMux())
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusNotFound {
		t.Errorf("after the start, the handler is not asked: %d", w.Code)
	}
}
