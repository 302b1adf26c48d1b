// Package cataloguefile keeps the catalogue of names in one bbolt file, so that a name keeps its
// kind over a restart. core/catalogue explains the metrics, and docs/format/databases.md explains
// the file.
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
	db *boltfile.DB
}

// stored is a metric's value on disk. Its key is the name, in the bucket of its tenant. The
// JSON keys below never change their meaning.
type stored struct {
	Base     string      `json:"base"`
	Raw      []byte      `json:"raw"` // may be invalid UTF-8: a client may write any bytes
	Kind     series.Kind `json:"kind"`
	Classic  bool        `json:"classic,omitempty"`
	Buckets  string      `json:"buckets,omitempty"` // missing in files written before this key existed
	Unit     string      `json:"unit,omitempty"`
	Help     string      `json:"help,omitempty"`
	First    int64       `json:"first,omitempty"` // Unix milliseconds; missing in files written before this key existed
	LastSeen int64       `json:"last_seen"`       // Unix milliseconds
}

// Open opens the file at `path`, or creates it. Open moves a damaged file aside, logs that, and starts
// an empty file, which the next samples fill again. If samples of two kinds claim a name, the new file
// may give the name to the other kind. Save and Forget do the same if they meet damage.
func Open(path string, logger *slog.Logger) (*File, error) {
	db, err := boltfile.Open(path, boltfile.Owner{
		Read: func(tx *bbolt.Tx) error { return walk(tx, func(catalogue.Metric) {}) },
		Damaged: func(d boltfile.Damage) error {
			logger.Error("the catalogue of names was damaged; a new one begins",
				"file", path, "damaged_file", d.MovedTo, "cause", d.Cause)
			return nil
		},
	})
	if err != nil {
		return nil, fmt.Errorf("open the catalogue of names: %w", err)
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

// Snapshot copies the present state of the file to path, which must not exist.
func (f *File) Snapshot(path string) error { return f.db.Snapshot(path) }

// Check reads the file at `path` and returns an error if the file is damaged. No process may have
// the file open.
func Check(path string) error {
	return boltfile.Check(path, func(tx *bbolt.Tx) error {
		return walk(tx, func(catalogue.Metric) {})
	})
}

// Load returns all metrics, by tenant and name.
func (f *File) Load() (metrics []catalogue.Metric, err error) {
	err = f.db.View(func(tx *bbolt.Tx) error {
		return walk(tx, func(m catalogue.Metric) { metrics = append(metrics, m) })
	})
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", f.db.Path(), err)
	}
	return metrics, nil
}

// Save writes metrics, all or none, and replaces stored metrics of the same tenant and name. It
// returns when the metrics are on the disk.
func (f *File) Save(metrics []catalogue.Metric) error {
	if len(metrics) == 0 {
		return nil
	}
	err := f.db.Update(func(tx *bbolt.Tx) error {
		for i := range metrics {
			m := &metrics[i]
			b, err := tx.CreateBucketIfNotExists([]byte(m.Tenant))
			if err != nil {
				return err
			}
			v, err := json.Marshal(stored{
				m.Base, []byte(m.Raw), m.Kind, m.Classic, m.Buckets, m.Unit, m.Help, m.First, m.LastSeen,
			})
			if err != nil {
				return err
			}
			if err := b.Put([]byte(m.Name), v); err != nil {
				return fmt.Errorf("name %.80q of tenant %s: %w", m.Name, m.Tenant, err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("save %d names to %s: %w", len(metrics), f.db.Path(), err)
	}
	return nil
}

// Forget removes metrics, all or none. It ignores unknown names.
func (f *File) Forget(metrics []catalogue.Metric) error {
	if len(metrics) == 0 {
		return nil
	}
	err := f.db.Update(func(tx *bbolt.Tx) error {
		for i := range metrics {
			b := tx.Bucket([]byte(metrics[i].Tenant))
			if b == nil {
				continue
			}
			if err := b.Delete([]byte(metrics[i].Name)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("forget %d names in %s: %w", len(metrics), f.db.Path(), err)
	}
	return nil
}

// walk calls `visit` with every metric. A metric owns its memory.
func walk(tx *bbolt.Tx, visit func(catalogue.Metric)) error {
	return tx.ForEach(func(tenant []byte, b *bbolt.Bucket) error {
		return b.ForEach(func(name, v []byte) error {
			m, err := decode(string(tenant), string(name), v)
			if err == nil {
				visit(m)
			}
			return err
		})
	})
}

func decode(tenant, name string, v []byte) (m catalogue.Metric, err error) {
	var s stored
	if err := json.Unmarshal(v, &s); err != nil {
		return m, fmt.Errorf("name %.80q of tenant %s: %w", name, tenant, err)
	}
	return catalogue.Metric{
		Tenant: tenant, Name: name, Base: s.Base, Raw: string(s.Raw), Kind: s.Kind, Classic: s.Classic,
		Buckets: s.Buckets, Unit: s.Unit, Help: s.Help, First: s.First, LastSeen: s.LastSeen,
	}, nil
}
