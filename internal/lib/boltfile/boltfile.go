// Package boltfile opens bbolt databases so that a program always starts: it moves a damaged
// file aside and begins a new one.
package boltfile

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// lockTimeout is how long Open waits for the lock of a process that is ending.
const lockTimeout = 1 * time.Second

// Damage describes a damaged file that was moved aside.
type Damage struct {
	MovedTo string // where the file is now; it replaced any earlier file there
	Cause   error
}

// Open opens the database at `path`, or creates one, and calls `read` to walk over it once. bbolt
// has checksums only for its first two pages, and panics or faults when it meets another bad page;
// so `read` should touch everything now, when Open can still recover. If `read` returns an error,
// the file counts as damaged.
//
// If the database was damaged, Open returns the new database and the Damage. An error means that
// the cause is not the file itself but its directory, the disk or another process.
func Open(path string, read func(*bbolt.Tx) error) (db *bbolt.DB, damaged *Damage, err error) {
	options := &bbolt.Options{Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType}
	db, err = open(path, options, read)
	if err == nil {
		return db, nil, nil
	}
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return nil, nil,
			fmt.Errorf("open %s: another process uses it; stop that process, or use another data directory", path)
	}
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return nil, nil, fmt.Errorf("open %s: %w", path, err)
	}
	damaged = &Damage{MovedTo: path + ".damaged", Cause: err}
	if err := os.Rename(path, damaged.MovedTo); err != nil {
		return nil, nil, fmt.Errorf("move damaged %s aside: %w", path, err)
	}
	if db, err = open(path, options, read); err != nil {
		return nil, nil, fmt.Errorf("begin %s anew: %w", path, err)
	}
	return db, damaged, nil
}

// open returns an error when bbolt panics, or faults by reading past the end of a truncated file. A
// panic inside bbolt.Open leaks a descriptor, at most one per start of the process.
func open(path string, options *bbolt.Options, read func(*bbolt.Tx) error) (db *bbolt.DB, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("unreadable page: %v", p)
		}
		if err != nil && db != nil {
			_ = db.Close()
			db = nil
		}
	}()
	if db, err = bbolt.Open(path, 0o666, options); err != nil {
		return nil, err
	}
	return db, db.View(read)
}
