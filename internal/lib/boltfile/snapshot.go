package boltfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
)

// Snapshot writes the database to a new file, in one transaction: it does not include later
// writes, and does not block them. When it returns nil, the file survives a power loss.
func (d *DB) Snapshot(path string) error {
	err := d.View(func(tx *bbolt.Tx) error {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
		if err != nil {
			return err
		}
		_, err = tx.WriteTo(f)
		if err == nil {
			err = f.Sync()
		}
		return errors.Join(err, f.Close())
	})
	if err != nil {
		return fmt.Errorf("snapshot %s: %w", filepath.Base(path), err)
	}
	return nil
}

// Check calls `read` to walk over the database at `path`, as Open does, and returns what is wrong
// with it. It changes nothing.
func Check(path string, read func(*bbolt.Tx) error) error {
	db, err := open(path, options(true), read)
	if err != nil {
		return fmt.Errorf("check %s: %w", path, err)
	}
	return db.Close()
}

// Verify does what Check does with the open database, and finds a damaged meta, too, whose transaction bbolt forgets.
// Updates wait meanwhile.
func (d *DB) Verify(read func(*bbolt.Tx) error) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	d.mu.Lock()
	db, damage := d.db, d.damage
	d.mu.Unlock()
	if damage != nil {
		return damage
	}
	var stale error
	err := guard(func() (err error) {
		if stale, err = checkFile(d.path, db.Info().PageSize); err != nil {
			err = &DamageError{err}
		}
		return err
	})
	if err := d.note(db, err); err != nil {
		return err
	}
	return errors.Join(stale, d.View(read))
}
