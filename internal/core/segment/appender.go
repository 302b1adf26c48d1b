package segment

import (
	"fmt"
	"io"
)

// Appender writes frames behind all others of a log: Begin, then Add for each, then Write, which
// is one write. It is not for concurrent use.
type Appender struct {
	FS       FS
	Format   *Format
	Mark     uint32 // begins every frame: a random number that senders cannot know
	MaxBytes int64  // of a segment, unless one Write is longer
	Sync     bool   // each Write reaches the disk before it returns
	Last     Position

	buf  []byte   // a header and the frames of the next Write; as large as the largest so far
	next Position // of the frame that is added next

	file  Writer // of the segment that is written to; nil until a Write begins the next one
	first Position
	size  int64 // of it, in bytes; what lies beyond does not count
}

// Begin forgets what was added. The header is encoded in any case and left out of the write
// where the segment has one: so a new segment's header and frames are one write too, and no
// segment has a header and nothing else.
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

// Added is the length in bytes of the frames that were added.
func (a *Appender) Added() int64 { return int64(len(a.buf) - HeaderBytes) }

// Full reports whether the added frames do not fit into the segment: it must be sealed first.
func (a *Appender) Full() bool { return a.file != nil && a.size+a.Added() > a.MaxBytes }

// Write writes what was added, and says whether that began a new segment. When the error is nil
// it survives the death of the process. On an error none of it counts, and CutBack must follow.
func (a *Appender) Write() (began bool, err error) {
	buf := a.buf
	if began = a.file == nil; began {
		// A file of that name can only hold frames that did not count.
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

// CutBack takes back what a failed Write left, and reports whether the segment ends again where
// it should. If not it must be sealed: the name of the next one tells readers where it ends.
func (a *Appender) CutBack() bool {
	switch {
	case a.file == nil:
		return true
	case a.size == 0: // the next segment has the same name and replaces it
		_ = a.Seal().Close()
		_ = a.FS.Remove(a.Format.Name(a.first))
		return true
	}
	return a.FS.Truncate(a.Format.Name(a.first), a.size) == nil
}

// Active returns the file and the first position of the segment that is written to, and nil if
// there is none.
func (a *Appender) Active() (Writer, Position) { return a.file, a.first }

// Size of the segment that was written to last, in bytes.
func (a *Appender) Size() int64 { return a.size }

// Seal ends the segment that is written to and returns its file, which is the caller's to
// close, or nil if there is none. The next Write begins another.
func (a *Appender) Seal() Writer {
	f := a.file
	a.file = nil
	return f
}
