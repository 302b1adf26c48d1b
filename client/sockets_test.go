//go:build linux && go1.25

package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// receiver is a server with real sockets.
type receiver struct {
	at string

	mu      sync.Mutex
	arrived *sync.Cond // signalled for each packet
	packets []string
	closers []io.Closer
	reading sync.WaitGroup
}

// listen binds an address, as a server does when it starts. The receiver reads nothing until `read` is
// called.
func listen(t *testing.T, network, at string) (r *receiver, read func()) {
	t.Helper()
	r = &receiver{at: at}
	r.arrived = sync.NewCond(&r.mu)
	t.Cleanup(r.close)
	if err := os.Remove(at); network != udp && err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if network == unix {
		l, err := net.Listen(unix, at)
		if err != nil {
			t.Fatal(err)
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		r.closers = append(r.closers, l)
		return r, func() { r.accept(l) }
	}
	conn, err := net.ListenPacket(network, at)
	if err != nil {
		t.Fatal(err)
	}
	r.at = conn.LocalAddr().String()
	r.closers = append(r.closers, conn)
	return r, func() { r.readPackets(conn) }
}

// receive returns a server that reads all packets.
func receive(t *testing.T, network, at string) *receiver {
	t.Helper()
	r, read := listen(t, network, at)
	read()
	return r
}

func (r *receiver) readPackets(conn net.PacketConn) {
	r.reading.Go(func() {
		buf := make([]byte, 1<<16)
		for {
			n, _, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			r.add(buf[:n])
		}
	})
}

func (r *receiver) accept(l net.Listener) {
	r.reading.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			r.closers = append(r.closers, conn)
			r.mu.Unlock()
			r.reading.Go(func() {
				var head [frameHead]byte
				for {
					if _, err := io.ReadFull(conn, head[:]); err != nil {
						return
					}
					frame := make([]byte, binary.LittleEndian.Uint32(head[:]))
					if _, err := io.ReadFull(conn, frame); err != nil {
						return
					}
					r.add(frame)
				}
			})
		}
	})
}

func (r *receiver) add(packet []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.packets = append(r.packets, string(packet))
	r.arrived.Broadcast()
}

// close ends the server at once. Packets that are still unread are lost.
func (r *receiver) close() {
	r.mu.Lock()
	for _, c := range r.closers {
		_ = c.Close()
	}
	r.closers = nil
	r.mu.Unlock()
	r.reading.Wait()
}

// wait returns the packets that have arrived, including probes, once `enough` returns true.
func (r *receiver) wait(enough func(packets []string) bool) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.packets) == 0 || !enough(r.packets) {
		r.arrived.Wait()
	}
	return slices.Clone(r.packets)
}

func addressOf(network, at string) string {
	return map[string]string{udp: "", unixgram: "unixgram://", unix: "unixstream://", guess: "unix://"}[network] + at
}

func listenAt(t *testing.T, network string) string {
	if network == udp {
		return "127.0.0.1:0"
	}
	dir, err := os.MkdirTemp("", "dsd") // the path of t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// A server ends and another server replaces it, many times. Counts continue without a gap, and nothing
// is lost or counted twice. The server reads its queue before it ends, as Freshet does. Over UDP,
// probes show in time that no server listens.
func TestServerComesBack(t *testing.T) {
	for _, network := range []string{udp, unixgram, unix} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			r := receive(t, network, listenAt(t, network))
			scheme := guess
			if network == udp {
				scheme = udp
			}
			trouble := make(chan error, 10)
			c, err := NewWithOptions(addressOf(scheme, r.at), Options{FlushInterval: time.Hour, NoTelemetry: true,
				OnError: func(err error) { trouble <- err }})
			if err != nil {
				t.Fatal(err)
			}
			got, n := received{}, 0
			use := func() {
				n++
				c.Count("a", 1, "k:v")
				c.Timing("t", time.Millisecond)
				c.Set("s", fmt.Sprint(n))
				c.Gauge("g", float64(n))
			}
			// readAll waits for the last flush, which is a single packet.
			readAll := func() {
				last := fmt.Sprintf("g:%d|g", n)
				got.read(t, r.wait(func(packets []string) bool { return strings.Contains(packets[len(packets)-1], last) }))
			}
			for range 5 {
				for range 10 {
					use()
					flush(t, c)
				}
				readAll()
				r.close()
				use()
				flushed := make(chan error)
				go func() { flushed <- c.Flush(context.Background()) }()
				<-trouble
				use() // while the client tries to send
				r = receive(t, network, r.at)
				if err := <-flushed; err != nil {
					t.Fatal(err)
				}
			}
			use()
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			readAll()
			if sum, timings := got.sum("c a k:v"), got["ms t "].count; sum != float64(n) || timings != float64(n) ||
				len(got["s s "].members) != n {
				t.Errorf("after %d calls of each kind, the server has the count %v, %v timings and %d members, want "+
					"as many of each",
					n, sum, timings, len(got["s s "].members))
			}
			if s := checkStats(t, c, 4*n); s.Sent != s.Calls {
				t.Errorf("unexpected counts: %+v", s)
			}
		})
	}
}

