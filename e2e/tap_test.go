package e2e

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// tap passes datagrams or frames from a client to freshet and remembers them. Without a tap, a test
// cannot know what a sampling client really sent.
type tap struct {
	address string

	mu    sync.Mutex
	lines []string
}

// listenTap starts a tap in front of the socket at address `to`.
func listenTap(t *testing.T, network, to string) *tap {
	t.Helper()
	dir := dataDir(t)
	switch network {
	case "udp":
		in, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return tapPackets(t, in, dialTap(t, network, to))
	case "unixgram":
		in, err := net.ListenUnixgram(network, &net.UnixAddr{Name: filepath.Join(dir, "tap.sock"), Net: network})
		if err != nil {
			t.Fatal(err)
		}
		return tapPackets(t, in, dialTap(t, network, to))
	case "unix":
		in, err := net.Listen(network, filepath.Join(dir, "tap.sock"))
		if err != nil {
			t.Fatal(err)
		}
		return tapStream(t, in, dialTap(t, network, to))
	}
	t.Fatalf("no tap for network %q", network)
	return nil
}

func dialTap(t *testing.T, network, to string) net.Conn {
	t.Helper()
	out, err := net.Dial(network, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	return out
}

func tapPackets(t *testing.T, in net.PacketConn, out net.Conn) *tap {
	p := &tap{address: in.LocalAddr().String()}
	done := make(chan struct{})
	t.Cleanup(func() { in.Close(); <-done })
	go func() {
		defer close(done)
		buf := make([]byte, 1<<16)
		for {
			n, _, err := in.ReadFrom(buf)
			if err != nil {
				return // closed
			}
			p.keep(buf[:n])
			if _, err := out.Write(buf[:n]); err != nil {
				t.Errorf("tap: pass on a datagram: %v", err)
			}
		}
	}()
	return p
}

// tapStream passes on the frames of one connection.
func tapStream(t *testing.T, in net.Listener, out net.Conn) *tap {
	p := &tap{address: in.Addr().String()}
	done := make(chan struct{})
	t.Cleanup(func() { in.Close(); <-done })
	go func() {
		defer close(done)
		conn, err := in.Accept()
		if err != nil {
			return // the listener was closed
		}
		defer conn.Close()
		for {
			frame := make([]byte, 4)
			if _, err := io.ReadFull(conn, frame); err != nil {
				if !errors.Is(err, io.EOF) {
					t.Errorf("tap: read a length: %v", err)
				}
				return
			}
			payload := make([]byte, binary.LittleEndian.Uint32(frame))
			if _, err := io.ReadFull(conn, payload); err != nil {
				t.Errorf("tap: read a frame of %d bytes: %v", len(payload), err)
				return
			}
			p.keep(payload)
			if _, err := out.Write(append(frame, payload...)); err != nil {
				t.Errorf("tap: pass on a frame: %v", err)
			}
		}
	}()
	return p
}

func (p *tap) keep(payload []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, strings.Split(strings.TrimRight(string(payload), "\n"), "\n")...)
}

// count returns the sum of a counter's values, each divided by its sampling rate, and how many
// values there were.
func (p *tap) count(t *testing.T, name string) (sum float64, values int) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.lines {
		rest, ok := strings.CutPrefix(line, name+":")
		if !ok {
			continue
		}
		fields := strings.Split(rest, "|")
		rate := 1.0
		for _, f := range fields[1:] {
			if r, ok := strings.CutPrefix(f, "@"); ok {
				rate = number(t, r)
			}
		}
		for v := range strings.SplitSeq(fields[0], ":") {
			sum += number(t, v) / rate
			values++
		}
	}
	return sum, values
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatalf("tap: %v", err)
	}
	return f
}
