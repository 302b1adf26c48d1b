//go:build linux

package loadgen

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/load"
)

// listen opens a socket that nothing reads.
func listen(t *testing.T, network string) net.PacketConn {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unixgram" {
		dir, err := os.MkdirTemp("", "lg") // short enough for a socket's path
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		address = filepath.Join(dir, "s")
	}
	conn, err := net.ListenPacket(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if udp, ok := conn.(*net.UDPConn); ok {
		if err := udp.SetReadBuffer(4 << 20); err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

// receive passes on incoming packets until the socket is closed.
func receive(conn net.PacketConn) <-chan []byte {
	packets := make(chan []byte, 1<<16)
	go func() {
		defer close(packets)
		buf := make([]byte, load.MaxPacket)
		for {
			n, _, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			packets <- bytes.Clone(buf[:n])
		}
	}()
	return packets
}

// open opens a sender to `conn`.
func open(t *testing.T, conn net.PacketConn, c Config) *Client {
	t.Helper()
	c.Network, c.Address = conn.LocalAddr().Network(), conn.LocalAddr().String()
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func newLoad(t testing.TB, change func(*load.Config)) *load.Load {
	t.Helper()
	c := load.Standard()
	if change != nil {
		change(&c)
	}
	l, err := load.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// expect compares the packets that the receiver got with the packets of another copy of the load.
func expect(t *testing.T, packets <-chan []byte, want *load.Load, sent load.Totals) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	var totals load.Totals
	for totals.Packets < sent.Packets {
		next := want.Next(1)
		totals.Add(next)
		select {
		case got := <-packets:
			if !bytes.Equal(got, next.Data) {
				t.Fatalf("packet %d is %.60q, want %.60q", totals.Packets, got, next.Data)
			}
		case <-deadline:
			t.Fatalf("%d of %d packets arrived", totals.Packets-1, sent.Packets)
		}
	}
	if totals != sent {
		t.Errorf("sent %+v, received %+v", sent, totals)
	}
	select {
	case got := <-packets:
		t.Errorf("an unexpected packet arrived: %.60q", got)
	default:
	}
}

// The receiver gets exactly what the sender counts, byte by byte. This includes the short packet at the
// end of the ring, and packets in which other digits make new contexts.
func TestEverythingSentComes(t *testing.T) {
	few := func(c *load.Config) { c.Contexts, c.NewShare, c.MetricsPerPacket = 999, 0.01, 13 }
	for name, c := range map[string]struct {
		network string
		Config
	}{
		"udp":         {"udp", Config{}},
		"udp, GSO":    {"udp", Config{GSO: true}},
		"unixgram":    {"unixgram", Config{}},
		"two sources": {"udp", Config{Sources: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			conn := listen(t, c.network)
			s, packets := open(t, conn, c.Config), receive(conn)
			l, again := newLoad(t, few), newLoad(t, few)
			for range 30 { // several times around the ring
				if err := s.begin(l); err != nil {
					t.Fatal(err)
				}
				if err := s.sendAll(context.Background(), l.Next(s.batchLimit(l.PacketBytes()))); err != nil {
					t.Fatal(err)
				}
				expect(t, packets, again, s.Progress())
			}
		})
	}
}

// A run sends no more than its rate allows, and ends after its duration.
func TestRunKeepsItsPace(t *testing.T) {
	for _, even := range []bool{false, true} {
		conn := listen(t, "udp")
		s, packets := open(t, conn, Config{}), receive(conn)
		result, err := s.Run(context.Background(), newLoad(t, nil),
			Pace{Rate: 14_000, Duration: time.Second, Even: even})
		if err != nil {
			t.Fatal(err)
		}
		if most := 14_000 * result.Elapsed.Seconds(); float64(result.Sent.Metrics) > most || result.Sent.Metrics == 0 {
			t.Errorf("even=%t: sent %d metrics in %v, want at most %.0f", even, result.Sent.Metrics, result.Elapsed, most)
		}
		expect(t, packets, newLoad(t, nil), result.Sent)
	}
}

func TestPacer(t *testing.T) {
	begun := time.Unix(0, 0)
	p := pacer{rate: 10_000, begun: begun}
	for _, step := range []struct {
		after time.Duration
		due   int
		early time.Duration
		why   string
	}{
		{0, 0, time.Millisecond, "no packet is due at the start"},
		{time.Millisecond, 10, 0, "ten packets in a millisecond"},
		{1050 * time.Microsecond, 0, time.Millisecond, "a packet is due only as a whole"},
		{5 * time.Millisecond, 40, 0, "40 packets have become due since the last call"},
		{500 * time.Millisecond, catchUpPackets, 0, "no more packets than the catch-up limit allows"},
		{500 * time.Millisecond, 0, time.Millisecond, "packets beyond the catch-up limit are never due"},
	} {
		n, early := p.due(begun.Add(step.after))
		p.sent += float64(n)
		if n != step.due || early != step.early {
			t.Errorf("after %v (%s): got %d packets due and the next in %v, want %d and %v",
				step.after, step.why, n, early, step.due, step.early)
		}
	}
	fast := pacer{rate: 1e6, begun: begun}
	if n, _ := fast.due(begun.Add(time.Second)); n != 5000 {
		t.Errorf("after a delay, a fast run sends %d packets at once, want 5000", n)
	}
	slow := pacer{rate: 0.1, begun: begun}
	if n, early := slow.due(begun.Add(time.Second)); n != 0 || early != longNap {
		t.Errorf("a slow run sleeps %v, not longNap", early)
	}
}

// When a Unix socket's queue is full, the sender waits or drops a packet. Both are counted, and the
// queue holds exactly the packets that were counted as sent.
func TestFullQueue(t *testing.T) {
	for name, drop := range map[string]bool{"waits": false, "drops": true} {
		t.Run(name, func(t *testing.T) {
			conn := listen(t, "unixgram")
			s := open(t, conn, Config{DropRefused: drop})
			result, err := s.Run(context.Background(), newLoad(t, nil), Pace{Duration: 500 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			if result.Refused == 0 || drop != (result.Dropped.Packets > 0) {
				t.Errorf(
					"without a reader: %d packets were refused and %d dropped; want some refused, and some dropped: %t",
					result.Refused, result.Dropped.Packets, drop)
			}
			if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			for n := range result.Sent.Packets {
				if _, _, err := conn.ReadFrom(make([]byte, 1)); err != nil {
					t.Fatalf("%d of %d packets came: %v", n, result.Sent.Packets, err)
				}
			}
		})
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	s := open(t, listen(t, "udp"), Config{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	result, err := s.Run(ctx, newLoad(t, nil), Pace{})
	if err != nil || result.Sent.Packets != 0 {
		t.Errorf("a run whose context has ended: got %+v, want no packets; error %v", result, err)
	}
}

func TestMistakesSayWhatToDo(t *testing.T) {
	closed, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := closed.LocalAddr().String()
	_ = closed.Close()
	for name, c := range map[string]struct {
		Config
		want string
	}{
		"nobody listens":           {Config{Network: "udp", Address: address}, "is a server listening there?"},
		"no such socket":           {Config{Network: "unixgram", Address: "/nonexistent/s"}, "is a server listening there?"},
		"a stream is no datagrams": {Config{Network: "unix", Address: "/nonexistent/s"}, "udp or unixgram"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(c.Config)
			if err == nil {
				_, err = s.Run(context.Background(), newLoad(t, nil), Pace{Duration: 10 * time.Second})
				_ = s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.Address) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestSendingAllocatesNothing(t *testing.T) {
	for name, gso := range map[string]bool{"plain": false, "GSO": true} {
		t.Run(name, func(t *testing.T) {
			s := open(t, listen(t, "udp"), Config{GSO: gso})
			l := newLoad(t, nil)
			if err := s.begin(l); err != nil {
				t.Fatal(err)
			}
			ctx := context.Background()
			if n := testing.AllocsPerRun(100, func() {
				if err := s.sendAll(ctx, l.Next(64)); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("%v allocations for 64 packets, want 0", n)
			}
		})
	}
}
