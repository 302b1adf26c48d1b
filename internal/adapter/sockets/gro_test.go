//go:build linux

package sockets

import (
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/freshet-io/freshet/internal/core/sender"
)

var withGRO = Config{Network: "udp", Address: "127.0.0.1:0", GRO: true}

// burst sends `payload` by one system call, in datagrams of `size` bytes, and returns the
// datagrams. The last one may be shorter.
func burst(t testing.TB, c net.Conn, size int, payload string) []string {
	t.Helper()
	option := make([]byte, unix.CmsgSpace(2))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&option[0]))
	h.Level, h.Type = unix.SOL_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(option[unix.CmsgLen(0):], uint16(size))
	if _, _, err := c.(*net.UDPConn).WriteMsgUDP([]byte(payload), option, nil); err != nil {
		t.Fatal(err)
	}
	var packets []string
	for p := range slices.Chunk([]byte(payload), size) {
		packets = append(packets, string(p))
	}
	return packets
}

func TestGRODatagramsOfOneBufferAreHandedOverOneByOne(t *testing.T) {
	l := listen(t, withGRO)
	if w := l.Warnings(); len(w) > 0 {
		t.Fatal(w)
	}
	c, d, r := dial(t, l), l.socket.(*datagrams), newRecorder()
	several := func() []string {
		return burst(t, c, 100, strings.Repeat("page.views:1|c\n", 60)+"the last is shorter")
	}
	single := func() []string {
		write(t, c, []byte("alone"))
		return []string{"alone"}
	}
	empty := func() []string {
		write(t, c, nil)
		return []string{""}
	}
	var want []string
	for _, sends := range [][3]func() []string{
		{single, empty, several},
		{several, single, empty}, // the kernel gave no size in the previous batch
		{empty, several, single},
	} {
		for _, send := range sends {
			want = append(want, send()...)
		}
		d.receive()
		if d.n != len(sends) {
			t.Fatalf("the kernel handed over %d buffers, want one for each send; this test checks nothing", d.n)
		}
		d.hand(r, 0)
	}
	if got := r.got(); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if s := l.Stats(); s.Packets != uint64(len(want)) || s.Bytes != uint64(len(strings.Join(want, ""))) ||
		s.Truncated > 0 {
		t.Errorf("%d packets: %+v", len(want), s)
	}
}

func TestGROLargestBuffer(t *testing.T) {
	config := withGRO
	config.MaxPacket = 1432
	l, r := listen(t, config), newRecorder()
	run(t, l, r)
	c := dial(t, l)
	want := burst(t, c, 1432, strings.Repeat("x", 45*1432))
	r.expect(t, want)
}

func TestGROTruncatedDatagramsAreCountedOneByOne(t *testing.T) {
	config := withGRO
	config.MaxPacket = 99
	l, r := listen(t, config), newRecorder()
	run(t, l, r)
	burst(t, dial(t, l), 100, strings.Repeat("x", 350))
	r.expect(t, []string{strings.Repeat("x", 50)})
	r.wait(t, "the statistics", func() bool { return l.Stats().Packets == 1 })
	if s := l.Stats(); s.Truncated != 3 || s.Bytes != 50 {
		t.Errorf("the statistics are %+v, want 3 truncated datagrams and 50 bytes", s)
	}
}

// On an inherited socket, other control messages may precede the message with the size
// of the datagrams.
func TestGROFindsTheSizeAmongOtherThings(t *testing.T) {
	l, r := listen(t, withGRO), newRecorder()
	for _, option := range []struct{ level, name int }{
		{unix.SOL_SOCKET, unix.SO_TIMESTAMPNS},
		{unix.SOL_SOCKET, unix.SO_RXQ_OVFL},
		{unix.SOL_IP, unix.IP_PKTINFO},
	} {
		if err := unix.SetsockoptInt(l.socket.(*datagrams).socket.fd, option.level, option.name, 1); err != nil {
			t.Fatal(err)
		}
	}
	run(t, l, r)
	c := dial(t, l)
	want := burst(t, c, 6, strings.Repeat("a:1|c\n", 30))
	want = append(want, burst(t, c, 7, strings.Repeat("bb:1|c\n", 30))...)
	r.expect(t, want)
}

// If the size of coalesced datagrams is lost, the listener must drop them: as one
// packet they would contain lines that no client sent.
func TestGRODatagramsWithoutTheirSizeAreNotHandedOver(t *testing.T) {
	l, r := listen(t, withGRO), newRecorder()
	d := l.socket.(*datagrams)
	burst(t, dial(t, l), 5, strings.Repeat("a:1|c", 30))
	d.receive()
	d.msgs[0].Hdr.SetControllen(0)
	d.msgs[0].Hdr.Flags |= unix.MSG_CTRUNC
	d.hand(r, 0)
	if got, s := r.got(), l.Stats(); len(got) > 0 || s.Truncated != 1 || s.Packets != 0 {
		t.Errorf("got packets %q and statistics %+v; want no packets and 1 truncated datagram", got, s)
	}
}

func TestGROSenderIsTheOneOfAllDatagramsInABuffer(t *testing.T) {
	l := listen(t, withGRO)
	if err := l.Watch(true); err != nil {
		t.Fatal(err)
	}
	w := witness{l, make(chan sender.Sender, 20)}
	run(t, l, w)
	for range 3 {
		for range 2 {
			c := dial(t, l)
			for range burst(t, c, 10, strings.Repeat("a:1|c\n", 5)) {
				if got := <-w.seen; got != senderOf(c) {
					t.Errorf("sender %v, want %v", got, senderOf(c))
				}
			}
		}
		if err := l.Watch(true); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWithoutGROTheKernelSplits(t *testing.T) {
	l, r := listen(t, loopback), newRecorder()
	run(t, l, r)
	r.expect(t, burst(t, dial(t, l), 10, "twenty-five bytes of text"))
}

// Only a reader with GRO can separate datagrams that wait in one buffer.
func TestASuccessorKeepsTheGROOfItsSocket(t *testing.T) {
	l := listen(t, withGRO)
	c, r := dial(t, l), newRecorder()
	want := burst(t, c, 10, "twenty-five bytes of text")
	run(t, succeed(t, l, loopback, func() {}), r)
	r.expect(t, want)
}

func TestGROWarning(t *testing.T) {
	if w := groWarning("127.0.0.1:8125", nil); w != nil {
		t.Errorf("got the warning %q although the kernel did not refuse UDP_GRO", w)
	}
	w := groWarning("127.0.0.1:8125", errors.New("protocol not available"))
	if len(w) != 1 || !strings.HasPrefix(w[0], "udp 127.0.0.1:8125: the kernel refuses UDP_GRO (protocol not available)") {
		t.Errorf("%q does not name the address and the cause", w)
	}
}
