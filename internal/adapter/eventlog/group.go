package eventlog

import (
	"context"
	"encoding/binary"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/freshet-io/freshet/internal/core/event"
	"github.com/freshet-io/freshet/internal/core/member"
)

// reachedBucket has, for each group, the index of the last entry whose events this file has. No tenant
// has this name: see tenant.Check.
const reachedBucket = "\x00groups"

// AppendEntries stores the events of entries of a group's log, all or none. It skips entries whose
// events it has already stored. Each entry carries its own bounds, so all members of the group have the
// same events. It returns when the new events are on the disk.
func (l *Log) AppendEntries(ctx context.Context, group uint64, entries []*member.Events) error {
	if err := ctx.Err(); err != nil || len(entries) == 0 {
		return err
	}
	return l.update(func(t *change) error {
		reached := reachedBy(t.tx, group)
		for _, e := range entries {
			if e.Index <= reached {
				continue
			}
			for part := range e.List.All() {
				one := event.Event{Tenant: e.Tenant}
				if err := one.ParseDated(part); err != nil {
					return fmt.Errorf("an event of entry %d: %w", e.Index, err)
				}
				if err := t.put(&one); err != nil {
					return err
				}
			}
			if err := t.trim(e.Arrival-e.Retention, e.MaxEvents); err != nil {
				return err
			}
			reached = e.Index
		}
		return t.setReached(group, reached)
	})
}

// Reaches tells the event log that a group's log ends at the entry `last`. If this file was copied later
// than the group's log, it may have events of entries after `last`, which the copy of the group's log
// lacks. The group will give the indexes of these entries to other entries.
func (l *Log) Reaches(group, last uint64) error {
	return l.update(func(t *change) error {
		if reachedBy(t.tx, group) <= last {
			return nil
		}
		return t.setReached(group, last)
	})
}

func reachedBy(tx *bbolt.Tx, group uint64) uint64 {
	b := tx.Bucket([]byte(reachedBucket))
	if b == nil {
		return 0
	}
	if v := b.Get(binary.BigEndian.AppendUint64(nil, group)); len(v) == 8 {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}

func (t *change) setReached(group, index uint64) error {
	b, err := t.tx.CreateBucketIfNotExists([]byte(reachedBucket))
	if err != nil {
		return err
	}
	k, v := binary.BigEndian.AppendUint64(nil, group), binary.BigEndian.AppendUint64(nil, index)
	if before := b.Get(k); before != nil {
		t.sum.events -= checksum(reachedBucket, k, before)
	}
	t.sum.events += checksum(reachedBucket, k, v)
	return b.Put(k, v)
}
