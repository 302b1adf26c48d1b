// Package files implements the directory on disk for the logs of core/segment, and the lock that
// reserves a data directory for one process. The logs decide what the files contain.
package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/lib/fault"
	"github.com/freshet-io/freshet/internal/lib/fulldisk"
)

// Only the owner writes data. The group may read it.
const (
	dirMode  = 0o750
	fileMode = 0o640
)

// Dir implements core/segment's directory on disk.
type Dir struct {
	path string
}

var _ segment.FS = Dir{}

// Open makes the directory if needed, and checks that files can be written to it.
func Open(path string) (Dir, error) {
	if err := os.MkdirAll(path, dirMode); err != nil {
		return Dir{}, fmt.Errorf("make directory %s: %w", path, cause(err))
	}
	if err := checkWritable(path); err != nil {
		return Dir{}, fmt.Errorf("write to directory %s as user %d: %w; change its owner or its mode, or choose "+
			"another directory",
			path, os.Getuid(), cause(err))
	}
	return Dir{path}, nil
}

// checkWritable writes a byte to a file and removes the file: permission bits do not show read-only
// mounts. A full disk is no error, since what is stored can still be read.
func checkWritable(path string) error {
	f, err := os.CreateTemp(path, "write-test-*")
	if err != nil {
		return err
	}
	if _, err = f.Write([]byte{0}); fulldisk.Is(err) {
		err = nil
	}
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// cause returns an error whose text lacks the path, because the caller's message names the path.
func cause(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return causeError{path}
	}
	return err
}

type causeError struct{ of *os.PathError }

func (e causeError) Error() string { return e.of.Err.Error() }

func (e causeError) Unwrap() error { return e.of }

// List returns the names of the files in the directory.
func (d Dir) List() ([]string, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Create makes an empty file, or empties an existing one, and opens it for appending.
func (d Dir) Create(name string) (segment.Writer, error) {
	f, err := os.OpenFile(d.file(name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, fileMode)
	if err != nil {
		return nil, err // returning f would make a non-nil interface that holds a nil *os.File
	}
	return fault.File(f), nil
}

// Open opens a file for reading, and returns its size.
func (d Dir) Open(name string) (segment.Reader, int64, error) {
	f, err := os.Open(d.file(name))
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// Overwrite opens an existing file for writing from its first byte on. The file keeps its size.
func (d Dir) Overwrite(name string) (segment.Writer, error) {
	f, err := os.OpenFile(d.file(name), os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	return fault.File(f), nil
}

// Truncate cuts a file to size bytes.
func (d Dir) Truncate(name string, size int64) error { return os.Truncate(d.file(name), size) }

// Rename renames a file atomically and replaces any file with the new name.
func (d Dir) Rename(from, to string) error { return os.Rename(d.file(from), d.file(to)) }

// Remove removes a file.
func (d Dir) Remove(name string) error { return os.Remove(d.file(name)) }

// SyncDir makes the names in the directory survive a power loss.
func (d Dir) SyncDir() error {
	f, err := os.Open(d.path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (d Dir) file(name string) string { return filepath.Join(d.path, name) }

// lockName is the file that a process keeps locked while it owns the directory.
const lockName = "lock"

// Lock keeps other processes out of a data directory until Unlock or the end of the process. The
// kernel holds the lock, so even SIGKILL releases it, and the lock file may stay. Lock is a bare
// descriptor, because the garbage collector closes an unreferenced os.File, which would release the
// lock.
type Lock struct {
	fd int
}

// LockDir makes the data directory if needed and locks it. If another process holds the lock, the
// error names that process.
func LockDir(path string) (Lock, error) {
	if _, err := Open(path); err != nil {
		return Lock{}, err
	}
	name := filepath.Join(path, lockName)
	fd, err := syscall.Open(name, syscall.O_RDWR|syscall.O_CREAT|syscall.O_CLOEXEC, fileMode)
	if err != nil {
		return Lock{}, fmt.Errorf("lock data directory %s: %w", path, &os.PathError{Op: "open", Path: name, Err: err})
	}
	err = syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("data directory %s is in use by %s: stop it, or choose another directory", path, readHolder(fd))
	} else if err != nil {
		err = fmt.Errorf("lock data directory %s: flock %s: %w", path, name, err)
	} else if err = writeHolder(fd); err != nil {
		err = fmt.Errorf("lock data directory %s: write %s: %w", path, name, err)
	}
	if err != nil {
		_ = syscall.Close(fd)
		return Lock{}, err
	}
	return Lock{fd}, nil
}

// Unlock releases the directory. It empties the lock file, so that the file does not name a process that
// has ended.
func (l Lock) Unlock() error {
	return errors.Join(syscall.Ftruncate(l.fd, 0), syscall.Close(l.fd))
}

func writeHolder(fd int) error {
	if err := syscall.Ftruncate(fd, 0); err != nil {
		return err
	}
	_, err := syscall.Pwrite(fd, fmt.Appendln(nil, os.Getpid()), 0)
	return err
}

// readHolder describes the process that wrote the lock file, for an error message.
func readHolder(fd int) string {
	b := make([]byte, 32)
	n, err := syscall.Pread(fd, b, 0)
	if err != nil {
		return "another process"
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	if err != nil {
		return "another process"
	}
	return fmt.Sprintf("process %d", pid)
}

// ErrNoHolder means that Holder found no process that holds the data directory.
var ErrNoHolder = errors.New("no process holds it")

// Holder returns the process that holds a data directory. The lock file has the number of that
// process, but after a crash the number may belong to another process, so Holder checks that the
// process has the file open. Holder does not try to take the lock, because a process that starts at
// that moment would then find the directory locked. The result never refers to a later process with
// the same number.
func Holder(path string) (*os.Process, error) {
	name := filepath.Join(path, lockName)
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 0 {
		return nil, ErrNoHolder // a process has just taken or released the directory
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		return nil, err
	}
	lock, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	open, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrPermission) {
		return nil, err
	}
	for _, fd := range open { // empty if the process has ended
		if file, err := os.Stat(filepath.Join(dir, fd.Name())); err == nil && os.SameFile(file, lock) {
			return process, nil
		}
	}
	return nil, ErrNoHolder
}
