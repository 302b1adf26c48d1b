package apiclient

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/freshet-io/freshet/internal/lib/build"
)

// A server lists its clients, so a command names its program, over HTTP and over a socket.
func TestCommandsSayWhoTheyAre(t *testing.T) {
	before := build.Version
	defer func() { build.Version = before }()
	build.Version = "1.2.3"
	var agents []string
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agents = append(agents, r.UserAgent())
		fmt.Fprint(w, `{"status":"success"}`)
	})
	web := httptest.NewServer(handler)
	defer web.Close()
	path := filepath.Join(t.TempDir(), "s")
	socket, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	bySocketOnly := httptest.NewUnstartedServer(handler)
	bySocketOnly.Listener.Close()
	bySocketOnly.Listener = socket
	bySocketOnly.Start()
	defer bySocketOnly.Close()
	for _, address := range []string{web.URL, bySocket + path} {
		agents = nil
		if _, _, err := (Server{Address: address}).Ask(t.Context(), "/api/v1/query", nil); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(agents); got != "[freshet/1.2.3]" {
			t.Errorf("at %s the command is %s", address, got)
		}
	}
}
