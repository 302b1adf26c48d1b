package forwarder

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/settings"
)

// A request arrives as it was pushed, with the headers of its version.
func TestForwards(t *testing.T) {
	var got []string
	b := newBackend(t, func(_ http.ResponseWriter, r *http.Request, body string) {
		got = append(got,
			strings.Join([]string{r.Method, r.URL.Path, r.Header.Get("Content-Type"), r.Header.Get("Content-Encoding"),
				r.Header.Get("X-Prometheus-Remote-Write-Version"), r.UserAgent(), r.Header.Get("X-Scope-OrgID"),
				r.Header.Get("X-Region"), body}, "|"))
	})
	b.Start()
	x := newForwarder(t, t.TempDir(),
		settings.Backend{
			URL: b.URL + "/push", Headers: map[string]string{"X-Scope-OrgID": "freshet-{tenant}", "X-Region": "eu"},
		})
	one := newRequest(1)
	one.Version, one.Tenant = 1, "shop"
	x.push(one, newRequest(2))
	x.runUntilEmpty()
	want := []string{
		"POST|/push|application/x-protobuf|snappy|0.1.0|freshet/test|freshet-shop|eu|body 1",
		"POST|/push|application/x-protobuf;proto=io.prometheus.write.v2.Request|snappy|2.0.0|" +
			"freshet/test|freshet-default|eu|body 2",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	x.expect("_total",
		map[string]float64{
			"acknowledged_requests_total": 2, "acknowledged_samples_total": 8, "acknowledged_bytes_total": 2*6 + 4 + 7 + 12,
		})
	x.expect("waiting", map[string]float64{})
}

// Whenever a process stops, the next process sends the remaining requests. No request is lost, and only
// the request in flight is sent twice.
func TestRestartLosesNothing(t *testing.T) {
	const n = 40
	arrived := make(chan struct{}, n)
	hang := make(chan struct{})
	var mu sync.Mutex
	var got []string // accepted requests in the order in which they came
	b := newBackend(t, func(_ http.ResponseWriter, r *http.Request, body string) {
		mu.Lock()
		got = append(got, body)
		count := len(got)
		mu.Unlock()
		if count%7 == 0 { // the backend takes this request, but its answer never arrives
			arrived <- struct{}{}
			select {
			case <-r.Context().Done():
			case <-hang:
			}
		}
	})
	b.Start()
	defer close(hang)
	dir := t.TempDir()
	restarts := 0
	for pushed := 0; ; restarts++ {
		x := newForwarder(t, dir, settings.Backend{URL: b.URL})
		if restarts < 4 {
			x.pushNumbers(pushed+1, pushed+10)
			pushed += 10
		}
		x.run(func() bool {
			select {
			case <-arrived:
				return true
			default:
			}
			sum, _ := x.waiting()
			return sum.Frames == 0
		})
		if sum, _ := x.waiting(); sum.Frames == 0 && pushed == n {
			break
		}
	}
	mu.Lock()
	defer mu.Unlock()
	again := len(got) - n
	if got := slices.Compact(got); !slices.Equal(got, bodies(1, n)) {
		t.Errorf("after %d restarts, the backend took %q, want %q", restarts, got, bodies(1, n))
	}
	if again > restarts || restarts < 4 {
		t.Errorf("%d requests arrived twice after %d restarts, want at most one for each restart, and at least 4 "+
			"restarts", again, restarts)
	}
}

// A full queue gives up its oldest requests, and counts and logs them. The backend gets the rest,
// and every request is counted once.
func TestFullQueue(t *testing.T) {
	b := newBackend(t, nil)
	b.Start()
	x := newForwarder(t, t.TempDir(), settings.Backend{URL: b.URL, Queue: 4000})
	x.pushNumbers(1, 200)
	waiting, _ := x.waiting()
	x.runUntilEmpty()
	got := b.all()
	if len(got) < 20 || !slices.Equal(got, bodies(201-len(got), 200)) {
		t.Errorf("taken were %q", got)
	}
	lost := float64(200 - len(got))
	if uint64(len(got)) != waiting.Frames {
		t.Errorf("the backend took %d requests, want the %d that waited", len(got), waiting.Frames)
	}
	if got := x.counts("requests_total"); !maps.Equal(got,
		map[string]float64{"acknowledged_requests_total": 200 - lost, "unsent_requests_total queue_full": lost}) {
		t.Errorf("200 requests were pushed, and the counts are %v, want %v given up and the rest acknowledged",
			got, lost)
	}
	if got := x.counts("samples_total"); got["unsent_samples_total queue_full"] != 4*lost {
		t.Errorf("counted are %v", got)
	}
	if !strings.Contains(x.logs.String(),
		`level=WARN msg="the queue is full; the oldest requests are given up" backend=test requests=`) {
		t.Errorf("log:\n%s", x.logs)
	}
}

// A request that is given up while it is being sent counts once, as given up.
func TestGivenUpWhileSent(t *testing.T) {
	arrived, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	b := newBackend(t, func(http.ResponseWriter, *http.Request, string) {
		once.Do(func() { close(arrived); <-goOn })
	})
	b.Start()
	x := newForwarder(t, t.TempDir(), settings.Backend{URL: b.URL, Queue: 4000})
	x.pushNumbers(1, 1)
	filled := false
	x.run(func() bool {
		if !filled {
			<-arrived
			x.pushNumbers(2, 200)
			close(goOn)
			filled = true
		}
		sum, _ := x.waiting()
		return sum.Frames == 0
	})
	counts := x.counts("requests_total")
	if sum := counts["acknowledged_requests_total"] + counts["unsent_requests_total queue_full"]; sum != 200 {
		t.Errorf("after 200 pushes, the counts are %v, want 200 in all", counts)
	}
	if got := b.all(); float64(len(got)) != counts["acknowledged_requests_total"]+1 {
		t.Errorf("the backend took %d requests, want one more than was acknowledged; the counts are %v",
			len(got), counts)
	}
}

// A refusal is final. It is counted by its status and logged with the beginning of the backend's
// text, and the next request follows.
func TestRefused(t *testing.T) {
	b := newBackend(t, func(w http.ResponseWriter, _ *http.Request, body string) {
		switch body {
		case "body 1":
			http.Error(w, "out of order sample "+strings.Repeat("x", 10*maxText), http.StatusBadRequest)
		case "body 3":
			http.Error(w, "who are you?", http.StatusUnauthorized)
		}
	})
	b.Start()
	x := newForwarder(t, t.TempDir(), settings.Backend{URL: b.URL})
	x.pushNumbers(1, 4)
	x.runUntilEmpty()
	if got := b.all(); !slices.Equal(got, []string{"body 2", "body 4"}) {
		t.Errorf("taken were %q", got)
	}
	x.expect("samples_total",
		map[string]float64{"acknowledged_samples_total": 8, "refused_samples_total 400": 4, "refused_samples_total 401": 4})
	x.expect("retries", map[string]float64{})
	line, _, _ := strings.Cut(x.logs.String(), "\n")
	if want := `level=WARN msg="the backend refused a request; it is not sent again" backend=test reason=400 ` +
		`answer="400 Bad Request: out of order sample xxx`; !strings.HasPrefix(line, want) ||
		!strings.HasSuffix(line, `x" tenant=default samples=4`) || len(line) > len(want)+maxText+100 {
		t.Errorf("log: %s", line)
	}
	if n := b.opened.Load(); n != 1 {
		t.Errorf("sequential requests used %d connections, want 1", n)
	}
}

// An answer may come before the whole request is sent. The rest of the request must not change
// while the next one is read from the queue.
func TestEarlyAnswer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer server.Close()
	x := newForwarder(t, t.TempDir(), settings.Backend{URL: server.URL})
	for range 8 {
		large := newRequest(1)
		large.Body = make([]byte, 8<<20)
		x.push(large)
	}
	x.runUntilEmpty() // the race detector checks the memory of the body
}

