package tsdb

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/wlog"
)

// A saved head is a directory with the newest chunk of each series of the head; tsdb calls it a chunk snapshot. The
// older chunks are in the chunk files. An opening with a saved head reads the log only from the position in its name
// on. The log keeps the older segments, so a saved head is never needed: whenever it may not fit to the other files of
// the store, it is removed, and the opening reads the whole log.
//
// tsdb reads a saved head that lacks a file, or has the chunk files of another time, without an error. So a saved head
// counts only if there is a note that was written behind it. The note is written once everything that it names is
// synced: after a power loss, other files may lack their newest bytes, and have what the note says of them.

const savedHeads = "chunk_snapshot."

// savedHead returns the path of a saved head.
func savedHead(dir string, segment, offset int) string {
	return filepath.Join(dir, fmt.Sprintf(savedHeads+"%06d.%010d", segment, offset))
}

// findHead returns the note of the saved head with which a closed database can open, nil if there is none. If `why` is
// not nil, there is one that cannot be used.
func findHead(dir string) (usable *headNote, why error) {
	n, found, err := readHeadNote(dir)
	switch {
	case err != nil:
		return nil, err
	case !found && len(allSavedHeads(dir)) > 0:
		return nil, errors.New("the process that was saving it ended before")
	case !found:
		return nil, nil
	}
	if err := n.check(dir); err != nil {
		return nil, err
	}
	return &n, nil
}

// check returns an error if the saved head does not fit to the other files of the store.
func (n *headNote) check(dir string) error {
	wal := filepath.Join(dir, "wal")
	all, err := segmentsOf(wal)
	switch {
	case err != nil:
		return err
	case len(all.numbers) == 0, all.numbers[0] > n.segment, all.checkpoint >= n.segment:
		// With a checkpoint behind its position, tsdb would drop chunks of late samples.
		return errors.New("the log no longer has its position")
	}
	if fits, err := n.log.fits(wal); err != nil || !fits {
		return errors.Join(err, errors.New("the log was repaired or replaced since"))
	}
	if fits, err := n.chunks.fitsChunks(dir); err != nil || !fits {
		return errors.Join(err, errors.New("the files with chunks were repaired or removed since"))
	}
	bytes, sum, err := sumOf(savedHead(dir, n.segment, n.offset))
	if err == nil && (bytes != n.bytes || sum != n.sum) {
		err = errors.New("it is damaged")
	}
	return err
}

// sumOf returns the size of all files of a saved head, and the checksum of these files, one after the other.
func sumOf(dir string) (bytes int64, sum uint32, err error) {
	names, err := namesIn(dir)
	if err != nil {
		return 0, 0, err
	}
	page := make([]byte, 1<<20)
	for _, name := range names {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return 0, 0, err
		}
		for err == nil {
			var n int
			n, err = f.Read(page)
			bytes, sum = bytes+int64(n), crc32.Update(sum, castagnoli, page[:n])
		}
		if err == io.EOF {
			err = nil
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return 0, 0, err
		}
	}
	return bytes, sum, nil
}

// allSavedHeads returns the paths of all saved heads, whole or not.
func allSavedHeads(dir string) (paths []string) {
	names, _ := namesIn(dir) // the opening reports the error
	for _, name := range names {
		if strings.HasPrefix(name, savedHeads) {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	return paths
}

// keepHead removes all saved heads but the one of the note, whose files nothing else may write to, and reports whether
// there were any. If the note is nil, it also removes the note of the store.
func keepHead(dir string, n *headNote) (others bool, err error) {
	var errs []error
	if n == nil {
		if err := os.Remove(filepath.Join(dir, headNoteFile)); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	for _, path := range allSavedHeads(dir) {
		if n == nil || path != savedHead(dir, n.segment, n.offset) {
			others, errs = true, append(errs, os.RemoveAll(path))
		}
	}
	return others, errors.Join(errs...)
}

// contradicts reports whether the late samples of a closed database do not fit to the saved head. A series may have
// several numbers, of which the saved head has another one than a full log would give. And tsdb drops the chunks of
// late samples of a series that began while the head was saved.
//
// It also reports whether chunks are missing that the opening has just removed because of damage.
func (n *headNote) contradicts(dir string, late *lateFiles) bool {
	if fits, err := n.chunks.fitsChunks(dir); err != nil || !fits {
		return true
	}
	for m := range late.markers {
		if m.Ref > n.before && m.Ref <= n.highest {
			return true
		}
	}
	return late.several
}

// continues prepares a database for writes that was just opened with a saved head. New series get numbers above all
// that were given before: the saved head lacks series that were gone when it was saved, and tsdb has not read the part
// of the log that has them. And tsdb no longer saves the head at the close, because closeDatabase decides whether that
// pays.
func (d *database) continues(n *headNote) error {
	options, err := part[*tsdb.HeadOptions](d.Head(), "opts")
	if err != nil {
		return err
	}
	(*options).EnableMemorySnapshotOnShutdown = false
	last, err := lastNumber(d.Head())
	if err != nil {
		return err
	}
	last.Store(max(last.Load(), uint64(n.highest)))
	d.numbers.from, d.fromSavedHead = n.segment, true
	d.numbers.raise(n.highest)
	return nil
}

// chunkEnd returns where the files with chunks of the head end: the last file, and the end of its last chunk.
func chunkEnd(dir string) (e logEnd, err error) {
	e = logEnd{checkpoint: -1, segment: -1}
	files := headFiles(dir)
	if len(files) == 0 {
		return e, nil
	}
	last := files[len(files)-1]
	e.segment, _ = segment(filepath.Base(last))
	if e.size, err = endOfChunks(last); err == nil {
		e.tail, err = tailOf(last, e.size)
	}
	return e, err
}

// fitsChunks reports whether the chunk files still have this end, or have since dropped the file up to it, because
// its samples are in blocks.
func (e logEnd) fitsChunks(dir string) (bool, error) {
	if e.segment < 0 {
		return true, nil
	}
	files := headFiles(dir)
	if len(files) == 0 {
		return false, nil
	}
	if first, _ := segment(filepath.Base(files[0])); first > e.segment {
		return true, nil
	}
	tail, err := tailOf(filepath.Join(dir, headChunksDir, fmt.Sprintf("%06d", e.segment)), e.size)
	if errors.Is(err, io.EOF) || errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return tail == e.tail, err
}

// ranges returns the segments of the log that an opening with the saved head reads.
func (n *headNote) ranges(dir string) []wlog.SegmentRange {
	return []wlog.SegmentRange{{Dir: filepath.Join(dir, "wal"), First: n.segment, Last: -1}}
}
