package prober

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/prompb"

	"github.com/freshet-io/freshet/internal/core/tenant"
)

// store takes remote writes and lets queries see them after a while.
type store struct {
	t     *testing.T
	delay time.Duration
	full  bool

	mu   sync.Mutex
	seen map[string]float64
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
	if err != nil || len(request.Timeseries) != 1 || of != "own" { // else a tenant's store gets samples of now
		s.t.Errorf("%v %q %v", request, of, err)
		return
	}
	v := request.Timeseries[0].Samples[0].Value
	time.AfterFunc(s.delay, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seen[of] = v
	})
	w.WriteHeader(http.StatusNoContent)
}

func (s *store) query(ctx context.Context, expr string) (v float64, found bool, err error) {
	if !strings.HasPrefix(expr, `max(freshet_probe{path="remote_write",prober="`) {
		return 0, false, errors.New("asked for " + expr)
	}
	of, _ := tenant.FromContext(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	v, found = s.seen[of]
	return v, found, nil
}

// probing runs a prober for some time. Its datagrams go nowhere.
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
		Write: s, Own: "own", Query: s.query, Registry: prometheus.NewRegistry(), Logger: slog.New(slog.NewTextHandler(&log, nil)),
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
		p, _ := probing(t, s, 20*time.Second+time.Millisecond, "a", "b")
		h := freshness(t, p, "own", remoteWrite)
		mean := h.GetSampleSum() / float64(h.GetSampleCount())
		if h.GetSampleCount() < 18 || h.GetSampleCount() > 21 || mean < 0.030 || mean > 0.030+betweenWrites.Seconds() {
			t.Errorf("%d probes, %v s on average", h.GetSampleCount(), mean)
		}
		if n := testutil.ToFloat64(p.lost.WithLabelValues("own", remoteWrite)); n != 0 {
			t.Errorf("%v are lost", n)
		}
		for _, tenant := range []string{"a", "b"} {
			if n := testutil.ToFloat64(p.lost.WithLabelValues(tenant, dogstatsd)); n < 18 { // there is no socket
				t.Errorf("%s: %v datagrams are lost", tenant, n)
			}
		}
	})
}

func TestAProbeThatIsNeverSeenIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{t: t, delay: time.Hour}
		p, log := probing(t, s, 60*time.Second, "a")
		// Of each second one, but for the last ones, which are still looked for.
		if n := testutil.ToFloat64(p.lost.WithLabelValues("own", remoteWrite)); n < 55 || n > 60 {
			t.Errorf("%v are lost", n)
		}
		if !strings.Contains(log, "no query has it after 10s") {
			t.Error(log)
		}
		if h := freshness(t, p, "own", remoteWrite); h.GetSampleCount() != 0 {
			t.Errorf("%v", h)
		}
	})
}

func TestAProbeThatIsRefusedIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, log := probing(t, &store{t: t, full: true}, 5*time.Second, "a")
		if n := testutil.ToFloat64(p.lost.WithLabelValues("own", remoteWrite)); n < 3 {
			t.Errorf("%v are lost", n)
		}
		if !strings.Contains(log, "503 the queue is full") {
			t.Error(log)
		}
	})
}

// A store that is broken loses a probe each second, with a long error: the log had a line for
// each.
func TestLostProbesAreToldOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, log := probing(t, &store{t: t, full: true}, 3*time.Minute, "a")
		for _, way := range []string{"tenant=own path=remote_write", "tenant=a path=dogstatsd"} {
			if n := strings.Count(log, way); n != 3 {
				t.Errorf("%d lines in three minutes with %s:\n%s", n, way, log)
			}
		}
		if n := testutil.ToFloat64(p.lost.WithLabelValues("own", remoteWrite)); n < 178 {
			t.Errorf("%v are counted", n)
		}
		first, second := strings.Contains(log, "path=remote_write probes=1 error="), strings.Contains(log, "path=remote_write probes=6")
		if !first || !second {
			t.Errorf("the lines do not have the number of the probes:\n%s", log)
		}
	})
}

func TestReachable(t *testing.T) {
	for address, want := range map[string]string{
		"0.0.0.0:8125": "127.0.0.1:8125", "[::]:8125": "[::1]:8125", "127.0.0.1:8125": "127.0.0.1:8125", "10.0.0.1:8125": "10.0.0.1:8125",
	} {
		if got := reachable(Target{"a", "udp", address}); got != want {
			t.Errorf("%s: %s", address, got)
		}
	}
	if got := reachable(Target{"a", "unixgram", "/a:1"}); got != "/a:1" {
		t.Error(got)
	}
}
