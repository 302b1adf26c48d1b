package forwarder

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-io/freshet/internal/settings"
)

// transport answers requests without a network, so that the test can use a virtual
// clock.
type transport func(w http.ResponseWriter)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	f(w)
	return w.Result(), nil
}

// waits returns the times that a Forwarder waits between attempts until the answers are used up.
func waits(t *testing.T, config settings.Backend, answers ...func(w http.ResponseWriter)) (all []time.Duration) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		config.URL = "http://backend"
		x := newForwarder(t, dir, config)
		ctx, cancel := context.WithCancel(t.Context())
		last := time.Time{}
		x.client = &http.Client{Transport: transport(func(w http.ResponseWriter) {
			if now := time.Now(); !last.IsZero() {
				all = append(all, now.Sub(last))
			}
			last = time.Now()
			if len(answers) == 0 {
				w.WriteHeader(http.StatusBadRequest)
				cancel()
				return
			}
			answers[0](w)
			answers = answers[1:]
		})}
		x.pushNumbers(1, 100)
		if err := x.Run(ctx); err != nil {
			t.Fatal(err)
		}
	})
	return all
}

func status(code int, header ...string) func(w http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
	}
}

const ms = time.Millisecond

// The bound of the wait doubles at each retry, up to its limit. A request that was accepted or refused
// sets it back to its minimum.
func TestBackOff(t *testing.T) {
	failed, taken := status(500), status(204, "X-Prometheus-Remote-Write-Samples-Written", "3")
	var answers []func(w http.ResponseWriter)
	for range 10 {
		answers = append(answers, failed)
	}
	answers = append(answers, taken, failed, failed, status(400), failed)
	got := waits(t, settings.Backend{RetryMin: 30 * ms, RetryMax: 5 * time.Second}, answers...)
	want := []time.Duration{
		30 * ms, 60 * ms, 120 * ms, 240 * ms, 480 * ms, 960 * ms, 1920 * ms, 3840 * ms, 5000 * ms, 5000 * ms, 0, 30 * ms,
		60 * ms, 0, 30 * ms,
	}
	if !slices.EqualFunc(got, want, withinBound) {
		t.Errorf("the waits are %v, want each between half of its bound and its bound; the bounds are %v", got, want)
	}
}

// withinBound reports whether a wait is between half of the bound and the bound.
func withinBound(wait, bound time.Duration) bool { return bound/2 <= wait && wait <= bound }

// No wait is shorter than the backend asks for. Jitter is added to that time.
func TestRetryAfter(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter)
		want   time.Duration
	}{
		"seconds on 429": {status(429, "Retry-After", "7"), 7 * time.Second},
		"seconds on 503": {status(503, "Retry-After", "120"), 2 * time.Minute},
		"seconds on 500": {status(500, "Retry-After", "1"), time.Second},
		"a date": {func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", time.Now().Add(90*time.Second).UTC().Format(http.TimeFormat))
			w.WriteHeader(503)
		}, 90 * time.Second},
		"a date that has passed":       {status(503, "Retry-After", "Fri, 31 Dec 1999 23:59:59 GMT"), 0},
		"nonsense":                     {status(503, "Retry-After", "soon"), 0},
		"negative":                     {status(503, "Retry-After", "-5"), 0},
		"absurd, such as milliseconds": {status(503, "Retry-After", "1790000000"), maxRetryAfter},
	} {
		t.Run(name, func(t *testing.T) {
			got := waits(t, settings.Backend{RetryMin: 30 * ms, RetryMax: 5 * time.Second}, c.answer)
			if len(got) != 1 || !withinBound(got[0]-c.want, 30*ms) {
				t.Errorf("the waits are %v, want a single wait of %v plus 15 to 30 ms", got, c.want)
			}
		})
	}
}

// The age of the oldest request counts from its arrival, even across restarts.
func TestOldest(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		x := newForwarder(t, dir, settings.Backend{URL: "http://backend"})
		x.pushNumbers(1, 1)
		time.Sleep(time.Minute)
		x.pushNumbers(2, 2)
		for range 2 {
			want := map[string]float64{"oldest_seconds": 60}
			if got := x.counts("oldest"); !maps.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
			x = newForwarder(t, dir, settings.Backend{URL: "http://backend"})
		}
		if log := x.logs.String(); log !=
			"level=INFO msg=\"requests of an earlier process wait for the backend\" backend=test requests=2 samples=8 "+
				"bytes=38 oldest=2000-01-01T00:00:00.000Z\n" {
			t.Error(log)
		}
	})
}
