// Package capture is the format of a capture: raw datagrams as they arrived, each with its
// time, its listener and its sender (docs/format/capture.md). It reads and writes bytes;
// callers decide what is captured and where a replay goes.
package capture

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/freshet-io/freshet/internal/core/sender"
)

const (
	magic   = "FRESHCAP"
	version = 1

	headerSize = len(magic) + 1

	// frameSize is the size of the length and the checksum before a record, in bytes.
	frameSize = 8

	// maxRecord bounds the length of a record, in bytes. A reader treats a greater length as damage. The longest
	// packet that a socket may be configured for is 1 MiB.
	maxRecord = 2 << 20
)

// Types of records. A reader skips unknown types.
const (
	typeListener = 1
	typeDatagram = 2
	typeMissed   = 3
)

// A datagram's sender begins with a byte that says its kind.
const (
	senderUnknown     = 0
	senderIPv4        = 1
	senderIPv6        = 2
	senderCredentials = 3
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrCut means that the capture ends inside a record, for example because the writer was killed.
// All records before that have been read.
var ErrCut = errors.New("the capture is cut off")

// errShort means that a field extends beyond the end of its record.
var errShort = errors.New("a field exceeds its record")

// Datagram is one packet as it arrived, with the socket that received it.
type Datagram struct {
	Time    int64  // Unix nanoseconds at which the datagram was read
	Network string // udp, unixgram or unix
	Address string // address of the socket that received it
	Sender  sender.Sender
	Data    []byte
	Missed  uint64 // datagrams that arrived just before this one and are not in the capture
}

// cursor takes the fields of a record one by one. After the first field that does not fit, all
// fields are zero.
type cursor struct {
	left  []byte
	short bool
}

func (c *cursor) bytes(n uint64) []byte {
	if n > uint64(len(c.left)) {
		c.short, c.left = true, nil
		return nil
	}
	taken := c.left[:n]
	c.left = c.left[n:]
	return taken
}

func (c *cursor) byte() byte {
	if b := c.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) uint32() uint32 {
	if b := c.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) uint64() uint64 {
	if b := c.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (c *cursor) uint16() uint16 {
	if b := c.bytes(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

// text takes a length and a string of at most 65,535 bytes.
func (c *cursor) text() string { return string(c.bytes(uint64(c.uint16()))) }
