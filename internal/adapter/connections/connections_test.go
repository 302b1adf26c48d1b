package connections

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// pipes is a listener of in-memory connections. The test chooses the address of each.
type pipes chan net.Conn

type from struct {
	net.Conn
	at net.Addr
}

func (f from) RemoteAddr() net.Addr { return f.at }

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// client is one connection.
type client struct {
	net.Conn
	answers *bufio.Reader
}

func (p pipes) dial(host string) client {
	here, there := net.Pipe()
	p <- from{there, net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(host), 1))}
	synctest.Wait()
	return client{here, bufio.NewReader(here)}
}

func (c client) send(path string) {
	_, _ = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
	synctest.Wait()
}

func (c client) answered() bool {
	resp, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, resp.Body)
	synctest.Wait()
	return err == nil
}

func (c client) asks() bool {
	c.send("/")
	return c.answered()
}

// open reports whether the server has kept this idle connection open.
func (c client) open() bool {
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := c.answers.Peek(1)
	_ = c.SetReadDeadline(time.Time{})
	var late net.Error
	return errors.As(err, &late) && late.Timeout()
}

// bounded runs a server that allows `most` connections. It answers /wait once `goOn` is closed.
func bounded(t *testing.T, most int, do func(b *Bound, l pipes, goOn chan struct{}, log *strings.Builder)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		b := New(Options{
			Most: most, Why: "the test", Registry: prometheus.NewRegistry(), Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		goOn := make(chan struct{})
		server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/wait" {
				<-goOn
			}
		})}
		l, served := make(pipes), make(chan error)
		go func() { served <- server.Serve(b.Serve(server, l)) }()
		do(b, l, goOn, &log)
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		synctest.Wait()
		if len(b.conns) > 0 || len(b.addresses) > 0 {
			t.Errorf("%d connections of %d addresses are left", len(b.conns), len(b.addresses))
		}
	})
}

func (b *Bound) expect(t *testing.T, idle, full, address float64) {
	t.Helper()
	for reason, want := range map[string]float64{reasonIdle: idle, reasonFull: full, reasonAddress: address} {
		if got := testutil.ToFloat64(b.closed.WithLabelValues(reason)); got != want {
			t.Errorf("%s: %v closed connections are counted, want %v", reason, got, want)
		}
	}
}

// At the limit, the connection that was idle the longest makes room, even if it never had a
// request.
func TestTheIdlestMakesRoom(t *testing.T) {
	bounded(t, 8, func(b *Bound, l pipes, _ chan struct{}, log *strings.Builder) {
		var all []client
		for i := range 8 {
			time.Sleep(time.Second)
			all = append(all, l.dial(fmt.Sprintf("10.0.0.%d", i)))
		}
		time.Sleep(time.Second)
		if !all[0].asks() || !all[2].asks() { // now connection 1, which never asked, is the idlest
			t.Error("an open connection gets no answer")
		}
		for i := range 3 {
			if more := l.dial(fmt.Sprintf("10.0.1.%d", i)); !more.asks() {
				t.Error("a new connection gets no answer")
			}
		}
		for i, want := range []bool{true, false, true, false, false, true, true, true} {
			if all[i].open() != want {
				t.Errorf("connection %d is open: got %v, want %v", i, !want, want)
			}
		}
		b.expect(t, 3, 0, 0)
		if got := log.String(); strings.Count(got, "too many connections") != 1 ||
			!strings.Contains(got, `limit="the test"`) {
			t.Errorf("the log: %s", got)
		}
	})
}

// At the limit, connections with a running request stay open, and the new connection is closed.
func TestRequestsAreNotCutOff(t *testing.T) {
	bounded(t, 8, func(b *Bound, l pipes, goOn chan struct{}, _ *strings.Builder) {
		var all []client
		for i := range 8 {
			c := l.dial(fmt.Sprintf("10.0.0.%d", i))
			c.send("/wait")
			all = append(all, c)
		}
		if late := l.dial("10.0.1.1"); late.open() {
			t.Error("a connection beyond the limit is open")
		}
		b.expect(t, 0, 1, 0)
		close(goOn)
		for i, c := range all {
			if !c.answered() {
				t.Errorf("request %d is not answered", i)
			}
		}
		if c := l.dial("10.0.1.1"); !c.asks() {
			t.Error("below the limit, a connection gets no answer")
		}
	})
}