// After a failure that is not a refusal, the request is retried until the backend takes it. The requests
// stay in order.
func TestRetries(t *testing.T) {
	codes := []int{500, 502, 503, 429, 302, 307, 500}
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request, _ string) {
		if len(codes) > 0 {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(codes[0])
			codes = codes[1:]
		}
		if r.Method != http.MethodPost || r.URL.Path != "/" {
			t.Errorf("a redirect was followed to %s %s, want POST to / only", r.Method, r.URL)
		}
	})
	b.Start()
	x := newForwarder(t, t.TempDir(), settings.Backend{URL: b.URL + "/"})
	x.pushNumbers(1, 3)
	x.runUntilEmpty()
	if got := b.all(); !slices.Equal(got, bodies(1, 3)) {
		t.Errorf("taken were %q", got)
	}
	x.expect("retries", map[string]float64{"retries_total 500": 2, "retries_total 502": 1, "retries_total 503": 1,
		"retries_total 429": 1, "retries_total 302": 1, "retries_total 307": 1})
	if logs := x.logs.String(); strings.Count(logs, "\n") != 2 || !strings.Contains(logs, "takes requests again") {
		t.Errorf("want two log lines for an outage, got:\n%s", logs)
	}
}

// Requests to a backend that does not answer in time, or that is not running, are retried.
func TestAway(t *testing.T) {
	var second atomic.Bool
	b := newBackend(t, func(_ http.ResponseWriter, r *http.Request, _ string) {
		if !second.Swap(true) {
			<-r.Context().Done()
		}
	})
	address := b.Listener.Addr().String()
	if err := b.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	x := newForwarder(t, t.TempDir(), settings.Backend{URL: "http://" + address, Timeout: 100 * time.Millisecond})
	x.pushNumbers(1, 2)
	started := false
	x.run(func() bool {
		if !started && x.counts("retries")["retries_total network"] > 3 {
			var err error
			if b.Listener, err = net.Listen("tcp", address); err != nil {
				t.Fatal(err)
			}
			b.Start()
			started = true
		}
		sum, _ := x.waiting()
		return sum.Frames == 0
	})
	if got := slices.Compact(b.all()); !slices.Equal(got, bodies(1, 2)) {
		t.Errorf("taken were %q", got)
	}
	if got := x.counts("retries")["retries_total timeout"]; got < 1 { // on a busy machine, other requests time out, too
		t.Errorf("%v time-outs", got)
	}
}

