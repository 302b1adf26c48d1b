package tsdb

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"syscall"
	"testing"

	"github.com/freshet-io/freshet/internal/core/write"
)

// syncsCommits opens the stores with wal_fsync: commit.
func (w *world) syncsCommits() {
	w.t.Helper()
	w.close()
	w.cfg.WALFsync = FsyncCommit
	w.open()
}

// afterPowerLoss opens the synced bytes of the stores, and returns the raw samples.
func (w *world) afterPowerLoss(k *kernel) map[string]string {
	w.t.Helper()
	image := k.powerLoss(w.t.(*testing.T), w.dir)
	w.close()
	w.dir, w.state = image, write.State{}
	w.open()
	return w.raw()
}

func never(string) bool { return false }

// With wal_fsync: commit, a power loss takes nothing that was acknowledged: no new series, no late sample and no
// histogram. With wal_fsync: interval, it takes what came since the last sync.
func TestAcknowledgedRequestsSurviveAPowerLoss(t *testing.T) {
	for _, fsync := range []string{FsyncCommit, FsyncInterval} {
		t.Run(fsync, func(t *testing.T) {
			w := newWorld(t)
			w.close()
			w.cfg.WALFsync = fsync
			w.open()
			k := w.underKernel(never)
			w.writeRaw(&plain, "a@20=1 b@20=h3")
			w.writeRaw(&plain, "a@10=2", "c@30=4") // late, so in the other log
			w.writeRaw(&plain, "a@30=5")
			want := w.raw()
			got := w.afterPowerLoss(k)
			if survives := maps.Equal(got, want); survives != (fsync == FsyncCommit) {
				t.Errorf("got %v, acknowledged were %v", got, want)
			}
		})
	}
}

// A commit that reaches into a new segment syncs the end of the old one, too, for which tsdb does not wait.
func TestAcknowledgedRequestsSurviveAPowerLossInManySegments(t *testing.T) {
	w := newWorld(t)
	w.syncsCommits()
	st, err := w.stores.forWrite("default", Raw)
	if err != nil {
		t.Fatal(err)
	}
	st.options.WALSegmentSize = 64 << 10
	k := w.underKernel(never)
	for i := range 200 {
		var all []string
		for j := range 50 {
			all = append(all, fmt.Sprintf("s%d_%d@%d=%d", i, j, 100+i, j))
		}
		w.writeRaw(&plain, strings.Join(all, " "))
	}
	if logs, err := segmentsOf(st.dir + "/wal"); err != nil || len(logs.numbers) < 3 {
		t.Fatalf("the log has segments %v, error %v; this test needs some", logs.numbers, err)
	}
	want := w.raw()
	if got := w.afterPowerLoss(k); !maps.Equal(got, want) {
		t.Errorf("after a power loss there are %d series; %d were acknowledged", len(got), len(want))
	}
}

// A repair at the opening may write old segments anew, with samples that were acknowledged long ago.
func TestAnOpenedStoreSurvivesAPowerLoss(t *testing.T) {
	w := newWorld(t)
	w.syncsCommits()
	w.writeRaw(&plain, "a@20=1")
	w.writeRaw(&plain, "a@10=2")
	w.close()
	w.open()
	k := w.underKernel(never)
	want := w.raw() // opens the store
	if got := w.afterPowerLoss(k); !maps.Equal(got, want) || len(want) == 0 {
		t.Errorf("got %v, want %v", got, want)
	}
}

// After a sync that failed, the kernel says of later syncs that they succeed, though the samples are lost. So nothing
// is acknowledged until the file is written anew.
func TestNothingIsAcknowledgedAfterAFailedSync(t *testing.T) {
	w := newWorld(t)
	w.syncsCommits()
	w.writeRaw(&plain, "a@10=1")
	k := w.underKernel(once("raw/wal/00000000"))
	push := func(text string) error {
		return w.stores.WriteRequests(t.Context(), "default", &w.state,
			[]*write.Request{requestOf(t, true, &plain, parseRaw(t, text))})
	}
	if err := push("a@20=2"); !errors.Is(err, syscall.EIO) {
		t.Fatalf("a request whose sync fails: error %v, want %v", err, syscall.EIO)
	}
	if err := push("a@20=2"); err == nil || !strings.Contains(err.Error(), "wal/00000000") {
		t.Fatalf("the request comes again: error %v, want one that names the file", err)
	}
	if err := w.stores.Sync(t.Context()); err != nil { // writes the file anew
		t.Fatal(err)
	}
	if err := push("a@20=2"); err != nil {
		t.Fatal(err)
	}
	want := w.raw()
	if got := w.afterPowerLoss(k); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// In a group, the group's log has the requests, and is synced before they are acknowledged.
func TestCommitsOfAGroupNeedNoSync(t *testing.T) {
	w := newWorld(t)
	w.syncsCommits()
	w.stores.CutBack("boot", nil)
	w.writeRaw(&plain, "a@10=1") // opens the store
	var synced []string
	w.stores.fsync = func(path string) error { synced = append(synced, path); return nil }
	w.writeRaw(&plain, "a@20=1")
	if synced != nil {
		t.Errorf("synced %v", synced)
	}
}
