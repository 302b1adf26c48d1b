//go:build linux

package loadgen

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/remoteload"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
)

const writtenHeader = "X-Prometheus-Remote-Write-Samples-Written"

// store is a receiver that keeps the times of each series' samples.
type store struct {
	*httptest.Server
	// answer, if set, may answer a request in place of the store. It returns true if it did.
	answer func(n int, body []byte, w http.ResponseWriter) (answered bool)

	mu    sync.Mutex
	n     int // requests
	times map[string][]int64
	again int // samples that were already stored
}

func newStore(t *testing.T, answer func(n int, body []byte, w http.ResponseWriter) bool) *store {
	s := &store{answer: answer, times: map[string][]int64{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		n := s.n
		s.n++
		s.mu.Unlock()
		if s.answer != nil && s.answer(n, body, w) {
			return
		}
		w.Header().Set(writtenHeader, strconv.Itoa(s.add(t, r.Header, body)))
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(s.Close)
	return s
}

// add stores a request, and returns how many samples it has.
func (s *store) add(t *testing.T, header http.Header, body []byte) int {
	raw, err := remotewrite.Decompress(nil, body, 1<<20)
	if err != nil {
		t.Error(err)
		return 0
	}
	var r remotewrite.Request
	decode := r.DecodeV1
	if strings.Contains(header.Get("Content-Type"), "v2") {
		decode = r.DecodeV2
	}
	if err := decode(raw); err != nil {
		t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range r.Series {
		labels, err := r.Labels(nil, &r.Series[i])
		if err != nil {
			t.Error(err)
		}
		var key []byte
		for _, l := range labels {
			key = append(append(append(append(key, l.Name...), '='), l.Value...), ',')
		}
		times := s.times[string(key)]
		for _, sample := range r.Samples(&r.Series[i]) {
			if len(times) > 0 && sample.Time <= times[len(times)-1] {
				s.again++
				continue
			}
			times = append(times, sample.Time)
		}
		s.times[string(key)] = times
	}
	return r.Counts().Samples
}

func writeLoad(t *testing.T, change func(*remoteload.Config)) *remoteload.Load {
	t.Helper()
	c := remoteload.Standard()
	c.Series, c.Batch, c.Begin = 250, 100, 1_795_000_000_000
	if change != nil {
		change(&c)
	}
	l, err := remoteload.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func writer(t *testing.T, url string, connections int, l *remoteload.Load) *Writer {
	t.Helper()
	w, err := NewWriter(WriterConfig{URL: url + "/api/v1/write", Connections: connections}, l)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// checkStored checks that each series has a sample of each round, in order.
func (s *store) checkStored(t *testing.T, l *remoteload.Load, rounds int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.times) != l.Series {
		t.Errorf("%d series are stored", len(s.times))
	}
	for series, times := range s.times {
		for i, at := range times {
			if at != l.Time(i) {
				t.Fatalf("sample %d of series %s has the time %d", i, series, at)
			}
		}
		if len(times) != rounds {
			t.Fatalf("got %d samples of series %s, want one for each of %d rounds", len(times), series, rounds)
		}
	}
}

// The receiver gets exactly the samples that the writer counts: each sample once, and the samples of
// each series in order. This holds for any number of connections, and over several runs.
func TestEverythingWrittenComes(t *testing.T) {
	for name, c := range map[string]struct{ version, connections int }{
		"version 1":                          {1, 1},
		"version 2":                          {2, 1},
		"several connections":                {1, 3},
		"more connections than requests":     {2, 8},
		"more connections than a round, v1s": {1, 7},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, nil)
			l := writeLoad(t, func(l *remoteload.Config) { l.Version = c.version })
			w := writer(t, s.URL, c.connections, l)
			for _, rounds := range []int{1, 20} {
				r, err := w.Run(t.Context(), WriterPace{Rounds: rounds})
				if err != nil {
					t.Fatal(err)
				}
				if want := uint64(rounds * l.Series); r.Sent.Samples != want || r.Written != want || r.Retries != 0 ||
					r.Latency.total != uint64(rounds*l.Requests()) {
					t.Errorf("%d samples sent, %d written in %d requests, %d retries; want %d samples in %d requests, no retry",
						r.Sent.Samples, r.Written, r.Latency.total, r.Retries, want, rounds*l.Requests())
				}
			}
			s.checkStored(t, l, 21)
			if s.again > 0 || w.Rounds() != 21 {
				t.Errorf("%d samples arrived twice in %d rounds, want 0 in 21", s.again, w.Rounds())
			}
		})
	}
}

// A retry has the same bytes as the first attempt, and the writer waits as long as the receiver's
// Retry-After asks.
func TestRequestsAreSentAgain(t *testing.T) {
	var refused []byte
	var at time.Time
	for name, c := range map[string]struct {
		answer  func(n int, body []byte, w http.ResponseWriter) bool
		atLeast time.Duration
	}{
		"503 with Retry-After": {func(n int, body []byte, w http.ResponseWriter) bool {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}, time.Second},
		"500 without it": {func(n int, body []byte, w http.ResponseWriter) bool {
			w.WriteHeader(http.StatusInternalServerError)
			return true
		}, firstBackoff / 2},
		"a connection that breaks": {func(n int, body []byte, w http.ResponseWriter) bool {
			panic(http.ErrAbortHandler)
		}, firstBackoff / 2},
		"a receiver that closes its connections": {func(n int, body []byte, w http.ResponseWriter) bool {
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusBadGateway)
			return true
		}, firstBackoff / 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, func(n int, body []byte, w http.ResponseWriter) bool {
				switch n {
				case 4:
					refused, at = body, time.Now()
					return c.answer(n, body, w)
				case 5:
					if waited := time.Since(at); !bytes.Equal(body, refused) || waited < c.atLeast {
						t.Errorf("the retry arrived after %v, want at least %v; it has the same bytes as the first "+
							"attempt: %t, want true",
							waited, c.atLeast, bytes.Equal(body, refused))
					}
				}
				return false
			})
			l := writeLoad(t, nil)
			r, err := writer(t, s.URL, 1, l).Run(t.Context(), WriterPace{Rounds: 3})
			if err != nil || r.Retries != 1 || r.Written != uint64(3*l.Series) || r.Latency.Max() < c.atLeast {
				t.Errorf("%d samples written, %d retries, longest latency %v; want %d, 1, at least %v; error %v",
					r.Written, r.Retries, r.Latency.Max(), 3*l.Series, c.atLeast, err)
			}
			s.checkStored(t, l, 3)
		})
	}
}

