//go:build linux

package sockets

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/lib/cookie"
)

// Stats are a listener's totals since it was bound.
type Stats struct {
	Packets     uint64 // datagrams or frames handed over
	Bytes       uint64 // bytes of these packets
	Truncated   uint64 // datagrams read but not handed over: longer than MaxPacket, or of unknown size after UDP_GRO
	ReadErrors  uint64 // system calls that failed for lack of memory or descriptors, or because of a broken connection
	LongFrames  uint64 // frames announced as longer than MaxPacket; each ends its connection
	CutFrames   uint64 // frames cut short by the end of their connection
	Connections uint64 // all accepted connections, even if closed by now
	Refused     uint64 // connections closed at once because Config.Connections was reached
}

// Listener is one bound socket. Its methods are safe for concurrent use.
type Listener struct {
	socket
	raw      controller
	addr     net.Addr
	cookie   uint64 // see cookie.Of
	counters *counters

	mu       sync.Mutex // guards the fields below
	wanted   int        // receive buffer in bytes, 0 where it does not apply
	granted  int
	buffer   []string // warnings about the receive buffer
	queue    []string // warnings about the queue length of a Unix datagram socket
	warnings []string // all others
}

// socket has the methods in which datagrams and streams differ.
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
		l.cookie, err = cookie.Of(fd)
		return err
	})
	return l, err
}

// Run reads in the caller's goroutine until ctx is done. Then it hands over the packets that the
// kernel has accepted by that time, closes the socket and removes its file. After Leave it stops at
// the end of a batch, and leaves the rest to the successor. When Run returns, all goroutines that
// it started have ended. Run fails only if the socket can no longer be read. Call Run only once.
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

// Close closes a listener whose Run was never called. After Run it does nothing.
func (l *Listener) Close() error { return l.close() }

// Addr returns the bound address, with the port that the kernel chose.
func (l *Listener) Addr() net.Addr { return l.addr }

// Stats returns the totals. It reads them one by one while the reader counts, so some totals may
// already include a batch that others do not include yet.
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

// Watch turns the detection of senders on or off, with effect from one of the next batches.
// Detection costs time only while it is on (BenchmarkSender). An error means that the senders of
// this socket stay unknown.
func (l *Listener) Watch(on bool) error {
	if err := l.watch(on); err != nil {
		return fmt.Errorf("watch the senders of %s %s: %w", l.addr.Network(), l.addr, err)
	}
	return nil
}

// Sender returns the sender of the packet that Handler.Packet is handling: call it only there.
// It returns the zero value while the listener is not watched.
func (l *Listener) Sender() sender.Sender { return l.sender() }

// Drops returns the number of datagrams that the kernel dropped at this UDP socket. The number
// includes drops after the last received packet. It is 0 for Unix sockets, where the sender gets
// an error and drops the datagram itself. The kernel's count has 32 bits, so call Drops at least
// once in four billion drops. After the socket is closed, Drops returns the last value.
func (l *Listener) Drops() uint64 { return l.drops() }

// ReceiveBuffer returns the size of the receive buffer as requested and as granted by the kernel,
// in bytes. Both are 0 for Unix sockets, which have no receive buffer.
func (l *Listener) ReceiveBuffer() (wanted, granted int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wanted, l.granted
}

// SetReceiveBuffer changes the size of the receive buffer while the socket is in use. Afterwards
// Warnings has the warning about the new size, if there is one. Queued datagrams stay. Unix sockets
// have no receive buffer, so for them SetReceiveBuffer does nothing.
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

// readReceiveBuffer notes how much of the wanted buffer the kernel granted.
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

// Warnings returns lines for the operator about kernel settings that will cost packets.
func (l *Listener) Warnings() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Concat(l.buffer, l.queue, l.warnings)
}

// Kernel settings that limit how much data waits in a socket.
const (
	MaxReceiveBuffer = "net.core.rmem_max"       // limit for UDP sockets, in bytes
	MaxQueueLength   = "net.unix.max_dgram_qlen" // limit for Unix datagram sockets, in datagrams
)

// Setting returns the kernel setting that limits how much data waits in the socket, or an empty
// name if there is none. `tooSmall` reports whether the setting is so small that packets will be
// lost.
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
