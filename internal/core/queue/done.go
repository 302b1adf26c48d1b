package queue

import (
	"errors"
	"fmt"
	"io"

	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/lib/fulldisk"
)

const (
	doneName = "done"
	doneTemp = "done.tmp"

	// maxEntries bounds the file "done" to 64 KiB. Once the file has that many entries, a new file
	// replaces it.
	maxEntries = 64 << 10 / segment.HeaderBytes
)

// Save saves the read position, unless it is saved already. As long as it returns errors, a restart
// may return several frames again, and not only the one that is under way.
func (q *Queue) Save() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.done == q.kept {
		return nil
	}
	return q.save()
}

// Prepare saves the read position twice if none is saved yet, so that later ones can be saved on a full disk.
func (q *Queue) Prepare() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.hasFile {
		return nil
	}
	return errors.Join(q.save(), q.save())
}

// save writes the read position to the file "done". It appends the position in one write, or writes a
// new file if the file is long or the last write failed. On a full disk it replaces a position in
// the file.
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
	}
	if fulldisk.Is(err) && q.overwrite(entry) == nil {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("save the read position of the queue: %w", err)
	}
	q.kept, q.hasFile = q.done, true
	return nil
}

// overwrite replaces a position in the file "done", which needs no space. A reader takes the
// highest position that it finds. So overwrite replaces the first position, or the second if the
// first is the highest.
func (q *Queue) overwrite(entry []byte) error {
	src, size, err := q.fs.Open(doneName)
	if err != nil {
		return err
	}
	first := make([]byte, segment.HeaderBytes)
	_, err = src.ReadAt(first, 0)
	if err := errors.Join(err, src.Close()); err != nil {
		return err
	}
	if _, pos, err := segment.ParseHeader(first, doneMagic); err == nil && pos == q.kept {
		entry = append(first, entry...)
	}
	if int64(len(entry)) > size {
		return fulldisk.Err
	}
	f, err := q.fs.Overwrite(doneName)
	if err != nil {
		return err
	}
	return errors.Join(writeAll(f, entry), f.Close())
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