// The server does not read, so its queue fills up and the kernel accepts no more packets. Calls do not
// wait for the server, which begins to read only after the last call. Each call is sent, held, or
// counted as lost.
func TestServerDoesNotRead(t *testing.T) {
	for _, network := range []string{unixgram, unix} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			r, read := listen(t, network, listenAt(t, network))
			c, err := NewWithOptions(addressOf(guess, r.at),
				Options{FlushInterval: minInterval, MaxSeries: 500, NoTelemetry: true})
			if err != nil {
				t.Fatal(err)
			}
			calls, counted := 0, 0
			for c.Stats().Held < 100_000 {
				for i := range 1000 {
					tag := fmt.Sprint(i)
					c.Count("a", 1, tag, strings.Repeat("x", 200))
					c.Timing("t", time.Millisecond, tag)
					c.Set("s", fmt.Sprint(calls), tag)
					c.Gauge("g", 1, tag)
					calls += 4
					counted++
				}
			}
			// While values are being put into a packet, no count includes them. When the socket is full,
			// the counts are complete again.
			s := c.Stats()
			for ; s.Calls != uint64(calls); s = c.Stats() {
				runtime.Gosched()
			}
			if s.Sent+s.Held+s.Full != uint64(calls) || s.Held == 0 {
				t.Errorf("of %d calls: %+v", calls, s)
			}
			read()
			flush(t, c)
			s = checkStats(t, c, calls)
			if s.Held != 0 || s.Sent+s.Full != s.Calls || s.DroppedPackets != 0 {
				t.Errorf("unexpected counts: %+v", s)
			}
			sum, timings := 0.0, 0.0
			for key, l := range parse(t, r.wait(func(packets []string) bool { return len(packets) == int(s.Packets) })) {
				if strings.HasPrefix(key, "c a ") {
					sum += l.sum
				}
				if strings.HasPrefix(key, "ms t ") {
					timings += l.count
				}
			}
			if sum != float64(counted) || !almost(timings, float64(counted)) {
				t.Errorf("the server has the count %v and %v timings, want %d of each", sum, timings, counted)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The server starts after the client.
func TestServerComesLate(t *testing.T) {
	for _, network := range []string{udp, unixgram, unix} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			at := listenAt(t, network)
			if network == udp { // any free port
				r := receive(t, udp, at)
				at = r.at
				r.close()
			}
			told := make(chan error, 1)
			c, err := NewWithOptions(addressOf(network, at), Options{FlushInterval: minInterval, OnError: func(err error) {
				told <- err
			}})
			if err != nil {
				t.Fatal(err)
			}
			c.Count("a", 1)
			t.Log(<-told)
			c.Count("a", 99)
			r := receive(t, network, at)
			flush(t, c)
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			r.wait(func(packets []string) bool { return parse(t, packets).sum("c a ") == 100 })
			if s := checkStats(t, c, 2); s.Sent != 2 {
				t.Errorf("unexpected counts: %+v", s)
			}
		})
	}
}
