//go:build linux

package sockets

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// batchSize is how many datagrams one system call reads at most. At 64 the cost
// of a datagram is two thirds of that of a call for each (BenchmarkUDP); what is
// left is the kernel's work for each, which a larger batch would not save.
const batchSize = 64

// datagrams reads a UDP or a Unix datagram socket. All but drops and close
// belongs to the goroutine in run.
type datagrams struct {
	conn     conn
	raw      syscall.RawConn
	release  func()      // gives up the address before the drain; nil for UDP
	left     atomic.Bool // a successor reads what is in the kernel
	kernel   dropCounter
	counters *counters

	memory []byte // batchSize slots; allocated once, for the socket's life
	slot   int    // bytes, MaxPacket
	iovs   [batchSize]unix.Iovec
	msgs   [batchSize]unix.Mmsghdr

	senders senders

	receive func(fd uintptr) bool // tryReceive as a value, made once: to make it allocates
	n       int                   // messages that the last receive read
	errno   syscall.Errno         // or why there are none
}

// conn is what *net.UDPConn and *net.UnixConn have in common here.
type conn interface {
	net.Conn
	syscall.Conn
}

func newDatagrams(c conn, maxPacket int, release func()) (*datagrams, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	d := &datagrams{conn: c, raw: raw, release: release, counters: new(counters), slot: maxPacket}
	d.memory = make([]byte, batchSize*d.slot)
	for i := range d.msgs {
		d.iovs[i].Base = &d.memory[i*d.slot]
		d.iovs[i].SetLen(d.slot)
		d.msgs[i].Hdr.Iov = &d.iovs[i]
		d.msgs[i].Hdr.SetIovlen(1)
	}
	_, unixgram := c.(*net.UnixConn)
	d.senders.credentials = unixgram
	d.receive = d.tryReceive
	return d, nil
}

// run alternates between waiting in the runtime's poller and handing over what
// one recvmmsg read.
func (d *datagrams) run(ctx context.Context, h Handler) error {
	alarm, stop := newAlarm(ctx, d.conn.SetReadDeadline)
	defer stop()
	for now := time.Now().UnixNano(); ; now = time.Now().UnixNano() {
		d.hand(h, now)
		alarm.arm(now, h.Tick(now))
		if ctx.Err() != nil {
			if d.left.Load() {
				return nil
			}
			return d.drain(h)
		}
		err := d.raw.Read(d.receive)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			d.n, d.errno = 0, 0 // nothing was tried
			alarm.passed()
		} else if err != nil {
			return err
		}
		if d.errno != 0 {
			if err := d.survive(); err != nil {
				return err
			}
			pause(ctx)
		}
	}
}

// tryReceive reads up to a batch without waiting and reports whether it is done:
// false sends the caller back to the poller.
func (d *datagrams) tryReceive(fd uintptr) bool {
	d.senders.prepare(&d.msgs)
	for {
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, fd,
			uintptr(unsafe.Pointer(&d.msgs[0])), batchSize, unix.MSG_DONTWAIT, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		d.n, d.errno = int(n), errno
		if errno != 0 {
			d.n = 0 // the system call returned -1
		}
		d.senders.used = d.n
		return errno != unix.EAGAIN
	}
}

// hand gives the batch that was read last, if it is not empty, to h.
func (d *datagrams) hand(h Handler, now int64) {
	var bytes, truncated uint64
	for i := range d.msgs[:d.n] {
		m := &d.msgs[i]
		if m.Hdr.Flags&unix.MSG_TRUNC != 0 {
			truncated++
			continue
		}
		at := i * d.slot
		end := at + int(m.Len)
		d.senders.message = &m.Hdr
		h.Packet(d.memory[at:end:end], now)
		bytes += uint64(m.Len)
	}
	d.counters.packets.Add(uint64(d.n) - truncated)
	d.counters.bytes.Add(bytes)
	if truncated > 0 {
		d.counters.truncated.Add(truncated)
	}
}

// survive counts the failure of the last receive and returns it if the next one
// would fail as well.
func (d *datagrams) survive() error {
	d.counters.readErrors.Add(1)
	if d.errno == unix.ENOMEM || d.errno == unix.ENOBUFS {
		return nil
	}
	return os.NewSyscallError("recvmmsg", d.errno)
}

// drain hands over what is in the socket, until it is empty or drainTime is
// over. It reads by Control, which unlike Read ignores the deadline that
// interrupted the loop.
func (d *datagrams) drain(h Handler) error {
	if d.release != nil {
		d.release()
	}
	for end := time.Now().Add(drainTime); time.Now().Before(end); {
		if err := d.raw.Control(func(fd uintptr) { d.receive(fd) }); err != nil {
			return err
		}
		if d.errno == unix.EAGAIN {
			break
		}
		if d.errno != 0 {
			if err := d.survive(); err != nil {
				return err
			}
			continue
		}
		now := time.Now().UnixNano()
		d.hand(h, now)
		h.Tick(now)
	}
	return nil
}

func (d *datagrams) leave() { d.left.Store(true) }

func (d *datagrams) watch(on bool) error { return d.senders.watch(d.raw, on) }

func (d *datagrams) sender() Sender { return d.senders.sender() }

func (d *datagrams) drops() uint64 {
	if _, ok := d.conn.(*net.UDPConn); !ok {
		return 0
	}
	return d.kernel.read(d.raw)
}

// close leaves the last count of drops behind.
func (d *datagrams) close() error {
	if d.release != nil && !d.left.Load() {
		d.release()
	}
	d.drops()
	if err := d.conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
