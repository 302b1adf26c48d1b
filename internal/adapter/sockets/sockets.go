//go:build linux

// Package sockets holds the DogStatsD sockets: UDP, Unix datagram ("unixgram")
// and Unix stream ("unix"). It binds them, reads them in batches into memory
// that each listener owns, and knows what the kernel dropped. What the bytes
// mean is core/dogstatsd's business, and what becomes of them the consumer's.
//
// Datagrams cost little to read and much to be woken for. A reader of UDP lets
// them gather for some milliseconds while enough of them come (nap.go), and the
// runtime's poller hears of none of them meanwhile (waiter.go).
//
// It runs on Linux only: recvmmsg, SO_MEMINFO, epoll and the order in which Linux
// empties a socket that was shut down are what it is made of.
package sockets

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/freshet-io/freshet/internal/core/sender"
)

// Handler consumes what one listener reads. Its methods are never called
// concurrently by one listener.
type Handler interface {
	// Packet handles one datagram, or one frame of a stream. p is the
	// listener's memory, as is what its capacity has behind it, bytes without a
	// meaning. It is valid until the next Tick. now is the wall clock in Unix
	// nanoseconds, read once for each batch; like any wall clock it may step.
	Packet(p []byte, now int64)

	// Tick says that no packet older than now is still to come. It is called
	// when Run starts, after every batch and, when nothing arrives, at the time
	// that the last Tick returned: the Unix nanosecond at which the handler wants
	// to be called again. It may be called earlier than that.
	Tick(now int64) (next int64)
}

// Config describes one address to listen on.
type Config struct {
	Network string // "udp", "unixgram" or "unix" (stream)
	Address string // HOST:PORT for udp, where port 0 lets the kernel choose; else the path of the socket file

	// Listeners is the number of UDP sockets that share the address, each with
	// a reader of its own; 0 means 1. The kernel deals by a hash of the sender's
	// address, so several help only where there are several senders.
	Listeners int

	// MaxPacket is the longest packet in bytes that is handed over; 0 means
	// DefaultMaxPacket. A longer datagram is counted and dropped whole: the part
	// that fits would end inside a line. A longer frame ends its connection.
	MaxPacket int

	// ReceiveBuffer is the kernel's receive buffer in bytes for each UDP socket;
	// 0 means DefaultReceiveBuffer.
	ReceiveBuffer int

	// GRO has the kernel hand over datagrams that one sender sent at once in one
	// buffer (UDP_GRO), where the network card or a sender's UDP_SEGMENT lets it.
	// They are handed on one by one all the same, but then Drops is a lower bound:
	// such a buffer may be dropped as one. It concerns UDP alone.
	GRO bool

	Mode        fs.FileMode // of a Unix socket's file; 0 means DefaultMode
	Connections int         // open at once on a Unix stream socket; 0 means DefaultConnections

	// Timed is told of one batch in TimedEvery, after its Tick and by the goroutine that
	// read it. nil: nobody wants to know.
	Timed func(Timing)

	// Inherited are sockets that are open already, bound to this very address. If
	// there are any they are read, all of them, and none is bound. Listen takes
	// over their files, also when it returns an error.
	Inherited []Inherited
}

// Timing is where the time of a batch went.
type Timing struct {
	Read     time.Time     // when it had been read
	Waited   time.Duration // in the kernel, at most, since the reader let datagrams gather or was busy
	Reading  time.Duration // 0 for a stream, where it cannot be told from waiting
	Handling time.Duration // until Tick returned
}

// TimedEvery is how often batches are timed: to read the clock for each costs a tenth of
// what a batch of one datagram does.
const TimedEvery = 16

const (
	// DefaultMaxPacket holds any UDP datagram (65,507 bytes over IPv4, 65,527
	// over IPv6). It costs little more than room for 8 KiB: the batchSize slots of
	// a datagram listener are 4 MiB of address space, of which only pages that a
	// datagram once reached are resident, 256 KiB where no client exceeds the
	// usual 1,432 bytes. Reading is as fast as with slots of 8 KiB. A stream
	// connection's buffer starts at 16 KiB.
	DefaultMaxPacket = 64 << 10

	// DefaultReceiveBuffer holds about 10,000 short datagrams or 3,600 of 1,432
	// bytes: the kernel charges those with 832 and 2,304 bytes, against twice what
	// was asked for. A reader may stand still for 20 ms under 500,000 short
	// datagrams per second.
	DefaultReceiveBuffer = 4 << 20

	// DefaultMode lets everybody send and only the owner look: connecting to a
	// Unix socket takes write permission. It is the Datadog Agent's mode.
	DefaultMode fs.FileMode = 0o722

	// DefaultConnections bounds the memory of a stream listener to
	// DefaultConnections x DefaultMaxPacket = 64 MiB, if all clients send frames
	// of that size.
	DefaultConnections = 1024
)

