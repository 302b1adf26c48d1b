//go:build linux

package sockets

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/freshet-io/freshet/internal/core/sender"
)

// witness is a Handler that reports each packet's sender.
type witness struct {
	*Listener
	seen chan sender.Sender
}

func (w witness) Packet([]byte, int64) { w.seen <- w.Sender() }

func (w witness) Tick(now int64) int64 { return now + int64(time.Hour) }

// testAddress returns a free address.
func testAddress(t testing.TB, network string) string {
	t.Helper()
	if network == "udp" {
		return "127.0.0.1:0"
	}
	return filepath.Join(t.TempDir(), "s")
}

func TestSenderIsTheOneOfEachPacketWhileWatched(t *testing.T) {
	tests := []struct {
		name, network, address string
	}{
		{"udp", "udp", "127.0.0.1:0"},
		{"udp to a socket of both IPs, where the kernel writes IPv4 as IPv6", "udp", ":0"},
		{"unixgram", "unixgram", testAddress(t, "unixgram")},
		{"unix", "unix", testAddress(t, "unix")},
	}
	if c, err := net.ListenPacket("udp", "[::1]:0"); err == nil { // this machine has IPv6
		_ = c.Close()
		tests = append(tests, struct{ name, network, address string }{"udp over IPv6", "udp", "[::1]:0"})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := listen(t, Config{Network: tt.network, Address: tt.address})
			w := witness{l, make(chan sender.Sender)}
			run(t, l, w)
			first, second := dialLocal(t, l), dialLocal(t, l)
			sees := func(c net.Conn) (got sender.Sender) {
				t.Helper()
				p := []byte("a:1|c")
				if tt.network == "unix" {
					p = frame(string(p))
				}
				write(t, c, p)
				select {
				case got = <-w.seen:
				case <-time.After(patience):
					t.Fatal("the packet did not come")
				}
				return got
			}
			expect := func(c net.Conn, want sender.Sender) {
				t.Helper()
				if got := sees(c); got != want {
					t.Errorf("sender %+v, want %+v", got, want)
				}
			}
			watch := func(on bool) {
				t.Helper()
				if err := l.Watch(on); err != nil {
					t.Fatal(err)
				}
				sees(first) // perhaps by a read that began before
			}
			expect(first, sender.Sender{})
			watch(true)
			for range 3 { // the address length that the kernel wrote must not limit the next address
				expect(first, senderOf(first))
				expect(second, senderOf(second))
			}
			watch(false)
			expect(first, sender.Sender{})
			watch(true)
			expect(second, senderOf(second))
		})
	}
}

// dialLocal is dial, but uses loopback if l is bound to all addresses.
func dialLocal(t *testing.T, l *Listener) net.Conn {
	t.Helper()
	address := l.Addr().String()
	if at, err := netip.ParseAddrPort(address); err == nil && at.Addr().IsUnspecified() {
		address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), at.Port()).String()
	}
	c, err := net.Dial(l.Addr().Network(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// senderOf returns the sender that the listener should see for our connection c.
func senderOf(c net.Conn) sender.Sender {
	if at, ok := c.LocalAddr().(*net.UDPAddr); ok {
		return sender.Sender{Addr: at.AddrPort()}
	}
	return sender.Sender{PID: int32(os.Getpid()), UID: int32(os.Getuid())}
}

func TestWatchingAllocatesNothing(t *testing.T) {
	for _, network := range []string{"udp", "unixgram"} {
		t.Run(network, func(t *testing.T) {
			l := listen(t, Config{Network: network, Address: testAddress(t, network)})
			if err := l.Watch(true); err != nil {
				t.Fatal(err)
			}
			c, d, payload := dial(t, l), l.socket.(*datagrams), []byte("a:1|c")
			var h Handler = asking{l}
			allocs := testing.AllocsPerRun(200, func() {
				write(t, c, payload)
				if err := d.wait.await(d.try); err != nil {
					t.Fatal(err)
				}
				d.hand(h, 0)
			})
			if allocs != 0 || lastSender == (sender.Sender{}) {
				t.Errorf("%v allocations for each packet from %+v, want none", allocs, lastSender)
			}
		})
	}
}

// The kernel replaces the length of the space for a sender's address with the length of the address. If
// the listener does not restore it, the address of the next message may be cut short.
func TestEachMessageHasRoomForItsSender(t *testing.T) {
	var s senders
	var msgs [batchSize]unix.Mmsghdr
	s.wanted.Store(true)
	s.prepare(&msgs)
	msgs[0].Hdr.Namelen, s.used = unix.SizeofSockaddrInet4, 1
	s.prepare(&msgs)
	if got := msgs[0].Hdr.Namelen; got != unix.SizeofSockaddrInet6 {
		t.Errorf("an address has room for %d bytes, want %d", got, unix.SizeofSockaddrInet6)
	}
}
