// Package notes keeps small facts about a log. The owner of the log can do without them. They are
// in files beside the segments of the log. Layout: docs/format/journal.md.
package notes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"

	"github.com/freshet-io/freshet/internal/core/segment"
)

// Names of files.
const (
	OfTiles    = "notes"          // see Stored
	OfRequests = "notes.requests" // see Since
)

// maxBytes bounds a file, and so how much a start reads. BeginNotes usually replaces the notes long
// before they reach this size.
const maxBytes = 64 << 20

var (
	order      = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// File is a file of notes. It survives the death of the process. It is not synced, so after a power loss
// it may be missing or out of date.
type File struct {
	fs   segment.FS
	name string
	file segment.Writer // nil before BeginNotes, and after a write that failed
	size int            // of the file, in bytes
	buf  []byte         // scratch
}

// In(fs, name) returns a file of notes in the directory of a log.
func In(fs segment.FS, name string) File { return File{fs: fs, name: name} }

var errFull = fmt.Errorf("the notes have reached %d MiB; the next checkpoint rewrites them", maxBytes>>20)

// Notes returns the notes of an earlier process, in order, up to the first that is not whole. Call
// it before BeginNotes.
func (n *File) Notes() (all [][]byte, err error) {
	r, size, err := n.fs.Open(n.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the notes: %w", err)
	}
	defer r.Close()
	b := make([]byte, min(size, maxBytes))
	if _, err := r.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the notes: %w", err)
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
func (n *File) BeginNotes(all [][]byte) error {
	if err := n.begin(all); err != nil {
		return fmt.Errorf("write the notes: %w", err)
	}
	return nil
}

func (n *File) begin(all [][]byte) error {
	n.Close()
	temp := n.name + ".temp"
	f, err := n.fs.Create(temp)
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
	if err := n.fs.Rename(temp, n.name); err != nil {
		return errors.Join(err, f.Close())
	}
	n.file, n.size = f, len(n.buf)
	return nil
}

// Note appends a note. The note survives the death of the process. After an error, Note ignores all
// notes until BeginNotes succeeds, so that the caller logs one error.
func (n *File) Note(note []byte) error {
	if n.file == nil {
		return nil
	}
	n.buf = appendNote(n.buf[:0], note)
	if n.size += len(n.buf); n.size > maxBytes {
		n.Close()
		return errFull
	}
	if _, err := n.file.Write(n.buf); err != nil {
		n.Close() // part of the note may be in the file, and no note behind that part would be read
		return fmt.Errorf("write the notes: %w", err)
	}
	return nil
}

// Close closes the file.
func (n *File) Close() {
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
