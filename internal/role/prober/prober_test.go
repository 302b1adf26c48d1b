package prober

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/prompb"

	"github.com/freshet-io/freshet/internal/core/probe"
	"github.com/freshet-io/freshet/internal/core/tenant"
)

// store accepts remote writes and shows them to queries after a while.
type store struct {
	t     *testing.T
	delay time.Duration
	full  bool

	mu      sync.Mutex
	seen    map[string]float64
	written int // requests
	asked   int // queries
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.full {
		http.Error(w, "the queue is full", http.StatusServiceUnavailable)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		body, err = snappy.Decode(nil, body)
	}
	var request prompb.WriteRequest
	if err == nil {
		err = request.Unmarshal(body)
	}
	of, _ := tenant.FromContext(r.Context())
	if err != nil || len(request.Timeseries) != 1 || of != tenant.Own { // only Freshet's own tenant may get probes
		s.t.Errorf("%v %q %v", request, of, err)
		return
	}
	v := request.Timeseries[0].Samples[0].Value
	s.mu.Lock()
	s.written++
	s.mu.Unlock()
	time.AfterFunc(s.delay, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seen[of] = v
	})
	w.WriteHeader(http.StatusNoContent)
}

func (s *store) query(ctx context.Context, expr string) (v float64, found bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	of, _ := tenant.FromContext(ctx)
	if expr != probe.NewMark(7).Labels(probe.RemoteWrite, tenant.Own).String() || of != tenant.Own {
		return 0, false, fmt.Errorf("asked for %s of %s", expr, of)
	}
	v, found = s.seen[of]
	return v, found, nil
}

// probing runs a prober for some time. There is no socket at its targets.
func probing(t *testing.T, s *store, d time.Duration, tenants ...string) (*Prober, string) {
	t.Helper()
	s.seen = map[string]float64{}
	var log strings.Builder
	p := New(Options{
		Targets: func() (all []Target) {
			for _, name := range append(tenants, tenants...) { // two sockets each
				all = append(all, Target{name, "unixgram", "/nonexistent/socket"})
			}
			return all
		},
		Write: s, Query: s.query, Mark: probe.NewMark(7), Registry: prometheus.NewRegistry(),
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	ctx, stop := context.WithTimeout(t.Context(), d)
	defer stop()
	if err := p.Run(ctx); err != nil {
		t.Error(err)
	}
	return p, log.String()
}

func freshness(t *testing.T, p *Prober, tenant, path string) *dto.Histogram {
	t.Helper()
	var m dto.Metric
	if err := p.freshness.WithLabelValues(tenant, path).(prometheus.Metric).Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.Histogram
}

func TestFreshness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{t: t, delay: 30 * time.Millisecond}
		p, _ := probing(t, s, 20*interval+time.Millisecond, "a", "b")
		h := freshness(t, p, tenant.Own, probe.RemoteWrite)
		mean := h.GetSampleSum() / float64(h.GetSampleCount())
		if h.GetSampleCount() < 19 || h.GetSampleCount() > 21 || mean < 0.030 || mean > 0.030+betweenWrites.Seconds() {
			t.Errorf("%d probes took %v s on average, want about 20 probes, and 30 ms or a little more",
				h.GetSampleCount(), mean)
		}
		if n := testutil.ToFloat64(p.lost.WithLabelValues(tenant.Own, probe.RemoteWrite)); n != 0 {
			t.Errorf("%v probes are lost", n)
		}
		for _, of := range []string{"a", "b"} {
			// There is no socket, so all datagrams are lost.
			if n := testutil.ToFloat64(p.lost.WithLabelValues(of, probe.DogStatsD)); n < 19 {
				t.Errorf("%s: %v datagrams are lost, want at least 19", of, n)
			}
		}
	})
}

func TestAProbeThatIsNeverSeenIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{t: t, delay: time.Hour}
		p, log := probing(t, s, 30*interval, "a")
		// In each interval one probe is lost, except in the last ones, whose probes the prober is still
		// looking for.
		if n := testutil.ToFloat64(p.lost.WithLabelValues(tenant.Own, probe.RemoteWrite)); n < 24 || n > 30 {
			t.Errorf("%v probes are lost", n)
		}
		if !strings.Contains(log, "no query returned it within 10s") {
			t.Error(log)
		}
		if h := freshness(t, p, tenant.Own, probe.RemoteWrite); h.GetSampleCount() != 0 {
			t.Errorf("%v", h)
		}
	})
}

// During an outage one probe waits. Further probes are due, but not sent. They count like the slow
// probe. Otherwise hundreds of quick probes would hide the outage.
func TestASlowProbeStandsForThoseThatItKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{t: t, delay: 9 * time.Second}
		p, _ := probing(t, s, time.Minute)
		h := freshness(t, p, tenant.Own, probe.RemoteWrite)
		mean := h.GetSampleSum() / float64(h.GetSampleCount())
		// Each probe takes 9 s, and one is due every two seconds. The end cuts some probes off.
		if h.GetSampleCount() < 22 || mean < 4 || mean > 6 {
			t.Errorf("%d probes took %v s on average, want at least 22 probes, and 4 to 6 s", h.GetSampleCount(), mean)
		}
	})
}

func TestAProbeThatIsRefusedIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, log := probing(t, &store{t: t, full: true}, 5*interval, "a")
		if n := testutil.ToFloat64(p.lost.WithLabelValues(tenant.Own, probe.RemoteWrite)); n < 4 {
			t.Errorf("%v probes are lost", n)
		}
		if !strings.Contains(log, "503 the queue is full") {
			t.Error(log)
		}
	})
}

