// Package eventlog keeps events in one bbolt file, bounded by number and age,
// and answers for them over HTTP. What an event is, and how long its parts may
// be, is core/event's. How they lie on disk: docs/format/databases.md.
package eventlog

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/bbolt"

	"github.com/freshet-io/freshet/internal/core/event"
	"github.com/freshet-io/freshet/internal/lib/boltfile"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// Config is the "events" section of the configuration file.
type Config struct {
	MaxEvents int           `yaml:"max_events" help:"events kept for each tenant; beyond, the oldest go"`
	Retention time.Duration `yaml:"retention" help:"how long events are kept; at least 1m"`
}

// DefaultConfig keeps events as long as tiles of 1 min, so that both end at the
// same place on a dashboard. 100,000 events of 500 bytes are 50 MB on disk.
func DefaultConfig() Config {
	return Config{MaxEvents: 100_000, Retention: 40 * 24 * time.Hour}
}

// Validate returns all that is wrong with the section.
func (c Config) Validate() (problems []conf.Problem) {
	if c.MaxEvents < 1 {
		problems = append(problems, conf.Problem{Key: "max_events", Text: "leaves no room for any event; set it to 1 or more"})
	}
	if c.Retention < time.Minute {
		problems = append(problems, conf.Problem{Key: "retention", Text: "is too short to see an event; set it to 1m or more"})
	}
	return problems
}

// Log is safe for concurrent use.
type Log struct {
	cfg     atomic.Pointer[Config]
	now     func() time.Time
	db      *bbolt.DB
	metrics *metrics

	mu     sync.Mutex     // held to write
	counts map[string]int // events by tenant
}

// Open opens the log at path or begins one. A damaged file is moved aside and
// reported: events are not worth a process that does not start.
func Open(cfg Config, path string, now func() time.Time, reg prometheus.Registerer, logger *slog.Logger) (*Log, error) {
	l := &Log{now: now}
	l.Configure(cfg)
	db, damaged, err := boltfile.Open(path, func(tx *bbolt.Tx) (err error) {
		l.counts, err = count(tx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open the event log: %w", err)
	}
	if damaged != nil {
		logger.Error("the event log was damaged; a new one begins", "file", path, "damaged_file", damaged.MovedTo, "cause", damaged.Cause)
	}
	l.db, l.metrics = db, newMetrics(reg)
	return l, nil
}

// Configure changes the bounds. Events beyond them are hidden or removed by the
// next query or append.
func (l *Log) Configure(cfg Config) { l.cfg.Store(&cfg) }

// Close waits for the transactions that run and closes the file.
func (l *Log) Close() error {
	if err := l.db.Close(); err != nil {
		return fmt.Errorf("close the event log: %w", err)
	}
	return nil
}

// Snapshot writes the log as it is now to path, where there must be none.
func (l *Log) Snapshot(path string) error { return boltfile.Snapshot(l.db, path) }

// Check reads the log at path, which no process may have open, and returns what is
// wrong with it.
func Check(path string) error {
	return boltfile.Check(path, func(tx *bbolt.Tx) error {
		_, err := count(tx)
		return err
	})
}

// count reads every event once, to know how many a tenant has and that they can
// be read.
func count(tx *bbolt.Tx) (counts map[string]int, err error) {
	counts = map[string]int{}
	err = tx.ForEach(func(tenant []byte, b *bbolt.Bucket) error {
		return b.ForEach(func(k, v []byte) error {
			counts[string(tenant)]++
			_, err := decode(string(tenant), k, v)
			return err
		})
	})
	return counts, err
}

// Append keeps events, all or none, and removes those beyond the bounds. It
// returns when they are on the disk.
func (l *Log) Append(ctx context.Context, events []event.Event) error {
	if err := ctx.Err(); err != nil || len(events) == 0 {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := maps.Clone(l.counts)
	var full, old int
	err := l.db.Update(func(tx *bbolt.Tx) error {
		for i := range events {
			if err := put(tx, &events[i]); err != nil {
				return err
			}
			counts[events[i].Tenant]++
		}
		for tenant, n := range counts { // all, since those without new events age, too
			f, o, err := l.trim(tx.Bucket([]byte(tenant)), n)
			if err != nil {
				return err
			}
			counts[tenant], full, old = n-f-o, full+f, old+o
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("append %d events to %s: %w", len(events), l.db.Path(), err)
	}
	l.counts = counts
	l.metrics.stored.Add(float64(len(events)))
	l.metrics.removed.WithLabelValues("bound").Add(float64(full))
	l.metrics.removed.WithLabelValues("age").Add(float64(old))
	return nil
}

func put(tx *bbolt.Tx, e *event.Event) error {
	b, err := tx.CreateBucketIfNotExists([]byte(e.Tenant))
	if err != nil {
		return err
	}
	id, err := b.NextSequence()
	if err != nil {
		return err
	}
	return b.Put(key(e.Time, id), encode(e))
}

// trim removes the oldest of n events, those beyond the number and those beyond
// the age, and returns how many of each.
func (l *Log) trim(b *bbolt.Bucket, n int) (full, old int, err error) {
	var gone [][]byte
	horizon := l.horizon()
	c := b.Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		t, _ := parseKey(k)
		if t < horizon {
			old++
		} else if n-len(gone) > l.cfg.Load().MaxEvents {
			full++
		} else {
			break
		}
		gone = append(gone, slices.Clone(k)) // deleting moves what a cursor stands on
	}
	for _, k := range gone {
		if err := b.Delete(k); err != nil {
			return 0, 0, err
		}
	}
	return full, old, nil
}

// horizon is the time of the oldest event that is kept, in Unix milliseconds.
func (l *Log) horizon() int64 { return l.now().Add(-l.cfg.Load().Retention).UnixMilli() }
