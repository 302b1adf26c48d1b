// Package eventlog keeps events in one bbolt file, bounded by number and age, and answers queries
// for them over HTTP. core/event says what an event is and how long its parts may be.
// docs/format/databases.md shows how events lie on disk.
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
)

// Log is safe for concurrent use.
type Log struct {
	cfg     atomic.Pointer[Config]
	now     func() time.Time
	db      *boltfile.DB
	metrics *metrics

	mu sync.Mutex // held to write
	counted
}

// counted is what a file has.
type counted struct {
	counts map[string]int // events by tenant
	sum    sum
}

// Open opens the log at `path`, or creates it. Open moves a damaged file aside, logs that, and starts an empty log,
// because lost events are no reason to refuse to start. Append does the same if it meets damage. `lost` is called
// before, unless it is nil. If it returns an error, the file stays where it is.
func Open(
	cfg Config, path string, now func() time.Time, lost func(error) error, reg prometheus.Registerer, logger *slog.Logger,
) (*Log, error) {
	l := &Log{now: now}
	l.Configure(cfg)
	db, err := boltfile.Open(path, boltfile.Owner{
		Read: l.read,
		Damaged: func(d boltfile.Damage) error {
			if lost != nil {
				if err := lost(d.Cause); err != nil {
					return err
				}
			}
			logger.Error("the event log was damaged; a new one begins",
				"file", path, "damaged_file", d.MovedTo, "cause", d.Cause)
			return nil
		},
	})
	if err != nil {
		return nil, fmt.Errorf("open the event log: %w", err)
	}
	l.db, l.metrics = db, newMetrics(reg)
	return l, nil
}

// read counts the events of a file. The sum that the file has goes on, so that damage that Verify has not found yet
// stays known.
func (l *Log) read(tx *bbolt.Tx) error {
	c, err := count(tx)
	if err != nil {
		return err
	}
	l.counted = c
	if s, known := readSum(tx); known && s.sequences == c.sum.sequences {
		l.sum = s
	}
	return nil
}

// Configure changes the bounds. From then on queries hide events that are too old. The next append
// removes the events beyond the bounds.
func (l *Log) Configure(cfg Config) { l.cfg.Store(&cfg) }

// Close waits for running transactions and closes the file.
func (l *Log) Close() error {
	if err := l.db.Close(); err != nil {
		return fmt.Errorf("close the event log: %w", err)
	}
	return nil
}

// Snapshot copies the present state of the log to path, which must not exist.
func (l *Log) Snapshot(path string) error { return l.db.Snapshot(path) }

// Check reads the log at `path` and returns an error if the log is damaged. No process may have the
// log open.
func Check(path string) error {
	return boltfile.Check(path, func(tx *bbolt.Tx) error {
		_, err := count(tx)
		return err
	})
}

// count reads every event once. It returns an error if it cannot read an event.
func count(tx *bbolt.Tx) (c counted, err error) {
	c.counts = map[string]int{}
	err = tx.ForEach(func(tenant []byte, b *bbolt.Bucket) error {
		c.sum.sequences += b.Sequence()
		return b.ForEach(func(k, v []byte) error {
			if string(k) == string(sumKey) {
				return nil
			}
			c.sum.events += checksum(string(tenant), k, v)
			if string(tenant) == reachedBucket {
				return nil
			}
			c.counts[string(tenant)]++
			_, err := decode(string(tenant), k, v)
			return err
		})
	})
	return c, err
}

// Append stores events, all or none, and removes events beyond the bounds. It returns when the new
// events are on the disk.
func (l *Log) Append(ctx context.Context, events []event.Event) error {
	if err := ctx.Err(); err != nil || len(events) == 0 {
		return err
	}
	return l.update(func(t *change) error {
		for i := range events {
			if err := t.put(&events[i]); err != nil {
				return err
			}
		}
		return t.trim(l.horizon(), l.cfg.Load().MaxEvents)
	})
}

// change is a transaction that writes to the log.
type change struct {
	tx *bbolt.Tx
	counted
	stored, full, old int
}

// update makes a change, wholly or not at all.
func (l *Log) update(do func(*change) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var c change
	err := l.db.Update(func(tx *bbolt.Tx) error {
		c = change{tx: tx, counted: counted{maps.Clone(l.counts), l.sum}}
		if err := do(&c); err != nil {
			return err
		}
		return c.sum.write(tx)
	})
	if err != nil {
		return fmt.Errorf("append events to %s: %w", l.db.Path(), err)
	}
	l.counted = c.counted
	l.metrics.stored.Add(float64(c.stored))
	l.metrics.removed.WithLabelValues("bound").Add(float64(c.full))
	l.metrics.removed.WithLabelValues("age").Add(float64(c.old))
	return nil
}

func (t *change) put(e *event.Event) error {
	b, err := t.tx.CreateBucketIfNotExists([]byte(e.Tenant))
	if err != nil {
		return err
	}
	id, err := b.NextSequence()
	if err != nil {
		return err
	}
	t.counts[e.Tenant]++
	t.stored++
	k, v := key(e.Time, id), e.Append(nil)
	t.sum.sequences++
	t.sum.events += checksum(e.Tenant, k, v)
	return b.Put(k, v)
}

// trim removes the events before `horizon`, and for each tenant the oldest events beyond the number
// `most`. It looks at all tenants, because events also expire in a tenant that gets no new events.
func (t *change) trim(horizon int64, most int) error {
	for tenant, n := range t.counts {
		full, old, sum, err := trim(t.tx.Bucket([]byte(tenant)), tenant, n, horizon, most)
		if err != nil {
			return err
		}
		t.counts[tenant], t.full, t.old = n-full-old, t.full+full, t.old+old
		t.sum.events -= sum
	}
	return nil
}

// trim removes the events beyond the bounds from a tenant's bucket of n events. It returns how many it removed because
// of their number, how many because of their age, and the sum of their checksums.
func trim(b *bbolt.Bucket, tenant string, n int, horizon int64, most int) (full, old int, sum uint64, err error) {
	var gone [][]byte
	c := b.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		t, _ := parseKey(k)
		if t < horizon {
			old++
		} else if n-len(gone) > most {
			full++
		} else {
			break
		}
		sum += checksum(tenant, k, v)
		gone = append(gone, slices.Clone(k)) // to delete after this loop, because a deletion moves the cursor
	}
	for _, k := range gone {
		if err := b.Delete(k); err != nil {
			return 0, 0, 0, err
		}
	}
	return full, old, sum, nil
}

// horizon returns the oldest time that is kept, in Unix milliseconds.
func (l *Log) horizon() int64 { return l.now().Add(-l.cfg.Load().Retention).UnixMilli() }
