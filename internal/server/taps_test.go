package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/adapter/apiclient"
	"github.com/freshet-io/freshet/internal/core/capture"
	"github.com/freshet-io/freshet/internal/core/tail"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/role/collector"
	"github.com/freshet-io/freshet/internal/settings"
)

// A tail shows so many lines a second, and says what it left out.
func TestTailer(t *testing.T) {
	var out bytes.Buffer
	s := &tailer{selector: tail.New(tail.Filter{}, nil), rate: 2, out: json.NewEncoder(&out)}
	if err := s.show([]capture.Datagram{{Data: []byte("a:1|c\nb:1|c\nc:1|c\nd:1|c")}}, 7); err != nil {
		t.Fatal(err)
	}
	s.second = s.second.Add(-tapNotice) // the second is over
	if err := s.show(nil, 0); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); len(lines) != 3 ||
		lines[2] != `{"left_out":2,"missed":7}` {
		t.Errorf("%s", &out)
	}
}

// A tap of an unknown socket would wait for ever.
func TestTapOfNoListener(t *testing.T) {
	all := []collector.Listening{
		{Network: "udp", Address: "127.0.0.1:8125", Tenant: "default"},
		{Network: "unixgram", Address: "/run/freshet.sock", Tenant: "default"},
		{Network: "udp", Address: "127.0.0.1:8126", Tenant: "other"},
	}
	for _, tt := range []struct{ listener, want string }{
		{"", ""},
		{"unixgram:///run/freshet.sock", ""},
		{"udp:127.0.0.1:8125",
			"listener = udp:127.0.0.1:8125: the tenant default has no such socket; it has udp://127.0.0.1:8125, " +
				"unixgram:///run/freshet.sock"},
		{"udp://127.0.0.1:8126",
			"listener = udp://127.0.0.1:8126: the tenant default has no such socket; it has udp://127.0.0.1:8125, " +
				"unixgram:///run/freshet.sock"},
	} {
		err := knownListener(collector.TapOptions{Tenant: "default", Listener: tt.listener}, all)
		if got := fmt.Sprint(cmp.Or(err, errors.New(""))); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.listener, got, tt.want)
		}
	}
	if err := knownListener(collector.TapOptions{Tenant: "new"}, all); err != nil {
		t.Errorf("a tenant without sockets of its own: %v", err)
	}
}

// A stream goes on beyond the read timeout of requests, and ends when the server stops.
func TestStreamOutlivesReadTimeout(t *testing.T) {
	config := settings.DefaultDogStatsD()
	config.UDP = "" // nothing has to arrive
	c, err := collector.New(collector.Options{
		Config: config, Now: time.Now, Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	mux := http.NewServeMux()
	web := httptest.NewUnstartedServer(mux)
	web.Config.ReadTimeout = 50 * time.Millisecond
	web.Config.BaseContext = func(net.Listener) context.Context {
		return tenant.NewContext(context.Background(), "default")
	}
	open := func(_ exposure, h http.Handler) http.Handler { return h }
	(&server{collector: c, http: httpServers{{server: web.Config}}}).newTapAPI().register(&routes{mux, open})
	web.Start()
	defer web.Close()

	_, err = (apiclient.Server{Address: web.URL}).Follow(t.Context(), "/api/v1/status/capture",
		url.Values{"listener": {"nope"}})
	if err == nil || !strings.Contains(err.Error(), "no such socket; it has none") {
		t.Errorf("an unknown socket: %v", err)
	}
	body, err := apiclient.Server{Address: web.URL}.Follow(t.Context(), "/api/v1/status/capture", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, body)
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("the stream ended too early: %v", err)
	case <-time.After(10 * web.Config.ReadTimeout):
	}
	if err := web.Config.Shutdown(t.Context()); err != nil { // waits for the stream
		t.Error(err)
	}
	<-ended
}
