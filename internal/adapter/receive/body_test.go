package receive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// pipes is a listener of in-memory connections, whose deadlines follow the test's virtual
// clock.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A request that begins and stalls is cut off after stallTime, whatever length it announces, and
// the sender may retry it. Earlier, such a request held memory for up to a minute, and four such
// requests over gRPC blocked all writes of a tenant.
func TestAStalledRequestIsCutOff(t *testing.T) {
	for _, c := range []struct {
		why   string
		every time.Duration // time between two bytes
		until int           // how many of the 5000 bytes are sent
		cut   time.Duration // time after which the request is cut off; 0 for never
	}{
		{"nothing comes", time.Hour, 0, stallTime},
		{"it trickles", time.Second, 5000, stallTime},
		{"a slow body that never stalls", time.Millisecond, 5000, 0},
		{"a fast body whose last byte is missing", 0, 4999, stallTime},
	} {
		for _, path := range []string{"/api/v1/write", "/v1/metrics"} {
			synctest.Test(t, func(t *testing.T) {
				d := &distributor{settings: escaping}
				r := newReceiver(d)
				mux := http.NewServeMux()
				mux.HandleFunc("/api/v1/write", r.RemoteWrite)
				mux.HandleFunc("/v1/metrics", r.OTLP)
				server, listener := &http.Server{Handler: mux, ReadTimeout: readTime}, make(pipes)
				served := make(chan error)
				go func() { served <- server.Serve(listener) }()
				client, conn := net.Pipe()
				listener <- conn
				begun := time.Now()
				ctx, stop := context.WithCancel(t.Context())
				go func() {
					fmt.Fprintf(client, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n"+
						"Content-Length: 5000\r\n\r\n", path)
					for range c.until {
						select {
						case <-time.After(c.every):
						case <-ctx.Done():
							return
						}
						if _, err := client.Write([]byte{0}); err != nil {
							return
						}
					}
				}()
				resp, err := http.ReadResponse(bufio.NewReader(client), nil)
				if err != nil {
					t.Fatal(err)
				}
				text, _ := io.ReadAll(resp.Body)
				took := time.Since(begun)
				stop()
				if c.cut > 0 && (resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" ||
					!strings.Contains(string(text), "fewer than 16384 bytes") || took < c.cut || took > c.cut+time.Second) {
					t.Errorf("%s: %s: got %s %q after %v, want 503 after %v", c.why, path, resp.Status, text, took, c.cut)
				}
				if c.cut == 0 && resp.StatusCode != http.StatusBadRequest { // the body is all zeros, so it is malformed
					t.Errorf("%s: %s: got %s %q after %v, want 400", c.why, path, resp.Status, text, took)
				}
				if n := testutil.ToFloat64(r.metrics.unread.WithLabelValues("stalled")); (n == 1) != (c.cut > 0) {
					t.Errorf("%s: %s: %v requests are counted as stalled; whether one should be: %t",
						c.why, path, n, c.cut > 0)
				}
				client.Close()
				if err := server.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
				if err := <-served; !errors.Is(err, http.ErrServerClosed) {
					t.Error(err)
				}
				if !r.memory.TryAcquire(r.MaxMemory) {
					t.Errorf("%s: %s: not all memory was given back", c.why, path)
				}
			})
		}
	}
}

