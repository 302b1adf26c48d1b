//go:build linux

package sockets

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/freshet-io/freshet/internal/core/sender"
)

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

func newListener(s socket, raw controller, addr net.Addr, counters *counters) (*Listener, error) {
	l := &Listener{socket: s, raw: raw, addr: addr, counters: counters}
	err := control(raw, func(fd int) (err error) {
		l.cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
		return os.NewSyscallError("getsockopt SO_COOKIE", err)
	})
	return l, err
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
