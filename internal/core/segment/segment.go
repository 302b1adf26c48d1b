// Package segment is what our logs on disk have in common. A log is a directory of segments,
// files that are named after the position of their first frame. A segment begins with a header
// and holds frames without space between them. A frame is a payload with its length, its checksum
// and its position, behind a mark by which the next frame is found behind damage. An Appender
// writes frames, many at once, and a Scanner reads them. A checkpoint of the journal and a read
// position of the queue have the same header.
//
// What the logs do differently they decide themselves:
//   - A Format says what differs on disk: the magic, the longest payload, whether positions are in
//     order. What a frame's tag and stamp hold is the log's own.
//   - After a failed write the journal cuts the segment back and goes on in it; where that fails
//     it seals the segment. The queue always seals it, since its write may have failed to sync.
//   - At a start the journal cuts off what follows the last good frame of all, a torn write. The
//     queue leaves it, and its reader passes over it.
//   - The journal removes a segment once two checkpoints cover it. The queue removes one when all
//     of it is done, or, when it is full, gives up the oldest.
//
// How files are reached is adapter/files' business. Layout and the laws of reading:
// docs/format/segment.md.
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

// Position is the ordinal of a frame in its log: the first is 1, and each has that of the one
// before plus one, from segment to segment.
type Position uint64

// NoLimit is the position below which the frames of the last segment lie.
const NoLimit Position = math.MaxUint64

// FS is the directory that holds a log. Names have no slashes in them.
type FS interface {
	List() ([]string, error)
	Create(name string) (Writer, error)          // empty; replaces a file of that name; writes append
	Open(name string) (Reader, int64, error)     // and its size in bytes
	Truncate(name string, sizeBytes int64) error // also while it is open for writing
	Rename(from, to string) error                // replaces a file named to
	Remove(name string) error
	SyncDir() error // makes created, renamed and removed names survive a power loss
}

// Writer is a file open for writing. Sync makes what was written survive a power
// loss, and may be called while another goroutine writes.
type Writer interface {
	io.WriteCloser
	Sync() error
}

// Reader is a file open for reading. Its Sync is the Writer's: a process may have
// to sync what another one wrote before it died.
type Reader interface {
	io.ReaderAt
	io.Closer
	Sync() error
}

// Format is what tells the files of one log from those of others.
type Format struct {
	Noun       string // "journal segment", in errors
	Magic      string // 8 bytes, begins the file
	Suffix     string // of its name
	MaxPayload int    // bytes; a length beyond it is damage, so it bounds what a reader allocates
	Stamped    bool   // frames have a stamp, and are 8 bytes longer
	Unordered  bool   // positions are at least that of the file, and need not follow each other

	// Accept reports whether the log can have written a frame of this tag. Nil accepts all.
	Accept func(tag uint32) bool
}

// File is a file of a log by its name. Frames from Limit on do not count: they are in the next
// file.
type File struct {
	Name         string
	First, Limit Position
}

// Name of the file whose first position it is.
func (f *Format) Name(first Position) string { return fmt.Sprintf("%020d%s", first, f.Suffix) }

// ParseName is the inverse of Name.
func (f *Format) ParseName(name string) (first Position, ok bool) {
	digits, ok := strings.CutSuffix(name, f.Suffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 63) // so that a stray file cannot make positions overflow
	return Position(n), err == nil
}

// Files returns the log's own of a directory's names, in the order of their positions.
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

// After returns those of sorted files that begin behind a position.
func After(files []File, pos Position) []File {
	i, _ := slices.BinarySearchFunc(files, pos+1, func(f File, pos Position) int { return cmp.Compare(f.First, pos) })
	return files[i:]
}
