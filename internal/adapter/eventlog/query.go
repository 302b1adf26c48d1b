package eventlog

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/freshet-io/freshet/internal/core/event"
	"github.com/freshet-io/freshet/internal/lib/boltfile"
)

// DefaultLimit bounds the events of an answer unless the query has a limit.
const DefaultLimit = 1000

// Filter selects events. Start and End, both included, are Unix milliseconds.
type Filter struct {
	Tenant     string
	Start, End int64
	Tags       []string // an event must have all these tags, in the sender's spelling
	Text       string   // a part of the title or text; case does not matter
	Limit      int      // 0 means DefaultLimit
}

// Event is a stored event. ID is unique within the tenant.
type Event struct {
	ID uint64
	event.Event
}

// checkEvery is how many events Query reads between two checks of its context. Reading them takes
// about a millisecond.
const checkEvery = 256

// Query returns the newest events that match f, newest first. It reads the tenant's events
// between Start and End until it has enough.
func (l *Log) Query(ctx context.Context, f Filter) ([]Event, error) {
	limit := f.Limit
	if limit == 0 {
		limit = DefaultLimit
	}
	first := key(max(f.Start, l.horizon()), 0) // skips expired events that are not removed yet
	text := strings.ToLower(f.Text)
	var found []Event
	err := l.db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(f.Tenant))
		if b == nil {
			return nil
		}
		read := 0
		for k, v := range backward(b.Cursor(), lastKey(f.End)) {
			if len(found) == limit || bytes.Compare(k, first) < 0 {
				break
			}
			if read++; read%checkEvery == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			r, err := decode(f.Tenant, k, v)
			if err != nil {
				return &boltfile.DamageError{Cause: err}
			}
			if f.passes(&r, text) {
				found = append(found, r)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read events from %s: %w", l.db.Path(), err)
	}
	return found, nil
}

func (f *Filter) passes(r *Event, text string) bool {
	for _, tag := range f.Tags {
		if !slices.Contains(r.Tags, tag) {
			return false
		}
	}
	return text == "" || strings.Contains(strings.ToLower(r.Title), text) ||
		strings.Contains(strings.ToLower(r.Text), text)
}

// backward yields pairs in descending order, from the key `last` or the nearest key below it.
func backward(c *bbolt.Cursor, last []byte) func(yield func(k, v []byte) bool) {
	return func(yield func(k, v []byte) bool) {
		k, v := c.Seek(last)
		if k == nil {
			k, v = c.Last()
		} else if !bytes.Equal(k, last) {
			k, v = c.Prev()
		}
		for ; k != nil && yield(k, v); k, v = c.Prev() {
		}
	}
}
