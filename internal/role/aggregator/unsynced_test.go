package aggregator

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	groupcheckpoint "github.com/freshet-io/freshet/internal/core/checkpoint"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

// hangingDisk is a store. While `hangs` is true, Sync does not sync the store, and reports that it left
// the store out.
type hangingDisk struct {
	*store
	hangs atomic.Bool
}

func (h *hangingDisk) Sync(ctx context.Context) error {
	if h.hangs.Load() {
		return &groupcheckpoint.LeftOutError{Stores: []string{"default 10s"}}
	}
	return h.store.Sync(ctx)
}

// Checkpoints continue while a store cannot be synced, and a power loss still loses none of its
// samples.
func TestAPowerLossWhileAStoreCannotBeSynced(t *testing.T) {
	for _, first := range []bool{false, true} { // whether an earlier checkpoint synced the store
		synctest.Test(t, func(t *testing.T) {
			s, fs, boot := &hangingDisk{store: newStore(t)}, memfs.New(), "boot"
			small := func(o *Options) { o.Config.Checkpoint, o.Boot = 2000, boot }
			p := startOn(t, fs, s, time.Now, small)
			sent := 0
			count := func(n int) {
				for range n {
					p.mustCount("a", 1)
					sent++
					time.Sleep(time.Second)
				}
			}
			if first {
				count(60)
			}
			s.hangs.Store(true)
			before := testutil.ToFloat64(p.metrics.Checkpoints)
			count(120)
			if n := testutil.ToFloat64(p.metrics.Checkpoints) - before; n < 3 {
				t.Errorf("without a sync of the store, there are %v checkpoints, want at least 3", n)
			}
			if n := testutil.ToFloat64(p.metrics.CheckpointUnsynced); n < 10 {
				t.Errorf("the metric of unsynced frames is %v, want at least 10", n)
			}
			if err := p.log.Sync(); err != nil { // as the loop does each second
				t.Fatal(err)
			}
			synctest.Wait() // the loop may still write
			after := fs.PowerLoss(rand.New(rand.NewPCG(1, 1)))
			p.writer.(*mortal).dead.Store(true)
			p.terminate()
			s.losePower()

			boot = "next boot"
			p = startOn(t, after, s, time.Now, small)
			time.Sleep(20 * time.Second)
			checkCounter(t, s.store, "a", float64(sent))
			s.hangs.Store(false)
			count(60)
			if n := testutil.ToFloat64(p.metrics.CheckpointUnsynced); n != 0 {
				t.Errorf("the store is synced again: the metric of unsynced frames is %v, want 0", n)
			}
			p.terminate()
		})
	}
}

// A store that is never synced does not fill the disk: beyond some size, the journal no longer keeps
// everything that the store may lose.
func TestTheJournalIsBoundedThoughAStoreIsNeverSynced(t *testing.T) {
	for _, bound := range []int64{10_000, unsyncedBytes} {
		synctest.Test(t, func(t *testing.T) {
			s := &hangingDisk{store: newStore(t)}
			s.hangs.Store(true)
			p := startOn(t, memfs.New(), s, time.Now, func(o *Options) { o.Config.Checkpoint = 2000 })
			p.unsyncedBytes = bound
			for range 400 {
				p.mustCount("a", 1)
				time.Sleep(time.Second)
			}
			synctest.Wait()
			if _, size := p.log.Unsynced(); (size < 20_000) != (bound == 10_000) {
				t.Errorf("bound %d: the journal keeps %d bytes, want less than 20000 with bound 10000, and more with "+
					"the other", bound, size)
			}
			p.terminate()
		})
	}
}