// The gRPC address answers an HTTP/1 request without waiting for its body. Earlier, a sender that
// sent no body kept its connection for ever, and the connection never counted as idle.
func TestABodyOfNoCallIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &http.Server{Handler: http.HandlerFunc(newReceiver(&distributor{settings: escaping}).GRPC)}
		listener := make(pipes)
		served := make(chan error)
		go func() { served <- server.Serve(listener) }()
		client, conn := net.Pipe()
		listener <- conn
		begun := time.Now()
		time.AfterFunc(time.Hour, func() { client.Close() })
		fmt.Fprintf(client, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n", exportPath)
		resp, err := http.ReadResponse(bufio.NewReader(client), nil)
		if err != nil || resp.StatusCode != http.StatusUnsupportedMediaType || time.Since(begun) > stallTime+time.Second {
			t.Errorf("after %v: got %+v, error %v; want 415 within %v", time.Since(begun), resp, err, stallTime)
		}
		client.Close()
		if err := server.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// deadlines acts as a connection, from which each Read gets one piece of the body.
type deadlines struct {
	http.ResponseWriter
	last   time.Time
	pieces int
	each   int           // bytes in a piece
	after  time.Duration // time since the previous piece
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.last = t
	return nil
}

func (d *deadlines) Read(b []byte) (int, error) {
	if d.pieces == 0 {
		return 0, io.EOF
	}
	time.Sleep(min(d.after, time.Until(d.last)))
	if !time.Now().Before(d.last) {
		return 0, os.ErrDeadlineExceeded
	}
	d.pieces--
	return min(d.each, len(b)), nil
}

// A sender that keeps sending has a minute for the whole request. A sender that stalls is cut off
// earlier.
func TestWhatGoesOnIsRead(t *testing.T) {
	for _, c := range []struct {
		why    string
		pieces int
		each   int
		after  time.Duration
		want   time.Duration
		cut    bool
	}{
		{"more than enough bytes, until the minute is over", 6, stallBytes, 9 * time.Second, 54 * time.Second, false},
		{"for ever", 60, stallBytes, 9 * time.Second, readTime, true},
		{"too few bytes in stallTime", 60, stallBytes/10 - 1, time.Second, stallTime, true},
		{"just enough bytes in stallTime", 40, stallBytes/9 + 1, time.Second, 40 * time.Second, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			d := &deadlines{pieces: c.pieces, each: c.each, after: c.after}
			from := newPaced(d, &http.Request{Body: io.NopCloser(d)})
			_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{from}, make([]byte, stallBytes))
			if took := time.Since(begun); took != c.want || errors.Is(err, errStalled) != c.cut {
				t.Errorf("%s: reading ended after %v, want %v; error %v, want a stall: %t", c.why, took, c.want, err, c.cut)
			}
			if !c.cut && !d.last.IsZero() {
				t.Errorf("%s: the deadline %v of this request still applies to the next one", c.why, d.last)
			}
		})
	}
}

// roomy accepts large requests.
type roomy struct{ *distributor }

func (roomy) MaxBody() int { return 1 << 20 }

// An announced length takes no memory before bytes come.
func TestMemoryIsTakenAsBytesCome(t *testing.T) {
	const most = 4 << 20
	r := New(Options{Distributor: roomy{&distributor{settings: escaping}},
		Tenant: func(*http.Request) string { return "team" }, Sender: peerOf, Token: noToken,
		MaxMemory: most, Registry: prometheus.NewRegistry()})
	for path, by := range map[string]http.HandlerFunc{
		"/api/v1/write": r.RemoteWrite, "/v1/metrics": r.OTLP, exportPath: r.GRPC,
	} {
		came, looked := []byte(nil), false
		if path == exportPath {
			came = []byte{0, 0, 0x0f, 0xff, 0xff} // the prefix of a gRPC message
		}
		request := httptest.NewRequest(http.MethodPost, path, readerFunc(func(b []byte) (int, error) {
			n := copy(b, came)
			if came = came[n:]; n > 0 {
				return n, nil
			}
			looked = true
			if rest := int64(most - firstRead - 1); !r.memory.TryAcquire(rest) {
				t.Errorf("%s: before any byte came, the request took more memory than the first read needs", path)
			} else {
				r.memory.Release(rest)
			}
			return 0, io.ErrUnexpectedEOF
		}))
		request.ContentLength, request.ProtoMajor = 1<<20-1, 2
		request.Header.Set("Content-Type", map[bool]string{true: "application/grpc", false: protobuf}[path == exportPath])
		if by(httptest.NewRecorder(), request); !looked {
			t.Errorf("%s: the body was not read", path)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }
