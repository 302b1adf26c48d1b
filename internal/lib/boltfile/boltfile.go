// Package boltfile keeps bbolt databases so that a program always starts and never ends because of them: it moves a
// damaged file aside and begins a new one.
package boltfile

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/freshet-io/freshet/internal/lib/pagefault"
)

// lockTimeout is how long Open waits for the lock of a process that is ending.
const lockTimeout = 1 * time.Second

// Damage describes a damaged file.
type Damage struct {
	MovedTo string // where the file goes; it replaces any earlier file there
	Cause   error
}

// DamageError says that a page of a database cannot be read, or that its content makes no sense.
type DamageError struct{ Cause error }

// Error names the cause.
func (e *DamageError) Error() string { return fmt.Sprintf("the file is damaged: %v", e.Cause) }

func (e *DamageError) Unwrap() error { return e.Cause }

// Owner is what the owner of a database does with it. Its functions run one at a time, in calls of Open, View, Verify
// and Update.
type Owner struct {
	// Read walks over a database that Open has opened, or that Open or Update has begun. If it returns an error, the file
	// counts as damaged.
	Read func(*bbolt.Tx) error

	// Damaged is called once damage is found, before the file is moved aside. If it returns an error, the file stays.
	Damaged func(Damage) error
}

// DB is a database. It is safe for concurrent use.
type DB struct {
	path  string
	owner Owner

	writing sync.Mutex // held by Update: a panic in bbolt may leave its own lock held for ever

	mu     sync.Mutex
	db     *bbolt.DB
	damage *DamageError // of db; nil if none is known
	told   bool         // the owner knows the damage
}

// Open opens the database at `path`, or creates one. If it is damaged, Open moves it aside and begins a new one. bbolt
// has checksums only for its first two pages, and panics or faults when it meets another bad page. So Open checks the
// structure of the file first, and then lets the owner read it.
//
// An error means that the cause is not the file itself but its directory, the disk or another process.
func Open(path string, owner Owner) (*DB, error) {
	d := &DB{path: path, owner: owner}
	db, err := open(path, options(false), owner.Read)
	if err == nil {
		d.db = db
		return d, nil
	}
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return nil, fmt.Errorf("open %s: another process uses it; stop that process, or use another data directory", path)
	}
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	d.damage = &DamageError{err}
	if err := d.begin(); err != nil {
		return nil, err
	}
	return d, nil
}

// begin moves the damaged file aside, and begins a new one. It does not close the old database: a panic in bbolt may
// have left its locks held.
func (d *DB) begin() error {
	if err := d.tell(); err != nil {
		return err
	}
	if err := os.Rename(d.path, d.movedTo()); err != nil {
		return fmt.Errorf("move damaged %s aside: %w", d.path, err)
	}
	db, err := open(d.path, options(false), d.owner.Read)
	if err != nil {
		return fmt.Errorf("begin %s anew: %w", d.path, err)
	}
	d.db, d.damage, d.told = db, nil, false
	return nil
}

// Damaged is the end of the name to which a damaged file is moved.
const Damaged = ".damaged"

func (d *DB) movedTo() string { return d.path + Damaged }

// tell tells the owner of the damage, once.
func (d *DB) tell() error {
	if d.told {
		return nil
	}
	if err := d.owner.Damaged(Damage{MovedTo: d.movedTo(), Cause: d.damage.Cause}); err != nil {
		return fmt.Errorf("damaged %s stays: %w", d.path, err)
	}
	d.told = true
	return nil
}

// View reads in a transaction. It returns a *DamageError if it meets damage; an error of `read` that is one counts,
// too. From then on, the database cannot be read until an Update has begun a new one.
func (d *DB) View(read func(*bbolt.Tx) error) error {
	d.mu.Lock()
	db, damage := d.db, d.damage
	d.mu.Unlock()
	if damage != nil {
		return damage
	}
	err := guard(func() error { return db.View(read) })
	return d.note(db, err)
}

// Update writes in a transaction, wholly or not at all. If the database is damaged, Update moves it aside and begins a
// new one; then `write` runs again.
func (d *DB) Update(write func(*bbolt.Tx) error) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	for again := true; ; again = false {
		db, err := d.healthy()
		if err != nil {
			return err
		}
		err = d.note(db, guard(func() error { return db.Update(write) }))
		if _, damaged := errors.AsType[*DamageError](err); !damaged || !again {
			return err
		}
	}
}

// healthy returns a database that is not known to be damaged.
func (d *DB) healthy() (*bbolt.DB, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.damage != nil {
		if err := d.begin(); err != nil {
			return nil, err
		}
	}
	return d.db, nil
}

// note keeps that the database is damaged, if err says so, and tells the owner.
func (d *DB) note(db *bbolt.DB, err error) error {
	damage, damaged := errors.AsType[*DamageError](err)
	if !damaged {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.db != db { // another call has begun a new one
		return err
	}
	if d.damage == nil {
		d.damage = damage
	}
	return errors.Join(err, d.tell())
}

// Close waits for running transactions and closes the file.
func (d *DB) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.damage != nil { // bbolt may hold a lock for ever
		return nil
	}
	return d.db.Close()
}

// Path returns the path of the file.
func (d *DB) Path() string { return d.path }

func options(readOnly bool) *bbolt.Options {
	return &bbolt.Options{Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType, ReadOnly: readOnly}
}

// open opens a database and reads all of it. A panic inside bbolt.Open leaks a descriptor, at most one per start of the
// process.
func open(path string, options *bbolt.Options, read func(*bbolt.Tx) error) (db *bbolt.DB, err error) {
	err = guard(func() (err error) {
		if db, err = bbolt.Open(path, 0o666, options); err != nil {
			return err
		}
		if _, err := checkFile(path, db.Info().PageSize); err != nil {
			return err
		}
		return db.View(read)
	})
	if err != nil && db != nil {
		_ = guard(db.Close)
		db = nil
	}
	return db, err
}

// guard returns a *DamageError when bbolt panics, or faults by reading what the disk cannot read, or what is past the
// end of a truncated file.
func guard(f func() error) (err error) {
	defer pagefault.On()()
	defer func() {
		if p := recover(); p != nil {
			err = &DamageError{fmt.Errorf("unreadable page: %v", p)}
		}
	}()
	return f()
}
