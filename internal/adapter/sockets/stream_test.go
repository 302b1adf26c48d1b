//go:build linux

package sockets

import (
	"bytes"
	"errors"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func listenStream(t *testing.T, c Config) *Listener {
	t.Helper()
	c.Network, c.Address = "unix", filepath.Join(t.TempDir(), "s")
	return listen(t, c)
}

// closedByPeer waits until the listener closes c.
func closedByPeer(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	n, err := c.Read(make([]byte, 1))
	// A connection that is closed with unread bytes is reset.
	if n != 0 || !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("the connection is open: read %d bytes, %v", n, err)
	}
}

func TestStreamSeveralFramesInOneWrite(t *testing.T) {
	l := listenStream(t, Config{})
	r := newRecorder()
	run(t, l, r)
	write(t, dial(t, l), slices.Concat(frame("a:1|c"), frame(""), frame("b:1|c\nc:1|c"), frame("d:1|c")))
	r.expect(t, []string{"a:1|c", "b:1|c\nc:1|c", "d:1|c"})
}

// The frame is larger than the first buffer. Its header arrives byte by byte, because the deframer is
// likely to have bugs with split headers.
func TestStreamLargestFrame(t *testing.T) {
	l := listenStream(t, Config{})
	r := newRecorder()
	run(t, l, r)
	c := dial(t, l)
	want := strings.Repeat("x", DefaultMaxPacket)
	wire := frame(want)
	for i := range 6 {
		write(t, c, wire[i:i+1])
	}
	write(t, c, wire[6:])
	write(t, c, frame("a:1|c"))
	r.expect(t, []string{want, "a:1|c"})
}

func TestStreamLongFrameEndsOnlyItsConnection(t *testing.T) {
	l := listenStream(t, Config{MaxPacket: 8})
	r := newRecorder()
	run(t, l, r)
	good, bad := dial(t, l), dial(t, l)
	write(t, good, frame("a:1|c"))
	r.expect(t, []string{"a:1|c"})
	write(t, bad, slices.Concat(frame("b:1|c"), frame("too:long:1|c"), frame("d:1|c")))
	closedByPeer(t, bad)
	write(t, good, frame("eight:1c"))
	r.expect(t, []string{"a:1|c", "b:1|c", "eight:1c"})
	if s := l.Stats(); s.LongFrames != 1 || s.CutFrames != 0 || s.ReadErrors != 0 || s.Connections != 2 {
		t.Errorf("statistics %+v, want 1 long frame on 2 connections", s)
	}
}

func TestStreamFrameCutByItsConnectionsEndIsCounted(t *testing.T) {
	l := listenStream(t, Config{})
	r := newRecorder()
	stop := run(t, l, r)
	c := dial(t, l)
	write(t, c, frame("a:1|c"))
	write(t, c, frame("b:1|c")[:7])
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	r.expect(t, []string{"a:1|c"})
	stop()
	if s := l.Stats(); s.CutFrames != 1 || s.ReadErrors != 0 || s.Packets != 1 {
		t.Errorf("statistics %+v, want 1 cut frame and 1 packet", s)
	}
}

func TestStreamConnectionsAreBounded(t *testing.T) {
	l := listenStream(t, Config{Connections: 2})
	r := newRecorder()
	r.window = time.Millisecond // ticks wake r.wait below
	run(t, l, r)
	first, second := dial(t, l), dial(t, l)
	write(t, first, frame("a:1|c"))
	write(t, second, frame("b:1|c"))
	r.wait(t, "two packets", func() bool { return len(r.got()) == 2 })
	closedByPeer(t, dial(t, l))
	if s := l.Stats(); s.Connections != 2 || s.Refused != 1 {
		t.Errorf("statistics %+v, want 2 connections and 1 refused", s)
	}
	// A new connection gets the place of the closed connection.
	_ = first.Close()
	s := l.socket.(*stream)
	r.wait(t, "the end of the first connection", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.conns) == 1
	})
	write(t, dial(t, l), frame("c:1|c"))
	r.wait(t, "the third packet", func() bool { return len(r.got()) == 3 })
}

// At SIGTERM some connections wait to be accepted and others hold unread frames. The kernel has
// accepted all of them, so all are read.
func TestStreamDrainsOpenAndQueuedConnections(t *testing.T) {
	const clients, frames = 20, 50
	l := listenStream(t, Config{})
	want := make(map[string]int)
	conns := make([]net.Conn, clients)
	for i := range conns {
		conns[i] = dial(t, l)
		for _, p := range numbered(frames) {
			write(t, conns[i], frame(p))
			want[p]++
		}
	}
	started := make(chan struct{})
	r := newRecorder()
	h := firstPacket{r, started}
	stop := run(t, l, &h)
	<-started // some connections are open now, the others are still queued
	stop()
	got := make(map[string]int)
	for _, p := range r.got() {
		got[p]++
	}
	for p, n := range want {
		if got[p] != n {
			t.Errorf("%q came %d times, want %d", p, got[p], n)
		}
	}
	for _, c := range conns {
		closedByPeer(t, c)
	}
}

