package gateway

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// web is a node that answers each HTTP request with its name, and keeps the request.
type web struct {
	Node
	server *httptest.Server
	early  func(w http.ResponseWriter, r *http.Request) bool // reports whether it has answered, before the body is read
	answer func(w http.ResponseWriter, r *http.Request)      // nil: the node's name

	mu   sync.Mutex
	came []string // method, path and body
	last *http.Request
}

func (n *web) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if n.early != nil && n.early(w, r) {
		return
	}
	body, _ := io.ReadAll(r.Body)
	n.mu.Lock()
	n.came = append(n.came, fmt.Sprintf("%s %s %s", r.Method, r.URL, body))
	n.last = r
	n.mu.Unlock()
	if n.answer != nil {
		n.answer(w, r)
		return
	}
	w.Header().Set("X-Node", n.Name)
	_, _ = io.WriteString(w, n.Name)
}

func (n *web) number() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.came)
}

// relayed has three nodes and a Relay that has asked them. Node a leads, and c lags.
type relayed struct {
	*Relay
	t     *testing.T
	nodes map[string]*web
}

func newRelayed(t *testing.T) *relayed {
	t.Helper()
	y := &relayed{t: t, nodes: map[string]*web{}}
	y.Relay = NewRelay(RelayOptions{MaxMemory: 1 << 20, Registry: prometheus.NewRegistry(),
		Logger: slog.New(slog.DiscardHandler)})
	for _, name := range []string{"a", "b", "c"} {
		n := &web{Node: Node{Name: name, Ready: true, Leads: name == "a"}}
		n.server = httptest.NewServer(n)
		t.Cleanup(n.server.Close)
		n.URL = n.server.URL
		y.nodes[name] = n
	}
	y.nodes["c"].Lag = 2 * time.Second
	y.asked()
	return y
}

// asked lets the Relay learn the states of the nodes.
func (y *relayed) asked() {
	var all []Node
	for _, name := range slices.Sorted(maps.Keys(y.nodes)) {
		all = append(all, y.nodes[name].Node)
	}
	y.known.note(time.Now(), all)
}

// do sends a request through the Relay.
func (y *relayed) do(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func (y *relayed) query() *httptest.ResponseRecorder {
	return y.do(y.Reads(), httptest.NewRequest(http.MethodPost, "/api/v1/query?x=1", strings.NewReader("query=up")))
}

func (y *relayed) write() *httptest.ResponseRecorder {
	return y.do(y.Writes(), httptest.NewRequest(http.MethodPost, "/api/v1/write", strings.NewReader("samples")))
}

// dies ends a node: its port refuses connections.
func (y *relayed) dies(name string) {
	y.nodes[name].server.CloseClientConnections()
	y.nodes[name].server.Close()
}

// Nodes may tell names that only their own network knows. The gateway then asks at the hosts of its configuration.
func TestNamesOfAnotherNetwork(t *testing.T) {
	y := newRelayed(t)
	hosts := map[string]string{}
	for name, n := range y.nodes {
		at, err := url.Parse(n.server.URL)
		if err != nil {
			t.Fatal(err)
		}
		n.URL, hosts[name] = "http://store-"+name+".of-the-hub.invalid:"+at.Port(), at.Hostname()
	}
	y.asked()
	if w := y.query(); w.Code != http.StatusServiceUnavailable {
		t.Errorf("a query without hosts: %d %s", w.Code, w.Body)
	}
	for name, n := range y.nodes {
		n.Host = hosts[name]
	}
	y.asked()
	if w := y.write(); w.Code != http.StatusOK || w.Body.String() != "a" {
		t.Errorf("a write: %d %s", w.Code, w.Body)
	}
	if w := y.query(); w.Code != http.StatusOK {
		t.Errorf("a query: %d %s", w.Code, w.Body)
	}
}

// Writes go to the leader. Reads go in turn to the nodes that lag least. All bytes pass unchanged.
func TestWhereRequestsGo(t *testing.T) {
	y := newRelayed(t)
	for range 10 {
		if w := y.write(); w.Code != 200 || w.Body.String() != "a" || w.Header().Get("X-Node") != "a" {
			t.Errorf("a write: %d %s", w.Code, w.Body)
		}
		if w := y.query(); w.Code != 200 {
			t.Errorf("a query: %d %s", w.Code, w.Body)
		}
	}
	a, b, c := y.nodes["a"].number(), y.nodes["b"].number(), y.nodes["c"].number()
	if a <= 10 || b == 0 || a+b != 20 || c > 0 {
		t.Errorf("nodes a, b and c got %d, %d and %d requests, want more than 10, at least 1, and none; in all 20",
			a, b, c)
	}
	if got := y.nodes["b"].came[0]; got != "POST /api/v1/query?x=1 query=up" {
		t.Errorf("node b got %q", got)
	}
	y.nodes["a"].Leads, y.nodes["a"].Ready, y.nodes["b"].Ready, y.nodes["c"].Leads = false, false, false, true
	y.asked()
	for _, w := range []*httptest.ResponseRecorder{y.write(), y.query()} {
		if w.Body.String() != "c" {
			t.Errorf("only node c is ready, and it leads, but node %s answers", w.Body)
		}
	}
	if !y.Ready() {
		t.Error("not ready")
	}
	y.nodes["c"].Ready = false
	y.asked()
	if w := y.query(); w.Code != 200 || y.Ready() { // a node that lags can answer in part
		t.Errorf("no node is ready: status %d, ready %v, want 200, false", w.Code, y.Ready())
	}
}

// The node decides about the tenant, the token and the host. So it must see that a request came through
// a gateway. A gateway on the node's machine sends from loopback, like an operator.
func TestTheNodeSeesWhoAsks(t *testing.T) {
	y := newRelayed(t)
	r := httptest.NewRequest(http.MethodGet, "http://metrics.example:7125/api/v1/labels", nil)
	r.RemoteAddr = "10.0.0.9:1234"
	r.Header.Set("Authorization", "Bearer secret")
	r.Header.Set("X-Scope-OrgID", "shop")
	r.Header.Set("X-Forwarded-For", "10.0.0.1")
	r.Header.Set("User-Agent", "Grafana")
	y.nodes["b"].Ready = false // so that node a answers
	y.asked()
	if w := y.do(y.Reads(), r); w.Code != 200 {
		t.Fatal(w.Code, w.Body)
	}
	got := y.nodes["a"].last
	for name, want := range map[string]string{"Authorization": "Bearer secret", "X-Scope-OrgID": "shop",
		"X-Forwarded-For": "10.0.0.1, 10.0.0.9", "Via": "1.1 freshet", "User-Agent": "Grafana"} {
		if got.Header.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, got.Header.Get(name), want)
		}
	}
	if got.Host != "metrics.example:7125" {
		t.Errorf("the host is %q", got.Host)
	}
	socket := httptest.NewRequest(http.MethodGet, "/api/v1/labels", nil)
	socket.RemoteAddr = "@" // of operator.sock
	if y.do(y.Reads(), socket); y.nodes["a"].last.Header.Get("Via") == "" {
		t.Error("a request over a Unix socket does not show that it came through a gateway")
	}
}

