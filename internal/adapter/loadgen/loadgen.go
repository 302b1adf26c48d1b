//go:build linux

// Package loadgen sends loads, at a rate or as fast as possible. A Client sends a load of
// internal/core/load to a DogStatsD socket, and counts exactly what the kernel took. A Writer sends
// a load of internal/core/remoteload by remote write, and counts what was acknowledged. The package
// does not check what the receiver stored.
package loadgen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/freshet-io/freshet/internal/core/load"
)

// Config configures a Client.
type Config struct {
	Network string // udp or unixgram
	Address string // HOST:PORT, or a path

	// GSO hands the kernel up to 64 packets as one message, which the kernel cuts into packets
	// (UDP_SEGMENT). That sends more packets per second than a system call for each packet.
	GSO bool

	// Sources is the number of sockets to send from; 0 means 1. If receivers share a port by
	// SO_REUSEPORT, the kernel chooses one by the sender's address.
	Sources int

	// DropRefused drops packets when a Unix socket's queue is full, as most clients do, instead
	// of waiting for room.
	DropRefused bool
}

// Pace is the speed and the length of a run.
type Pace struct {
	Rate     float64       // metrics a second; 0: as fast as possible
	Duration time.Duration // 0: until the context ends

	// Even means that each packet is sent at its own time, which keeps a core busy. Otherwise packets go
	// in bursts, about one a millisecond. With bursts, a receiver that blocks for each packet wakes up
	// less often and takes half the CPU.
	Even bool
}

// Result is the outcome of a run.
type Result struct {
	Sent    load.Totals   // taken by the kernel
	Dropped load.Totals   // refused by the kernel and lost (Config.DropRefused)
	Refused uint64        // how often a Unix socket's queue was full
	Elapsed time.Duration // from the first packet to the last

	// CPU time of the sending thread. On loopback that includes most of the kernel's work to
	// receive a datagram.
	CPUUser, CPUSystem time.Duration
}

// Rate returns the rate of the run, in metrics a second.
func (r Result) Rate() float64 { return float64(r.Sent.Metrics) / max(r.Elapsed.Seconds(), 1e-9) }

// Client has open sockets to one address. Only one goroutine may call Run; any goroutine may call
// Progress.
type Client struct {
	config  Config
	sockets []int
	next    int // index of the socket that sends next
	batch   batch

	mu       sync.Mutex
	progress Result // result of the run so far, without its times
}

// Open connects to the address.
func Open(config Config) (*Client, error) {
	c := &Client{config: config}
	c.config.Sources = max(1, config.Sources)
	for range c.config.Sources {
		fd, err := dial(config.Network, config.Address)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("send to %s %s: %w", config.Network, config.Address, err), c.Close())
		}
		c.sockets = append(c.sockets, fd)
	}
	return c, nil
}

// sendBuffer has room for a message of 64 packets at once.
const sendBuffer = 1 << 20

func dial(network, address string) (int, error) {
	family, to, err := resolve(network, address)
	if err != nil {
		return -1, err
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer); err != nil {
		return -1, errors.Join(os.NewSyscallError("setsockopt SO_SNDBUF", err), unix.Close(fd))
	}
	if err := unix.Connect(fd, to); err != nil {
		return -1,
			errors.Join(fmt.Errorf("%w; is a server listening there?", os.NewSyscallError("connect", err)), unix.Close(fd))
	}
	return fd, nil
}

func resolve(network, address string) (family int, to unix.Sockaddr, err error) {
	switch network {
	case "unixgram":
		return unix.AF_UNIX, &unix.SockaddrUnix{Name: address}, nil
	case "udp":
		a, err := net.ResolveUDPAddr("udp", address)
		if err != nil {
			return 0, nil, err
		}
		if ip := a.IP.To4(); ip != nil || a.IP == nil {
			v4 := &unix.SockaddrInet4{Port: a.Port, Addr: [4]byte{127, 0, 0, 1}}
			copy(v4.Addr[:], ip)
			return unix.AF_INET, v4, nil
		}
		v6 := &unix.SockaddrInet6{Port: a.Port}
		copy(v6.Addr[:], a.IP.To16())
		return unix.AF_INET6, v6, nil
	}
	return 0, nil, fmt.Errorf("a load goes to udp or unixgram, not to %q", network)
}