// firstPacket closes `started` when the first packet comes.
type firstPacket struct {
	*recorder
	started chan struct{}
}

func (f *firstPacket) Packet(p []byte, now int64) {
	if f.started != nil {
		close(f.started)
		f.started = nil
	}
	f.recorder.Packet(p, now)
}

// frames returns all complete frames of d.
func frames(t testing.TB, d *deframer) (packets []string, err error) {
	t.Helper()
	p, err := d.next()
	for ; p != nil; p, err = d.next() {
		packets = append(packets, string(p))
	}
	return packets, err
}

// feed passes b to d in reads of at most size bytes, as a socket would.
func feed(t testing.TB, d *deframer, b []byte, size int) (packets []string, err error) {
	t.Helper()
	for len(b) > 0 && err == nil {
		room := d.room()
		if len(room) == 0 {
			t.Fatal("no room for the next byte")
		}
		n := copy(room[:min(len(room), size)], b)
		d.wrote(n)
		b = b[n:]
		var more []string
		more, err = frames(t, d)
		packets = append(packets, more...)
	}
	return packets, err
}

func TestDeframerSplitAtEveryByte(t *testing.T) {
	wire := slices.Concat(frame("a:1|c"), frame(""), frame("b:1|c\nc:2|c"), frame("d"))
	want := []string{"a:1|c", "b:1|c\nc:2|c", "d"}
	for i := range len(wire) + 1 {
		d := newDeframer(16)
		got, err := feed(t, d, wire[:i], len(wire))
		rest, err2 := feed(t, d, wire[i:], len(wire))
		if got = append(got, rest...); err != nil || err2 != nil || !slices.Equal(got, want) {
			t.Errorf("split at %d: got %q, %v, %v; want %q", i, got, err, err2, want)
		}
		if d.pending() {
			t.Errorf("split at %d: the deframer still has bytes", i)
		}
	}
}

func TestDeframerBufferFollowsWhatWasSent(t *testing.T) {
	d := newDeframer(1 << 20)
	wire := frame(strings.Repeat("x", 1<<20))
	if _, err := feed(t, d, wire[:8], 8); err != nil || len(d.buf) != firstBuffer {
		t.Errorf("after the header of a 1 MiB frame, the buffer has %d bytes, want %d; error %v",
			len(d.buf), firstBuffer, err)
	}
	if _, err := feed(t, d, wire[8:firstBuffer+1], 1000); err != nil || len(d.buf) != 2*firstBuffer {
		t.Errorf("after 16 KiB and a byte, the buffer has %d bytes, want %d; error %v", len(d.buf), 2*firstBuffer, err)
	}
	if got, err := feed(t, d, wire[firstBuffer+1:], 1000); err != nil || len(got) != 1 || len(d.buf) != frameHeader+1<<20 {
		t.Errorf(
			"got %d frames, %v, a buffer of %d bytes; want one frame and a buffer of its size", len(got), err, len(d.buf))
	}
}

// Laws: for any split of the bytes, the deframer finds the same frames as plainFrames. The buffer
// is never larger than one frame.
func FuzzDeframer(f *testing.F) {
	f.Add(slices.Concat(frame("a:1|c"), frame(""), frame("b:1|c")), uint8(3), uint16(64))
	f.Add(frame("too:long|c"), uint8(1), uint16(4))
	f.Add([]byte{0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}, uint8(5), uint16(0xffff))
	f.Add(bytes.Repeat([]byte{1, 0, 0, 0, 'x'}, 10), uint8(7), uint16(1))
	f.Fuzz(func(t *testing.T, wire []byte, size uint8, maxPacket uint16) {
		limit := max(int(maxPacket), 1)
		want, left, wantErr := plainFrames(wire, limit)
		for _, step := range []int{max(int(size), 1), 1, max(len(wire), 1)} {
			d := newDeframer(limit)
			got, err := feed(t, d, wire, step)
			if !slices.Equal(got, want) || !errors.Is(err, wantErr) {
				t.Fatalf("in reads of %d bytes: got %q, %v; want %q, %v", step, got, err, want, wantErr)
			}
			if err == nil && d.pending() != left {
				t.Fatalf("in reads of %d bytes: pending %v, want %v", step, d.pending(), left)
			}
			if len(d.buf) > frameHeader+limit {
				t.Fatalf("the buffer has %d bytes, want at most a header and a packet of %d bytes", len(d.buf), limit)
			}
		}
	})
}

// plainFrames is a simple second implementation of the framing, on all bytes at once. `left`
// reports whether bytes of an incomplete frame remain.
func plainFrames(b []byte, limit int) (packets []string, left bool, err error) {
	for len(b) >= 4 {
		n := int64(b[0]) | int64(b[1])<<8 | int64(b[2])<<16 | int64(b[3])<<24
		if n > int64(limit) {
			return packets, true, errLongFrame
		}
		if int64(len(b)) < 4+n {
			break
		}
		if n > 0 {
			packets = append(packets, string(b[4:4+n]))
		}
		b = b[4+n:]
	}
	return packets, len(b) > 0, nil
}
