package segment

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
)

// The layout is drawn in docs/format/segment.md.
const (
	HeaderBytes = 28 // of a file
	FrameBytes  = 24 // of a frame before its payload
	StampBytes  = 8  // additional bytes before the payload of a stamped frame

	version   = 1
	markBytes = 4
)

var (
	order      = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

var (
	// ErrHeader means that the beginning of a file is wrong.
	ErrHeader = errors.New("header is damaged")

	errVersion = errors.New("unknown format version")
)

// AppendHeader appends the header of a file.
func AppendHeader(dst []byte, magic string, mark uint32, pos Position) []byte {
	start := len(dst)
	dst = append(dst, magic...)
	dst = order.AppendUint32(dst, version)
	dst = order.AppendUint32(dst, mark)
	dst = order.AppendUint64(dst, uint64(pos))
	return order.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// ParseHeader reads what AppendHeader wrote. An error other than ErrHeader means that a newer
// program wrote the file.
func ParseHeader(b []byte, magic string) (mark uint32, pos Position, err error) {
	if len(b) < HeaderBytes || string(b[:8]) != magic || order.Uint32(b[24:]) != crc32.Checksum(b[:24], castagnoli) {
		return 0, 0, ErrHeader
	}
	if v := order.Uint32(b[8:]); v != version {
		return 0, 0, fmt.Errorf("%w %d, but this program knows only %d: start the program that wrote the file",
			errVersion, v, version)
	}
	return order.Uint32(b[12:]), Position(order.Uint64(b[16:])), nil
}

// Frame is a piece of a log: a payload with its position, tag and stamp.
type Frame struct {
	Pos     Position
	Tag     uint32 // for the log's own use
	Stamp   uint64 // for the log's own use, if its format is stamped
	Payload []byte // of a frame that was read: valid until the next read
	Offset  int64  // of its first byte in the file, for a frame that was read
}

// HeadBytes returns the length of a frame without its payload.
func (f *Format) HeadBytes() int {
	if f.Stamped {
		return FrameBytes + StampBytes
	}
	return FrameBytes
}

// putHead fills b, the bytes of a frame before its payload, except the checksum.
func (f *Format) putHead(b []byte, mark uint32, frame *Frame, length int) {
	_ = b[FrameBytes-1] // one bounds check for all
	order.PutUint32(b[0:], mark)
	order.PutUint32(b[8:], uint32(length))
	order.PutUint32(b[12:], frame.Tag)
	order.PutUint64(b[16:], uint64(frame.Pos))
	if f.Stamped {
		order.PutUint64(b[FrameBytes:], frame.Stamp)
	}
}

// AppendFrame appends a whole frame.
func (f *Format) AppendFrame(dst []byte, mark uint32, frame *Frame) []byte {
	start, headBytes := len(dst), f.HeadBytes()
	end := start + headBytes + len(frame.Payload)
	dst = slices.Grow(dst, end-start)[:end]
	b := dst[start:]
	f.putHead(b, mark, frame, len(frame.Payload))
	copy(b[headBytes:], frame.Payload)
	order.PutUint32(b[4:], crc32.Checksum(b[8:], castagnoli))
	return dst
}

// WriteFrame writes a frame. The payload consists of the parts in order, and not of frame.Payload, since
// the parts may be too long to copy together. After a failed write, w keeps the error, and the last
// write to w returns it.
func (f *Format) WriteFrame(w *bufio.Writer, mark uint32, frame *Frame, parts ...[]byte) error {
	length := 0
	for _, part := range parts {
		length += len(part)
	}
	var b [FrameBytes + StampBytes]byte
	head := append(w.AvailableBuffer(), b[:f.HeadBytes()]...)
	f.putHead(head, mark, frame, length)
	sum := crc32.Checksum(head[8:], castagnoli)
	for _, part := range parts {
		sum = crc32.Update(sum, castagnoli, part)
	}
	order.PutUint32(head[4:], sum)
	_, err := w.Write(head)
	for _, part := range parts {
		_, err = w.Write(part)
	}
	return err
}

// ParseFrame reads the frame that fills b, and reports whether it is intact. It does not check
// the mark.
func (f *Format) ParseFrame(b []byte) (frame Frame, ok bool) {
	frame = Frame{Tag: order.Uint32(b[12:]), Pos: Position(order.Uint64(b[16:])), Payload: b[f.HeadBytes():]}
	if f.Stamped {
		frame.Stamp = order.Uint64(b[FrameBytes:])
	}
	return frame, order.Uint32(b[4:]) == crc32.Checksum(b[8:], castagnoli) && (f.Accept == nil || f.Accept(frame.Tag))
}
