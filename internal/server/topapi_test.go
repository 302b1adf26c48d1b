package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// An invalid limit is the client's mistake.
func TestTopLimits(t *testing.T) {
	for _, limit := range []string{"0", "-1", "101", "x", "1e9"} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/api/v1/status/top?limit="+limit, nil)
		asTenant("default", new(server).serveTop)(w, r)
		if want := `"errorType":"bad_data"`; w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
			t.Errorf("limit=%s: %d %s", limit, w.Code, w.Body)
		}
	}
}