// drainTime bounds how long Run reads on after its context is done. A full
// receive buffer takes some milliseconds; only a sender that outruns the reader
// gets as far as this.
const drainTime = 2 * time.Second

// errorPause keeps a reader whose system calls fail for want of memory or file
// descriptors from spinning.
const errorPause = 10 * time.Millisecond

// Stats are a listener's totals since it was bound.
type Stats struct {
	Packets     uint64 // datagrams or frames handed over
	Bytes       uint64 // in them
	Truncated   uint64 // datagrams longer than MaxPacket, or in a buffer of UDP_GRO without their size: read, not handed over
	ReadErrors  uint64 // system calls that failed, for want of memory or descriptors or on a connection that broke
	LongFrames  uint64 // frames announced as longer than MaxPacket, each the end of its connection
	CutFrames   uint64 // frames whose connection ended before they did
	Connections uint64 // accepted, whether still open or not
	Refused     uint64 // connections closed at once because Config.Connections were open
}

// counters are Stats as the reader keeps them. It sums a batch in local
// variables and adds once for each batch, so that readers of Stats do not pull
// the cache line away at every packet.
type counters struct {
	packets, bytes, truncated, readErrors       atomic.Uint64
	longFrames, cutFrames, connections, refused atomic.Uint64
}

// Listener is one bound socket. Its methods may be called from any goroutine.
type Listener struct {
	socket
	raw      controller
	addr     net.Addr
	cookie   uint64 // the kernel's number of the socket, never given to another until the next boot
	counters *counters

	mu       sync.Mutex // of what follows
	wanted   int        // bytes of receive buffer, 0 where it does not apply
	granted  int
	buffer   []string // warnings of it
	queue    []string // of the length of a Unix datagram socket's queue
	warnings []string // all others
}

// socket is what differs between datagrams and streams.
type socket interface {
	run(ctx context.Context, h Handler) error
	leave()
	watch(on bool) error
	sender() sender.Sender
	drops() uint64
	close() error
}

// Listen binds the sockets that c describes, Config.Listeners for UDP and one
// otherwise. It starts nothing, but the kernel queues what arrives from now on.
// Each Listener must be run or closed.
func Listen(c Config) ([]*Listener, error) {
	c, err := c.withDefaults()
	if err != nil {
		c.closeInherited()
		return nil, fmt.Errorf("listen on %s %s: %w", c.Network, c.Address, err)
	}
	if len(c.Inherited) > 0 {
		return adopt(c)
	}
	switch c.Network {
	case "udp":
		return listenUDP(c)
	case "unixgram":
		return listenUnixgram(c)
	default:
		return listenUnix(c)
	}
}

// controller runs a function with a socket's descriptor, as syscall.RawConn does.
type controller interface {
	Control(f func(fd uintptr)) error
}

func newListener(s socket, raw controller, addr net.Addr, counters *counters) (*Listener, error) {
	l := &Listener{socket: s, raw: raw, addr: addr, counters: counters}
	err := control(raw, func(fd int) (err error) {
		l.cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
		return os.NewSyscallError("getsockopt SO_COOKIE", err)
	})
	return l, err
}

func (c Config) withDefaults() (Config, error) {
	if c.Listeners < 0 || c.MaxPacket < 0 || c.ReceiveBuffer < 0 || c.Connections < 0 {
		return c, errors.New("a negative setting; 0 means the default")
	}
	if c.Network != "udp" && c.Network != "unixgram" && c.Network != "unix" {
		return c, fmt.Errorf("unknown network %q; use udp, unixgram or unix", c.Network)
	}
	if c.Listeners > 1 && c.Network != "udp" {
		return c, fmt.Errorf("%d listeners: only udp addresses can be shared; use 1", c.Listeners)
	}
	c.Listeners = max(c.Listeners, 1)
	if c.MaxPacket == 0 {
		c.MaxPacket = DefaultMaxPacket
	}
	if c.ReceiveBuffer == 0 {
		c.ReceiveBuffer = DefaultReceiveBuffer
	}
	if c.Mode == 0 {
		c.Mode = DefaultMode
	}
	if c.Connections == 0 {
		c.Connections = DefaultConnections
	}
	return c, nil
}

