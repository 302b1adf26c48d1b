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

	"golang.org/x/sys/unix"

	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/lib/fault"
)

// stagger is added to the distance between two slots. It is the usual size of a datagram, 1,432
// bytes, rounded up. If the distance were a power of two, all slots would begin in the same few
// sets of the CPU's caches, and the end of a batch would evict its beginning before the handler
// reads it.
const stagger = 1536

// datagrams reads a UDP or a Unix datagram socket. Except for the methods `drops` and `close`, it
// belongs to the goroutine in `run`.
type datagrams struct {
	socket   *descriptor
	wait     *waiter
	udp      bool
	release  func()      // releases the address before the drain; nil for UDP
	left     atomic.Bool // whether a successor reads the datagrams that the kernel still holds
	kernel   dropCounter
	counters *counters

	slots   []byte // batchSize slots; allocated once, for the socket's life
	slot    int    // bytes
	stride  int    // bytes from one slot to the next: see stagger
	longest int    // length of the longest packet in bytes: Config.MaxPacket
	iovs    [batchSize]unix.Iovec
	msgs    [batchSize]unix.Mmsghdr

	senders    senders
	coalesced  *coalesced // nil means that each message is one datagram
	groRefused error      // why coalesced is nil although Config.GRO is set

	timed   func(Timing)
	batches uint   // how many batches had datagrams
	timing  Timing // timing of the last batch, if that was timed
	isTimed bool

	n     int                // messages read by the last receive
	errno syscall.Errno      // error of a receive that read no messages
	try   func(uintptr) bool // the method tryReceive as a value; made once to save allocations

	// With the fields below, the reader computes from the rate of datagrams how long to let them gather.
	nap    func(elapsed time.Duration, packets int, used, size uint32) time.Duration
	empty  time.Time // when the socket was last found empty
	since  int       // messages read since the time `empty`
	memory memory    // the kernel's figures at the end of the last wait
	calm   time.Time // the reader takes no naps until this time
}

func newDatagrams(c conn, config Config) (*datagrams, error) {
	_, udp := c.(*net.UDPConn)
	socket, err := detach(c)
	if err != nil {
		return nil, err
	}
	wait, err := newWaiter(socket)
	if err != nil {
		return nil, errors.Join(err, socket.close())
	}
	d := &datagrams{
		socket: socket, wait: wait, udp: udp, counters: new(counters),
		slot: config.MaxPacket, longest: config.MaxPacket, nap: napAfter, timed: config.Timed,
	}
	if udp {
		d.coalesced, d.groRefused = coalesce(socket.fd, config.GRO)
	}
	if d.coalesced != nil {
		d.slot = max(d.slot, groSlot)
	}
	d.stride = d.slot + stagger
	d.slots = make([]byte, batchSize*d.stride)
	for i := range d.msgs {
		d.iovs[i].Base = &d.slots[i*d.stride]
		d.iovs[i].SetLen(d.slot)
		d.msgs[i].Hdr.Iov = &d.iovs[i]
		d.msgs[i].Hdr.SetIovlen(1)
	}
	d.senders.credentials = !udp
	d.try = d.tryReceive
	return d, nil
}

// run hands over batch after batch until the socket is empty. Then it waits for the next datagram.
// If many datagrams come, run naps for a fixed time instead, so that they share one wake-up.
func (d *datagrams) run(ctx context.Context, h Handler) error {
	alarm, stop := newAlarm(ctx, d.wait.setDeadline)
	defer stop()
	d.empty = time.Now()
	d.socket.memory(&d.memory)
	for {
		now := time.Now()
		d.hand(h, now.UnixNano())
		tick := h.Tick(now.UnixNano())
		d.tell(now)
		if ctx.Err() != nil {
			if d.left.Load() {
				return nil
			}
			return d.drain(h)
		}
		var err error
		if d.n == batchSize {
			d.timing.Waited = now.Sub(d.empty)
			d.receive() // more datagrams may be waiting
		} else if nap := d.pace(now); nap > 0 {
			d.timing.Waited = nap
			alarm.nap(now, nap, tick)
			err = d.gather(alarm)
		} else {
			d.timing.Waited = 0
			alarm.arm(now, tick)
			err = d.block(alarm)
		}
		if err == nil && d.failed() {
			err = d.survive()
			pause(ctx)
		}
		if err != nil && d.socket.closed() {
			return net.ErrClosed
		}
		if err != nil {
			return err
		}
	}
}

// block waits for a datagram, or for the alarm, and reads a batch.
func (d *datagrams) block(a *alarm) error {
	d.n, d.errno = 0, 0 // await may return without a call of d.try
	err := d.wait.await(d.try)
	if d.n == 0 {
		a.passed()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil // the context has ended
	}
	return err
}

// gather waits for the alarm and reads a batch.
func (d *datagrams) gather(a *alarm) error {
	if err := d.wait.sleep(); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	a.passed()
	d.look()
	d.receive()
	return nil
}

