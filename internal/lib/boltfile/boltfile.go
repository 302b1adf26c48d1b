// Package boltfile opens bbolt databases so that a program always starts: a file
// that is damaged is moved aside, and a new one is begun in its place. What lies
// in a database is for its owner to know.
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

// lockTimeout is how long Open waits for a process that is just ending.
const lockTimeout = 1 * time.Second

// Damage tells what was wrong with a file that is no longer in use.
type Damage struct {
	MovedTo string // where the file is now; an earlier one there is gone
	Cause   error
}

// Open opens the database at path or begins one, and has read walk over it once.
// bbolt protects only its first two pages by a checksum and panics or faults on
// a bad one when it gets there; so read should touch everything, here, where
// that can still be helped. If it returns an error, too, the file is damaged.
//
// A database that was damaged is reported beside the new one. Any other error
// has its cause outside of the file: its directory, the disk, another process.
func Open(path string, read func(*bbolt.Tx) error) (db *bbolt.DB, damaged *Damage, err error) {
	options := &bbolt.Options{Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType}
	db, err = open(path, options, read)
	if err == nil {
		return db, nil, nil
	}
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return nil, nil, fmt.Errorf("open %s: another process uses it; stop that one, or use another data directory", path)
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

// open turns bbolt's panics, and the faults of reading past the end of a file
// that was cut short, into errors. A panic inside bbolt.Open leaks a descriptor;
// that happens at most once at a start.
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
