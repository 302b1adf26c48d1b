//go:build linux

package sockets

import (
	"io/fs"
	"os"
	"sync/atomic"
	"time"
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

// Inherited is a socket that was open before this image of the process began: it
// comes from systemd, or from the image before.
type Inherited struct {
	File *os.File

	// Shared says that another process holds the socket and will give it to our
	// successor, as systemd does: it is left as if by Leave.
	Shared bool

	// Drops is the kernel's count of drops that somebody has booked already. The
	// kernel counts from the socket's birth.
	Drops uint32
}

// drainTime bounds how long Run reads on after its context is done. A full
// receive buffer takes some milliseconds; only a sender that outruns the reader
// gets as far as this.
const drainTime = 2 * time.Second

// errorPause keeps a reader whose system calls fail for want of memory or file
// descriptors from spinning.
const errorPause = 10 * time.Millisecond

// counters are Stats as the reader keeps them. It sums a batch in local
// variables and adds once for each batch, so that readers of Stats do not pull
// the cache line away at every packet.
type counters struct {
	packets, bytes, truncated, readErrors       atomic.Uint64
	longFrames, cutFrames, connections, refused atomic.Uint64
}