// Run reads in the caller's goroutine until ctx is done, then hands over what
// the kernel had accepted by then, closes the socket and removes its file. Where
// a successor goes on (Leave) it stops at the end of a batch and leaves the rest
// to it. When it returns nothing that it started is running. It returns an error only where
// the socket cannot be read any more. Run is called once.
func (l *Listener) Run(ctx context.Context, h Handler) error {
	err := l.run(ctx, h)
	if closeErr := l.close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("read %s %s: %w", l.addr.Network(), l.addr, err)
	}
	return nil
}

// Close closes a listener that will not be run. After Run it does nothing.
func (l *Listener) Close() error { return l.close() }

// Addr is the bound address, with the port that the kernel chose.
func (l *Listener) Addr() net.Addr { return l.addr }

// Stats returns the totals. They are read one by one: a batch that is being
// counted may show in some and not yet in others.
func (l *Listener) Stats() Stats {
	c := l.counters
	return Stats{
		Packets:     c.packets.Load(),
		Bytes:       c.bytes.Load(),
		Truncated:   c.truncated.Load(),
		ReadErrors:  c.readErrors.Load(),
		LongFrames:  c.longFrames.Load(),
		CutFrames:   c.cutFrames.Load(),
		Connections: c.connections.Load(),
		Refused:     c.refused.Load(),
	}
}

// Watch makes Sender tell who sent a packet, from one of the next batches on, or
// ends that. Whoever does not ask does not pay: the kernel is asked for senders
// only while it is on (BenchmarkSender). The error says that this socket's
// senders stay unknown.
func (l *Listener) Watch(on bool) error {
	if err := l.watch(on); err != nil {
		return fmt.Errorf("watch the senders of %s %s: %w", l.addr.Network(), l.addr, err)
	}
	return nil
}

// Sender is who sent the packet that Handler.Packet is handling: call it there
// and nowhere else. It is the zero value where the listener is not watched.
func (l *Listener) Sender() sender.Sender { return l.sender() }

// Drops is the number of datagrams that the kernel dropped at this UDP socket,
// right up to the last one, whether or not another packet followed. It is 0 for
// Unix sockets: there the sender is told and drops on its own side. The kernel
// counts in 32 bits: call Drops at least once for every four billion of them.
// Once the socket is closed it keeps its last value.
func (l *Listener) Drops() uint64 { return l.drops() }

// ReceiveBuffer returns the bytes of receive buffer that were asked for and
// that the kernel granted; both are 0 for Unix sockets, which have none.
func (l *Listener) ReceiveBuffer() (wanted, granted int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wanted, l.granted
}

// SetReceiveBuffer changes the receive buffer of a socket that is being read, and
// with it the warnings. What is queued stays. Unix sockets have none.
func (l *Listener) SetReceiveBuffer(bytes int) error {
	if l.addr.Network() != "udp" {
		return nil
	}
	err := control(l.raw, func(fd int) error {
		if err := setReceiveBuffer(fd, bytes); err != nil {
			return err
		}
		return l.readReceiveBuffer(fd, bytes)
	})
	if err != nil {
		return fmt.Errorf("receive buffer of udp %s: %w", l.addr, err)
	}
	return nil
}

// readReceiveBuffer notes what the kernel granted of what is wanted.
func (l *Listener) readReceiveBuffer(fd, wanted int) error {
	granted, err := receiveBuffer(fd)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted, l.granted = wanted, granted
	l.buffer = receiveBufferWarning(l.addr.String(), wanted, granted)
	return nil
}

// Warnings says, in lines for the operator, where the kernel's settings will
// cost packets.
func (l *Listener) Warnings() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Concat(l.buffer, l.queue, l.warnings)
}

// Settings of the kernel that bound what waits in a socket.
const (
	MaxReceiveBuffer = "net.core.rmem_max"       // of UDP sockets, in bytes
	MaxQueueLength   = "net.unix.max_dgram_qlen" // of Unix datagram sockets, in datagrams
)

// Setting is the setting of the kernel that bounds what waits in the socket, empty if none
// does, and whether it is so small that it will cost packets.
func (l *Listener) Setting() (name string, tooSmall bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.addr.Network() {
	case "udp":
		return MaxReceiveBuffer, len(l.buffer) > 0
	case "unixgram":
		return MaxQueueLength, len(l.queue) > 0
	}
	return "", false
}
