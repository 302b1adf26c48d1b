//go:build linux

package sockets

import (
	"encoding/binary"
	"errors"
)

// frameHeader is the length of a frame's head: the payload's length in bytes,
// little-endian, as DogStatsD has it.
const frameHeader = 4

// firstBuffer is what a connection's buffer starts with.
const firstBuffer = 16 << 10

var errLongFrame = errors.New("frame exceeds the longest packet")

// deframer cuts the bytes of one connection into frames. Use: read into room(),
// tell how much with wrote(), then take frames with next() until there are none.
type deframer struct {
	buf        []byte
	start, end int // buf[start:end] is read and not yet taken
	max        int // bytes of payload
}

func newDeframer(maxPacket int) *deframer {
	return &deframer{buf: make([]byte, min(firstBuffer, frameHeader+maxPacket)), max: maxPacket}
}

// room returns where the next bytes belong, never empty. The buffer grows with
// what a client has sent, not with what it announced, and never beyond one
// frame of the greatest length.
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

// wrote says that n bytes were put into the room.
func (d *deframer) wrote(n int) { d.end += n }

// next returns the payload of the next complete frame, or nil if more bytes are
// needed. Frames of length 0 are skipped. The payload is valid until room is
// called. After errLongFrame the stream cannot be read on.
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

// pending reports whether a frame has begun and is not complete.
func (d *deframer) pending() bool { return d.end > d.start }
