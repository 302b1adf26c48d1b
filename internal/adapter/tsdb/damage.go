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
)

// logDirs are the directories of a store's write-ahead logs: of samples in order, and of
// those out of order.
var logDirs = []string{"wal", "wbl"}

const checkpointPrefix = "checkpoint."

// logs are the segments of a store's logs, by their paths.
type logs map[string]logged

type logged struct {
	fs.FileInfo
	written int64 // bytes, without the zeros with which the last page is padded
}

func listLogs(dir string) logs {
	found := logs{}
	for _, log := range logDirs {
		entries, err := os.ReadDir(filepath.Join(dir, log))
		if err != nil {
			continue // there is none yet, or the opening will say why
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

// segment is the number of a segment by its name.
func segment(name string) (number int, ok bool) {
	number, err := strconv.Atoi(name)
	return number, err == nil && number >= 0
}

// cutOff is how many bytes of these logs tsdb's repair left out in after. It deletes the
// segments behind the damage and writes a new one in place of the damaged; an opening
// without a repair touches none.
func (before logs) cutOff(after logs) (n int64) {
	for path, was := range before {
		is, there := after[path]
		switch {
		case !there && deleted(path):
			n += was.written
		case !there: // it cannot be read now, or somebody moved the store away
		case is.written < was.written: // also where the new file has the inode of the old one
			n += was.written - is.written
		case !os.SameFile(was.FileInfo, is.FileInfo):
			n++ // one record at least, which may be compressed otherwise now
		}
	}
	return n
}

// deleted reports whether a file is gone from a directory that is still there.
func deleted(path string) bool {
	_, err := os.Lstat(path)
	_, dirErr := os.Stat(filepath.Dir(path))
	return errors.Is(err, fs.ErrNotExist) && dirErr == nil
}

// pageBytes is what tsdb pads a log to.
const pageBytes = 32 << 10

// written is the size of a segment without the zeros at its end, of a page at most.
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

// examine looks for what would keep a store from opening, as far as names and kinds of
// files say it: that costs some system calls for each store. It returns nil for a store
// that is not there.
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
			return fmt.Errorf("open %s: segments are not sequential: %s is missing", filepath.Join(dir, log), filepath.Base(missing[0]))
		}
	}
	return nil
}

// examineCheckpoint reads the newest checkpoint of a store's log. tsdb takes the place of
// damage in it for one in the log, deletes all segments behind that, and then cannot be
// opened. It costs little of what replaying the checkpoint does.
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

// missingSegments are the paths of segments that should lie between those of a log, or
// between its newest checkpoint and its first segment, at most maxMissing of them, and
// the number of all.
func missingSegments(log string) (paths []string, all int) {
	entries, err := os.ReadDir(log)
	if err != nil {
		return nil, 0
	}
	var numbers []int
	checkpoint := -1
	for _, e := range entries {
		if n, ok := segment(e.Name()); ok {
			numbers = append(numbers, n)
		} else if text, ok := strings.CutPrefix(e.Name(), checkpointPrefix); ok {
			if n, ok := segment(text); ok {
				checkpoint = max(checkpoint, n)
			}
		}
	}
	slices.Sort(numbers)
	next := checkpoint + 1
	if checkpoint < 0 && len(numbers) == 0 {
		return nil, 0
	}
	if len(numbers) == 0 {
		numbers = []int{next + 1} // the first one would be 0, and a start never reads what stands before the checkpoint
	}
	if checkpoint < 0 || numbers[0] < next {
		next = numbers[0]
	}
	for _, n := range numbers {
		for ; next < n; next++ {
			if all++; all <= maxMissing {
				paths = append(paths, filepath.Join(log, fmt.Sprintf("%08d", next)))
			}
		}
		next = n + 1
	}
	return paths, all
}

// maxMissing bounds how many of them are named.
const maxMissing = 8

// blockName is how long the name of a block is: a ULID.
const blockName = 26

// wayOut says what to do about a store that cannot be opened, and what that loses.
func wayOut(dir string, cause error) string {
	for _, path := range []string{dir, filepath.Dir(dir)} { // of the store, of the tenant
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return fmt.Sprintf("move the file %s away: a directory belongs there, and no sample is lost by it", path)
		}
	}
	for _, log := range logDirs {
		if missing, all := missingSegments(filepath.Join(dir, log)); all > 0 {
			return fmt.Sprintf("bring %s back from a copy (%d missing), or make empty files of these names: that loses the samples which were in them and are in no block, and later ones of series that began there", strings.Join(missing, ", "), all)
		}
	}
	switch {
	case errors.Is(cause, fs.ErrPermission):
		return fmt.Sprintf("give %s and all in it to user %d, which this process runs as: nothing is lost", dir, os.Getuid())
	case errors.Is(cause, syscall.ENOSPC), errors.Is(cause, syscall.EDQUOT):
		return "free some space on its disk: nothing is lost"
	case errors.Is(cause, syscall.EMFILE), errors.Is(cause, syscall.ENFILE):
		return "raise the limit of open files (LimitNOFILE, ulimit -n): nothing is lost"
	case strings.Contains(cause.Error(), checkpointPrefix), strings.Contains(cause.Error(), "backfill checkpoint"):
		return fmt.Sprintf("bring the checkpoint back from a copy, or move %s away: that loses the samples in it which are in no block yet, three hours at most", filepath.Join(dir, "wal"))
	}
	if entries, err := os.ReadDir(dir); err == nil {
		for _, e := range entries {
			if e.IsDir() && len(e.Name()) == blockName && strings.Contains(cause.Error(), e.Name()) {
				return fmt.Sprintf("move the block %s away, or bring it back from a snapshot: without it the hours of that block are lost", filepath.Join(dir, e.Name()))
			}
		}
	}
	return fmt.Sprintf("move what the cause names out of %s; to move all of %s away loses the samples which are in no block yet, three hours at most", dir, filepath.Join(dir, "wal"))
}
