//go:build linux

package sockets

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestNapAfter(t *testing.T) {
	const short, full, buffer = 832, 2304, 2 * DefaultReceiveBuffer // bytes as the kernel counts them
	for _, tt := range []struct {
		name       string
		elapsed    time.Duration
		packets    int
		used, size uint32
		want       time.Duration
	}{
		{"silence", 10 * time.Millisecond, 0, 0, buffer, 0},
		{"a packet an hour", time.Hour, 1, short, buffer, 0},
		{"300 a second: a wake-up for each datagram costs no more than naps", 10 * time.Millisecond, 3, 3 * short, buffer, 0},
		{"400 a second", 5 * time.Millisecond, 2, 2 * short, buffer, longestNap},
		{"40,000 a second", 5 * time.Millisecond, 200, 200 * short, buffer, longestNap},
		{"40,000 a second, read one by one until now", 25 * time.Microsecond, 1, short, buffer, longestNap},
		{"200,000 a second: 512 are enough", 10 * time.Millisecond, 2000, 2000 * short, buffer, 2560 * time.Microsecond},
		{"2,000,000 a second: the shortest nap", time.Millisecond, 2000, 2000 * short, buffer, shortestNap},
		{"a quarter of the buffer would fill in 2 ms", 5 * time.Millisecond, 40, 40 * full, 4 * 16 * full,
			2 * time.Millisecond},
		{"the same rate with a buffer of 4 KiB", 25 * time.Microsecond, 1, short, 2 * 4096, 0},
		{"a buffer that was full", 10 * time.Millisecond, 10000, buffer, buffer, shortestNap},
		{"a buffer that was full at once", time.Millisecond, 10000, buffer, buffer, 0},
		{"the size of the buffer is unknown", 10 * time.Millisecond, 400, 0, buffer, 0},
		{"no time has passed", 0, 64, 64 * short, buffer, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := napAfter(tt.elapsed, tt.packets, tt.used, tt.size); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// asleep returns a listener whose reader naps for an hour. It has read only the packet "first",
// and handed it over.
func asleep(t *testing.T, config Config) (l *Listener, c net.Conn, r *recorder, stop func()) {
	t.Helper()
	l, r = listen(t, config), newRecorder()
	c = dial(t, l)
	begins := make(chan struct{}, 1)
	l.socket.(*datagrams).nap = func(_ time.Duration, packets int, _, _ uint32) time.Duration {
		if packets == 0 {
			return 0
		}
		select {
		case begins <- struct{}{}:
		default:
		}
		return time.Hour
	}
	stop = run(t, l, r)
	write(t, c, []byte("first"))
	select {
	case <-begins:
	case <-time.After(patience):
		t.Fatal("the reader does not nap")
	}
	return l, c, r, stop
}

var loopback = Config{Network: "udp", Address: "127.0.0.1:0"}

func TestAStopEndsANapAndHandsOverWhatGathered(t *testing.T) {
	_, c, r, stop := asleep(t, loopback)
	want := append([]string{"first"}, numbered(3*batchSize)...)
	for _, p := range want[1:] {
		write(t, c, []byte(p))
	}
	runtime.GC() // must not wait for the napping reader
	if got := r.got(); len(got) != 1 {
		t.Errorf("%d packets were handed over during a nap", len(got)-1)
	}
	stop()
	if got := r.got(); !slices.Equal(got, want) {
		t.Errorf("got %.300q, want %.300q", got, want)
	}
}

func TestASuccessorGetsWhatGatheredInANap(t *testing.T) {
	l, c, r, stop := asleep(t, loopback)
	want := append([]string{"first"}, numbered(3*batchSize)...)
	for _, p := range want[1:] {
		write(t, c, []byte(p))
	}
	run(t, succeed(t, l, loopback, stop), r)
	r.expect(t, want)
}

func TestANapEndsWhenTheHandlerWantsItsTick(t *testing.T) {
	l := listen(t, loopback)
	l.socket.(*datagrams).nap = func(time.Duration, int, uint32, uint32) time.Duration { return time.Hour }
	r := newRecorder()
	r.window = 2 * time.Millisecond
	run(t, l, r)
	write(t, dial(t, l), []byte("a:1|c"))
	r.expect(t, []string{"a:1|c"})
	ticks := r.tickCount()
	r.wait(t, "five ticks without a packet", func() bool { return r.tickCount() >= ticks+5 })
}

func TestClosingASocketEndsItsReadersNap(t *testing.T) {
	l := listen(t, loopback)
	begins := make(chan struct{}, 1)
	l.socket.(*datagrams).nap = func(time.Duration, int, uint32, uint32) time.Duration {
		begins <- struct{}{}
		return time.Hour
	}
	done := make(chan error, 1)
	go func() { done <- l.Run(context.Background(), newRecorder()) }()
	<-begins
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-done:
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("Run: %v", err)
		}
	case <-time.After(patience):
		t.Error("Run continues although the socket is closed")
	}
}

// Datagrams that overflow the buffer while the reader naps are counted as drops.
func TestABurstDuringANapIsReceivedOrCounted(t *testing.T) {
	config := loopback
	config.ReceiveBuffer = 8192
	l, c, r, stop := asleep(t, config)
	const sent = 3000
	for _, p := range numbered(sent) {
		write(t, c, []byte(p))
	}
	stop()
	if received, drops := r.count()-1, l.Drops(); drops == 0 || received == 0 || uint64(received)+drops != sent {
		t.Errorf("received %d and dropped %d datagrams, want some of each, and %d in total", received, drops, sent)
	}
}

func TestNoNapsAfterDrops(t *testing.T) {
	config := loopback
	config.ReceiveBuffer = 8192
	l := listen(t, config)
	c, d := dial(t, l), l.socket.(*datagrams)
	d.nap = func(time.Duration, int, uint32, uint32) time.Duration { return time.Hour }
	d.look()
	if d.pace(time.Now()) == 0 {
		t.Fatal("before the drops, the reader does not nap")
	}
	for _, p := range numbered(1000) {
		write(t, c, []byte(p))
	}
	d.look()
	if nap := d.pace(time.Now()); nap != 0 {
		t.Errorf("naps for %v", nap)
	}
	d.look()
	if nap := d.pace(time.Now().Add(calmAfterDrops)); nap == 0 {
		t.Error("the reader never naps again")
	}
}

// The kernel must report datagrams to the poller only while a goroutine waits for a datagram.
// Reports at other times would wake a thread, and the nap would save nothing. Without a report
// while a goroutine waits, the datagram would stay unread.
func TestTheSocketIsWatchedOnlyWhileArmed(t *testing.T) {
	l := listen(t, loopback)
	d := l.socket.(*datagrams)
	readable := func() (is bool) {
		err := d.wait.raw.Control(func(epoll uintptr) {
			n, _ := unix.Poll([]unix.PollFd{{Fd: int32(epoll), Events: unix.POLLIN}}, 0)
			is = n == 1
		})
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	write(t, dial(t, l), []byte("a:1|c"))
	for _, armed := range []bool{false, true, false, true} {
		if err := d.wait.arm(armed); err != nil {
			t.Fatal(err)
		}
		if got := readable(); got != armed {
			t.Errorf("the socket is armed: %t, but readable: %t", armed, got)
		}
	}
}

// A busy machine may run the reader only after its deadline. The poller forgets what it was told
// before a wait begins, so the wait must look at the clock itself.
func TestADeadlineThatPassedBeforeTheWaitEndsIt(t *testing.T) {
	l := listen(t, loopback)
	w := l.socket.(*datagrams).wait
	waits := map[string]func() error{
		"sleep": w.sleep,
		"await": func() error { return w.await(w.passed) },
	}
	for name, wait := range waits {
		if err := w.setDeadline(time.Now().Add(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		rings := []unix.PollFd{{Fd: int32(w.timer), Events: unix.POLLIN}}
		for rings[0].Revents == 0 { // a signal of the runtime may interrupt the wait
			if _, err := unix.Poll(rings, -1); err != nil && err != unix.EINTR {
				t.Fatal(err)
			}
		}
		done := make(chan error, 1)
		go func() { done <- wait() }()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(patience):
			t.Fatalf("%s goes on although its deadline has passed", name)
		}
	}
}

// The end of the context moves the deadline on a goroutine of its own, at any time.
func TestADeadlineLongAgoEndsAllLaterWaits(t *testing.T) {
	w := listen(t, loopback).socket.(*datagrams).wait
	if err := errors.Join(w.setDeadline(longAgo), w.setDeadline(time.Now().Add(time.Hour))); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.sleep(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("sleep: %v, want %v", err, os.ErrDeadlineExceeded)
		}
	}
}

func TestClosingTwiceClosesNoOtherFile(t *testing.T) {
	l := listen(t, loopback)
	timer := l.socket.(*datagrams).wait.timer
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(null)
	if null != timer { // otherwise it has the lowest free number, which was the timer's
		got, err := unix.FcntlInt(uintptr(null), unix.F_DUPFD_CLOEXEC, timer)
		if err != nil || got != timer {
			t.Fatalf("the duplicate has number %d, %v; want the timer's, %d", got, err, timer)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := unix.Close(timer); err != nil {
		t.Errorf("the second Close closed a file that is not its own: %v", err)
	}
}

// The test sends each packet after the previous packet has arrived. So if the reader loses a
// single wake-up between two of its states, the test never ends.
func TestNoWakingIsLostBetweenNaps(t *testing.T) {
	l, r := listen(t, loopback), newRecorder()
	turn := 0
	l.socket.(*datagrams).nap = func(time.Duration, int, uint32, uint32) time.Duration {
		turn++
		return time.Duration(turn%3/2) * time.Millisecond // naps every third time
	}
	run(t, l, r)
	c := dial(t, l)
	want := numbered(1000)
	for i, p := range want {
		write(t, c, []byte(p))
		r.wait(t, "the packet that was sent", func() bool { return r.count() == i+1 })
	}
	r.expect(t, want)
}
