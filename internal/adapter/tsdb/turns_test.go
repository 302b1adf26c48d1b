package tsdb

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/tsdb"
)

// slowCompactor takes a second for each block.
type slowCompactor struct {
	tsdb.Compactor
	mu        *sync.Mutex
	now, most *int // compactions that are under way, and were at most
}

func (c slowCompactor) Write(string, tsdb.BlockReader, int64, int64, *tsdb.BlockMeta) ([]ulid.ULID, error) {
	c.count(1)
	defer c.count(-1)
	time.Sleep(time.Second)
	return nil, nil
}

func (c slowCompactor) count(by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*c.now += by
	*c.most = max(*c.most, *c.now)
}

// Heads of many stores that are due at once are compacted a few at a time. A store that closes does not wait.
func TestStoresCompactInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now, most := 0, 0
		slow := slowCompactor{mu: new(sync.Mutex), now: &now, most: &most}
		turns := make(turns, 2)
		begun := time.Now()
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() {
				c := compactor{slow, &store{turns: turns}, t.Context()}
				if _, err := c.Write("", nil, 0, 0, nil); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if took := time.Since(begun); most != 2 || took != 5*time.Second {
			t.Errorf("10 compactions of a second took %v, with %d at a time; want 5s, with 2", took, most)
		}
		turns <- struct{}{}
		turns <- struct{}{}
		closes, cancel := context.WithCancelCause(t.Context())
		closed := errors.New("closed")
		cancel(closed)
		if _, err := (compactor{slow, &store{turns: turns}, closes}).Write("", nil, 0, 0, nil); !errors.Is(err, closed) {
			t.Errorf("a compaction without a turn in a store that closes: %v", err)
		}
	})
}
