package tsdb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/freshet-io/freshet/internal/lib/pagefault"
)

// slowCompactor takes a second for each block.
type slowCompactor struct {
	tsdb.Compactor
	mu        *sync.Mutex
	now, most *int          // compactions that are under way, and were at most
	hangs     chan struct{} // if not nil, merges end when it is closed
	err       error
}

func newSlowCompactor() slowCompactor {
	return slowCompactor{mu: new(sync.Mutex), now: new(int), most: new(int)}
}

func (c slowCompactor) Write(string, tsdb.BlockReader, int64, int64, *tsdb.BlockMeta) ([]ulid.ULID, error) {
	c.count(1)
	defer c.count(-1)
	time.Sleep(time.Second)
	return nil, c.err
}

func (c slowCompactor) Compact(string, []string, []*tsdb.Block) ([]ulid.ULID, error) {
	if c.hangs != nil {
		<-c.hangs
		return nil, nil
	}
	return c.Write("", nil, 0, 0, nil)
}

func (c slowCompactor) count(by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*c.now += by
	*c.most = max(*c.most, *c.now)
}

// Heads of many stores that are due at once are compacted a few at a time, and so are merges of their blocks. A store
// that closes does not wait.
func TestStoresCompactInTurns(t *testing.T) {
	for kind, compact := range map[string]func(compactor) error{
		"head": func(c compactor) error {
			_, err := c.Write("", nil, 0, 0, nil)
			return err
		},
		"merge": func(c compactor) error {
			_, err := c.Compact("", nil, nil)
			return err
		},
	} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow := newSlowCompactor()
				turns := turns{heads: make(turn, 2), merges: make(turn, 2)}
				begun := time.Now()
				var group sync.WaitGroup
				for range 10 {
					group.Go(func() {
						if err := compact(compactor{slow, &store{turns: turns}, t.Context()}); err != nil {
							t.Error(err)
						}
					})
				}
				group.Wait()
				if took := time.Since(begun); *slow.most != 2 || took != 5*time.Second {
					t.Errorf("10 compactions of a second took %v, with %d at a time; want 5s, with 2", took, *slow.most)
				}
				for range 2 {
					turns.heads <- struct{}{}
					turns.merges <- struct{}{}
				}
				closes, cancel := context.WithCancelCause(t.Context())
				closed := errors.New("closed")
				cancel(closed)
				if err := compact(compactor{slow, &store{turns: turns}, closes}); !errors.Is(err, closed) {
					t.Errorf("a compaction without a turn in a store that closes: %v", err)
				}
			})
		})
	}
}

// A merge that hangs holds up merges of other stores only: their heads are compacted, and memory does not grow. A
// snapshot waits for nobody, and nobody waits for it.
func TestHeadsDoNotWaitForMerges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := newSlowCompactor()
		slow.hangs = make(chan struct{})
		turns := turns{heads: make(turn, 1), merges: make(turn, 1)}
		merges := compactor{slow, &store{turns: turns}, t.Context()}
		other := compactor{slow, &store{turns: turns}, t.Context()}
		var group sync.WaitGroup
		group.Go(func() { _, _ = merges.Compact("", nil, nil) })
		synctest.Wait()
		ends, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		other.ctx = ends
		group.Go(func() {
			if _, err := other.Write("elsewhere", nil, 0, 0, nil); err != nil {
				t.Errorf("a snapshot: %v", err)
			}
		})
		synctest.Wait()
		begun := time.Now()
		if _, err := other.Write("", nil, 0, 0, nil); err != nil || time.Since(begun) != time.Second {
			t.Errorf("beside a merge and a snapshot, a head took %v: %v; want 1s", time.Since(begun), err)
		}
		close(slow.hangs)
		group.Wait()
	})
}

// The search for the damaged file reads the whole store. Other stores need not wait for it.
func TestADamagedStoreIsReadOutsideOfItsTurn(t *testing.T) {
	slow := newSlowCompactor()
	slow.err = &pagefault.Error{Cause: errors.New("bad sector")}
	s := &store{dir: t.TempDir(), turns: turns{heads: make(turn, 1)}, logger: slog.New(slog.DiscardHandler)}
	s.hurt.Store(&BrokenError{})
	checked := false
	s.marks = func() *storeMarks {
		checked = true
		if n := len(s.turns.heads); n > 0 {
			t.Errorf("%d stores have a turn, want 0", n)
		}
		return &storeMarks{damaged: prometheus.NewGauge(prometheus.GaugeOpts{Name: "x"})}
	}
	if _, err := (compactor{slow, s, t.Context()}).Write(s.dir, nil, 0, 0, nil); err == nil || !checked {
		t.Errorf("got %v; the store was checked: %t", err, checked)
	}
}

// A compaction that ends because its store closes is no error in the log.
func TestAClosingStoreHasNoFailedCompaction(t *testing.T) {
	var log bytes.Buffer
	logger := (&store{logger: slog.New(slog.NewTextHandler(&log, nil))}).watchedLogger().With("component", "db")
	logger.Error("compaction failed", "err", fmt.Errorf("persist head block: %w", context.Canceled))
	if log.Len() > 0 {
		t.Errorf("a store that closes: %s", &log)
	}
	logger.WithGroup("x").Error("compaction failed", "err", errors.New("disk full"))
	if !strings.Contains(log.String(), "disk full") {
		t.Errorf("a failed compaction is logged as %q", &log)
	}
}