// Tenants share the connections. Each tenant's requests stay in order, but arrive concurrently with
// requests of other tenants.
func TestConnections(t *testing.T) {
	const tenants, each = 16, 10
	var arrived atomic.Int32
	together := make(chan struct{})
	b := newBackend(t, func(_ http.ResponseWriter, r *http.Request, _ string) {
		if arrived.Add(1) == 4 {
			close(together)
		}
		select {
		case <-together: // the first four requests wait for each other
		case <-r.Context().Done():
		}
	})
	b.Start()
	x := newForwarder(t, t.TempDir(), settings.Backend{URL: b.URL, Connections: 4})
	for n := range each {
		for i := range tenants {
			x.push(Request{Tenant: fmt.Sprintf("t%d", i), Version: 1, Samples: 1, Body: fmt.Appendf(nil, "t%d %d", i, n)})
		}
	}
	x.runUntilEmpty()
	next := map[string]int{}
	for _, body := range b.all() {
		name, n, _ := strings.Cut(body, " ")
		if n != fmt.Sprint(next[name]) {
			t.Fatalf("%s came next, want request %d", body, next[name])
		}
		next[name]++
	}
	if len(next) != tenants {
		t.Errorf("%d tenants", len(next))
	}
}

// After a connection is removed, its waiting requests are sent, but its queue gets no new ones.
func TestFewerConnections(t *testing.T) {
	b := newBackend(t, nil)
	b.Start()
	dir := t.TempDir()
	push := func(x *fixture) {
		for i := range 16 {
			x.push(Request{Tenant: fmt.Sprintf("t%d", i), Version: 1, Samples: 1, Body: fmt.Append(nil, i)})
		}
	}
	push(newForwarder(t, dir, settings.Backend{URL: b.URL, Connections: 4}))
	x := newForwarder(t, dir, settings.Backend{URL: b.URL})
	before, _ := x.lanes[0].queue.Waiting()
	push(x)
	if after, _ := x.lanes[0].queue.Waiting(); after.Frames != before.Frames+16 || before.Frames == 16 {
		t.Errorf("the first connection's queue has %d of 16 requests, and %d after 16 more pushes, want fewer than "+
			"16, then 16 more",
			before.Frames, after.Frames)
	}
	x.runUntilEmpty()
	if n := len(b.all()); n != 32 {
		t.Errorf("taken were %d of 32", n)
	}
}

