//go:build linux

package sockets

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/sender"
)

// patience is how long a test waits for an event that should happen at once.
const patience = 20 * time.Second

// recorder is a Handler that keeps its packets.
type recorder struct {
	window time.Duration // time between the ticks that the recorder asks for

	mu      sync.Mutex
	packets []string
	ticks   int
	changed chan struct{} // has capacity 1
}

func newRecorder() *recorder {
	return &recorder{window: time.Hour, changed: make(chan struct{}, 1)}
}

func (r *recorder) Packet(p []byte, _ int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.packets = append(r.packets, string(p))
}

func (r *recorder) Tick(now int64) int64 {
	r.mu.Lock()
	r.ticks++
	r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default:
	}
	return now + int64(r.window)
}

func (r *recorder) got() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.packets)
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.packets)
}

func (r *recorder) tickCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ticks
}

// wait calls `ok` at once and after each tick. It returns when `ok` returns true.
func (r *recorder) wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	late := time.After(patience)
	for !ok() {
		select {
		case <-r.changed:
		case <-late:
			t.Fatalf("waited too long for %s; got %d packets", what, len(r.got()))
		}
	}
}

// expect waits for as many packets as `want` has, and compares them in order.
func (r *recorder) expect(t *testing.T, want []string) {
	t.Helper()
	r.wait(t, fmt.Sprintf("%d packets", len(want)), func() bool { return len(r.got()) >= len(want) })
	if got := r.got(); !slices.Equal(got, want) {
		t.Fatalf("packets differ:\ngot  %.300q\nwant %.300q", got, want)
	}
}

// listen binds one listener, and closes it at the end of the test.
func listen(t testing.TB, c Config) *Listener {
	t.Helper()
	ls, err := Listen(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ls[0].Close() })
	if len(ls) != 1 {
		t.Fatalf("got %d listeners, want 1", len(ls))
	}
	return ls[0]
}

// run starts `l`. A call of `stop` ends it, and returns when Run has returned.
func run(t testing.TB, l *Listener, h Handler) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx, h) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(patience):
			t.Error("Run continues after its context is done")
		}
	})
	t.Cleanup(stop)
	return stop
}

// dial connects a client to l.
func dial(t testing.TB, l *Listener) net.Conn {
	t.Helper()
	return dialAddress(t, l.Addr())
}

func dialAddress(t testing.TB, to net.Addr) net.Conn {
	t.Helper()
	c, err := net.Dial(to.Network(), to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func write(t testing.TB, c net.Conn, p []byte) {
	t.Helper()
	if _, err := c.Write(p); err != nil {
		t.Fatal(err)
	}
}

// send waits after every hundredth packet until r has all packets sent so far, so that even the smallest
// receive buffer does not overflow.
func send(t *testing.T, r *recorder, c net.Conn, packets []string, wire func(string) []byte) {
	t.Helper()
	before := len(r.got())
	for i, p := range packets {
		write(t, c, wire(p))
		if i%100 == 99 {
			r.wait(t, "the packet that was sent", func() bool { return len(r.got()) > before+i })
		}
	}
}

// frame puts the DogStatsD stream header before payload.
func frame(payload string) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(payload))), payload...)
}

// kinds has the kinds of sockets, each with the bytes that a client sends for one
// packet.
var kinds = []struct {
	name   string
	config func(t *testing.T) Config
	wire   func(payload string) []byte
}{
	{"udp", func(*testing.T) Config { return Config{Network: "udp", Address: "127.0.0.1:0"} }, datagramOf},
	{"unixgram", func(t *testing.T) Config {
		return Config{Network: "unixgram", Address: filepath.Join(t.TempDir(), "s")}
	}, datagramOf},
	{"unix", func(t *testing.T) Config {
		return Config{Network: "unix", Address: filepath.Join(t.TempDir(), "s")}
	}, frame},
}

func datagramOf(payload string) []byte { return []byte(payload) }

func numbered(n int) []string {
	packets := make([]string, n)
	for i := range packets {
		packets[i] = fmt.Sprintf("page.views:%d|c", i)
	}
	return packets
}

