package segment

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// readAhead is how many bytes of a file are read at once: few calls, little memory.
const readAhead = 1 << 20

// Scanner reads the frames of one file in order and skips damage. It holds one frame or readAhead
// bytes, however long the file is.
type Scanner struct {
	First Position // of the file, from its name
	Last  Position // of the frame that was read last; before the first frame, First-1
	End   int64    // end of that frame, or of the header; 0 without a good header
	Size  int64    // of the file when it was opened
	Err   error    // why the file, or the file after End, cannot be read

	format   *Format
	src      Reader
	mark     [markBytes]byte
	readable int64  // how many bytes Next looks at; fewer after a failed read
	buf      []byte // the bytes of the file from offset `at` on
	at       int64
}

// Open returns the scanner of a file. A damaged header is not an error: the scanner then finds no
// frames, since it does not know their mark, and Err has the reason. Open returns an error if the
// file cannot be opened, or has a newer version.
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

// Next returns the next good frame below `limit`, or false if there is none in the first `size` bytes of
// the file. The file may have grown since Open. If the frame's Offset is not the previous End, the bytes
// in between are damaged.
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

// plausible reports whether a frame with this position can be at offset `off`. The frames between the
// last frame and this one must fit into the bytes between them.
func (s *Scanner) plausible(pos Position, off int64) bool {
	if s.format.Unordered {
		return pos >= s.First
	}
	skipped := uint64(pos - s.Last - 1) // huge if pos is not above Last
	return skipped <= uint64(off-s.End)/uint64(s.format.HeadBytes())
}

// find returns the offset of the first mark at or after offset `off`, or -1.
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

// bytes returns the part of the file from offset `off` on that is in memory. It has at least n bytes, or
// fewer at the end of the readable part of the file. The readable part ends where a read fails.
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
