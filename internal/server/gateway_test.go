package server

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/role/gateway"
	"github.com/freshet-io/freshet/internal/settings"
)

// gatewayTo returns a server with the role gateway. Its only node answers each request with the
// request's path and body.
func gatewayTo(t *testing.T) (*server, *http.ServeMux) {
	t.Helper()
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.URL.Path+" "+string(body))
	}))
	t.Cleanup(node.Close)
	s := &server{config: settings.Default(), registry: prometheus.NewRegistry()}
	s.config.Role = settings.RoleGateway
	s.current.Store(&s.config)
	if err := s.openAccess(); err != nil {
		t.Fatal(err)
	}
	s.relay = gateway.NewRelay(gateway.RelayOptions{MaxMemory: 1 << 20, Registry: prometheus.NewRegistry(),
		Logger: slog.New(slog.DiscardHandler), Look: func(context.Context) []gateway.Node {
			return []gateway.Node{{Name: "a", URL: node.URL, Ready: true}}
		}})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.relay.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	eventually(t, "the gateway knows its node", s.relay.Ready)
	mux := &routes{http.NewServeMux(), s.guard}
	s.serveRoles(mux)
	return s, mux.ServeMux
}

// The gateway passes writes, queries and events on to a node. It answers with its own configuration. A web page
// whose host name resolves to a gateway on loopback gets nothing: the gateway refuses it, since a node cannot
// notice the trick.
func TestWhatAGatewayPassesOn(t *testing.T) {
	_, mux := gatewayTo(t)
	for _, c := range []struct{ method, host, path, body, want string }{
		{"POST", "localhost", "/api/v1/write", "samples", "/api/v1/write samples"},
		{"POST", "localhost", "/v1/metrics", "points", "/v1/metrics points"},
		{"POST", "localhost", "/api/v1/otlp/v1/metrics", "points", "/api/v1/otlp/v1/metrics points"},
		{"POST", "localhost", "/api/v1/events", "tag=a", "/api/v1/events tag=a"},
		{"GET", "localhost", "/api/v1/events", "", "/api/v1/events "},
		{"PUT", "localhost", "/api/v1/admin/history/01", "block", "/api/v1/admin/history/01 block"},
		{"POST", "localhost", "/api/v1/admin/history/read", "asked", "/api/v1/admin/history/read asked"},
		{"GET", "localhost", "/api/v1/status/senders", "", "/api/v1/status/senders "},
		{"GET", "127.0.0.1:7125", "/api/v1/query", "", "/api/v1/query "},
		{"GET", "localhost", "/federate", "", "/federate "},
		{"GET", "localhost", "/api/v1/status/config", "", `{"data":{"yaml":`},
		{"GET", "hostile.example", "/api/v1/query", "", `{"error":"the header Host has \"hostile.example\"`},
		{"GET", "localhost", "/self/api/v1/query", "", "404"},
	} {
		r := httptest.NewRequest(c.method, "http://"+c.host+c.path, strings.NewReader(c.body))
		r.RemoteAddr = "127.0.0.1:5"
		r = r.WithContext(tenant.NewContext(r.Context(), tenant.Default))
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		if !strings.HasPrefix(w.Body.String(), c.want) {
			t.Errorf("%s %s at %s: %d %s", c.method, c.path, c.host, w.Code, w.Body)
		}
	}
}

// Gateways learn where a node answers HTTP. An address that means all interfaces would not help them.
func TestWhereANodeAnswersHTTP(t *testing.T) {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	own, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	s := &server{}
	s.config.Cluster = settings.Cluster{Node: "a", Nodes: []settings.NodeAddress{{Node: "a", Address: "10.0.0.1:7126"}}}
	if url := s.httpURL(); url != "" {
		t.Errorf("without a listener: got the URL %s, want none", url)
	}
	for _, c := range []struct {
		server httpServer
		want   string
	}{
		{httpServer{listener: l, address: "0.0.0.0:0", scheme: "http"}, "http://10.0.0.1:" + port},
		{httpServer{listener: l, address: ":0", scheme: "https"}, "https://10.0.0.1:" + port},
		{httpServer{listener: own, address: "127.0.0.1:0", scheme: "http"}, "http://" + own.Addr().String()},
	} {
		s.httpAt.Store(&c.server)
		if url := s.httpURL(); url != c.want {
			t.Errorf("%s: %s, want %s", c.server.address, url, c.want)
		}
	}
	_, named, _ := net.SplitHostPort(own.Addr().String())
	s.httpAt.Store(&httpServer{listener: own, address: "node-a.example:0", scheme: "https"})
	if url := s.httpURL(); url != "https://node-a.example:"+named {
		t.Errorf("a host name: %s", url)
	}
}

// A gateway is ready as long as one of its nodes is ready.
func TestAGatewayIsReadyWithItsNodes(t *testing.T) {
	s, _ := gatewayTo(t)
	s.ready.Store(true)
	if !s.nodeReady() {
		t.Error("the gateway is not ready, but its node is ready")
	}
	s.relay = gateway.NewRelay(gateway.RelayOptions{MaxMemory: 1, Registry: prometheus.NewRegistry()})
	if s.nodeReady() {
		t.Error("the gateway is ready, but it knows no node")
	}
}
