package aggregator

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/notes"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/settings"
)

// If samples are acknowledged only after a sync of the journal, they survive a power loss. That holds
// even for samples that the stores have taken but not synced, and that a checkpoint therefore lacks.
func TestAPowerLossLosesNothing(t *testing.T) {
	for _, after := range []time.Duration{25 * time.Second, 100 * time.Second, checkpointInterval + 15*time.Second,
		checkpointInterval + 2*time.Minute} {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, dir := newStore(t), t.TempDir()
				synced := func(boot string) func(*Options) {
					return func(o *Options) { o.Config.Fsync, o.Boot = settings.FsyncCommit, boot }
				}
				p := startWith(t, dir, s, time.Now, synced("first"))
				total := 0.0
				for begun := time.Now(); time.Since(begun) < after; time.Sleep(time.Second) {
					p.mustCount("a", 1)
					total++
				}
				dir = p.kill(dir)
				s.losePower()
				p = startWith(t, dir, s, time.Now, synced("second"))
				time.Sleep(20 * time.Second)
				checkCounter(t, s, "a", total)
				p.terminate()
			})
		})
	}
}

// If only the process dies, the stores keep their samples, and nothing is written again. Without valid
// notes, all samples since the checkpoint are written again.
func TestWhatIsStoredIsNotWrittenAgain(t *testing.T) {
	for _, c := range []struct {
		boot string // boot of the machine when the second process starts
		most int    // greatest number of samples that may be written again
		some bool
	}{
		{"boot", 0, false},
		{"another", 1000, true},
		{"", 1000, true},
	} {
		t.Run(fmt.Sprintf("%q", c.boot), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, dir := newStore(t), t.TempDir()
				p := start(t, dir, s, time.Now)
				for range 95 {
					p.mustCount("a", 1)
					time.Sleep(time.Second)
				}
				time.Sleep(20 * time.Second) // now the last tile is stored and noted
				dir = p.kill(dir)
				p = startWith(t, dir, s, time.Now, func(o *Options) { o.Boot = c.boot })
				time.Sleep(5 * time.Second)
				if again := s.repeats(); again > c.most || (again > 0) != c.some {
					t.Errorf(
						"%d samples were written again, want more than 0: %v, and at most %d", again, c.some, c.most)
				}
				checkCounter(t, s, "a", 95)
				p.terminate()
			})
		})
	}
}

// A process is killed while a tenant's store is broken, so it has noted nothing for that tenant. The
// next process also notes nothing for the tenant until it has written all waiting samples.
func TestNotesCoverWhatWaitedAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := &partly{store: newStore(t), tenant: "b", widths: bothWidths}, t.TempDir()
		s.breakIt(false)
		p := start(t, dir, s, time.Now)
		total := 0.0
		for life := range 3 {
			for range 45 {
				if err := p.countOf(1, "default", "b"); err != nil {
					t.Fatal(err)
				}
				total++
				time.Sleep(time.Second)
			}
			dir = p.kill(dir)
			if life == 1 {
				s.mend()
			}
			p = start(t, dir, s, time.Now)
		}
		time.Sleep(30 * time.Second)
		before := s.repeats()
		dir = p.kill(dir)
		p = start(t, dir, s, time.Now)
		time.Sleep(5 * time.Second)
		if again := s.repeats() - before; again != 0 {
			t.Errorf("%d samples were written again, want 0", again)
		}
		checkSum(t, s.store, "b", total)
		checkSum(t, s.store, "default", total)
		p.terminate()
	})
}

// While a checkpoint is written, a store takes nothing, so the checkpoint has all tiles of that store.
// Just before the checkpoint is in place, the store takes some tiles, and then the process is killed.
// The next process writes only the tiles that the store lacks. Older programs compared notes with the
// positions of a checkpoint's sections, so they wrote all tiles of a section again.
func TestTilesOfACheckpointAreNotWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := &partly{store: newStore(t), tenant: "b", widths: bothWidths}, t.TempDir()
		s.breakIt(false)
		time.Sleep(40 * time.Second) // now the next tile of 10 s also ends one of a minute
		p := start(t, dir, s, time.Now)
		total := 0.0
		for life := range 4 {
			time.Sleep(10 * time.Second) // a process begins with a checkpoint
			before := testutil.ToFloat64(p.metrics.Checkpoints)
			stored, _ := s.valuesOf("b", "a")
			take := func() { s.take(len(bothWidths)) }
			s.atSync.Store(&take)
			for begun := time.Now(); time.Since(begun) < checkpointInterval+20*time.Second; time.Sleep(time.Second) {
				if err := p.countOf(1, "default", "b"); err != nil {
					t.Fatal(err)
				}
				total++
			}
			if testutil.ToFloat64(p.metrics.Checkpoints) == before {
				t.Fatal("there was no checkpoint")
			}
			synctest.Wait()
			if now, _ := s.valuesOf("b", "a"); len(now) == len(stored) || len(p.Pending()) == 0 {
				t.Fatalf("process %d: the store took none or all of the tiles, want some", life)
			}
			dir = p.kill(dir)
			p = start(t, dir, s, time.Now)
		}
		s.mend()
		time.Sleep(30 * time.Second)
		if again := s.repeats(); again != 0 {
			t.Errorf("%d samples were written again, want 0", again)
		}
		checkSum(t, s.store, "b", total)
		checkSum(t, s.store, "default", total)
		p.terminate()
	})
}

// An older program saved waiting tiles without their index. So only a note that reaches the position of
// the section proves that such a tile is stored.
func TestTilesThatAnOlderProgramSaved(t *testing.T) {
	for noted, waits := range map[uint64]int{4: 1, 5: 0} {
		a := Aggregator{}
		a.stored, _ = notes.ReadStored(&memory{}, "")
		if err := a.stored.Raise("default", noted); err != nil {
			t.Fatal(err)
		}
		s := tile.New(&a.tiles, 0)
		b := (&process{}).batchOf(time.Unix(1, 0), batch.Increment{Key: upDownKey("u"), Samples: 1, Value: 1})
		if _, err := s.Fold(b.Bytes); err != nil {
			t.Fatal(err)
		}
		s.Close(tileMillis, &a.tiles)
		a.forgetStored(s, s.Waiting(), 5)
		if n := len(s.Waiting()); n != waits {
			t.Errorf("with a note up to %d, %d tiles wait, want %d", noted, n, waits)
		}
	}
}
