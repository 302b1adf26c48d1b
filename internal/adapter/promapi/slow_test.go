package promapi

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
)

// pipes is a listener whose connections have no buffers: a write of the server returns only
// when the client has read the bytes.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// serve serves the pipes until the test is over.
func (s *server) serve(t *testing.T) pipes {
	p := make(pipes)
	mux := http.NewServeMux()
	mux.Handle("/", s)
	mux.HandleFunc("/later", func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(time.Hour)
		fmt.Fprint(w, "still here")
	})
	live := &http.Server{Handler: mux}
	go func() { _ = live.Serve(p) }()
	t.Cleanup(func() {
		close(p)
		_ = live.Close()
	})
	return p
}

// send sends a request on a new connection. It returns the connection and a reader of the answer.
func (p pipes) send(t *testing.T, name string, r *http.Request) (net.Conn, *bufio.Reader) {
	client, server := net.Pipe()
	p <- server
	r.Header.Set("Tenant-Of-This-Test", name)
	if err := r.Write(client); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client, bufio.NewReaderSize(client, 16)
}

// trickle reads an answer at `rate` bytes a second, and returns the number of bytes.
func trickle(t *testing.T, r *bufio.Reader, rate int64) (int64, error) {
	answer, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	for {
		more, err := io.CopyN(io.Discard, answer.Body, rate)
		if n += more; err == io.EOF {
			return n, nil
		} else if err != nil {
			return n, err
		}
		time.Sleep(time.Second)
	}
}

func remoteRead(t *testing.T) *http.Request {
	text, err := (&prompb.ReadRequest{Queries: []*prompb.Query{{StartTimestampMs: base * 1000,
		EndTimestampMs: base*1000 + 1,
		Matchers:       []*prompb.LabelMatcher{{Type: prompb.LabelMatcher_EQ, Name: "__name__", Value: "x"}}}}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequest(http.MethodPost, "http://server"+prefix+"/read", bytes.NewReader(snappy.Encode(nil, text)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSlowClients has clients that do not read their answers. Earlier, five such clients held 666
// MiB without a time limit, and ten blocked remote read for all other clients.
func TestSlowClients(t *testing.T) {
	requests := map[string]func() *http.Request{
		"remote read": func() *http.Request { return remoteRead(t) },
		"a query":     func() *http.Request { return ranged(101) },
		"series":      func() *http.Request { return get(prefix+"/series", map[string][]string{"match[]": {"x"}}) },
	}
	for what, request := range requests {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(fakeSeries(3000, 0), asTenant, func(cfg *Config, _ *Options) { cfg.MaxConcurrency = 1 })
			p := s.serve(t)
			const readers = 20
			for range readers {
				p.send(t, "a", request())
			}
			synctest.Wait()
			// Other tenants get their answers at once.
			asked := time.Now()
			_, answer := p.send(t, "b", request())
			if n, err := trickle(t, answer, 1<<30); err != nil || n == 0 || time.Since(asked) > time.Second {
				t.Errorf("%s of tenant b: got %d bytes in %v, with the error %v", what, n, time.Since(asked), err)
			}
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			s.nothingHeld(t)
			// Clients of tenant `a` that had a turn are cut off; the others waited until their
			// timeout.
			if cut := s.failures(t, failedSlow); cut < 2 || cut > readers {
				t.Errorf("%s: %v of %d clients were cut off", what, cut, readers)
			}
		})
	}
}

// TestPatience reads answers at the minimum rate, and slower. The deadline of one answer does not
// apply to the connection's next request.
func TestPatience(t *testing.T) {
	for _, c := range []struct {
		why  string
		rate int64
		ok   bool
	}{
		{"at the minimum rate", answerRate, true},
		{"at a quarter of the minimum rate", answerRate / 4, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(fakeSeries(300, 0), asTenant)
			p := s.serve(t)
			client, answer := p.send(t, "a", ranged(1000)) // 8 MB
			n, err := trickle(t, answer, c.rate)
			if (err == nil) != c.ok {
				t.Fatalf("%s: got %d bytes, error %v", c.why, n, err)
			}
			synctest.Wait()
			if s.nothingHeld(t); !c.ok {
				return
			}
			later, err := http.NewRequest(http.MethodGet, "http://server/later", nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := later.Write(client); err != nil {
				t.Fatal(err)
			}
			got, err := http.ReadResponse(answer, nil)
			if err != nil {
				t.Fatal(err)
			}
			if text, err := io.ReadAll(got.Body); string(text) != "still here" {
				t.Errorf("after an hour, a second request on the connection got the answer %q, error %v", text, err)
			}
		})
	}
}
