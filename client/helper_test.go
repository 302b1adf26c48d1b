//go:build go1.25

// testing/synctest needs the timers of Go 1.23. go.mod requires an older Go, which turns them off. This
// line turns them on again.
//go:debug asynctimerchan=0

package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// wire stands in for the socket and the server behind it, and keeps the packets that arrive.
type wire struct {
	network string

	mu       sync.Mutex
	packets  []string
	life     int               // number of starts of the server; a connection works only in the life in which it was made
	down     bool              // no server listens
	blocked  bool              // the server does not read
	refuses  func(string) bool // whether a write fails with EMSGSIZE; nil: never
	accepts  func(int) int     // how many of n bytes a stream takes now; nil: all
	remote   bool              // over UDP: the server is on another host
	dials    int
	nameless bool // the host's name is not found
	lost     int  // datagrams that arrived while no server listened
}

func (w *wire) dial(context.Context) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dials++
	if w.down && w.network != udp || w.nameless {
		return nil, syscall.ECONNREFUSED
	}
	return &wireConn{w: w, life: w.life}, nil
}

// set changes the state of the server. A server that was down comes back as a new server.
func (w *wire) set(change func(*wire)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.down
	change(w)
	if w.down && !before {
		w.life++
	}
}

func (w *wire) dialed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dials
}

// take returns the packets that arrived since the last call, without probes.
func (w *wire) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	packets := slices.DeleteFunc(w.packets, func(p string) bool { return p == string(probe) })
	w.packets = nil
	return packets
}

type wireConn struct {
	net.Conn // only the methods below are called
	w        *wire
	life     int
	deadline time.Time
	buf      []byte    // for a stream: the bytes after the last whole frame
	refused  time.Time // for UDP: the first write after this time fails, since an earlier packet found no listener
}

func (c *wireConn) Close() error { return nil }

func (c *wireConn) RemoteAddr() net.Addr {
	if c.w.network == udp {
		if c.w.remote {
			return &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 8125}
		}
		return &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8125}
	}
	return &net.UnixAddr{Net: c.w.network}
}

func (c *wireConn) SetWriteDeadline(t time.Time) error {
	c.deadline = t
	return nil
}

func (c *wireConn) Write(b []byte) (int, error) {
	n, err := c.write(b)
	if err == os.ErrDeadlineExceeded {
		time.Sleep(time.Until(c.deadline))
	}
	return n, err
}

func (c *wireConn) write(b []byte) (int, error) {
	w := c.w
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.network == udp && !c.refused.IsZero() && !time.Now().Before(c.refused):
		c.refused = time.Time{}
		return 0, syscall.ECONNREFUSED
	case w.network == udp && w.down:
		c.refused = time.Now()
		if w.remote {
			c.refused = c.refused.Add(answerWait / 2) // the time that the packet and the answer take together
		}
		if string(b) != string(probe) {
			w.lost++
		}
		return len(b), nil
	case w.network != udp && (w.down || c.life != w.life):
		return 0, syscall.ECONNREFUSED
	case w.blocked:
		return 0, os.ErrDeadlineExceeded
	case w.network != unix:
		if w.refuses != nil && w.refuses(string(b)) {
			return 0, syscall.EMSGSIZE
		}
		w.packets = append(w.packets, string(b))
		return len(b), nil
	}
	n := len(b)
	if w.accepts != nil {
		n = min(n, w.accepts(n))
	}
	c.buf = append(c.buf, b[:n]...)
	for len(c.buf) >= frameHead {
		end := frameHead + int(binary.LittleEndian.Uint32(c.buf))
		if len(c.buf) < end {
			break
		}
		w.packets = append(w.packets, string(c.buf[frameHead:end]))
		c.buf = c.buf[end:]
	}
	if n < len(b) {
		return n, os.ErrDeadlineExceeded
	}
	return n, nil
}

