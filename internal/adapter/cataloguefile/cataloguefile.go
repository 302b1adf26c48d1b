// Package cataloguefile keeps the catalogue of names in one bbolt file, so that a name keeps
// its kind over a restart. core/catalogue says what the entries mean, docs/format/databases.md
// how they lie on disk.
package cataloguefile

import (
	"encoding/json"
	"fmt"
	"log/slog"

	"go.etcd.io/bbolt"

	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/lib/boltfile"
)

// File is safe for concurrent use.
type File struct {
	db *bbolt.DB
}

// stored is an entry's value on disk. Its key is the name, in the bucket of its tenant. The
// JSON keys below never change their meaning.
type stored struct {
	Base     string      `json:"base"`
	Raw      []byte      `json:"raw"` // need not be text: a client may write any bytes
	Kind     series.Kind `json:"kind"`
	Classic  bool        `json:"classic,omitempty"`
	Buckets  string      `json:"buckets,omitempty"` // missing in files of before there was this key
	Unit     string      `json:"unit,omitempty"`
	Help     string      `json:"help,omitempty"`
	First    int64       `json:"first,omitempty"` // Unix milliseconds; missing in files of before there was this key
	LastSeen int64       `json:"last_seen"`       // Unix milliseconds
}

// Open opens the file at path, or creates it. It moves a damaged file aside and reports it: the
// names come again with the first samples. Only where two kinds claim one name may the two now
// swap places.
func Open(path string, logger *slog.Logger) (*File, error) {
	db, damaged, err := boltfile.Open(path, func(tx *bbolt.Tx) error {
		return walk(tx, func(catalogue.Entry) {})
	})
	if err != nil {
		return nil, fmt.Errorf("open the catalogue of names: %w", err)
	}
	if damaged != nil {
		logger.Error("the catalogue of names was damaged; a new one begins",
			"file", path, "damaged_file", damaged.MovedTo, "cause", damaged.Cause)
	}
	return &File{db}, nil
}

// Close waits for running transactions and closes the file.
func (f *File) Close() error {
	if err := f.db.Close(); err != nil {
		return fmt.Errorf("close the catalogue of names: %w", err)
	}
	return nil
}

// Snapshot copies the file as it is now to path, which must not exist.
func (f *File) Snapshot(path string) error { return boltfile.Snapshot(f.db, path) }

// Check reads the file at path and returns what is wrong with it. No process may have it open.
func Check(path string) error {
	return boltfile.Check(path, func(tx *bbolt.Tx) error {
		return walk(tx, func(catalogue.Entry) {})
	})
}

// Load returns all entries, by tenant and name.
func (f *File) Load() (entries []catalogue.Entry, err error) {
	err = f.db.View(func(tx *bbolt.Tx) error {
		return walk(tx, func(e catalogue.Entry) { entries = append(entries, e) })
	})
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", f.db.Path(), err)
	}
	return entries, nil
}

// Save writes entries, all or none, and replaces those of the same tenant and name. It returns
// when they are on the disk.
func (f *File) Save(entries []catalogue.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	err := f.db.Update(func(tx *bbolt.Tx) error {
		for i := range entries {
			e := &entries[i]
			b, err := tx.CreateBucketIfNotExists([]byte(e.Tenant))
			if err != nil {
				return err
			}
			v, err := json.Marshal(stored{
				e.Base, []byte(e.Raw), e.Kind, e.Classic, e.Buckets, e.Unit, e.Help, e.First, e.LastSeen,
			})
			if err != nil {
				return err
			}
			if err := b.Put([]byte(e.Name), v); err != nil {
				return fmt.Errorf("name %.80q of tenant %s: %w", e.Name, e.Tenant, err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("save %d names to %s: %w", len(entries), f.db.Path(), err)
	}
	return nil
}

// Forget removes entries, all or none. It ignores unknown names.
func (f *File) Forget(entries []catalogue.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	err := f.db.Update(func(tx *bbolt.Tx) error {
		for i := range entries {
			b := tx.Bucket([]byte(entries[i].Tenant))
			if b == nil {
				continue
			}
			if err := b.Delete([]byte(entries[i].Name)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("forget %d names in %s: %w", len(entries), f.db.Path(), err)
	}
	return nil
}

// walk calls visit with every entry. An entry owns its memory.
func walk(tx *bbolt.Tx, visit func(catalogue.Entry)) error {
	return tx.ForEach(func(tenant []byte, b *bbolt.Bucket) error {
		return b.ForEach(func(name, v []byte) error {
			e, err := decode(string(tenant), string(name), v)
			if err == nil {
				visit(e)
			}
			return err
		})
	})
}

func decode(tenant, name string, v []byte) (e catalogue.Entry, err error) {
	var s stored
	if err := json.Unmarshal(v, &s); err != nil {
		return e, fmt.Errorf("name %.80q of tenant %s: %w", name, tenant, err)
	}
	return catalogue.Entry{
		Tenant: tenant, Name: name, Base: s.Base, Raw: string(s.Raw), Kind: s.Kind, Classic: s.Classic,
		Buckets: s.Buckets, Unit: s.Unit, Help: s.Help, First: s.First, LastSeen: s.LastSeen,
	}, nil
}