// tryReceive calls receive for the waiter. It reports whether the wait is over.
func (d *datagrams) tryReceive(epoll uintptr) bool {
	d.look()
	d.receive()
	return d.errno != unix.EAGAIN || d.wait.passed(epoll)
}

// receive reads the waiting datagrams, up to one batch.
func (d *datagrams) receive() {
	d.senders.prepare(&d.msgs)
	d.coalesced.prepare(&d.msgs)
	var begun time.Time
	if d.isTimed = d.timed != nil && d.batches%TimedEvery == 0; d.isTimed {
		begun = time.Now()
	}
	if d.n, d.errno = d.socket.receive(&d.msgs); d.n > 0 {
		d.batches++ // of datagrams that come one by one, each second read finds none
	}
	fault.Read()
	if d.isTimed {
		d.timing.Reading = time.Since(begun)
	}
	d.senders.used = d.n
	d.since += d.n
}

// tell computes the Timing of a batch that was read at the time `now`.
func (d *datagrams) tell(now time.Time) {
	if !d.isTimed || d.n == 0 {
		return
	}
	d.isTimed = false
	d.timing.Read, d.timing.Handling = now, time.Since(now)
	d.timed(d.timing)
}

func (d *datagrams) failed() bool { return d.errno != 0 && d.errno != unix.EAGAIN }

// look asks the kernel how full the socket's buffer is before a read.
func (d *datagrams) look() {
	if !d.udp {
		return
	}
	drops := d.memory[unix.SK_MEMINFO_DROPS]
	if d.socket.memory(&d.memory) && d.memory[unix.SK_MEMINFO_DROPS] != drops {
		d.calm = time.Now().Add(calmAfterDrops)
	}
}

// pace returns how long to let datagrams gather. The socket is empty when pace is
// called.
//
// The reader of a Unix socket reads datagrams as they come. Once 10 datagrams are queued
// (net.unix.max_dgram_qlen), the senders wait or drop further ones. With a larger queue the
// sender's own SO_SNDBUF is the limit: 13 datagrams of 8 KiB.
func (d *datagrams) pace(now time.Time) time.Duration {
	elapsed, packets := now.Sub(d.empty), d.since
	d.empty, d.since = now, 0
	if !d.udp || now.Before(d.calm) {
		return 0
	}
	return d.nap(elapsed, packets, d.memory[unix.SK_MEMINFO_RMEM_ALLOC], d.memory[unix.SK_MEMINFO_RCVBUF])
}

// hand gives the last batch to h, unless it is empty.
func (d *datagrams) hand(h Handler, now int64) {
	var packets, bytes, truncated uint64
	for i := range d.msgs[:d.n] {
		m := &d.msgs[i]
		if m.Hdr.Flags&unix.MSG_TRUNC != 0 {
			truncated++
			continue
		}
		size, ok := d.coalesced.segment(m)
		if !ok {
			truncated++ // counts once for the whole buffer, because the beginnings of its datagrams are unknown
			continue
		}
		d.senders.message = &m.Hdr
		rest := d.slots[i*d.stride:][:m.Len]
		for more := true; more; more = len(rest) > 0 {
			end := min(size, len(rest))
			p := rest[:end]
			rest = rest[end:]
			if len(p) > d.longest {
				truncated++
				continue
			}
			h.Packet(p, now)
			packets++
			bytes += uint64(len(p))
		}
	}
	d.counters.packets.Add(packets)
	d.counters.bytes.Add(bytes)
	if truncated > 0 {
		d.counters.truncated.Add(truncated)
	}
}

// survive counts a failed receive. It returns the error if the next receive would fail as well.
func (d *datagrams) survive() error {
	d.counters.readErrors.Add(1)
	if d.errno == unix.ENOMEM || d.errno == unix.ENOBUFS {
		return nil
	}
	return os.NewSyscallError("recvmmsg", d.errno)
}

// drain hands over the datagrams in the socket, until it is empty or drainTime has passed.
func (d *datagrams) drain(h Handler) error {
	if d.release != nil {
		d.release()
	}
	for end := time.Now().Add(drainTime); time.Now().Before(end); {
		d.receive()
		if d.errno == unix.EAGAIN {
			break
		}
		if d.failed() {
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

func (d *datagrams) watch(on bool) error { return d.senders.watch(d.socket, on) }

func (d *datagrams) sender() sender.Sender { return d.senders.sender() }

func (d *datagrams) drops() uint64 {
	if !d.udp {
		return 0
	}
	return d.kernel.read(d.socket)
}

// close reads the count of drops for the last time and keeps it.
func (d *datagrams) close() error {
	if d.release != nil && !d.left.Load() {
		d.release()
	}
	d.drops()
	// The socket closes before the waiter. Closing the waiter wakes a blocked reader, which then checks
	// whether the socket is closed.
	err := d.socket.close()
	d.wait.close()
	return err
}
