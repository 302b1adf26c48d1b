package queue

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"

	"github.com/freshet-io/freshet/internal/core/journal"
)

// The layout is drawn in docs/format/queue.md.
const (
	segmentMagic  = "FRSHQUEU"
	doneMagic     = "FRSHDONE"
	version       = 1
	headerBytes   = 28 // of a segment; also the length of an entry of the file done
	frameBytes    = 32 // of a record without its payload
	markBytes     = 4
	segmentSuffix = ".segment"
)

var (
	order      = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

var (
	errHeader  = errors.New("header is damaged")
	errVersion = errors.New("unknown format version")
)

func segmentName(first uint64) string { return fmt.Sprintf("%020d%s", first, segmentSuffix) }

// parseName returns the position of a segment's first record.
func parseName(name string) (first uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, segmentSuffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	first, err := strconv.ParseUint(digits, 10, 63) // so that a stray file cannot make positions overflow
	return first, err == nil && first > 0
}

func appendHeader(dst []byte, magic string, mark uint32, pos uint64) []byte {
	start := len(dst)
	dst = append(dst, magic...)
	dst = order.AppendUint32(dst, version)
	dst = order.AppendUint32(dst, mark)
	dst = order.AppendUint64(dst, pos)
	return order.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// parseHeader is the inverse of appendHeader.
func parseHeader(b []byte, magic string) (mark uint32, pos uint64, err error) {
	if len(b) < headerBytes || string(b[:8]) != magic || order.Uint32(b[24:]) != crc32.Checksum(b[:24], castagnoli) {
		return 0, 0, errHeader
	}
	if v := order.Uint32(b[8:]); v != version {
		return 0, 0, fmt.Errorf("%w %d, this program knows %d: start the program that wrote it", errVersion, v, version)
	}
	return order.Uint32(b[12:]), order.Uint64(b[16:]), nil
}

func appendFrame(dst []byte, mark uint32, pos uint64, r *Record) []byte {
	start := len(dst)
	dst = slices.Grow(dst, frameBytes+len(r.Payload))
	dst = order.AppendUint32(dst, mark)
	dst = order.AppendUint32(dst, 0) // the checksum, below
	dst = order.AppendUint32(dst, uint32(len(r.Payload)))
	dst = order.AppendUint32(dst, r.Samples)
	dst = order.AppendUint64(dst, pos)
	dst = order.AppendUint64(dst, uint64(r.Time))
	dst = append(dst, r.Payload...)
	order.PutUint32(dst[start+4:], crc32.Checksum(dst[start+8:], castagnoli))
	return dst
}

// frame is a record as it was read. Its payload lasts until the next one is.
type frame struct {
	Record
	pos    uint64
	offset int64 // of its first byte in the segment
}

// readAhead is how much of a segment is read at once: few calls, little memory.
const readAhead = 1 << 20

// reader reads the records of one segment in order and steps over damage. It
// holds one record or readAhead bytes, however long the segment is.
type reader struct {
	first uint64 // position in the name
	src   journal.Reader
	size  int64 // of the segment, or where reading it failed
	err   error // why it failed, or why nothing of the segment can be read
	mark  [markBytes]byte

	last uint64 // position of the record that was read last; before that first-1
	end  int64  // where that record ends, or the header; 0 if there is no good one
	buf  []byte // the bytes of the segment from at on
	at   int64
}

// openSegment returns the reader of a segment. A damaged header is not an error:
// such a segment has no records.
func openSegment(fs journal.FS, first uint64) (*reader, error) {
	name := segmentName(first)
	src, size, err := fs.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open queue segment %s: %w", name, err)
	}
	r := &reader{first: first, src: src, size: size, last: first - 1}
	mark, pos, err := parseHeader(r.bytes(0, headerBytes), segmentMagic)
	switch {
	case errors.Is(err, errVersion):
		_ = src.Close()
		return nil, fmt.Errorf("read queue segment %s: %w", name, err)
	case r.err != nil: // of reading
	case err != nil:
		r.err = err
	case pos != first:
		r.err = fmt.Errorf("%w: it says position %d", errHeader, pos)
	default:
		r.end = headerBytes
		order.PutUint32(r.mark[:], mark)
	}
	return r, nil
}

// next returns the next good record below limit, and false when there is none in
// the first size bytes. Damage lies between r.end as it was before and the
// record's offset.
func (r *reader) next(size int64, limit uint64) (frame, bool) {
	if r.end == 0 {
		return frame{}, false
	}
	r.size, r.err = size, nil
	for off := r.find(r.end); off >= 0; off = r.find(off + 1) {
		head := r.bytes(off, frameBytes)
		if len(head) < frameBytes {
			break
		}
		length := int64(order.Uint32(head[8:]))
		if length > MaxRecord || length > r.size-off-frameBytes {
			continue
		}
		n := frameBytes + int(length)
		whole := r.bytes(off, n)
		if len(whole) < n {
			continue
		}
		f := parseFrame(whole[:n])
		skipped := f.pos - r.last - 1 // beyond all bounds if the position is not above the last one
		if order.Uint32(whole[4:]) != crc32.Checksum(whole[8:n], castagnoli) ||
			f.pos >= limit || skipped > uint64(off-r.end)/frameBytes {
			continue
		}
		f.offset = off
		r.last, r.end = f.pos, off+int64(n)
		return f, true
	}
	return frame{}, false
}

func parseFrame(b []byte) frame {
	return frame{
		Record: Record{Samples: order.Uint32(b[12:]), Time: int64(order.Uint64(b[24:])), Payload: b[frameBytes:]},
		pos:    order.Uint64(b[16:]),
	}
}

// find returns the offset of the first mark at off or behind it, or -1.
func (r *reader) find(off int64) int64 {
	for r.size-off >= frameBytes {
		b := r.bytes(off, frameBytes)
		if i := bytes.Index(b, r.mark[:]); i >= 0 {
			return off + int64(i)
		}
		off += int64(max(1, len(b)-markBytes+1))
	}
	return -1
}

// bytes returns the segment from off on as far as it is in memory: at least n
// bytes of it, or all up to r.size if that is less. It ends where reading fails.
func (r *reader) bytes(off int64, n int) []byte {
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
