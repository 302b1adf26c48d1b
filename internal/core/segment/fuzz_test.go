package segment_test

import (
	"bytes"
	"testing"

	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

// FuzzScanner scans any file. Each frame that the scanner returns is in the file byte for byte, comes
// after the previous frame, and has a plausible position below the limit.
func FuzzScanner(f *testing.F) {
	fs := memfs.New()
	for _, format := range []*segment.Format{&plain, &stamped} {
		a := &segment.Appender{FS: fs, Format: format, Mark: testMark, MaxBytes: 1 << 10, Last: 4}
		if _, err := appendAll(a, "one", "", "three", string(make([]byte, 100))); err != nil {
			f.Fatal(err)
		}
		data := fs.Files[format.Name(5)].Data
		flipped := bytes.Clone(data)
		flipped[segment.HeaderBytes+5] ^= 1
		for _, limit := range []uint64{7, 1 << 40} {
			f.Add(data, limit, format.Stamped, false)
			f.Add(flipped, limit, format.Stamped, false)
			f.Add(data[:len(data)-3], limit, format.Stamped, false)
			f.Add(append(bytes.Clone(data), data[segment.HeaderBytes:]...), limit, format.Stamped, true)
			f.Add(data[segment.HeaderBytes:], limit, format.Stamped, true)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, limit uint64, isStamped, withHeader bool) {
		format := plain
		if isStamped {
			format = stamped
		}
		if withHeader { // otherwise few inputs would reach the frames
			data = append(segment.AppendHeader(nil, format.Magic, testMark, 5), data...)
		}
		fs := memfs.New()
		fs.Files[format.Name(5)] = &memfs.File{Data: bytes.Clone(data)}
		s, err := format.Open(fs, 5)
		if err != nil {
			return // Open fails only for a newer version of the file
		}
		if (s.End == 0) != (s.Err != nil) {
			t.Fatalf("header end %d and error %v, want only one of the two", s.End, s.Err)
		}
		for {
			end, last := s.End, s.Last
			f, ok := s.Next(s.Size, segment.Position(limit))
			if !ok {
				break
			}
			if f.Pos <= last || f.Pos >= segment.Position(limit) ||
				f.Pos-last-1 > segment.Position(f.Offset-end)/segment.Position(format.HeadBytes()) {
				t.Fatalf("position %d follows %d after %d bytes, with limit %d, want a plausible position",
					f.Pos, last, f.Offset-end, limit)
			}
			if format.Accept != nil && !format.Accept(f.Tag) {
				t.Fatalf("frame %d has the refused tag %d", f.Pos, f.Tag)
			}
			// Each file has its own mark, so the comparison skips the mark.
			whole := format.AppendFrame(nil, 0, &f)
			if f.Offset < end || s.End != f.Offset+int64(len(whole)) || !bytes.Equal(data[f.Offset+4:s.End], whole[4:]) {
				t.Fatalf("the scanner invented frame %d at byte %d", f.Pos, f.Offset)
			}
		}
		if s.Err != nil && s.End > 0 {
			t.Fatalf("the scanner has the error %v, but no read failed", s.Err)
		}
	})
}
