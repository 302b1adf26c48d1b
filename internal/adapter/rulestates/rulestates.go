// Package rulestates keeps the states of rules in one bbolt file, so that rules go on over a restart.
// core/rulestate explains the states, and docs/format/databases.md the file.
package rulestates

import (
	"fmt"
	"log/slog"

	"go.etcd.io/bbolt"

	"github.com/freshet-io/freshet/internal/core/rulestate"
	"github.com/freshet-io/freshet/internal/lib/boltfile"
)

// File is safe for concurrent use.
type File struct {
	db *boltfile.DB
}

// sendersKey is the key of the senders of a tenant. Keys of groups are longer.
var sendersKey = []byte("senders")

// Open opens the file at `path`, or creates it. Open moves a damaged file aside, logs that, and starts an
// empty file. Rules then begin as if they were new. Save does the same if it meets damage.
func Open(path string, logger *slog.Logger) (*File, error) {
	db, err := boltfile.Open(path, boltfile.Owner{
		Read: readAll,
		Damaged: func(d boltfile.Damage) error {
			logger.Error("the file with the states of rules was damaged; a new one begins, and so do pending alerts",
				"file", path, "damaged_file", d.MovedTo, "cause", d.Cause)
			return nil
		},
	})
	if err != nil {
		return nil, fmt.Errorf("open the states of rules: %w", err)
	}
	return &File{db}, nil
}

// Close waits for running transactions and closes the file.
func (f *File) Close() error {
	if err := f.db.Close(); err != nil {
		return fmt.Errorf("close the states of rules: %w", err)
	}
	return nil
}

// Snapshot copies the present state of the file to path, which must not exist.
func (f *File) Snapshot(path string) error { return f.db.Snapshot(path) }

// Check reads the file at `path` and returns an error if the file is damaged. No process may have the
// file open.
func Check(path string) error { return boltfile.Check(path, readAll) }

func readAll(tx *bbolt.Tx) error {
	return tx.ForEach(func(tenant []byte, b *bbolt.Bucket) error {
		_, _, err := read(b)
		return err
	})
}

// read returns the groups and the senders of a tenant. They own their memory.
func read(b *bbolt.Bucket) (groups []rulestate.Group, senders []byte, err error) {
	err = b.ForEach(func(k, v []byte) error {
		if string(k) == string(sendersKey) {
			senders = append([]byte{}, v...)
			return nil
		}
		g, err := rulestate.Decode(v)
		groups = append(groups, g)
		return err
	})
	return groups, senders, err
}

// Load returns the groups and the senders of a tenant as they were last saved.
func (f *File) Load(tenant string) (groups []rulestate.Group, senders []byte, err error) {
	err = f.db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(tenant))
		if b == nil {
			return nil
		}
		groups, senders, err = read(b)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("load the states of rules of tenant %s: %w", tenant, err)
	}
	return groups, senders, nil
}

// Save writes changes of a tenant, all or none. It returns when they are on the disk.
func (f *File) Save(tenant string, c rulestate.Changes) error {
	err := f.db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte(tenant))
		if err != nil {
			return err
		}
		for _, key := range c.Gone {
			if err := b.Delete(keyOf(key)); err != nil {
				return err
			}
		}
		for i := range c.Groups {
			if err := b.Put(keyOf(c.Groups[i].Key()), c.Groups[i].AppendTo(nil)); err != nil {
				return err
			}
		}
		if c.Senders == nil {
			return nil
		}
		return b.Put(sendersKey, c.Senders)
	})
	if err != nil {
		return fmt.Errorf("save the states of rules of tenant %s: %w", tenant, err)
	}
	return nil
}

// keyOf returns the key of a group. Paths and names are of any length, keys of bbolt are not.
func keyOf(k rulestate.Key) []byte {
	hash := k.Hash()
	return hash[:]
}
