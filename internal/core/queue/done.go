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

	// maxEntries bounds the entries of the file done, to 64 KiB. A new file then replaces it.
	maxEntries = 64 << 10 / segment.HeaderBytes
)

// save writes the read position to the file done: at its end, which is one write,
// or into a new file if it is long or there was an error.
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
		q.closeSaved() // its last entry may be torn, and a reader would not find later ones behind it
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
		_ = q.saved.Close() // an entry that is lost means that a frame is sent again
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

// readDone returns the read position that was saved, or 0 if none can be read.
func readDone(fs segment.FS) (done segment.Position, err error) {
	src, size, err := fs.Open(doneName)
	if err != nil {
		return 0, fmt.Errorf("open the read position of the queue, %s: %w", doneName, err)
	}
	defer src.Close()
	b := make([]byte, min(size, maxEntries*segment.HeaderBytes))
	n, _ := src.ReadAt(b, 0) // what cannot be read is sent again
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