// The receiver's answer decides how many samples of a request count as written, and whether the writer
// goes on.
func TestAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		version, status int
		written         string // header
		want            uint64 // of 100 samples
		fails           string
	}{
		"all is written":                     {version: 1, status: 204, written: "100", want: 100},
		"version 1 may leave out the header": {version: 1, status: 200, want: 100},
		"version 2 must have the header":     {version: 2, status: 200, fails: "the receiver does not understand version 2"},
		"a part was dropped by a rule":       {version: 2, status: 204, written: "40", want: 40},
		"a part can never be written":        {version: 1, status: 400, written: "99", want: 99},
		"a limit":                            {version: 1, status: 429, written: "0", want: 0},
		"an unreadable request":              {version: 1, status: 400, fails: "answered 400 Bad Request: why"},
		"no such address":                    {version: 1, status: 404, written: "0", fails: "answered 404 Not Found: why"},
		"an answer that claims more samples than were sent": {
			version: 1, status: 204, written: "101", fails: `the answer says that "101" of the 100`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, func(_ int, _ []byte, w http.ResponseWriter) bool {
				if c.written != "" {
					w.Header().Set(writtenHeader, c.written)
				}
				w.WriteHeader(c.status)
				if c.status != http.StatusNoContent {
					_, _ = io.WriteString(w, "why\n")
				}
				return true
			})
			l := writeLoad(t, func(l *remoteload.Config) { l.Series, l.Version = 100, c.version })
			r, err := writer(t, s.URL, 2, l).Run(t.Context(), WriterPace{Rounds: 1})
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) || !strings.Contains(err.Error(), s.URL) {
					t.Errorf("got %v, want %s", err, c.fails)
				}
				return
			}
			if err != nil || r.Written != c.want || (r.Refused == "") != (c.want == 100) {
				t.Errorf("%d samples written, want %d; the first refusal is %q; error %v",
					r.Written, c.want, r.Refused, err)
			}
		})
	}
}