// After Run has returned, none of its goroutines is running, whatever Run was doing.
func TestNothingIsLeft(t *testing.T) {
	arrived := make(chan struct{}, 10)
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request, body string){
		"idle":      nil,
		"in flight": func(_ http.ResponseWriter, r *http.Request, _ string) { arrived <- struct{}{}; <-r.Context().Done() },
		"in a pause": func(w http.ResponseWriter, _ *http.Request, _ string) {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusServiceUnavailable)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(t, answer)
			b.Start()
			x := newForwarder(t, t.TempDir(), settings.Backend{URL: b.URL})
			x.pushNumbers(1, 1)
			x.run(func() bool {
				select {
				case <-arrived:
					return true
				default:
				}
				sum, _ := x.waiting()
				return sum.Frames == 0 || len(x.counts("retries")) > 0
			})
			select {
			case <-b.closed:
				// A request that the stop cancels does not count as a retry, and is not
				// logged.
				if retries := x.counts("retries"); name == "in flight" && (len(retries) > 0 || x.logs.Len() > 0) {
					t.Errorf("retries %v, log:\n%s", retries, x.logs)
				}
			case <-time.After(10 * time.Second):
				t.Error("after Run, a connection is still open")
			}
			var stacks bytes.Buffer
			if err := pprof.Lookup("goroutine").WriteTo(&stacks, 1); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(stacks.String(), "forwarder.(*lane)") {
				t.Errorf("goroutines after Run:\n%s", &stacks)
			}
		})
	}
}

// Credentials and certificates come from files, which may change.
func TestCredentials(t *testing.T) {
	var got []string
	b := newBackend(t, func(_ http.ResponseWriter, r *http.Request, _ string) {
		got = append(got, r.Header.Get("Authorization"))
	})
	b.StartTLS()
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := write("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.Certificate().Raw})))
	password, token := write("password", "secret\n"), write("token", "one\n")

	x := newForwarder(t, t.TempDir(),
		settings.Backend{URL: b.URL, Username: "freshet", PasswordFile: password, TLS: settings.TLS{CAFile: ca}})
	x.pushNumbers(1, 1)
	x.runUntilEmpty()

	x = newForwarder(t, t.TempDir(),
		settings.Backend{URL: b.URL, BearerTokenFile: token, TLS: settings.TLS{CAFile: ca}})
	x.pushNumbers(2, 2)
	changed := false
	x.run(func() bool {
		sum, _ := x.waiting()
		if sum.Frames == 0 && !changed {
			write("token", "two\n")
			x.pushNumbers(3, 3)
			changed = true
			return false
		}
		return sum.Frames == 0
	})
	if want := []string{"Basic ZnJlc2hldDpzZWNyZXQ=", "Bearer one", "Bearer two"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}

	x = newForwarder(t, t.TempDir(), settings.Backend{URL: b.URL})
	x.pushNumbers(4, 4)
	x.run(func() bool { return x.counts("retries")["retries_total network"] > 0 })
	if !strings.Contains(x.logs.String(), "certificate") {
		t.Errorf("the log lacks the unknown certificate:\n%s", x.logs)
	}
}

// If a request cannot be queued, Push returns an error, and the request is counted.
func TestPushFails(t *testing.T) {
	x := newForwarder(t, t.TempDir(), settings.Backend{URL: "http://localhost"})
	large := newRequest(1)
	large.Body = make([]byte, 64<<20)
	if err := x.Push(large); err == nil ||
		!strings.HasPrefix(err.Error(), "forward to test: append to the queue: too large") {
		t.Errorf("a body of 64 MiB: %v", err)
	}
	x.expect("samples_total", map[string]float64{"unsent_samples_total queue_error": 4})
	if err := x.Push(Request{Tenant: "../x", Version: 2}); err == nil {
		t.Error("a tenant whose name is a path was accepted")
	}
	if err := x.Push(Request{Tenant: "x", Version: 3}); err == nil {
		t.Error("version 3 was taken")
	}
}

// A frame in the queue may have any content, for example if another program wrote it.
func TestParseRequest(t *testing.T) {
	for _, span := range []entry.Span{{}, {First: 1 << 40, Last: 1<<40 + 1}} {
		r := newRequest(1)
		r.Span = span
		b, err := appendRequest(nil, &r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseRequest(b, 4)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(r) {
			t.Errorf("%+v became %+v, %v", r, got, err)
		}
		for cut := range len(b) - len(r.Body) {
			if _, err := parseRequest(b[:cut], 4); !errors.Is(err, errRequest) {
				t.Errorf("a frame that is cut to %d bytes: %v, want errRequest", cut, err)
			}
		}
		if _, err := parseRequest(b, 0); !errors.Is(err, errRequest) {
			t.Errorf("a frame with more histograms than samples: %v, want errRequest", err)
		}
		b[0]++
		if _, err := parseRequest(b, 4); !errors.Is(err, errRequest) {
			t.Errorf("version 3: %v", err)
		}
	}
}
