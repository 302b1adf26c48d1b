package aggregator

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-io/freshet/internal/settings"
)

// Samples that are acknowledged only after a sync of the journal survive a power loss. That holds
// even if the stores had taken them without a sync, so that a checkpoint no longer has them.
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

// If only the process dies, the stores keep their samples, and nothing is written to them again.
// Without valid notes, all samples since the checkpoint are written again.
func TestWhatIsStoredIsNotWrittenAgain(t *testing.T) {
	for _, c := range []struct {
		boot string // of the second process
		most int    // samples written again, at most
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
				time.Sleep(20 * time.Second) // the last tile is stored, and noted
				dir = p.kill(dir)
				p = startWith(t, dir, s, time.Now, func(o *Options) { o.Boot = c.boot })
				time.Sleep(5 * time.Second)
				if again := s.repeats(); again > c.most || (again > 0) != c.some {
					t.Errorf("%d samples were written again", again)
				}
				checkCounter(t, s, "a", 95)
				p.terminate()
			})
		})
	}
}

// A process that is killed while a tenant's store is broken has noted nothing for that tenant. The
// next process notes nothing for it either until it has written all waiting samples.
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
			t.Errorf("%d samples were written again", again)
		}
		checkSum(t, s.store, "b", total)
		checkSum(t, s.store, "default", total)
		p.terminate()
	})
}