// When a node dies, another node answers the same request, and later requests go to that node at once.
// When the dead node is back, it answers again.
func TestANodeDies(t *testing.T) {
	y := newRelayed(t)
	y.nodes["b"].Ready = false
	y.asked()
	y.dies("a")
	for _, request := range []func() *httptest.ResponseRecorder{y.query, y.write} {
		if w := request(); w.Code != 200 || w.Body.String() != "c" {
			t.Errorf("after the death of node a: status %d from node %s, want 200 from c", w.Code, w.Body)
		}
	}
	if n := testutil.ToFloat64(y.again.WithLabelValues("read")); n != 1 {
		t.Errorf("%v queries were sent again, want 1", n)
	}
	if n := testutil.ToFloat64(y.again.WithLabelValues("write")); n != 0 {
		t.Errorf("%v writes went first to a node that is known to be dead, want 0", n)
	}
	back := httptest.NewServer(y.nodes["a"])
	defer back.Close()
	y.nodes["a"].URL = back.URL
	y.asked()
	if w := y.write(); w.Body.String() != "a" {
		t.Errorf("node a is back, but node %s answers", w.Body)
	}
}

// A node that is about to stop answers 503. Another node answers the query. A write is not sent again,
// since its sender repeats it.
func TestANodeThatStops(t *testing.T) {
	y := newRelayed(t)
	y.nodes["b"].Ready, y.nodes["c"].Lag = false, 2*time.Second
	y.nodes["a"].answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		http.Error(w, "stopping", http.StatusServiceUnavailable)
	}
	y.asked()
	if w := y.query(); w.Code != 200 || w.Body.String() != "c" {
		t.Errorf("a query: %d %s", w.Code, w.Body)
	}
	if w := y.write(); w.Code != 503 || w.Header().Get("Retry-After") != "7" || w.Body.String() != "stopping\n" {
		t.Errorf("a write: %d %s", w.Code, w.Body)
	}
	y.nodes["c"].answer = y.nodes["a"].answer
	if w := y.query(); w.Code != 503 || w.Body.String() != "stopping\n" {
		t.Errorf("no node answers queries: status %d, %q, want 503, stopping", w.Code, w.Body)
	}
}

