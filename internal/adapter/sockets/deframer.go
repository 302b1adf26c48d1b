//go:build linux

package sockets

import (
	"encoding/binary"
	"errors"
)

// frameHeader is the length of a frame's header: the payload's length in bytes, little-endian,
// as in DogStatsD.
const frameHeader = 4

// firstBuffer is the initial size of a connection's buffer.
const firstBuffer = 16 << 10

var errLongFrame = errors.New("frame exceeds the longest packet")

// deframer cuts the bytes of one connection into frames. Usage: read into room(), call wrote()
// with the number of bytes, then call next() until there are no frames.
type deframer struct {
	buf        []byte
	start, end int // buf[start:end] was read but not yet taken
	max        int // longest payload in bytes
}

func newDeframer(maxPacket int) *deframer {
	return &deframer{buf: make([]byte, min(firstBuffer, frameHeader+maxPacket)), max: maxPacket}
}

// room returns the space for the next bytes, which is never empty. The buffer grows with the bytes
// that a client has sent, not with the length that the client announced, and never beyond the
// longest allowed frame.
func (d *deframer) room() []byte {
	d.end = copy(d.buf, d.buf[d.start:d.end])
	d.start = 0
	if d.end == len(d.buf) {
		grown := make([]byte, min(2*len(d.buf), frameHeader+d.max))
		copy(grown, d.buf)
		d.buf = grown
	}
	return d.buf[d.end:]
}

// wrote is called after n bytes were written into the space that room returned.
func (d *deframer) wrote(n int) { d.end += n }

// next returns the payload of the next complete frame, or nil if more bytes are needed. It
// skips frames of length 0. The payload is valid until room is called. After errLongFrame the
// stream is unreadable.
func (d *deframer) next() ([]byte, error) {
	for d.end-d.start >= frameHeader {
		n := binary.LittleEndian.Uint32(d.buf[d.start:])
		if uint64(n) > uint64(d.max) {
			return nil, errLongFrame
		}
		body := d.start + frameHeader
		if d.end-body < int(n) {
			return nil, nil
		}
		d.start = body + int(n)
		if n > 0 {
			return d.buf[body:d.start], nil
		}
	}
	return nil, nil
}

// pending is true if the buffer has a part of a frame.
func (d *deframer) pending() bool { return d.end > d.start }