func TestEveryPacketInOrder(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			l := listen(t, k.config(t))
			r := newRecorder()
			run(t, l, r)
			c := dial(t, l)
			want := numbered(1000)
			send(t, r, c, want, k.wire)
			r.expect(t, want)
			r.wait(t, "the statistics", func() bool { return l.Stats().Packets == 1000 })
			if s := l.Stats(); s.Bytes != uint64(len(strings.Join(want, ""))) ||
				s.Truncated+s.ReadErrors+s.LongFrames+s.CutFrames != 0 {
				t.Errorf("statistics: %+v", s)
			}
		})
	}
}

// The final window must have everything that a client sent before SIGTERM. The reader's context is done
// before the reader starts, so all packets are still in the socket when the drain begins.
func TestRunDrainsWhatTheKernelAccepted(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			l := listen(t, k.config(t))
			c := dial(t, l)
			want := numbered(8) // fewer than a Unix datagram socket queues by default
			for _, p := range want {
				write(t, c, k.wire(p))
			}
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			r := newRecorder()
			start := time.Now()
			if err := l.Run(ctx, r); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(start); d >= drainTime {
				t.Errorf("the drain took %v although no client was sending", d)
			}
			if got := r.got(); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			if s := l.Stats(); s.Packets != uint64(len(want)) {
				t.Errorf("statistics: %+v", s)
			}
		})
	}
}

// Over UDP a receiver cannot stop its senders, so the drain must end while they continue. This
// handler sends a datagram for each datagram that it gets.
func TestDrainEndsUnderASenderThatDoesNot(t *testing.T) {
	l := listen(t, Config{Network: "udp", Address: "127.0.0.1:0"})
	h := echo{t, dial(t, l)}
	write(t, h.c, []byte("a:1|c"))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	start := time.Now()
	if err := l.Run(ctx, h); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d < drainTime || d > patience {
		t.Errorf("the drain took %v, want %v", d, drainTime)
	}
}

type echo struct {
	t *testing.T
	c net.Conn
}

func (e echo) Packet(p []byte, _ int64) { write(e.t, e.c, p) }
func (e echo) Tick(now int64) int64     { return now + int64(time.Second) }

func TestTicksWhenIdle(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			l := listen(t, k.config(t))
			r := newRecorder()
			r.window = 2 * time.Millisecond
			run(t, l, r)
			r.wait(t, "five ticks without a packet", func() bool { return r.tickCount() >= 5 })
		})
	}
}

// A handler may always want its next tick at once. In this test it asks for a time long past. The
// listener must still read.
func TestTickInThePastDoesNotStarveReading(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			l := listen(t, k.config(t))
			r := newRecorder()
			run(t, l, overdue{r})
			r.wait(t, "the deadline to pass", func() bool { return r.tickCount() >= 3 })
			write(t, dial(t, l), k.wire("a:1|c"))
			r.expect(t, []string{"a:1|c"})
		})
	}
}

// overdue asks for its next tick at the first nanosecond of 1970.
type overdue struct{ *recorder }

func (o overdue) Tick(now int64) int64 {
	o.recorder.Tick(now)
	return 1
}

// Many windows pass while packets come. So the alarm moves the deadline during blocked reads,
// and the deadline passes while the reader handles a batch.
func TestTicksWhileReading(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			l := listen(t, k.config(t))
			r := newRecorder()
			r.window = 50 * time.Microsecond
			run(t, l, r)
			c := dial(t, l)
			want := numbered(3000)
			send(t, r, c, want, k.wire)
			r.expect(t, want)
		})
	}
}

