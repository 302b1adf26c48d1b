//go:build linux

package sockets

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// On a machine without IPv6 the error must name the address.
func TestUDPOverIPv6(t *testing.T) {
	ls, err := Listen(Config{Network: "udp", Address: "[::1]:0"})
	if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT) {
		if !strings.Contains(err.Error(), "listen on udp [::1]:0: ") {
			t.Errorf("error %q does not name the address", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	r := newRecorder()
	run(t, ls[0], r)
	write(t, dial(t, ls[0]), []byte("a:1|c"))
	r.expect(t, []string{"a:1|c"})
}

func TestUDPTruncatedDatagramsAreCountedAndNotHandedOver(t *testing.T) {
	l := listen(t, Config{Network: "udp", Address: "127.0.0.1:0", MaxPacket: 8})
	c := dial(t, l)
	for _, p := range []string{"fits:1|c", "is:too:1|c", "", "a:1|c"} {
		write(t, c, []byte(p))
	}
	r := newRecorder()
	run(t, l, r)
	r.expect(t, []string{"fits:1|c", "", "a:1|c"})
	r.wait(t, "the statistics", func() bool { return l.Stats().Packets == 3 })
	if s := l.Stats(); s.Truncated != 1 || s.Bytes != 13 {
		t.Errorf("statistics %+v, want 1 truncated and 13 bytes", s)
	}
}

func TestUDPLargestDatagramIsAcceptedByDefault(t *testing.T) {
	l := listen(t, Config{Network: "udp", Address: "127.0.0.1:0"})
	r := newRecorder()
	run(t, l, r)
	want := strings.Repeat("x", 65507)
	write(t, dial(t, l), []byte(want))
	r.expect(t, []string{want})
}

// The counts must match exactly: each sent packet was either received or is in Drops. Here all
// drops come after the last queued packet, where SO_RXQ_OVFL would report none.
func TestUDPDropsAreExact(t *testing.T) {
	const sent = 3000
	l := listen(t, Config{Network: "udp", Address: "127.0.0.1:0", ReceiveBuffer: 8192})
	c := dial(t, l)
	for _, p := range numbered(sent) {
		write(t, c, []byte(p))
	}
	r := newRecorder()
	stop := run(t, l, r)
	r.wait(t, "each datagram to be received or counted as dropped", func() bool {
		return uint64(len(r.got()))+l.Drops() >= sent
	})
	write(t, c, []byte("one more:1|c"))
	r.wait(t, "the datagram after the overflow", func() bool {
		return uint64(len(r.got()))+l.Drops() >= sent+1
	})
	stop()
	received, drops := len(r.got()), l.Drops()
	if drops == 0 {
		t.Fatal("the buffer did not overflow, so this test checks nothing")
	}
	if uint64(received)+drops != sent+1 {
		t.Errorf("received %d + dropped %d = %d, sent %d", received, drops, uint64(received)+drops, sent+1)
	}
	t.Logf("received %d, dropped %d", received, drops)
}

func TestUDPDropsAreKnownAfterClose(t *testing.T) {
	l := listen(t, Config{Network: "udp", Address: "127.0.0.1:0", ReceiveBuffer: 8192})
	c := dial(t, l)
	for _, p := range numbered(1000) {
		write(t, c, []byte(p))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l.Drops() == 0 {
		t.Error("after the socket is closed, the count of drops is lost")
	}
}

func TestDropCounterSurvivesTheKernels32Bits(t *testing.T) {
	var d dropCounter
	for _, kernel := range []uint32{7, 7, math.MaxUint32, 2} {
		d.add(kernel)
	}
	if want := uint64(math.MaxUint32) + 3; d.total != want {
		t.Errorf("total %d, want %d", d.total, want)
	}
}

func TestUDPListenersShareOneAddress(t *testing.T) {
	const listeners, senders, each = 4, 64, 100
	ls, err := Listen(Config{Network: "udp", Address: "127.0.0.1:0", Listeners: listeners})
	if err != nil {
		t.Fatal(err)
	}
	r := newRecorder()
	var stops []func()
	for i, l := range ls {
		if l.Addr().String() != ls[0].Addr().String() {
			t.Errorf("listener %d has the address %s, want %s like the first one", i, l.Addr(), ls[0].Addr())
		}
		stops = append(stops, run(t, l, r))
	}
	for range senders {
		c := dial(t, ls[0])
		send(t, r, c, slices.Repeat([]string{"a:1|c"}, each), datagramOf)
	}
	r.expect(t, slices.Repeat([]string{"a:1|c"}, senders*each))
	busy := 0
	for i, l := range ls {
		stops[i]()
		if l.Stats().Packets > 0 {
			busy++
		}
	}
	if busy < 2 {
		t.Errorf("%d of %d listeners got packets from %d senders, want at least 2", busy, listeners, senders)
	}
}

func TestUDPPortInUse(t *testing.T) {
	shared := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error { return control(raw, sharePort) }}
	for _, c := range []struct {
		name      string
		other     net.ListenConfig
		listeners int
	}{
		{"one listener", net.ListenConfig{}, 1},
		{"one listener, the other shares its port", shared, 1},
		{"several listeners", net.ListenConfig{}, 3},
		{"several must not join another process that shares its port", shared, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			other, err := c.other.ListenPacket(context.Background(), "udp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = other.Close() }()
			address := other.LocalAddr().String()
			ls, err := Listen(Config{Network: "udp", Address: address, Listeners: c.listeners})
			if err == nil {
				for _, l := range ls {
					_ = l.Close()
				}
				t.Fatal("Listen took the port of another socket")
			}
			_, port, _ := net.SplitHostPort(address)
			want := fmt.Sprintf("listen on udp %s: bind: address already in use; `ss -ulpn 'sport = :%s'` shows which "+
				"process has the port: stop that process, or choose another port", address, port)
			if err.Error() != want {
				t.Errorf("error\n%s\nwant\n%s", err, want)
			}
			if !errors.Is(err, unix.EADDRINUSE) {
				t.Error("the cause is lost")
			}
		})
	}
}

func TestUDPReceiveBuffer(t *testing.T) {
	t.Run("granted", func(t *testing.T) {
		l := listen(t, Config{Network: "udp", Address: "127.0.0.1:0", ReceiveBuffer: 64 << 10})
		if wanted, granted := l.ReceiveBuffer(); wanted != 64<<10 || granted != wanted {
			t.Errorf("asked for %d and granted %d, want 65536 for both", wanted, granted)
		}
		if w := l.Warnings(); len(w) != 0 {
			t.Errorf("warnings %q", w)
		}
	})
	// Even a privileged process cannot get this size, because the kernel doubles it and
	// keeps it in 31 bits.
	t.Run("cut down", func(t *testing.T) {
		l := listen(t, Config{Network: "udp", Address: "127.0.0.1:0", ReceiveBuffer: math.MaxInt32})
		wanted, granted := l.ReceiveBuffer()
		if granted >= wanted {
			t.Fatalf("granted %d bytes, want fewer than %d", granted, wanted)
		}
		w := l.Warnings()
		if len(w) != 1 || !strings.Contains(w[0], l.Addr().String()) ||
			!strings.Contains(w[0], "sysctl -w net.core.rmem_max=2147483647") {
			t.Errorf("warnings %q do not name the address and the sysctl command", w)
		}
	})
}
