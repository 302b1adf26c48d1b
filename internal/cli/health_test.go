package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/freshet-io/freshet/internal/lib/command"
)

// The exit code of a probe is 0 only for an answer of 200, and what it prints says why.
func TestHealth(t *testing.T) {
	const ready = "Freshet is ready.\n"
	for _, tt := range []struct {
		why         string
		args        []string
		status      int
		body, asked string
		code        int
		said        string
	}{
		{"ready", nil, http.StatusOK, ready, "/-/ready", command.OK, ready},
		{"starting", nil, http.StatusServiceUnavailable, "opens 2 stores\n", "/-/ready", command.Failure, "opens 2 stores"},
		{"alive while it starts", []string{"--live"}, http.StatusOK, "Freshet is healthy.\n", "/-/healthy", command.OK,
			"Freshet is healthy.\n"},
	} {
		server, asked := answering(t, tt.status, tt.body)
		code, stdout, stderr := freshet(t, append([]string{"health", "--server", server}, tt.args...)...)
		if got := asked().Path; code != tt.code || got != tt.asked || !strings.Contains(stdout+stderr, tt.said) {
			t.Errorf("%s: exit code %d, asked %s, printed %s%s", tt.why, code, got, stdout, stderr)
		}
	}
}

// A server that hangs fails the probe once --timeout is over.
func TestHealthOfAServerThatHangs(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer server.Close()
	code, _, stderr := freshet(t, "health", "--server", server.URL, "--timeout", "10ms")
	if code != command.Failure || !strings.Contains(stderr, "deadline exceeded") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// With --wait it asks a starting server again, but not for longer.
func TestHealthWaits(t *testing.T) {
	for _, tt := range []struct {
		wait string
		code int
	}{{"1m", command.OK}, {"1ms", command.Failure}} {
		var asked atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if asked.Add(1) == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		defer server.Close()
		if code, _, stderr := freshet(t, "health", "--server", server.URL, "--wait", tt.wait); code != tt.code {
			t.Errorf("--wait %s: exit code %d, want %d: %s", tt.wait, code, tt.code, stderr)
		}
	}
}
