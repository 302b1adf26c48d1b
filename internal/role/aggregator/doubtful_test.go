package aggregator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/settings"
)

// flakyDisk is a directory in memory. The next `fails` syncs of a segment fail and lose what they
// should have saved. As with the kernel, later syncs of the segment then succeed.
func flakyDisk() (fs *memfs.FS, fails *atomic.Int64) {
	fs, fails = memfs.New(), new(atomic.Int64)
	fs.Fail = func(op, name string) error {
		if op == "sync" && strings.HasSuffix(name, ".segment") && fails.Add(-1) >= 0 {
			return memfs.ErrInjected
		}
		return nil
	}
	return fs, fails
}

// insist pushes a window after each `pause` until it is acknowledged, as senders do, and returns how
// long that took.
func (p *process) insist(b batch.Batch, pause time.Duration) (took time.Duration) {
	p.t.Helper()
	for begun := time.Now(); ; time.Sleep(pause) {
		switch err := p.Push(p.t.Context(), []batch.Batch{b}); {
		case err == nil:
			return time.Since(begun)
		case !errors.Is(err, batch.ErrUnsynced):
			p.t.Fatal(err)
		case time.Since(begun) > 5*time.Minute:
			p.t.Fatalf("the window is not acknowledged after %v, last error %v", time.Since(begun), err)
		}
	}
}

// unsyncableStore is a store whose next syncs fail.
type unsyncableStore struct {
	*store
	fails atomic.Int64
}

func (u *unsyncableStore) Sync(ctx context.Context) error {
	if u.fails.Add(-1) >= 0 {
		return errors.New("input/output error")
	}
	return u.store.Sync(ctx)
}

// A sync of the journal fails. The sender pushes the window again after its tile was closed, and the
// repeat is acknowledged. No sync will ever save the frames of the first push, but a power loss must not
// lose the window. A replay used to find only the repeat, which was too late for the gauge's tile.
func TestAWindowAfterAFailedSyncSurvivesAPowerLoss(t *testing.T) {
	seeds := uint64(100)
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { surviveAFailedSync(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func surviveAFailedSync(t *testing.T, rng *rand.Rand) {
	upTo := func(most time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(most))) }
	fs, fails := flakyDisk()
	s := &unsyncableStore{store: newStore(t)}
	boot := "boot"
	commit := func(o *Options) { o.Config.Fsync, o.Boot = settings.FsyncCommit, boot }
	p := startOn(t, fs, s, time.Now, commit)
	gauge := func(name string) batch.Batch {
		key := series.AppendKey(nil, series.Gauge, labels.FromStrings("__name__", name))
		return p.batchOf(p.now(), batch.Increment{Key: key, Samples: 1, Value: 1, At: p.now().UnixNano()})
	}
	p.insist(gauge("before"), time.Second)
	time.Sleep(upTo(20 * time.Second))

	fails.Store(1 + rng.Int64N(2))
	s.fails.Store(rng.Int64N(3)) // so that the first checkpoints fail, too
	pause := time.Second + upTo(20*time.Second)
	bound := time.Duration(fails.Load()+s.fails.Load()) * (6*time.Second + pause) // a checkpoint takes 3 s
	if took := p.insist(gauge("failed"), pause); took > bound {
		t.Errorf("the window was acknowledged after %v, want at most %v", took, bound)
	}
	time.Sleep(upTo(2 * time.Second))
	p.insist(gauge("behind"), time.Second)
	synctest.Wait()
	after := fs.PowerLoss(rng)
	p.writer.(*mortal).dead.Store(true)
	p.terminate()
	s.losePower()

	boot = "next boot"
	p = startOn(t, after, s, time.Now, commit)
	time.Sleep(20 * time.Second)
	for _, name := range []string{"before", "failed", "behind"} {
		if _, values := s.values(name); len(values) == 0 {
			t.Errorf("a power loss lost the gauge %q", name)
		}
	}
	p.terminate()
}

// With the default settings as well, a checkpoint replaces the frames that a failed sync may have lost:
// frames are doubtful only for a few seconds.
func TestAFailedSyncIsFollowedByACheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, fails := flakyDisk()
		p := startOn(t, fs, newStore(t), time.Now, func(*Options) {})
		p.mustCount("a", 1)
		time.Sleep(1500 * time.Millisecond)
		p.mustCount("a", 1)
		fails.Store(1)
		time.Sleep(time.Second)
		if _, failed := p.log.Doubtful(); !failed {
			t.Fatal("no frame is doubtful")
		}
		time.Sleep(5 * time.Second)
		if upTo, failed := p.log.Doubtful(); failed {
			t.Errorf("frames up to %d are still doubtful, want none", upTo)
		}
		p.terminate()
	})
}