// If no node answers a write, the gateway's answer says what is known of the write's fate.
func TestNoNodeAnswers(t *testing.T) {
	y := newRelayed(t)
	y.dies("c")
	cut := func(w http.ResponseWriter, _ *http.Request) {
		conn, _, _ := w.(http.Hijacker).Hijack()
		_ = conn.Close()
	}
	y.nodes["a"].answer, y.nodes["b"].answer = cut, cut
	if w := y.write(); w.Code != 503 || !strings.HasPrefix(w.Body.String(), "it may be written, in whole or in part") ||
		w.Header().Get("Retry-After") == "" {
		t.Errorf("a write is cut off after it was sent: status %d, %s, want 503 and a text that it may be written",
			w.Code, w.Body)
	}
	y.dies("a")
	y.dies("b")
	y.asked()
	never := "nothing was written, send it again in 1s: no node"
	if w := y.write(); w.Code != 503 || !strings.HasPrefix(w.Body.String(), never) {
		t.Errorf("never sent: %d %s", w.Code, w.Body)
	}
	w := y.query()
	if w.Code != 503 || !strings.Contains(w.Body.String(), `"errorType":"unavailable"`) ||
		w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("a query: %d %s", w.Code, w.Body)
	}
	y.known.note(time.Now().Add(goneTime), nil)
	if w := y.query(); w.Code != 503 || !strings.Contains(w.Body.String(), errNoNode.Error()) {
		t.Errorf("no node is known: a query got status %d, %s, want 503", w.Code, w.Body)
	}
}

// A paused node accepts connections but answers nothing. After some seconds without an answer, its
// requests go to another node. An answer that has begun arrives whole.
func TestANodeIsPaused(t *testing.T) {
	y := newRelayed(t)
	y.nodes["b"].Ready = false
	y.asked()
	paused := make(chan struct{})
	defer close(paused)
	came := make(chan struct{})
	y.nodes["a"].answer = func(http.ResponseWriter, *http.Request) {
		close(came)
		<-paused
	}
	answered := make(chan *httptest.ResponseRecorder)
	go func() { answered <- y.query() }()
	<-came
	y.known.note(time.Now().Add(goneTime), []Node{y.nodes["c"].Node})
	if w := <-answered; w.Code != 200 || w.Body.String() != "c" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// When the client leaves, its request at the node ends.
func TestTheClientLeaves(t *testing.T) {
	y := newRelayed(t)
	ended := make(chan struct{})
	ctx, leave := context.WithCancel(t.Context())
	y.nodes["a"].answer = func(_ http.ResponseWriter, r *http.Request) {
		leave()
		<-r.Context().Done()
		close(ended)
	}
	y.do(y.Writes(), httptest.NewRequest(http.MethodPost, "/api/v1/write", nil).WithContext(ctx))
	<-ended
	if n := testutil.ToFloat64(y.failed.WithLabelValues("write")); n != 0 || y.nodes["b"].number() > 0 {
		t.Errorf("%v requests count as failed, and %d came to node b, want none", n, y.nodes["b"].number())
	}
}

// Requests under way take no more memory than the gateway allows.
func TestTheMemoryOfRequests(t *testing.T) {
	y := newRelayed(t)
	large := func(size int) *httptest.ResponseRecorder {
		body := strings.NewReader(strings.Repeat("x", size))
		return y.do(y.Writes(), httptest.NewRequest(http.MethodPost, "/api/v1/write", body))
	}
	if w := large(2 << 20); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a request larger than the memory: status %d, want 413", w.Code)
	}
	stream := httptest.NewRequest(http.MethodPost, "/api/v1/write", strings.NewReader(strings.Repeat("x", 2<<20)))
	stream.ContentLength = -1
	if w := y.do(y.Writes(), stream); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a stream longer than the memory: status %d, want 413", w.Code)
	}
	y.nodes["a"].answer = func(w http.ResponseWriter, _ *http.Request) {
		y.nodes["a"].answer = nil
		second := large(600 << 10) // while the first is under way
		w.WriteHeader(second.Code)
	}
	if w := large(600 << 10); w.Code != 503 {
		t.Errorf("a second request that does not fit beside the first: status %d, want 503", w.Code)
	}
	if w := large(600 << 10); w.Code != 200 {
		t.Errorf("after the first request ended, another one got status %d, %s, want 200", w.Code, w.Body)
	}
}

// A node is asked every second, and forgotten when it does not answer.
func TestNodesAreAsked(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	asked := make(chan []Node)
	y := NewRelay(RelayOptions{MaxMemory: 1, Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
		Look: func(context.Context) []Node { return <-asked }})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- y.Run(ctx) }()
	asked <- []Node{{Name: "a", URL: "http://" + l.Addr().String(), Ready: true}, {Name: "b", Ready: true}}
	asked <- nil // the first answers are noted
	if all := y.known.order(reads); len(all) != 1 || all[0].Name != "a" || !y.Ready() {
		t.Errorf("the nodes %v", all)
	}
	a := y.known.order(reads)[0]
	stop()
	go func() { asked <- nil }()
	if err := <-ended; err != nil || a.gone.Err() == nil {
		t.Errorf("Run returned %v, want no error, or requests to node a still wait", err)
	}
}
