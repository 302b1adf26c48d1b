package queue

import (
	"errors"
	"fmt"
	"io"

	"github.com/freshet-io/freshet/internal/core/segment"
)

const (
	doneName = "done"
	doneTemp = "done.tmp"

	// maxEntries bounds the file "done" to 64 KiB: after so many entries a new file replaces it.
	maxEntries = 64 << 10 / segment.HeaderBytes
)

// save writes the read position to the file "done". It appends the position in one write, or writes a
// new file if the file is long or the last write failed.
func (q *Queue) save() error {
	entry := segment.AppendHeader(nil, doneMagic, q.opts.Mark, q.done)
	var err error
	if q.saved != nil && q.entries < maxEntries {
		err = writeAll(q.saved, entry)
		q.entries++
	} else {
		err = q.replace(entry)
	}
	if err != nil {
		q.closeSaved() // the last entry may be torn, and a reader would not find later entries behind it
		return fmt.Errorf("save the read position of the queue: %w", err)
	}
	return nil
}

func (q *Queue) replace(entry []byte) (err error) {
	q.closeSaved()
	if q.saved, err = q.fs.Create(doneTemp); err != nil {
		q.saved = nil
		return err
	}
	q.entries = 1
	if err := writeAll(q.saved, entry); err != nil {
		return err
	}
	return q.fs.Rename(doneTemp, doneName)
}

func (q *Queue) closeSaved() {
	if q.saved != nil {
		_ = q.saved.Close() // if an entry is lost, a frame is sent again
		q.saved = nil
	}
}

func writeAll(w io.Writer, b []byte) error {
	n, err := w.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return err
}

// readDone returns the saved read position, or 0 if none can be read.
func readDone(fs segment.FS) (done segment.Position, err error) {
	src, size, err := fs.Open(doneName)
	if err != nil {
		return 0, fmt.Errorf("open the read position of the queue, %s: %w", doneName, err)
	}
	defer src.Close()
	b := make([]byte, min(size, maxEntries*segment.HeaderBytes))
	n, _ := src.ReadAt(b, 0) // frames whose entries cannot be read are sent again
	for b = b[:n]; len(b) >= segment.HeaderBytes; b = b[segment.HeaderBytes:] {
		_, pos, err := segment.ParseHeader(b, doneMagic)
		if err == nil {
			done = max(done, pos)
		} else if !errors.Is(err, segment.ErrHeader) {
			return 0, fmt.Errorf("read the read position of the queue, %s: %w", doneName, err)
		}
	}
	return done, nil
}
