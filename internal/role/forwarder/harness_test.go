package forwarder

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/settings"
)

// backend is a real HTTP server that keeps the bodies that it accepted. `answer` decides its answers.
type backend struct {
	*httptest.Server
	opened atomic.Int32 // connections
	mu     sync.Mutex
	answer func(w http.ResponseWriter, r *http.Request, body string) // nil accepts all
	taken  []string                                                  // bodies that got a 2xx, numbered by newRequest
	closed chan struct{}                                             // receives a value for each connection that ended
}

func newBackend(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, body string)) *backend {
	t.Helper()
	b := &backend{answer: answer, closed: make(chan struct{}, 1000)}
	b.Server = httptest.NewUnstartedServer(b)
	b.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			b.opened.Add(1)
		case http.StateClosed:
			b.closed <- struct{}{}
		}
	}
	t.Cleanup(b.Close)
	return b
}

func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	code := statusOf{ResponseWriter: w}
	if b.answer != nil {
		b.answer(&code, r, string(body))
	}
	if code.status == 0 {
		w.Header().Set("X-Prometheus-Remote-Write-Samples-Written", "1")
		code.WriteHeader(http.StatusNoContent)
	}
	if code.status/100 == 2 {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.taken = append(b.taken, string(body))
	}
}

// all returns the accepted bodies.
func (b *backend) all() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.taken)
}

type statusOf struct {
	http.ResponseWriter
	status int
}

func (s *statusOf) WriteHeader(code int) { s.status = code; s.ResponseWriter.WriteHeader(code) }

// newRequest returns a request whose body is never decoded.
func newRequest(n int) Request {
	return Request{Tenant: "default", Version: 2, Samples: 3, Histograms: 1, Body: fmt.Appendf(nil, "body %d", n)}
}

func bodies(from, to int) (all []string) {
	for n := from; n <= to; n++ {
		all = append(all, string(newRequest(n).Body))
	}
	return all
}

// fixture is a Forwarder, its metrics and its log.
type fixture struct {
	*Forwarder
	t    *testing.T
	reg  *prometheus.Registry
	logs *bytes.Buffer // read after Run
}

func newForwarder(t *testing.T, dir string, config settings.Backend) *fixture {
	t.Helper()
	return newFixture(t, dir, config, false)
}

func newFixture(t *testing.T, dir string, config settings.Backend, group bool) *fixture {
	t.Helper()
	config.Name = "test"
	if config.RetryMin == 0 {
		config.RetryMin, config.RetryMax = time.Millisecond, time.Millisecond
	}
	if problems := config.Validate(); len(problems) > 0 && config.Queue == 0 {
		t.Fatal(problems)
	}
	var dirs []segment.FS
	for i := 0; ; i++ {
		path := filepath.Join(dir, fmt.Sprint(i))
		if _, err := os.Stat(path); err != nil && i >= max(1, config.Connections) {
			break // earlier processes of this test made no more directories
		}
		d, err := files.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, d)
	}
	x := &fixture{t: t, reg: prometheus.NewRegistry(), logs: &bytes.Buffer{}}
	logger := slog.New(slog.NewTextHandler(x.logs,
		&slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
	var err error
	x.Forwarder, err = New(Options{
		Backend: config, Dirs: dirs, UserAgent: "freshet/test", Group: group, Registry: x.reg, Logger: logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *fixture) push(requests ...Request) {
	x.t.Helper()
	for _, r := range requests {
		if err := x.Push(r); err != nil {
			x.t.Fatal(err)
		}
	}
}

func (x *fixture) pushNumbers(from, to int) {
	x.t.Helper()
	for n := from; n <= to; n++ {
		x.push(newRequest(n))
	}
}

// run runs the Forwarder, and polls `stop` until it returns true.
func (x *fixture) run(stop func() bool) {
	x.t.Helper()
	ctx, cancel := context.WithCancel(x.t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- x.Run(ctx) }()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !stop() {
		select {
		case <-tick.C:
		case <-deadline:
			x.t.Errorf("requests still wait: %v", x.counts("waiting"))
			cancel()
			<-done
			x.t.Fatalf("the forwarder ran for too long before stop returned true; log:\n%s", x.logs)
		}
	}
	cancel()
	if err := <-done; err != nil {
		x.t.Fatal(err)
	}
}

func (x *fixture) runUntilEmpty() {
	x.t.Helper()
	x.run(func() bool { sum, _ := x.waiting(); return sum.Frames == 0 })
}

// counts returns the metrics whose names contain the text, without zeros.
func (x *fixture) counts(text string) map[string]float64 {
	x.t.Helper()
	gathered, err := x.reg.Gather()
	if err != nil {
		x.t.Fatal(err)
	}
	all := map[string]float64{}
	for _, family := range gathered {
		name := strings.TrimPrefix(family.GetName(), "freshet_forwarder_")
		for _, m := range family.Metric {
			full := name
			for _, l := range m.Label {
				if l.GetName() == "reason" {
					full += " " + l.GetValue()
				}
			}
			v := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			if strings.Contains(name, text) && v != 0 {
				all[full] = v
			}
		}
	}
	return all
}

func (x *fixture) expect(text string, want map[string]float64) {
	x.t.Helper()
	if got := x.counts(text); !maps.Equal(got, want) {
		x.t.Errorf("%s: %v, want %v", text, got, want)
	}
}
