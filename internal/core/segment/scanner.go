package segment

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// readAhead is how much of a file is read at once: few calls, little memory.
const readAhead = 1 << 20

// Scanner reads the frames of one file in order and steps over damage. It holds one frame or
// readAhead bytes, however long the file is.
type Scanner struct {
	First Position // of the file, by its name
	Last  Position // of the frame that was read last; before that First-1
	End   int64    // where that frame ends, or the header; 0 if there is no good one
	Size  int64    // of the file when it was opened
	Err   error    // why nothing of the file can be read, or nothing behind End

	format   *Format
	src      Reader
	mark     [markBytes]byte
	readable int64  // what Next looks at: bytes, or where reading them failed
	buf      []byte // the bytes of the file from at on
	at       int64
}

// Open returns the scanner of a file. A damaged header is no error: such a file has no known
// mark, so no frames, and Err says why. These are errors: a file that cannot be opened, and one
// of a newer version.
func (f *Format) Open(fs FS, first Position) (*Scanner, error) {
	name := f.Name(first)
	src, size, err := fs.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open %s %s: %w", f.Noun, name, err)
	}
	s := &Scanner{First: first, Last: first - 1, Size: size, format: f, src: src, readable: size}
	mark, pos, err := ParseHeader(s.bytes(0, HeaderBytes), f.Magic)
	switch {
	case errors.Is(err, errVersion):
		_ = src.Close()
		return nil, fmt.Errorf("read %s %s: %w", f.Noun, name, err)
	case s.Err != nil:
		s.Err = fmt.Errorf("%w: %w", ErrHeader, s.Err)
	case err != nil:
		s.Err = err
	case pos != first:
		s.Err = fmt.Errorf("%w: it says position %d", ErrHeader, pos)
	default:
		s.End = HeaderBytes
		order.PutUint32(s.mark[:], mark)
	}
	return s, nil
}

// Next returns the next good frame below limit, and false when there is none in the first size
// bytes; a file may have grown since. Damage lies between End as it was before and the frame's
// Offset.
func (s *Scanner) Next(size int64, limit Position) (Frame, bool) {
	if s.End == 0 {
		return Frame{}, false
	}
	s.readable, s.Err = size, nil
	headBytes := int64(s.format.HeadBytes())
	for off := s.find(s.End); off >= 0; off = s.find(off + 1) {
		head := s.bytes(off, headBytes)
		if int64(len(head)) < headBytes {
			break
		}
		length := int64(order.Uint32(head[8:]))
		if length > int64(s.format.MaxPayload) || length > s.readable-off-headBytes {
			continue
		}
		n := headBytes + length
		whole := s.bytes(off, n)
		if int64(len(whole)) < n {
			continue
		}
		f, ok := s.format.ParseFrame(whole[:n])
		if !ok || f.Pos >= limit || !s.plausible(f.Pos, off) {
			continue
		}
		f.Offset = off
		s.Last, s.End = f.Pos, off+n
		return f, true
	}
	return Frame{}, false
}

// plausible reports whether a frame of this position can stand at off: the ones that are
// skipped must have had room in the bytes passed over.
func (s *Scanner) plausible(pos Position, off int64) bool {
	if s.format.Unordered {
		return pos >= s.First
	}
	skipped := uint64(pos - s.Last - 1) // beyond all bounds if pos is not above Last
	return skipped <= uint64(off-s.End)/uint64(s.format.HeadBytes())
}

// find returns the offset of the first mark at off or behind it, or -1.
func (s *Scanner) find(off int64) int64 {
	headBytes := int64(s.format.HeadBytes())
	for s.readable-off >= headBytes {
		b := s.bytes(off, headBytes)
		if i := bytes.Index(b, s.mark[:]); i >= 0 {
			return off + int64(i)
		}
		off += int64(max(1, len(b)-markBytes+1))
	}
	return -1
}

// bytes returns the file from off on as far as it is in memory: at least n bytes of it, or all
// that is readable if that is less. What is readable ends where reading fails.
func (s *Scanner) bytes(off, n int64) []byte {
	n = min(n, max(0, s.readable-off))
	if off < s.at || off+n > s.at+int64(len(s.buf)) {
		want := int(min(max(n, readAhead), s.readable-off))
		s.buf = slices.Grow(s.buf[:0], want)[:want]
		got, err := s.src.ReadAt(s.buf, off)
		s.buf, s.at = s.buf[:got], off
		if got < want {
			s.readable, s.Err = off+int64(got), err
		}
	}
	return s.buf[off-s.at:]
}

// Close closes the file.
func (s *Scanner) Close() error { return s.src.Close() }
