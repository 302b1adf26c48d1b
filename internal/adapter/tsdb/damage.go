package tsdb

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/wlog"

	"github.com/freshet-io/freshet/internal/lib/fulldisk"
)

// logDirs are the directories of a store's write-ahead logs: for samples in order, and for
// samples out of order.
var logDirs = []string{"wal", "wbl"}

const checkpointPrefix = "checkpoint."

// logs are the segments of a store's logs, by path.
type logs map[string]logged

type logged struct {
	fs.FileInfo
	written int64 // bytes, without the zeros that pad the last page
}

func listLogs(dir string) logs {
	found := logs{}
	for _, log := range logDirs {
		entries, err := os.ReadDir(filepath.Join(dir, log))
		if err != nil {
			continue // no log yet, or the opening will report the error
		}
		for _, e := range entries {
			if _, isSegment := segment(e.Name()); !isSegment {
				continue
			}
			path := filepath.Join(dir, log, e.Name())
			if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
				found[path] = logged{info, written(path, info.Size())}
			}
		}
	}
	return found
}

// segment returns a segment's number by its file name.
func segment(name string) (number int, ok bool) {
	number, err := strconv.Atoi(name)
	return number, err == nil && number >= 0
}

// cutOff returns how many bytes of these logs tsdb's repair removed. `after` has the logs after the
// opening. A repair deletes the segments behind the damage and replaces the damaged segment. An
// opening without a repair changes no segment.
func (before logs) cutOff(after logs) (n int64) {
	for path, was := range before {
		is, there := after[path]
		switch {
		case !there && deleted(path):
			n += was.written
		case !there: // the segment cannot be read now, or the store was moved away
		case is.written < was.written: // even if the new file has the inode of the old one
			n += was.written - is.written
		case !os.SameFile(was.FileInfo, is.FileInfo):
			n++ // at least one record; the new file may be compressed differently
		}
	}
	return n
}

// deleted is true if a file is missing from a directory that still exists.
func deleted(path string) bool {
	_, err := os.Lstat(path)
	_, dirErr := os.Stat(filepath.Dir(path))
	return errors.Is(err, fs.ErrNotExist) && dirErr == nil
}

// pageBytes is the page size to which tsdb pads a log.
const pageBytes = 32 << 10

// written returns the size of a segment in bytes, without the zeros in its last page.
func written(path string, size int64) int64 {
	f, err := os.Open(path)
	if err != nil {
		return size
	}
	defer f.Close()
	from := max(0, size-pageBytes)
	tail, err := io.ReadAll(io.NewSectionReader(f, from, pageBytes))
	if err != nil {
		return size
	}
	return from + int64(len(bytes.TrimRight(tail, "\x00")))
}

// environment returns err if it is an error of the disk or the process, such as EIO or EMFILE. It
// returns nil for damage and for a file that does not exist. tsdb would treat a read error like
// damage, and remove what it cannot read and all that follows. Therefore an opening reads the logs
// before tsdb does: see readLog and renumber.
func environment(err error) error {
	var errno syscall.Errno
	if !errors.As(err, &errno) || errors.Is(err, fs.ErrNotExist) || errno == syscall.EINVAL { // an empty file is mapped
		return nil
	}
	return err
}

// roomError says that the disk is too full for a second copy of a file, which would replace the first.
type roomError struct {
	path  string
	bytes int64
	cause error
}

func (e *roomError) Error() string {
	return fmt.Sprintf("rewrite %s, which needs %d kB more on its disk for a moment: %v", e.path, e.kilobytes(), e.cause)
}

func (e *roomError) Unwrap() error { return e.cause }

// kilobytes returns the size in kB, rounded up.
func (e *roomError) kilobytes() int64 { return (e.bytes + 999) / 1000 }

// needsRoom turns the error of a full disk into a roomError for the file at `path`, which could not be
// replaced.
func needsRoom(path string, err error) error {
	info, statErr := os.Stat(path)
	if statErr != nil || !fulldisk.Is(err) {
		return err
	}
	return &roomError{path, info.Size(), err}
}

// examine looks at the names and types of a store's files, and returns an error if they keep the store
// from opening. That costs a few system calls for each store. For a store that does not exist, it
// returns nil.
func examine(dir string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOTDIR}
	}
	if err == nil {
		_, err = os.ReadDir(dir)
	}
	if err != nil {
		return err
	}
	for _, log := range logDirs {
		if missing, _ := missingSegments(filepath.Join(dir, log)); len(missing) > 0 {
			return fmt.Errorf("open %s: segments are not sequential: %s is missing",
				filepath.Join(dir, log), filepath.Base(missing[0]))
		}
	}
	return nil
}

