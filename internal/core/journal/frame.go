package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// The layout is drawn in docs/format/journal.md.
const (
	segmentMagic    = "FRSHJRNL"
	checkpointMagic = "FRSHCKPT"
	version         = 1
	headerBytes     = 28 // of a file
	frameBytes      = 24 // of a frame without its payload
	markBytes       = 4
)

var (
	order      = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

var (
	errHeader  = errors.New("header is damaged")
	errVersion = errors.New("unknown format version")
)

// appendHeader appends the header of a file.
func appendHeader(dst []byte, magic string, mark uint32, pos Position) []byte {
	start := len(dst)
	dst = append(dst, magic...)
	dst = order.AppendUint32(dst, version)
	dst = order.AppendUint32(dst, mark)
	dst = order.AppendUint64(dst, uint64(pos))
	return order.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// parseHeader is the inverse of appendHeader.
func parseHeader(b []byte, magic string) (mark uint32, pos Position, err error) {
	if len(b) < headerBytes || string(b[:8]) != magic ||
		order.Uint32(b[24:]) != crc32.Checksum(b[:24], castagnoli) {
		return 0, 0, errHeader
	}
	if v := order.Uint32(b[8:]); v != version {
		return 0, 0, fmt.Errorf("%w %d, this program knows %d: start the program that wrote it", errVersion, v, version)
	}
	return order.Uint32(b[12:]), Position(order.Uint64(b[16:])), nil
}

// frame is a record or a section as it was read. Its payload belongs to the
// reader and lasts until the next frame.
type frame struct {
	offset  int64 // of its first byte in the file
	shard   uint16
	typ     uint8
	pos     Position
	payload []byte
}

// putFrame fills all of a frame's first bytes, b, but the checksum.
func putFrame(b []byte, mark uint32, shard uint16, typ uint8, pos Position, length int) {
	order.PutUint32(b[0:], mark)
	order.PutUint32(b[8:], uint32(length))
	order.PutUint16(b[12:], shard)
	b[14], b[15] = typ, 0
	order.PutUint64(b[16:], uint64(pos))
}

// appendFrame appends a whole frame.
func appendFrame(dst []byte, mark uint32, shard uint16, typ uint8, pos Position, payload []byte) []byte {
	start := len(dst)
	dst = slices.Grow(dst, frameBytes+len(payload))[:start+frameBytes]
	putFrame(dst[start:], mark, shard, typ, pos, len(payload))
	dst = append(dst, payload...)
	order.PutUint32(dst[start+4:], crc32.Checksum(dst[start+8:], castagnoli))
	return dst
}

// parseFrame reads the frame at the front of b, whose mark was found already.
func parseFrame(b []byte) (f frame, ok bool) {
	f = frame{
		shard:   order.Uint16(b[12:]),
		typ:     b[14],
		pos:     Position(order.Uint64(b[16:])),
		payload: b[frameBytes:],
	}
	return f, b[15] == 0 && order.Uint32(b[4:]) == crc32.Checksum(b[8:], castagnoli)
}

// readAhead is how much of a file is read at once: few calls, little memory.
const readAhead = 1 << 20

// frameReader reads the frames of one file in order and steps over damage. It
// holds one frame and readAhead bytes, however long the file is.
type frameReader struct {
	src    io.ReaderAt
	size   int64 // of the file, or where reading it failed
	err    error // why it failed
	mark   [markBytes]byte
	limit  uint32                                // the longest payload
	accept func(f *frame, passedOver int64) bool // decides what the checksum cannot

	end int64  // of the last frame returned; of the file's header before that
	buf []byte // the bytes of the file from at on
	at  int64
}

// openFrames reads the header of a file and returns a reader of what follows.
func openFrames(src io.ReaderAt, size int64, magic string, want Position) (*frameReader, error) {
	r := &frameReader{src: src, size: size, end: headerBytes}
	mark, pos, err := parseHeader(r.bytes(0, headerBytes), magic)
	if r.err != nil {
		return nil, fmt.Errorf("%w: %w", errHeader, r.err)
	}
	if err != nil {
		return nil, err
	}
	if pos != want {
		return nil, fmt.Errorf("%w: it says position %d", errHeader, pos)
	}
	order.PutUint32(r.mark[:], mark)
	return r, nil
}

// next returns the next good frame, and false when there is none up to the end
// of the file. Damage lies between r.end as it was before and the frame's offset.
func (r *frameReader) next() (frame, bool) {
	for off := r.find(r.end); off >= 0; off = r.find(off + 1) {
		head := r.bytes(off, frameBytes)
		if len(head) < frameBytes {
			break
		}
		length := order.Uint32(head[8:])
		if length > r.limit || int64(length) > r.size-off-frameBytes {
			continue
		}
		n := frameBytes + int(length)
		whole := r.bytes(off, n)
		if len(whole) < n {
			continue
		}
		f, ok := parseFrame(whole[:n])
		if !ok || !r.accept(&f, off-r.end) {
			continue
		}
		f.offset, r.end = off, off+int64(n)
		return f, true
	}
	return frame{}, false
}

// find returns the offset of the first mark at off or behind it, or -1.
func (r *frameReader) find(off int64) int64 {
	for r.size-off >= frameBytes {
		b := r.bytes(off, frameBytes)
		if i := bytes.Index(b, r.mark[:]); i >= 0 {
			return off + int64(i)
		}
		off += int64(max(1, len(b)-markBytes+1))
	}
	return -1
}

// bytes returns the file from off on as far as it is in memory: at least n bytes
// of it, or all up to r.size if that is less. The file ends where reading fails.
func (r *frameReader) bytes(off int64, n int) []byte {
	n = int(min(int64(n), max(0, r.size-off)))
	if off < r.at || off+int64(n) > r.at+int64(len(r.buf)) {
		want := int(min(int64(max(n, readAhead)), r.size-off))
		r.buf = slices.Grow(r.buf[:0], want)[:want]
		got, err := r.src.ReadAt(r.buf, off)
		r.buf, r.at = r.buf[:got], off
		if got < want {
			r.size, r.err = off+int64(got), err
		}
	}
	return r.buf[off-r.at:]
}
