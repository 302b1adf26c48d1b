package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/client"
	"github.com/freshet-io/freshet/slogring"
)

func newServer(t testing.TB, x *index) *server {
	t.Helper()
	ring := slogring.New(io.Discard, slogring.Options{})
	t.Cleanup(func() { _ = ring.Close(context.Background()) })
	m := newMetrics(client.Discard)
	s := &server{refresher: newRefresher(nil, slog.New(ring), m), metrics: m, log: slog.New(ring), logRequests: true}
	if x != nil {
		s.refresher.current.Store(x)
	}
	return s
}

func TestAnswers(t *testing.T) {
	d, err := parseDocument([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	d.carrier = `a"b`
	full, empty := newServer(t, indexOf(t, d)), newServer(t, nil)
	draining := newServer(t, indexOf(t, d))
	draining.draining.Store(true)
	const route = "/v1/coverage?origin=01001000&destination=20040002"
	const offer = `[{"carrier":"a\"b","service":"express","days":2,"price_cents":1290}]` + "\n"
	for _, c := range []struct {
		name        string
		server      *server
		method, url string
		code        int
		want        string // the body, or a part of it
	}{
		{"covered", full, "GET", route, 200, offer},
		{"covered by the carrier that is asked for", full, "GET", route + "&carrier=a%22b", 200, offer},
		{"not covered by another carrier", full, "GET", route + "&carrier=other", 200, "[]\n"},
		{"not covered at all", full, "GET", "/v1/coverage?origin=02001000&destination=20040002", 200, "[]\n"},
		{"a code is missing", full, "GET", "/v1/coverage?origin=01001000", 400,
			`{"field":"destination","value":"","limit":"a postal code of 8 digits","fix":"write it with its leading zeros ` +
				`and without a dash: 01001000"}`},
		{"one answer names all problems", full, "GET", "/v1/coverage?origin=x&destination=y", 400,
			`{"field":"origin","value":"x",`},
		{"a value is quoted, and cut", full, "GET", "/v1/coverage?origin=%22" + strings.Repeat("x", 99), 400,
			`"value":"\"` + strings.Repeat("x", 63) + `",`},
		{"an invalid encoding", full, "GET", route + "&carrier=%zz", 400,
			`{"field":"carrier","value":"%zz","limit":"a URL's encoding"`},
		{"a carrier is bounded", full, "GET", route + "&carrier=" + strings.Repeat("x", 65), 400, `"limit":"64 bytes"`},
		{"a query is bounded", full, "GET", "/v1/coverage?" + strings.Repeat("x", 1025), 400,
			`{"field":"query","value":"1025 bytes","limit":"1024 bytes"`},
		{"a method that is not allowed", full, "DELETE", route, 405, "use GET\n"},
		{"an unknown path", full, "GET", "/", 404, "not found"},
		{"no index yet", empty, "GET", route, 503, "loading"},
		{"healthy without an index", empty, "GET", "/healthy", 200, "healthy\n"},
		{"not ready without an index", empty, "GET", "/ready", 503, "loading"},
		{"ready", full, "GET", "/ready", 200, "ready\n"},
		{"not ready while the service drains", draining, "GET", "/ready", 503, "draining\n"},
		{"the draining service still answers", draining, "GET", route, 200, offer},
		{"a refresh while nobody runs the refresher", full, "POST", "/-/refresh", 409, "a refresh is running"},
		{"status", full, "GET", "/-/status", 200, `{"documents":1,"index_bytes":48,`},
	} {
		w := httptest.NewRecorder()
		c.server.ServeHTTP(w, httptest.NewRequest(c.method, c.url, nil))
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: %d %s, want %d %s", c.name, w.Code, w.Body, c.code, c.want)
		}
	}
}

// discard is a ResponseWriter that allocates nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

// Answering a request, with its log line and its metrics, allocates nothing beyond what net/http
// does.
func TestRequestAllocations(t *testing.T) {
	s := newServer(t, indexOf(t, generated(10_000)...))
	w := discard{http.Header{}}
	r := httptest.NewRequest("GET", "/v1/coverage?origin=01001000&destination=20040002&carrier=carrier-7", nil)
	if n := testing.AllocsPerRun(1000, func() { s.ServeHTTP(w, r) }); n > 1 {
		t.Errorf("an answer takes %v allocations, want at most 1", n)
	}
}

// A stop waits until the service has answered the requests that it has accepted.
func TestDrain(t *testing.T) {
	from := &fakeSource{wait: make(chan struct{}), began: make(chan struct{}, 2)}
	s := newServer(t, nil)
	s.refresher.source = from
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refreshing, endRefreshing := context.WithCancel(context.Background())
	served, refreshed := make(chan error, 1), make(chan error, 1)
	go func() { refreshed <- s.refresher.run(refreshing) }()
	from.wait <- struct{}{} // the first index
	<-from.began
	go func() { served <- s.serve(ctx, listener) }()
	asked := make(chan int, 1)
	go func() {
		r, err := http.Post("http://"+listener.Addr().String()+"/-/refresh", "", nil)
		for err == nil && r.StatusCode == http.StatusConflict { // until the first refresh has ended
			r.Body.Close()
			r, err = http.Post("http://"+listener.Addr().String()+"/-/refresh", "", nil)
		}
		if err != nil {
			t.Error(err)
			asked <- 0
			return
		}
		r.Body.Close()
		asked <- r.StatusCode
	}()
	<-from.began
	stop()
	for !s.draining.Load() {
		runtime.Gosched()
	}
	from.wait <- struct{}{}
	if code := <-asked; code != http.StatusOK {
		t.Errorf("the request was answered with status %d, want 200", code)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	endRefreshing()
	if err := <-refreshed; err != nil {
		t.Error(err)
	}
}