func TestRefusedConfigurations(t *testing.T) {
	for _, c := range []struct {
		name, want string
		config     Config
	}{
		{"unknown network", "use udp, unixgram or unix", Config{Network: "tcp", Address: "127.0.0.1:0"}},
		{"negative size", "write 0 for the default", Config{Network: "udp", Address: "127.0.0.1:0", MaxPacket: -1}},
		{"several listeners on a Unix socket", "only a udp address can have more than 1",
			Config{Network: "unix", Address: "/tmp/x", Listeners: 2}},
		{"no port", "give HOST:PORT", Config{Network: "udp", Address: "127.0.0.1"}},
		{"unknown port", "give HOST:PORT", Config{Network: "udp", Address: "127.0.0.1:nope"}},
		{"address of another machine", "this machine does not have that address",
			Config{Network: "udp", Address: "192.0.2.1:0"}},
		{"abstract name", "give the path of a socket file", Config{Network: "unix", Address: "@freshet"}},
		{"path beyond the kernel's limit", "the kernel allows 107",
			Config{Network: "unix", Address: "/tmp/" + strings.Repeat("x", 103)}},
		{"no directory", "create its directory", Config{Network: "unixgram", Address: "/nonexistent/dir/s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ls, err := Listen(c.config)
			if err == nil {
				_ = ls[0].Close()
				t.Fatal("no error")
			}
			prefix := fmt.Sprintf("listen on %s %s: ", c.config.Network, c.config.Address)
			if !strings.HasPrefix(err.Error(), prefix) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q, want it to begin with %q and to contain %q", err, prefix, c.want)
			}
		})
	}
}

// In its steady state, no reader allocates memory for a batch, however many packets the
// batch has.
func TestReadingAllocatesNothing(t *testing.T) {
	h := discard{}
	payload := bytes.Repeat([]byte("x"), 1432)
	for _, gro := range []bool{false, true} {
		t.Run(fmt.Sprintf("udp/gro=%t", gro), func(t *testing.T) {
			l := listen(t, Config{Network: "udp", Address: "127.0.0.1:0", GRO: gro})
			c := dial(t, l)
			d := l.socket.(*datagrams)
			alarm, stop := newAlarm(context.Background(), d.wait.setDeadline)
			defer stop()
			blocks := false
			allocs := testing.AllocsPerRun(200, func() { // batches come alternately after a nap and after a wake-up
				for range batchSize {
					write(t, c, payload)
				}
				now := time.Now()
				blocks = !blocks
				read := d.gather
				if blocks {
					alarm.arm(now, h.Tick(now.UnixNano()))
					read = d.block
				} else {
					alarm.nap(now, shortestNap, h.Tick(now.UnixNano()))
				}
				if err := read(alarm); err != nil {
					t.Fatal(err)
				}
				for left := batchSize - d.n; left > 0; left -= d.n {
					d.hand(h, now.UnixNano())
					d.receive()
				}
				d.hand(h, now.UnixNano())
				d.pace(now)
			})
			if allocs != 0 {
				t.Errorf("%v allocations for a batch of %d, want 0", allocs, batchSize)
			}
		})
	}
	t.Run("unix", func(t *testing.T) {
		l := listen(t, Config{Network: "unix", Address: filepath.Join(t.TempDir(), "s")})
		s := l.socket.(*stream)
		alarm, stop := newAlarm(context.Background(), s.ln.SetDeadline)
		defer stop()
		s.h, s.alarm = h, alarm
		c := dial(t, l)
		reader, err := s.ln.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = reader.Close() }()
		d := newDeframer(DefaultMaxPacket)
		chunk := bytes.Repeat(frame(string(payload)), 5)
		allocs := testing.AllocsPerRun(200, func() {
			write(t, c, chunk)
			for left := len(chunk); left > 0; {
				n, err := reader.Read(d.room())
				if err != nil {
					t.Fatal(err)
				}
				d.wrote(n)
				left -= n
				if err := s.hand(d, sender.Sender{}); err != nil {
					t.Fatal(err)
				}
			}
		})
		if allocs != 0 {
			t.Errorf("%v allocations for a chunk of 5 frames, want 0", allocs)
		}
	})
}

// discard is a Handler that does nothing.
type discard struct{}

func (discard) Packet([]byte, int64) {}
func (discard) Tick(now int64) int64 { return now + int64(time.Second) }
