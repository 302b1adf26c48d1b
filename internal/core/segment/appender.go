package segment

import (
	"fmt"
	"io"
)

// Appender writes frames at the end of a log: Begin, then Add for each frame, then Write, which
// writes all of them at once. It is not safe for concurrent use.
type Appender struct {
	FS       FS
	Format   *Format
	Mark     uint32 // begins every frame: a random number that senders cannot know
	MaxBytes int64  // of a segment, unless one Write is longer
	Sync     bool   // each Write reaches the disk before it returns
	Last     Position

	buf  []byte   // a header and the frames of the next Write; grows to the largest Write
	next Position // position of the next added frame

	file  Writer // of the current segment; nil until a Write begins the next one
	first Position
	size  int64 // of the segment, in bytes; bytes beyond it in the file do not count
}

// Begin forgets the added frames. It always encodes a header, which Write leaves out if the
// segment has one. So the header and frames of a new segment are one write, and no segment has
// only a header.
func (a *Appender) Begin() {
	a.next = a.Last + 1
	a.buf = AppendHeader(a.buf[:0], a.Format.Magic, a.Mark, a.next)
}

// Add adds a frame to the next Write, and gives it its position.
func (a *Appender) Add(f *Frame) {
	f.Pos = a.next
	a.buf = a.Format.AppendFrame(a.buf, a.Mark, f)
	a.next++
}

// Added returns the length of the added frames, in bytes.
func (a *Appender) Added() int64 { return int64(len(a.buf) - HeaderBytes) }

// Full reports whether the added frames do not fit into the segment, which must then be sealed
// first.
func (a *Appender) Full() bool { return a.file != nil && a.size+a.Added() > a.MaxBytes }

// Write writes the added frames, and reports whether that began a new segment. When the error is
// nil, the frames survive the death of the process. On an error no frame counts, and the caller
// must call CutBack.
func (a *Appender) Write() (began bool, err error) {
	buf := a.buf
	if began = a.file == nil; began {
		// If a file of that name exists, none of its frames count.
		name := a.Format.Name(a.Last + 1)
		f, err := a.FS.Create(name)
		if err != nil {
			return false, fmt.Errorf("create %s: %w", name, err)
		}
		a.file, a.first, a.size = f, a.Last+1, 0
	} else {
		buf = buf[HeaderBytes:]
	}
	if err := a.write(buf, began); err != nil {
		return began, fmt.Errorf("write %s: %w", a.Format.Name(a.first), err)
	}
	a.size += int64(len(buf))
	a.Last = a.next - 1
	return began, nil
}

func (a *Appender) write(buf []byte, began bool) error {
	n, err := a.file.Write(buf)
	if err == nil && n < len(buf) {
		err = io.ErrShortWrite
	}
	if err == nil && a.Sync {
		if err = a.file.Sync(); err == nil && began {
			err = a.FS.SyncDir()
		}
	}
	return err
}

// CutBack removes the bytes that a failed Write left, and reports whether that worked. If not, the
// caller must seal the segment: the name of the next segment tells readers where this one ends.
func (a *Appender) CutBack() bool {
	switch {
	case a.file == nil:
		return true
	case a.size == 0: // the next segment has the same name, and replaces the file
		_ = a.Seal().Close()
		_ = a.FS.Remove(a.Format.Name(a.first))
		return true
	}
	return a.FS.Truncate(a.Format.Name(a.first), a.size) == nil
}

// Active returns the file and the first position of the current segment. The file is nil if there
// is none.
func (a *Appender) Active() (Writer, Position) { return a.file, a.first }

// Size returns the size of the last segment, in bytes.
func (a *Appender) Size() int64 { return a.size }

// Seal ends the current segment and returns its file, or nil if there is none. The caller must
// close the file. The next Write begins another segment.
func (a *Appender) Seal() Writer {
	f := a.file
	a.file = nil
	return f
}
