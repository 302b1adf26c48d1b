package journal

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

// unsyncedLog is a journal of checkpoints, some of which were committed while stores were not synced.
type unsyncedLog struct {
	t    *testing.T
	fs   *memfs.FS
	boot string
	*Log
	next uint64 // number of the next frame
}

func (u *unsyncedLog) open() Report {
	u.t.Helper()
	l, report, err := Open(u.fs, Options{Mark: testMark, SegmentBytes: 250, Boot: u.boot})
	if err != nil {
		u.t.Fatal(err)
	}
	u.Log = l
	return report
}

// checkpoint appends some frames, and commits a checkpoint behind them.
func (u *unsyncedLog) checkpoint(commit func(Checkpoint) error) error {
	u.t.Helper()
	for range 10 {
		u.append()
	}
	c, err := u.BeginCheckpoint()
	if err != nil {
		u.t.Fatal(err)
	}
	if err := c.Section(0, c.Base(), []byte("the state of shard 0")); err != nil {
		u.t.Fatal(err)
	}
	u.append() // while the checkpoint is written
	return commit(c)
}

func (u *unsyncedLog) append() {
	u.t.Helper()
	if _, err := u.Append([]Frame{entry(u.next)}); err != nil {
		u.t.Fatal(err)
	}
	u.next++
}

// starts opens the journal as the next process does. It checks that the replay begins behind frame
// `base`, and that report.Unsynced equals powerLoss.
func (u *unsyncedLog) starts(base uint64, powerLoss bool) {
	u.t.Helper()
	report := u.open()
	if got := uint64(u.base); got != base || report.Unsynced != powerLoss || len(report.Damage) > 0 {
		u.t.Errorf(
			"the start begins behind frame %d, want %d; want Unsynced %t; report %+v", got, base, powerLoss, report)
	}
	if report.Frames != u.next-base || report.Last != Position(u.next) {
		u.t.Errorf(
			"%d frames up to %d are replayed, want %d frames up to %d", report.Frames, report.Last, u.next-base, u.next)
	}
}

// A checkpoint counts until the machine goes down, even if some stores were not synced for it. After
// that, all frames since the last checkpoint for which all stores were synced are replayed.
func TestCheckpointsWithoutAllStores(t *testing.T) {
	for _, synced := range []uint64{0, 1} { // number of checkpoints with all stores synced
		u := &unsyncedLog{t: t, fs: memfs.New(), boot: "first"}
		u.open()
		for range synced {
			if err := u.checkpoint(Checkpoint.Commit); err != nil {
				t.Fatal(err)
			}
		}
		base := 10 * synced
		for range 3 {
			if err := u.checkpoint(Checkpoint.CommitUnsynced); err != nil {
				t.Fatal(err)
			}
		}
		newest := u.next - 1
		if frames, size := u.Unsynced(); frames != newest-base || size < 33*8 {
			t.Errorf("%d frames are kept, want %d; they have %d bytes", frames, newest-base, size)
		}
		frames, size := u.Unsynced()
		u.fs = u.fs.Crash()
		u.starts(newest, false)
		if f, s := u.Unsynced(); f != frames || s != size {
			t.Errorf("after a kill %d frames with %d bytes are kept, want %d frames with %d bytes", f, s, frames, size)
		}
		u.fs, u.boot = u.fs.PowerLoss(rand.New(rand.NewPCG(synced, 1))), "second"
		u.next = newest + 1 // the frame behind the checkpoint was never synced
		u.open()
		u.next = uint64(u.tail.Last)
		u.starts(base, false) // the start before has removed the newer checkpoints
		if u.next < newest {
			t.Errorf("frames up to %d are left, want %d", u.next, newest)
		}
		u.fs = u.fs.Crash()
		u.starts(base, false)
		if err := u.checkpoint(Checkpoint.Commit); err != nil {
			t.Fatal(err)
		}
		if names, err := u.fs.List(); err != nil || slices.Contains(names, "unsynced") {
			t.Errorf("%v: %q", err, names)
		}
		newest = u.next - 1
		u.fs, u.boot = u.fs.Crash(), "third"
		u.starts(newest, false)
	}
}

// The start after a power loss reports that checkpoints do not count.
func TestCheckpointsThatDoNotCountAreReported(t *testing.T) {
	u := &unsyncedLog{t: t, fs: memfs.New(), boot: "first"}
	u.open()
	if err := u.checkpoint(Checkpoint.CommitUnsynced); err != nil {
		t.Fatal(err)
	}
	u.boot = ""
	u.starts(0, true)
}

// If the checkpoint for which all stores were synced is damaged, the newest counts: it lacks only what
// some stores lost.
func TestTheSyncedCheckpointIsDamaged(t *testing.T) {
	u := &unsyncedLog{t: t, fs: memfs.New(), boot: "first"}
	u.open()
	for _, commit := range []func(Checkpoint) error{
		Checkpoint.Commit, Checkpoint.CommitUnsynced, Checkpoint.CommitUnsynced,
	} {
		if err := u.checkpoint(commit); err != nil {
			t.Fatal(err)
		}
	}
	u.fs, u.boot = u.fs.Crash(), "second"
	u.fs.Files[checkpointFormat.Name(10)].Data[40] ^= 1
	u.starts(u.next-1, false)
}

// After a failed sync, a power loss may take frames, so no start may depend on them. The next checkpoint
// then needs all stores synced.
func TestAFailedSyncNeedsACheckpointWithAllStores(t *testing.T) {
	u := &unsyncedLog{t: t, fs: memfs.New(), boot: "first"}
	u.open()
	u.append()
	failing("sync")(u.fs)
	if err := u.Sync(); err == nil {
		t.Fatal("the sync succeeds")
	}
	u.fs.Fail = nil
	if err := u.checkpoint(Checkpoint.CommitUnsynced); !errors.Is(err, memfs.ErrInjected) {
		t.Errorf("a checkpoint while stores are not synced: error %v, want the injected error", err)
	}
	if err := u.checkpoint(Checkpoint.Commit); err != nil {
		t.Error(err)
	}
	if err := u.Sync(); err != nil {
		t.Error(err)
	}
}
