package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"

	"github.com/freshet-io/freshet/internal/core/segment"
)

const (
	notesFile = "notes"
	notesTemp = "notes.temp"

	// maxNotes bounds the bytes of notes that a start reads. BeginNotes replaces the notes long
	// before they reach this size.
	maxNotes = 64 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// notes is a file beside the segments. It holds small facts about the frames, which the caller can
// do without. It survives the death of the process. It is not synced, so after a power loss it may
// be missing or out of date.
type notes struct {
	file segment.Writer // nil before BeginNotes, and after a write that failed
	buf  []byte         // scratch
}

var errNoNotes = errors.New("an earlier write of the journal's notes failed; the next checkpoint rewrites them")

// Notes returns the notes of an earlier process, in order, up to the first that is not whole. Call
// it before BeginNotes.
func (l *Log) Notes() (all [][]byte, err error) {
	r, size, err := l.fs.Open(notesFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the journal's notes: %w", err)
	}
	defer r.Close()
	b := make([]byte, min(size, maxNotes))
	if _, err := r.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the journal's notes: %w", err)
	}
	for {
		note, rest, ok := cutNote(b)
		if !ok {
			return all, nil
		}
		all, b = append(all, note), rest
	}
}

// BeginNotes replaces all notes. Different goroutines may not call BeginNotes and Note at once.
func (l *Log) BeginNotes(all [][]byte) error {
	if err := l.beginNotes(all); err != nil {
		return fmt.Errorf("write the journal's notes: %w", err)
	}
	return nil
}

func (l *Log) beginNotes(all [][]byte) error {
	n := &l.notes
	n.close()
	f, err := l.fs.Create(notesTemp)
	if err != nil {
		return err
	}
	n.buf = n.buf[:0]
	for _, note := range all {
		n.buf = appendNote(n.buf, note)
	}
	if _, err := f.Write(n.buf); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := l.fs.Rename(notesTemp, notesFile); err != nil {
		return errors.Join(err, f.Close())
	}
	n.file = f
	return nil
}

// Note appends a note. When it returns nil, the note survives the death of the process.
func (l *Log) Note(note []byte) error {
	n := &l.notes
	if n.file == nil {
		return errNoNotes
	}
	n.buf = appendNote(n.buf[:0], note)
	if _, err := n.file.Write(n.buf); err != nil {
		n.close() // part of the note may be in the file, and no note behind that part would be read
		return fmt.Errorf("write the journal's notes: %w", err)
	}
	return nil
}

func (n *notes) close() {
	if n.file != nil {
		_ = n.file.Close() // an error loses nothing: each note was written at once
		n.file = nil
	}
}

// appendNote appends the length of a note, its checksum and the note.
func appendNote(dst, note []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(note)))
	dst = order.AppendUint32(dst, crc32.Checksum(note, castagnoli))
	return append(dst, note...)
}

// cutNote takes a whole note from the front of b.
func cutNote(b []byte) (note, rest []byte, ok bool) {
	length, n := binary.Uvarint(b)
	if n <= 0 || len(b)-n < 4 || length > uint64(len(b)-n-4) {
		return nil, nil, false
	}
	sum, b := order.Uint32(b[n:]), b[n+4:]
	note, rest = b[:length:length], b[length:]
	return note, rest, crc32.Checksum(note, castagnoli) == sum
}