// examineCheckpoint reads the newest checkpoint of a store's log. If the checkpoint is damaged, tsdb
// looks for the damage in the log, deletes all segments behind the checkpoint, and then fails to open.
// Reading the checkpoint costs a small part of the time of its replay.
func examineCheckpoint(dir string) error {
	path, _, err := wlog.LastCheckpoint(filepath.Join(dir, "wal"))
	if errors.Is(err, record.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	segments, err := wlog.NewSegmentsReader(path)
	if err != nil {
		return fmt.Errorf("open %s: checkpoint: %w", dir, err)
	}
	defer segments.Close()
	r := wlog.NewReader(segments)
	for r.Next() {
	}
	if err := r.Err(); err != nil {
		return fmt.Errorf("open %s: checkpoint: %w", dir, err)
	}
	return nil
}

// readLog reads the log of in-order samples from a segment on. It returns errors of the disk, which tsdb would take for
// damage. Afterwards the log is in the page cache, so tsdb's replay reads nothing from the disk.
func readLog(dir string, from int) error {
	wal := filepath.Join(dir, "wal")
	found, err := segmentsOf(wal)
	if err != nil {
		return err
	}
	page := make([]byte, 1<<20)
	for _, number := range found.numbers {
		if number < from {
			continue
		}
		f, err := os.Open(segmentPath(wal, number))
		if err != nil {
			return err
		}
		for err == nil {
			_, err = f.Read(page)
		}
		if err == io.EOF {
			err = nil
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// segments lists the files of a log.
type segments struct {
	numbers    []int // ascending
	checkpoint int   // number of the newest checkpoint; -1 for none
}

// segmentsOf lists the files of a log. A log that does not exist has no segments.
func segmentsOf(log string) (all segments, err error) {
	all.checkpoint = -1
	entries, err := os.ReadDir(log)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	for _, e := range entries {
		if n, ok := segment(e.Name()); ok {
			all.numbers = append(all.numbers, n)
		} else if text, ok := strings.CutPrefix(e.Name(), checkpointPrefix); ok {
			if n, ok := segment(text); ok {
				all.checkpoint = max(all.checkpoint, n)
			}
		}
	}
	slices.Sort(all.numbers)
	return all, err
}

// segmentPath returns the path of a segment of a log.
func segmentPath(log string, number int) string {
	return filepath.Join(log, fmt.Sprintf("%08d", number))
}

// missingSegments returns the paths of at most maxMissing missing segments, and the total number of
// missing segments. Segments can be missing inside a log, or between its newest checkpoint and its first
// segment.
func missingSegments(log string) (paths []string, all int) {
	found, err := segmentsOf(log)
	if err != nil {
		return nil, 0
	}
	numbers, checkpoint := found.numbers, found.checkpoint
	next := checkpoint + 1
	if checkpoint < 0 && len(numbers) == 0 {
		return nil, 0
	}
	if len(numbers) == 0 {
		numbers = []int{next + 1} // a new log would begin at segment 0, which a start skips if there is a checkpoint
	}
	if checkpoint < 0 || numbers[0] < next {
		next = numbers[0]
	}
	for _, n := range numbers {
		for ; next < n; next++ {
			if all++; all <= maxMissing {
				paths = append(paths, segmentPath(log, next))
			}
		}
		next = n + 1
	}
	return paths, all
}

// maxMissing bounds how many missing segments an error names.
const maxMissing = 8

// blockDirs returns the directories in a snapshot's store. All of them are blocks. It returns none
// if there is no such store.
func blockDirs(dir string) (all []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if e.IsDir() {
			all = append(all, filepath.Join(dir, e.Name()))
		}
	}
	return all, nil
}

// blockName is the length of a block's name: a ULID.
const blockName = 26

// wayOut says how to repair a store that cannot be opened, and which data the repair loses.
func wayOut(dir string, cause error) string {
	for _, path := range []string{dir, filepath.Dir(dir)} { // the directories of the store and the tenant
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return fmt.Sprintf("move the file %s away: a directory belongs there, and no sample is lost", path)
		}
	}
	for _, log := range logDirs {
		if missing, all := missingSegments(filepath.Join(dir, log)); all > 0 {
			return fmt.Sprintf("restore %s from a copy (%d missing). If there is no copy, create empty "+
				"files with these names: this loses the samples of the missing files that are in no block, and later "+
				"samples of series that began in these files",
				strings.Join(missing, ", "), all)
		}
	}
	var room *roomError
	switch {
	case errors.Is(cause, fs.ErrPermission):
		return fmt.Sprintf("change the owner of %s and all its contents to user %d, which this process runs as: "+
			"nothing is lost", dir, os.Getuid())
	case fulldisk.Is(cause) && errors.As(cause, &room):
		return fmt.Sprintf("free some space on its disk, at least %d kB: nothing is lost", room.kilobytes())
	case fulldisk.Is(cause):
		return "free some space on its disk: nothing is lost"
	case errors.Is(cause, syscall.EMFILE), errors.Is(cause, syscall.ENFILE):
		return "raise the limit of open files (LimitNOFILE, ulimit -n): nothing is lost"
	case strings.Contains(cause.Error(), checkpointPrefix), strings.Contains(cause.Error(), "backfill checkpoint"):
		return fmt.Sprintf("restore the checkpoint from a copy. Or move %s away: then all samples in this directory that "+
			"are in no block are lost, at most those of three hours", filepath.Join(dir, "wal"))
	}
	if entries, err := os.ReadDir(dir); err == nil {
		for _, e := range entries {
			if e.IsDir() && len(e.Name()) == blockName && strings.Contains(cause.Error(), e.Name()) {
				return fmt.Sprintf("restore the block %s from a snapshot. Or move it away: then its samples are lost",
					filepath.Join(dir, e.Name()))
			}
		}
	}
	return fmt.Sprintf("move the file that the cause names out of %s. Or move all of %s away: then all samples in that "+
		"directory that are in no block are lost, at most those of three hours", dir, filepath.Join(dir, "wal"))
}

// namesIn returns the names in a directory, ascending. There are none if the directory does not exist.
func namesIn(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// walBytes returns the size of the log of a database before it opens.
func walBytes(dir string) (n int64) {
	entries, err := os.ReadDir(filepath.Join(dir, "wal"))
	if err != nil {
		return 0 // no log yet
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && !e.IsDir() {
			n += info.Size()
		}
	}
	return n
}
