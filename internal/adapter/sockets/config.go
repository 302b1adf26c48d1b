//go:build linux

package sockets

import (
	"io/fs"
	"os"
	"sync/atomic"
	"time"
)

// Handler consumes the packets of one listener. A listener never calls its methods concurrently.
type Handler interface {
	// Packet handles one datagram, or one frame of a stream. The listener owns p. The bytes between
	// the length and the capacity of p belong to the listener, too, and have no meaning. p is valid
	// until the next Tick. now is the time of the wall clock in Unix nanoseconds, which is read once
	// for each batch and may jump forward or back.
	Packet(p []byte, now int64)

	// Tick tells the handler that all packets from before the time `now` were handed over. The listener
	// calls Tick when Run starts and after every batch. If nothing arrives, it calls Tick at the time
	// that the last Tick returned. `next` is the time at which the handler wants the next call, in Unix
	// nanoseconds. The call may come earlier.
	Tick(now int64) (next int64)
}

// Config describes one address to listen on.
type Config struct {
	Network string // "udp", "unixgram" or "unix" (stream)
	Address string // HOST:PORT for udp, where port 0 lets the kernel choose; otherwise the path of the socket file

	// Listeners is the number of UDP sockets that share the address, each with its own reader; 0
	// means 1. The kernel spreads packets by a hash of the sender's address, so several sockets
	// help only with several senders.
	Listeners int

	// MaxPacket is the length of the longest packet to hand over, in bytes; 0 means
	// DefaultMaxPacket. A longer datagram is counted and dropped whole, because the part that
	// fits would end inside a line. A longer frame ends its connection.
	MaxPacket int

	// ReceiveBuffer is the kernel's receive buffer in bytes for each UDP socket;
	// 0 means DefaultReceiveBuffer.
	ReceiveBuffer int

	// GRO makes the kernel hand over several datagrams of one sender in one buffer (UDP_GRO),
	// where the network card or the sender's UDP_SEGMENT allows it. The handler still gets
	// datagrams one by one, but Drops becomes a lower bound, because the kernel may drop such a
	// buffer as one datagram. GRO applies to UDP only.
	GRO bool

	Mode        fs.FileMode // mode of a Unix socket's file; 0 means DefaultMode
	Connections int         // limit of connections open at once on a Unix stream socket; 0 means DefaultConnections

	// Timed, if not nil, gets the timing of one batch in TimedEvery. It is called after the batch's
	// Tick, on the goroutine that read the batch.
	Timed func(Timing)

	// Inherited are sockets that are already open and bound to this address. If there are any,
	// Listen uses them all and binds no others. Listen takes over their files, even when it
	// fails.
	Inherited []Inherited
}

// Timing shows where the time of a batch went.
type Timing struct {
	Read     time.Time     // when the batch had been read
	Waited   time.Duration // longest possible wait in the kernel, while the reader let datagrams gather or was busy
	Reading  time.Duration // 0 for a stream, where it cannot be separated from waiting
	Handling time.Duration // time until Tick returned
}

// TimedEvery says how seldom a batch is timed: once in TimedEvery batches. Reading the clock for
// each batch would make a batch of one datagram a tenth slower.
const TimedEvery = 16

const (
	// DefaultMaxPacket holds any UDP datagram (65,507 bytes over IPv4, 65,527 over IPv6). A buffer of
	// this size costs little more than one of 8 KiB. The batchSize slots of a datagram listener take 4
	// MiB of address space, but only pages that some datagram has reached are resident: 256 KiB if no
	// client exceeds the usual 1,432 bytes. Reading is as fast as with slots of 8 KiB. A stream
	// connection's buffer starts at 16 KiB.
	DefaultMaxPacket = 64 << 10

	// DefaultReceiveBuffer holds about 10,000 short datagrams, or 3,600 of 1,432 bytes. The kernel
	// counts a short datagram as 832 bytes and one of 1,432 bytes as 2,304 bytes, and allows twice
	// the requested size. So a reader may pause for 20 ms at 500,000 short datagrams per second.
	DefaultReceiveBuffer = 4 << 20

	// DefaultMode lets all users send, because connecting to a Unix socket takes write
	// permission. It is the Datadog Agent's mode.
	DefaultMode fs.FileMode = 0o722

	// DefaultConnections bounds the memory of a stream listener to DefaultConnections x
	// DefaultMaxPacket = 64 MiB, if all clients send frames of the longest size.
	DefaultConnections = 1024
)

// Inherited is a socket that systemd or the previous image of this process has passed to it.
type Inherited struct {
	File *os.File

	// Shared means that another process, such as systemd, holds the socket and will give it to our
	// successor. The listener then treats it as if Leave had been called.
	Shared bool

	// Drops is the part of the kernel's count of drops that has already been counted in metrics. The
	// kernel has counted since the creation of the socket.
	Drops uint32
}

// drainTime bounds how long Run still reads after its context is done. Reading a full receive
// buffer takes some milliseconds. The drain reaches this limit only if a sender is faster than
// the reader.
const drainTime = 2 * time.Second

// errorPause keeps a reader from spinning while its system calls fail for lack of memory or
// file descriptors.
const errorPause = 10 * time.Millisecond

// counters are the figures of Stats while the reader updates them. The reader sums up a batch in
// local variables and adds the sums once, so that callers of Stats do not take the cache line from
// the reader at every packet.
type counters struct {
	packets, bytes, truncated, readErrors       atomic.Uint64
	longFrames, cutFrames, connections, refused atomic.Uint64
}