// A run sends no more than its rate allows. It ends after its duration, once each request that
// was sent has its answer.
func TestWriterKeepsItsPace(t *testing.T) {
	s := newStore(t, nil)
	l := writeLoad(t, nil)
	w := writer(t, s.URL, 2, l)
	var sent uint64
	for range 2 {
		r, err := w.Run(t.Context(), WriterPace{Rate: 5000, Duration: 300 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		// The first request of a run is due at once.
		if most := 5000*.3 + 100; float64(r.Sent.Samples) > most || r.Sent.Samples == 0 || r.Elapsed < 250*time.Millisecond {
			t.Errorf("sent %d samples in %v, but at most %.0f were due", r.Sent.Samples, r.Elapsed, most)
		}
		sent += r.Written
	}
	var stored uint64
	for _, times := range s.times {
		stored += uint64(len(times))
	}
	if stored != sent || s.again > 0 {
		t.Errorf("%d samples count as written, but %d were stored, %d of them twice", sent, stored, s.again)
	}
}

// The latency from the due time includes the wait while the receiver was slow, even if the request
// itself was answered at once. Requests due in the warm-up do not count.
func TestLatencyFromWhenARequestWasDue(t *testing.T) {
	for warmUp, want := range map[time.Duration]struct{ counted, slow uint64 }{
		0:                      {counted: 30, slow: 1},
		200 * time.Millisecond: {counted: 10},
	} {
		s := newStore(t, func(n int, _ []byte, _ http.ResponseWriter) bool {
			if n == 0 {
				time.Sleep(100 * time.Millisecond)
			}
			return false
		})
		// One request is due every 10 ms.
		r, err := writer(t, s.URL, 1, writeLoad(t, func(l *remoteload.Config) { l.Series = 100 })).
			Run(t.Context(), WriterPace{Rate: 10_000, Rounds: 30, WarmUp: warmUp})
		if err != nil {
			t.Fatal(err)
		}
		slow := func(l *Latencies) (n uint64) {
			for i, counted := range l.counts {
				if upperOf(i) > 80*time.Millisecond {
					n += uint64(counted)
				}
			}
			return n
		}
		if r.Latency.total != want.counted || r.FromDue.total != want.counted || r.Written != 3000 {
			t.Errorf("warm-up %v: wrote %d samples, %d latencies from attempts, %d from due times; want 3000, %d, %[5]d",
				warmUp, r.Written, r.Latency.total, r.FromDue.total, want.counted)
		}
		// The second request was due after 10 ms, the third after 20 ms.
		if n, due := slow(&r.Latency), slow(&r.FromDue); n < want.slow || due < 2*want.slow {
			t.Errorf("warm-up %v: %d requests were slow from their first attempt, %d from their due time; want %d and %d",
				warmUp, n, due, want.slow, 2*want.slow)
		}
	}
}

// With GoOn the writer sends the next request when it is due, even if the last answer asks for a pause.
func TestGoingOn(t *testing.T) {
	s := newStore(t, func(n int, _ []byte, w http.ResponseWriter) bool {
		if n%3 > 0 {
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return n%3 > 0
	})
	l := writeLoad(t, nil)
	w, err := NewWriter(WriterConfig{URL: s.URL, GoOn: true}, l)
	if err != nil {
		t.Fatal(err)
	}
	r, err := w.Run(t.Context(), WriterPace{Rounds: 4})
	if err != nil || r.GoneOn != 8 || r.Retries != 0 || r.Sent.Requests != 12 || r.Written != 400 {
		t.Errorf("%d requests, %d of them refused, %d retries, %d samples written; want 12, 8, 0, 400; error %v",
			r.Sent.Requests, r.GoneOn, r.Retries, r.Written, err)
	}
}

// Each request has the same tenant in every round, because the request's series must keep their tenant.
func TestTenantsTakeTurns(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.Header.Get("X-Scope-OrgID"))
	}))
	defer s.Close()
	w, err := NewWriter(WriterConfig{URL: s.URL, Tenants: []string{"a", "b"}}, writeLoad(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Run(t.Context(), WriterPace{Rounds: 2}); err != nil || strings.Join(seen, "") != "abaaba" {
		t.Errorf("%v: %v", seen, err)
	}
}

// A connection that waits for an answer, or for its turn, ends when its context ends.
func TestWriterEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	release := make(chan struct{})
	s := newStore(t, func(int, []byte, http.ResponseWriter) bool {
		cancel(enough)
		<-release
		return true
	})
	defer close(release)
	if _, err := writer(t, s.URL, 7, writeLoad(t, nil)).Run(ctx, WriterPace{}); !errors.Is(err, enough) &&
		!errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestWriterNeedsAnAddress(t *testing.T) {
	for _, url := range []string{"127.0.0.1:7125", "ftp://127.0.0.1/", "http://"} {
		if _, err := NewWriter(WriterConfig{URL: url}, writeLoad(t, nil)); err == nil ||
			!strings.Contains(err.Error(), "is not a URL to write to") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestLatencies(t *testing.T) {
	var l Latencies
	if l.Quantile(.5) != 0 || l.Max() != 0 {
		t.Error("an empty histogram has a median")
	}
	for i := range 1000 {
		l.add(time.Duration(i+1) * time.Millisecond)
	}
	for q, want := range map[float64]time.Duration{.001: time.Millisecond, .5: 500 * time.Millisecond,
		.99: 990 * time.Millisecond, 1: time.Second} {
		if got := l.Quantile(q); got < want || got > want+want/30 {
			t.Errorf("quantile %g: got %v, want %v", q, got, want)
		}
	}
	if l.Max() != time.Second {
		t.Errorf("longest %v", l.Max())
	}
	// Each duration, even the longest, falls into a bucket of its size.
	for _, v := range []uint64{0, 1, 63, 64, 65, 127, 128, 1 << 20, 1<<63 - 1, 1<<64 - 1} {
		i := bucketOf(v)
		if i >= len(l.counts) || i > 0 && bucketOf(v-1) > i {
			t.Errorf("size %d is in bucket %d, but there are %d buckets", v, i, len(l.counts))
		}
		if upper := uint64(upperOf(i) / time.Microsecond); v < 1<<40 && (upper < v || upper > v+v/32) {
			t.Errorf("%d is in bucket %d, whose upper bound is %d", v, i, upper)
		}
	}
}
