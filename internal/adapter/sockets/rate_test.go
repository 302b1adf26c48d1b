//go:build linux

package sockets

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// BenchmarkRate measures the CPU time that this whole process takes to read at a given rate. Another
// process sends the packets. The result is the metric cpu-us/packet. One op runs each technique for a
// tenth of a second.
//
// It compares our technique with two others. The first is recvmmsg on a net.UDPConn, Freshet's
// earlier technique: the runtime's poller wakes a thread for each datagram. The second is a bare
// blocking recvfrom, the cheapest way to read datagrams one by one.
//
// Bounds of our CPU time, as multiples of the CPU time of bare recvfrom in the same run: 0.5 at 40k
// packets/s, 0.65 at 200k packets/s, 1 for full packets at 8.6k packets/s (120k metrics/s), 2 for
// unixgram.
func BenchmarkRate(b *testing.B) {
	for _, load := range []struct {
		network    string
		bytes, pps int
	}{
		{"udp", 100, 40_000},
		{"udp", 100, 200_000},
		{"udp", 1432, 8_600},
		{"unixgram", 8100, 1_500},
	} {
		for _, technique := range []struct {
			name string
			read func(l *Listener, h Handler) (stop func())
		}{
			{"recvfrom", bareRecvfrom},
			{"net", runtimePoller},
			{"listener", func(l *Listener, h Handler) func() { return run(b, l, h) }},
		} {
			b.Run(fmt.Sprintf("%s/bytes=%d/rate=%d/%s", load.network, load.bytes, load.pps, technique.name), func(b *testing.B) {
				l := listen(b, Config{Network: load.network, Address: testAddress(b, load.network)})
				h := &countdown{done: make(chan struct{})}
				packets := b.N * load.pps / 10
				h.left.Store(int64(packets))
				// the first packets do not count: sender and reader need some time to reach a
				// steady rate
				h.skip.Store(int64(load.pps / 5))
				h.begun = make(chan struct{})
				stop := technique.read(l, h)
				defer stop()
				defer sendAt(b, l, load.bytes, load.pps)()
				<-h.begun
				before := processorTime()
				b.ResetTimer()
				<-h.done
				spent := processorTime() - before
				b.StopTimer()
				b.ReportMetric(float64(spent.Nanoseconds())/1e3/float64(packets), "cpu-us/packet")
				b.ReportMetric(float64(l.Drops()), "drops")
			})
		}
	}
}

// countdown is a Handler that signals when it has received a given number of packets.
type countdown struct {
	skip, left  atomic.Int64
	begun, done chan struct{}
}

func (c *countdown) Packet([]byte, int64) {
	if c.skip.Load() > 0 {
		if c.skip.Add(-1) == 0 {
			close(c.begun)
		}
		return
	}
	if c.left.Add(-1) == 0 {
		close(c.done)
	}
}

func (c *countdown) Tick(now int64) int64 { return now + int64(time.Second) }

func processorTime() time.Duration {
	var r unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// runtimePoller reads l's socket as a net.UDPConn or net.UnixConn.
func runtimePoller(l *Listener, h Handler) (stop func()) {
	d := l.socket.(*datagrams)
	fd, err := duplicate(d.socket)
	if err != nil {
		panic(err)
	}
	f := os.NewFile(uintptr(fd), "socket")
	c, err := net.FilePacketConn(f)
	if err != nil {
		panic(err)
	}
	_ = f.Close()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		panic(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		try := func(fd uintptr) bool {
			n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&d.msgs[0])), batchSize,
				unix.MSG_DONTWAIT, 0, 0)
			d.n = int(n)
			return errno != unix.EAGAIN
		}
		for raw.Read(try) == nil {
			now := time.Now().UnixNano()
			d.hand(h, now)
			h.Tick(now)
		}
	}()
	return func() {
		_ = c.Close()
		<-done
	}
}

// bareRecvfrom reads packets one by one on its own thread, and counts them.
func bareRecvfrom(l *Listener, h Handler) (stop func()) {
	fd := l.socket.(*datagrams).socket.fd
	second := unix.NsecToTimeval(int64(100 * time.Millisecond))
	if err := unix.SetNonblock(fd, false); err != nil {
		panic(err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &second); err != nil {
		panic(err)
	}
	var stopped atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		p := make([]byte, DefaultMaxPacket)
		for !stopped.Load() {
			n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), 0,
				0, 0)
			if errno == 0 {
				h.Packet(p[:n], 0)
			}
		}
	}()
	return func() {
		stopped.Store(true)
		<-done
	}
}

const senderEnvironment = "SOCKETS_TEST_SENDER"

// sendAt makes another process send to l, until `stop` is called.
func sendAt(b *testing.B, l *Listener, size, pps int) (stop func()) {
	c := exec.CommandContext(context.Background(), os.Args[0], l.Addr().Network(), l.Addr().String(), strconv.Itoa(size),
		strconv.Itoa(pps))
	c.Env = append(os.Environ(), senderEnvironment+"=1")
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	return func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(senderEnvironment) == "" {
		os.Exit(m.Run())
	}
	size, _ := strconv.Atoi(os.Args[3])
	pps, _ := strconv.Atoi(os.Args[4])
	if err := pacedSender(os.Args[1], os.Args[2], size, pps); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// pacedSender sends `pps` packets a second, evenly, until an error.
func pacedSender(network, address string, size, pps int) error {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	c, err := net.Dial(network, address)
	if err != nil {
		return err
	}
	p := make([]byte, size)
	pause := unix.NsecToTimespec(int64(20 * time.Microsecond))
	start := time.Now()
	for sent := 0; ; {
		for due := int(time.Since(start).Seconds() * float64(pps)); sent < due; sent++ {
			if _, err := c.Write(p); err != nil {
				return err
			}
		}
		_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&pause)), 0, 0)
	}
}