// The server closes the connection of a client that sends a request and does not read the
// answer, since such a connection is never idle. The server does not cut off a slow reader,
// or an answer with its own deadline.
func TestWhoTakesNoAnswerIsCutOff(t *testing.T) {
	bounded(t, 8, func(b *Bound, l pipes, goOn chan struct{}, _ *strings.Builder) {
		for range 2 {
			deaf, slow, late := l.dial("10.0.0.1"), l.dial("10.0.0.2"), l.dial("10.0.0.3")
			deaf.send("/")
			slow.send("/")
			late.send("/wait")
			time.Sleep(unreadTime - time.Second)
			if !slow.answered() {
				t.Error("a slow client is cut off")
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			b.mu.Lock()
			if b.addresses[netip.MustParseAddr("10.0.0.1")] > 0 {
				t.Error("a client that reads nothing is not cut off")
			}
			b.mu.Unlock()
			deaf.Close()
			slow.send("/")
			if !slow.answered() {
				t.Error("the second answer to a slow client is cut off")
			}
			if err := late.Close(); err != nil {
				t.Error(err)
			}
			if err := slow.Close(); err != nil {
				t.Error(err)
			}
		}
		if got := testutil.ToFloat64(b.closed.WithLabelValues(reasonUnread)); got != 2 {
			t.Errorf("%v unread connections are counted, want 2", got)
		}
		close(goOn)
	})
	synctest.Test(t, func(t *testing.T) {
		client, served := net.Pipe()
		c := &conn{Conn: served}
		begun := time.Now()
		if err := c.SetWriteDeadline(begun.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begun) != time.Hour {
			t.Errorf("the write failed after %v with %v, want a timeout after the answer's own deadline of an hour",
				time.Since(begun), err)
		}
		client.Close()
	})
}

// One address leaves a quarter of the connections to others, even if each of its connections has a
// request. An idle connection of the address with the most connections makes room for a new one.
func TestOneAddressLeavesRoom(t *testing.T) {
	bounded(t, 8, func(b *Bound, l pipes, goOn chan struct{}, _ *strings.Builder) {
		quiet := l.dial("10.0.0.2")
		time.Sleep(time.Second)
		for range 20 {
			l.dial("10.0.0.1").send("/wait")
		}
		b.expect(t, 0, 0, 14)
		if !l.dial("10.0.0.3").asks() || !quiet.asks() {
			t.Error("other addresses have no room")
		}
		close(goOn)
		synctest.Wait()
	})
	bounded(t, 8, func(b *Bound, l pipes, _ chan struct{}, _ *strings.Builder) {
		quiet := l.dial("10.0.0.2")
		time.Sleep(time.Second)
		for range 20 {
			l.dial("10.0.0.1")
		}
		l.dial("10.0.0.3")
		l.dial("10.0.0.4")
		b.expect(t, 15, 0, 0)
		if !quiet.open() {
			t.Error("a flood of idle connections closed another address's connection")
		}
	})
}

func TestShares(t *testing.T) {
	for _, c := range []struct {
		limit               uint64
		tcp, streams, peers int
		few                 bool
	}{{64, 24, 8, 8, true}, {256, 96, 32, 32, true}, {1024, 384, 128, 128, false},
		{1 << 20, ceiling, 1 << 17, peers, false}, {1<<64 - 1, ceiling, 1 << 20, peers, false}} {
		s := share(c.limit)
		if s.TCP != c.tcp || s.Streams != c.streams || s.Peers != c.peers || s.Few() != c.few {
			t.Errorf("the share of %d descriptors is %+v, want %+v", c.limit, s, c)
		}
	}
	if s := share(uint64(Shares{}.For(10_000))); s.MostTCP() < 10_000 {
		t.Errorf("For(10_000) is %d descriptors, too few for 10,000 connections", s.Limit)
	}
}