// startOn returns a client that sends to w, without telemetry. It is closed when the test
// ends.
func startOn(t *testing.T, w *wire, o Options) *Client {
	t.Helper()
	o.NoTelemetry = true
	c := startTelling(t, w, o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func startTelling(t *testing.T, w *wire, o Options) *Client {
	t.Helper()
	if err := o.complete(w.network); err != nil {
		t.Fatal(err)
	}
	return start(o, &socket{to: address{w.network, "test"}, dial: w.dial})
}

// received holds the values that a server reads from packets, by kind, name and tags.
type received map[string]*line

type line struct {
	gauge   float64 // last value of a gauge
	sum     float64 // sum of the values, each divided by its sampling rate
	count   float64 // number of the values, each divided by its sampling rate
	values  []float64
	members []string
}

// read adds packets to r. All packets must be well-formed. Fuzz tests of the server's parser check that
// the server reads packets in the same way.
func (r received) read(t testing.TB, packets []string) received {
	t.Helper()
	for _, packet := range packets {
		for _, text := range strings.Split(packet, "\n") {
			if text == "" || strings.HasPrefix(text, eventMark) || strings.HasPrefix(text, "_sc|") {
				continue
			}
			if err := r.readMetric(text); err != nil {
				t.Fatalf("%q in %q: %v", text, packet, err)
			}
		}
	}
	return r
}

// readMetric adds a line of the form NAME:VALUE:...|KIND. The fields |@RATE, |#TAG,... and |c:ORIGIN may
// follow, in this order.
func (r received) readMetric(text string) error {
	head, rest, _ := strings.Cut(text, "|")
	name, values, found := strings.Cut(head, ":")
	if !found || name == "" {
		return errors.New("no name and value")
	}
	letter, rest, _ := strings.Cut(rest, "|")
	if !slices.Contains(kindLetters[:], letter) {
		return fmt.Errorf("unknown kind %q", letter)
	}
	rate, tags := 1.0, ""
	if field, found := strings.CutPrefix(rest, "@"); found {
		field, rest, _ = strings.Cut(field, "|")
		var err error
		if rate, err = strconv.ParseFloat(field, 64); err != nil || !(rate > 0 && rate <= 1) {
			return fmt.Errorf("rate %q", field)
		}
	}
	if field, found := strings.CutPrefix(rest, "#"); found {
		tags, rest, _ = strings.Cut(field, "|")
	}
	if field, found := strings.CutPrefix(rest, "c:"); found {
		_, rest, _ = strings.Cut(field, "|")
	}
	if rest != "" {
		return fmt.Errorf("fields are unknown or in the wrong order: %q", rest)
	}
	key := fmt.Sprintf("%s %s %s", letter, name, tags)
	l := r[key]
	if l == nil {
		l = new(line)
		r[key] = l
	}
	if letter == kindLetters[set] {
		l.members = append(l.members, values)
		return nil
	}
	for _, value := range strings.Split(values, ":") {
		v, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("value %q", value)
		}
		l.gauge = v
		l.sum += v / rate
		l.count += 1 / rate
		l.values = append(l.values, v)
	}
	return nil
}

func parse(t testing.TB, packets []string) received {
	t.Helper()
	return received{}.read(t, packets)
}

func (r received) sum(key string) float64 {
	if r[key] == nil {
		return 0
	}
	return r[key].sum
}

// linesOf returns the lines of packets in alphabetical order.
func linesOf(packets []string) (lines []string) {
	for _, p := range packets {
		lines = append(lines, strings.Split(p, "\n")...)
	}
	slices.Sort(lines)
	return lines
}

// checkStats checks that Stats counts each call in exactly one field. No call may be in progress.
func checkStats(t testing.TB, c *Client, calls int) Stats {
	t.Helper()
	s := c.Stats()
	if s.Calls != uint64(calls) {
		t.Errorf("%d calls were made, but Stats has %d: %+v", calls, s.Calls, s)
	}
	return s
}

func almost(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(math.Abs(a), math.Abs(b)) }

// flush waits for an hour at most. With synctest's clock an hour passes in an instant; in real time,
// the test would hang.
func flush(t testing.TB, c *Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	if err := c.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}