// Close closes the sockets.
func (c *Client) Close() error {
	var errs []error
	for _, fd := range c.sockets {
		errs = append(errs, unix.Close(fd))
	}
	c.sockets = nil
	return errors.Join(errs...)
}

// Progress returns what the run has sent so far.
func (c *Client) Progress() load.Totals {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.progress.Sent
}

// Run sends until the pace's duration has passed or ctx is done, which is not an error. Between
// bursts its thread sleeps about a millisecond, unless the pace is even.
func (c *Client) Run(ctx context.Context, l *load.Load, pace Pace) (Result, error) {
	runtime.LockOSThread() // the result has the CPU time of this thread
	defer runtime.UnlockOSThread()
	user, system, err := threadTimes()
	if err != nil {
		return Result{}, err
	}
	if err := c.begin(l); err != nil {
		return Result{}, err
	}
	if pace.Duration > 0 {
		limited, cancel := context.WithTimeout(ctx, pace.Duration)
		defer cancel()
		ctx = limited
	}

	begun := time.Now()
	err = c.send(ctx, l, pace, begun)
	elapsed := time.Since(begun)
	userNow, systemNow, errTimes := threadTimes()

	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.progress
	r.Elapsed, r.CPUUser, r.CPUSystem = elapsed, userNow-user, systemNow-system
	return r, errors.Join(err, errTimes)
}

// begin prepares for the packets of l, before the first is sent.
func (c *Client) begin(l *load.Load) error {
	c.count(func(r *Result) { *r = Result{} })
	if !c.config.GSO {
		return nil
	}
	return c.segment(l.PacketBytes())
}

func threadTimes() (user, system time.Duration, err error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		return 0, 0, os.NewSyscallError("getrusage", err)
	}
	return time.Duration(u.Utime.Nano()), time.Duration(u.Stime.Nano()), nil
}

func (c *Client) send(ctx context.Context, l *load.Load, pace Pace, begun time.Time) error {
	pacer := pacer{rate: pace.Rate / float64(l.PacketMetrics()), begun: begun}
	done := ctx.Done()
	for {
		select {
		case <-done:
			return nil
		default:
		}
		limit := c.batchLimit(l.PacketBytes())
		if pace.Rate > 0 {
			n, early := pacer.due(time.Now())
			if n == 0 && pace.Even {
				continue
			}
			if n == 0 {
				nap(early)
				continue
			}
			limit = min(limit, n)
		}
		packets := l.Next(limit)
		pacer.sent += float64(packets.Len())
		if err := c.sendAll(ctx, packets); err != nil {
			return fmt.Errorf("send to %s %s: %w", c.config.Network, c.config.Address, err)
		}
	}
}

// pacer computes how many packets are due.
type pacer struct {
	rate  float64 // packets a second
	begun time.Time
	sent  float64
}

const (
	shortNap = time.Millisecond
	longNap  = 20 * time.Millisecond // a run ends at most this long after its context

	// A delayed sender catches up by at most this much at once. A larger burst would overflow a
	// receive buffer, and the sender would be to blame for the loss.
	catchUpTime    = 5 * time.Millisecond
	catchUpPackets = 128 // about what the smallest default receive buffer of a kernel holds
)

// due returns how many packets to send now. If there are none, `early` is how long to wait.
func (p *pacer) due(now time.Time) (n int, early time.Duration) {
	owed := now.Sub(p.begun).Seconds()*p.rate - p.sent
	if most := max(catchUpPackets, p.rate*catchUpTime.Seconds()); owed > most {
		p.sent += owed - most
		owed = most
	}
	if owed >= 1 {
		return int(owed), 0
	}
	return 0, min(max(time.Duration((1-owed)/p.rate*1e9), shortNap), longNap)
}

// nap sleeps in the kernel, because the runtime's timers would add the time of a wake-up.
func nap(d time.Duration) {
	left := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&left, nil) // a signal may end it early; the pacer handles that
}