// With a broken store, each probe is lost with a long error. The log used to have a line for each lost
// probe.
func TestLostProbesAreToldOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, log := probing(t, &store{t: t, full: true}, 3*time.Minute, "a")
		for _, way := range []string{"tenant=freshet path=remote_write", "tenant=a path=dogstatsd"} {
			if n := strings.Count(log, way); n != 3 {
				t.Errorf("in three minutes the log has %d lines with %s, want 3:\n%s", n, way, log)
			}
		}
		if n := testutil.ToFloat64(p.lost.WithLabelValues(tenant.Own, probe.RemoteWrite)); n < 88 {
			t.Errorf("%v lost probes are counted, want at least 88", n)
		}
		first, second := strings.Contains(log, "path=remote_write probes=1 error="),
			strings.Contains(log, "path=remote_write probes=3")
		if !first || !second {
			t.Errorf("the log lacks lines with the number of lost probes:\n%s", log)
		}
	})
}

// Probes are much of the work of an idle server. Ten times as many probes would take ten times as
// much processor time; operations.md gives the figure.
func TestProbesAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{t: t}
		probing(t, s, time.Minute)
		if s.written < 29 || s.written > 31 || s.asked > 2*s.written {
			t.Errorf("in a minute there were %d probes by remote write and %d queries, want about 30 probes, and at "+
				"most twice as many queries",
				s.written, s.asked)
		}
	})
}

// listen receives datagrams at a socket until the test ends.
func listen(t *testing.T, network, address string) net.PacketConn {
	t.Helper()
	conn, err := net.ListenPacket(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func read(t *testing.T, from net.PacketConn) (text string, sender net.Addr) {
	t.Helper()
	if err := from.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	packet := make([]byte, 100)
	n, sender, err := from.ReadFrom(packet)
	if err != nil {
		t.Fatal(err)
	}
	return string(packet[:n]), sender
}

// All probes come from one port. Each probe used to have a new port, and so appeared as a new sender.
func TestOneSocketForItsLife(t *testing.T) {
	server := listen(t, "udp", "127.0.0.1:0")
	s := &socket{target: Target{"a", "udp", server.LocalAddr().String()}}
	defer s.close()
	ports := map[string]bool{}
	for i := range 3 {
		at := time.Now()
		want := probe.NewMark(7).Datagram(at)
		if err := s.send(want, at); err != nil {
			t.Fatal(err)
		}
		text, sender := read(t, server)
		if text != string(want) {
			t.Errorf("%d: %q, want %q", i, text, want)
		}
		ports[sender.String()] = true
	}
	if len(ports) != 1 {
		t.Errorf("sent from %v", ports)
	}
}

// A listener that is bound anew, for example after a restart, is probed again.
func TestASocketThatWasBoundAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first := listen(t, "unixgram", path)
	s := &socket{target: Target{"a", "unixgram", path}}
	defer s.close()
	if err := s.send([]byte("1"), time.Now()); err != nil {
		t.Fatal(err)
	}
	_ = first.Close()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := s.send([]byte("2"), time.Now()); err == nil {
		t.Error("send succeeded although no socket has the address")
	}
	second := listen(t, "unixgram", path)
	if err := s.send([]byte("3"), time.Now()); err != nil {
		t.Fatal(err)
	}
	if text, _ := read(t, second); text != "3" {
		t.Errorf("%q", text)
	}
}

// Sockets that a reload adds are probed, and removed sockets are not.
func TestTargetsOfAReload(t *testing.T) {
	dir := t.TempDir()
	a, b := Target{"a", "unixgram", filepath.Join(dir, "a")}, Target{"b", "unixgram", filepath.Join(dir, "b")}
	synctest.Test(t, func(t *testing.T) {
		var now atomic.Pointer[[]Target]
		now.Store(&[]Target{a})
		s := &store{t: t, seen: map[string]float64{}}
		p := New(Options{
			Targets: func() []Target { return *now.Load() }, Write: s, Query: s.query, Mark: probe.NewMark(7),
			Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		// Nobody is listening.
		lost := func(of string) float64 { return testutil.ToFloat64(p.lost.WithLabelValues(of, probe.DogStatsD)) }
		time.Sleep(time.Minute)
		if lost("a") < 28 || lost("b") != 0 {
			t.Errorf("before the reload, %v probes went to a and %v to b, want at least 28 to a and 0 to b",
				lost("a"), lost("b"))
		}
		now.Store(&[]Target{b})
		time.Sleep(betweenTargets + time.Second)
		before := lost("a")
		time.Sleep(time.Minute)
		if lost("a") != before || lost("b") < 28 {
			t.Errorf("after the reload, %v probes went to a and %v to b, want 0 to a and at least 28 to b",
				lost("a")-before, lost("b"))
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestReachable(t *testing.T) {
	for address, want := range map[string]string{
		"0.0.0.0:8125": "127.0.0.1:8125", "[::]:8125": "[::1]:8125", "127.0.0.1:8125": "127.0.0.1:8125",
		"10.0.0.1:8125": "10.0.0.1:8125",
	} {
		if got := reachable(Target{"a", "udp", address}); got != want {
			t.Errorf("%s: %s", address, got)
		}
	}
	if got := reachable(Target{"a", "unixgram", "/a:1"}); got != "/a:1" {
		t.Error(got)
	}
}
