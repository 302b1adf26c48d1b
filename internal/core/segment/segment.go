// Package segment is the common base of our logs on disk. A log is a directory of segments: files
// that are named after the position of their first frame. A segment is a header followed by
// frames without gaps. A frame is a payload with its length, checksum and position, after a mark
// by which a reader finds the next frame after damage. An Appender writes frames, many at once,
// and a Scanner reads them. The journal's checkpoints and the queue's read position have the same
// header.
//
// The logs differ in this:
//   - A Format says what differs on disk: the magic, the longest payload, whether positions are in
//     order. Each log defines the tags and stamps of its frames.
//   - After a failed write the journal cuts the segment back and goes on in it; where that fails
//     it seals the segment. The queue and the entry log always seal it, since the write may have
//     failed to sync.
//   - When it opens, the journal cuts off all bytes after its last good frame: a torn write. The
//     queue leaves these bytes, and its reader passes over them.
//   - The journal removes a segment once two checkpoints cover it. The queue removes a segment when
//     all of its frames are done. A full queue gives up its oldest segment.
//   - The entry log of a member treats damage as an error. The other logs skip it.
//
// adapter/files gives access to files. Layout and the laws of reading: docs/format/segment.md.
package segment

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Position is the ordinal of a frame in its log. It starts at 1 and increases by one from frame
// to frame, across segments.
type Position uint64

// NoLimit is the limit of the last segment: all its frames are below it.
const NoLimit Position = math.MaxUint64

// FS is the directory of a log. Names contain no slashes.
type FS interface {
	List() ([]string, error)
	Create(name string) (Writer, error)          // an empty file, in place of one of that name; writes append
	Open(name string) (Reader, int64, error)     // also returns its size in bytes
	Overwrite(name string) (Writer, error)       // an existing file; writes replace its bytes from the first on
	Truncate(name string, sizeBytes int64) error // also while it is open for writing
	Rename(from, to string) error                // replaces a file that has the new name
	Remove(name string) error
	SyncDir() error // makes created, renamed and removed names survive a power loss
}

// Writer is a file open for writing. Sync makes the bytes written so far survive a power loss. Another
// goroutine may write during a Sync.
type Writer interface {
	io.WriteCloser
	Sync() error
}

// Reader is a file open for reading. It has the Writer's Sync, because a process may have to sync a
// file that an earlier process wrote.
type Reader interface {
	io.ReaderAt
	io.Closer
	Sync() error
}

// Format distinguishes the files of one log from the files of other logs.
type Format struct {
	Noun       string // "journal segment", in errors
	Magic      string // 8 bytes, begins the file
	Suffix     string // of its name
	MaxPayload int    // bytes; a greater length is damage, so a reader never allocates more
	Stamped    bool   // frames have a stamp, and are 8 bytes longer
	Unordered  bool   // positions may come in any order, but none is below the first of the file

	// Accept reports whether the log can have written a frame with this tag. Nil accepts all.
	Accept func(tag uint32) bool
}

// File is a file of a log, by its name. Frames from Limit on do not count, since the next file
// begins at that position.
type File struct {
	Name         string
	First, Limit Position
}

// Name returns the name of the file with that first position.
func (f *Format) Name(first Position) string { return fmt.Sprintf("%020d%s", first, f.Suffix) }

// ParseName is the inverse of Name.
func (f *Format) ParseName(name string) (first Position, ok bool) {
	digits, ok := strings.CutSuffix(name, f.Suffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 63) // 63 bits, so that a stray file cannot make positions overflow
	return Position(n), err == nil
}

// Files returns the log's own files among a directory's names, in order of position.
func (f *Format) Files(names []string) (files []File) {
	for _, name := range names {
		if first, ok := f.ParseName(name); ok {
			files = append(files, File{name, first, NoLimit})
		}
	}
	slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.First, b.First) })
	for i := range files[:max(0, len(files)-1)] {
		files[i].Limit = files[i+1].First
	}
	return files
}

// After returns the sorted files that begin after a position.
func After(files []File, pos Position) []File {
	i, _ := slices.BinarySearchFunc(files, pos+1, func(f File, pos Position) int { return cmp.Compare(f.First, pos) })
	return files[i:]
}
