package group

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-io/freshet/internal/core/checkpoint"
	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// A running member gives a checkpoint and the entries behind it, and later its stores. Another member goes on from
// them. It has no notes and no votes.
func TestAMemberBeginsWithACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStores(t)
		p := start(t, memfs.New(), s)
		total := 0.0
		write := func(seconds int) {
			for range seconds {
				p.mustCount("a", "c", 1)
				if _, err := p.Write(t.Context(), request(t, "a", "r", time.Now(), total)); err != nil {
					t.Fatal(err)
				}
				total++
				time.Sleep(time.Second)
			}
		}
		write(50)
		base, reaches, err := p.Save(t.Context())
		if err != nil || base == 0 || reaches < base {
			t.Fatalf("the checkpoint has base %d and reaches entry %d; error %v", base, reaches, err)
		}
		write(30)
		to := memfs.New()
		if err := p.CopyLog(to, base, reaches); err != nil {
			t.Fatal(err)
		}
		copied := newStores(t)
		for key, samples := range s.have {
			copied.have[key] = maps.Clone(samples)
		}
		names, _ := to.List()
		for _, name := range names {
			if strings.HasPrefix(name, "notes") {
				t.Errorf("the copy has %s", name)
			}
		}
		log, err := entrylog.Open(to, entrylog.Options{})
		if err != nil || log.Base() != base || log.Last() != reaches {
			t.Fatalf("the copy's log has the entries %d to %d, want %d to %d; error %v", log.Base()+1, log.Last(), base+1,
				reaches, err)
		}
		state, _, err := log.InitialState()
		if err != nil || state.GetVote() != 0 || state.GetCommit() != reaches {
			t.Errorf("the copy's log has the state %v; error %v", state, err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		// The leader would send the entries behind `reaches`.
		to = memfs.New()
		if err := p.CopyLog(to, base, p.Applied()); err != nil {
			t.Fatal(err)
		}
		q := start(t, to, copied)
		if got := q.Restored(); got.New || got.Checkpoint == nil || got.Checkpoint.Base != base {
			t.Errorf("the other member found %+v", got)
		}
		q.mustCount("a", "c", 5)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		copied.check("a", "c", total+5)
		if n := copied.count("a raw "); n != int(total) {
			t.Errorf("the other member has %d samples of requests, want %v", n, total)
		}
		q.terminate()
		p.terminate()
	})
}

// A backup copies stores for long, and checkpoints are made meanwhile. Its copy begins with the checkpoint from before
// the stores, and has all entries that the stores have.
func TestABackupUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStores(t)
		p := start(t, memfs.New(), s, func(o *Options) { o.Config.Checkpoint = conf.Bytes(1000) })
		total := 0.0
		write := func(seconds int) {
			for range seconds {
				p.mustCount("a", "c", 1)
				total++
				time.Sleep(time.Second)
			}
		}
		write(50)
		to, copied := memfs.New(), newStores(t)
		before := p.Status().Base
		last, err := p.CopyWith(t.Context(), to, func() error {
			write(100)
			if pins := p.Status().LogPins; !slices.Equal(pins, []string{"backup"}) {
				t.Errorf("the log says that it is pinned by %q", pins)
			}
			p.mustCount("a", "c", 1) // between two ticks
			total++
			for key, samples := range s.have {
				copied.have[key] = maps.Clone(samples)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		write(100)
		if pins := p.Status().LogPins; pins != nil {
			t.Errorf("after the backup, the log says that it is pinned by %q", pins)
		}
		if p.Status().Base <= before {
			t.Fatal("the log was never cut off: the test shows nothing")
		}
		p.terminate()
		log, err := entrylog.Open(to, entrylog.Options{})
		if err != nil || log.Last() != last {
			t.Fatalf("the backup ends with entry %d, want %d; error %v", log.Last(), last, err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		q := start(t, to, copied)
		if got := q.Restored(); got.New || got.Checkpoint == nil || got.Checkpoint.Base != log.Base() {
			t.Errorf("the backup has %+v, and its log begins behind entry %d", got, log.Base())
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		copied.check("a", "c", total-100)
		q.terminate()
	})
}

// Save writes no second checkpoint if the first has everything: the checkpoint before it stays.
func TestSaveKeepsTheCheckpointBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStores(t)
		p := start(t, memfs.New(), s)
		p.mustCount("a", "c", 1)
		if _, _, err := p.Save(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.mustCount("a", "c", 1)
		p.terminate()
		names, _ := p.fs.List()
		if len(checkpoint.Files(names)) != 2 {
			t.Fatalf("the files are %v, want two checkpoints", names)
		}
	})
}

// While a node is filled, the log keeps the entries that the node needs, and says so. A minute after the last
// renewal, or if the log is too large, it does not.
func TestTheLogIsPinned(t *testing.T) {
	for _, c := range []struct {
		name          string
		renewed, huge bool
		kept          bool
	}{{"renewed", true, false, true}, {"not renewed", false, false, false}, {"too large", true, true, false}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStores(t)
				p := start(t, memfs.New(), s, func(o *Options) { o.Config.Checkpoint = conf.Bytes(1000) })
				defer p.terminate()
				if c.huge {
					p.unsyncedBytes = 3000
				}
				p.mustCount("a", "c", 1)
				base, _, err := p.Save(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				p.Pin("d", base)
				time.Sleep(200 * time.Millisecond)
				if pins := p.Status().LogPins; !slices.Equal(pins, []string{"fill of node d"}) {
					t.Errorf("the log says that it is pinned by %q", pins)
				}
				for range 100 {
					if c.renewed {
						p.Pin("d", base)
					}
					p.mustCount("a", "c", 1)
					time.Sleep(time.Second)
				}
				if kept := p.Status().Base <= base; kept != c.kept {
					t.Errorf("the log begins with entry %d, and entry %d was pinned", p.Status().Base+1, base+1)
				}
				p.Pin("d", never)
				time.Sleep(time.Second)
				if pins := p.Status().LogPins; pins != nil {
					t.Errorf("a pin was ended, and the log says that it is pinned by %q", pins)
				}
				if err := p.CopyLog(memfs.New(), base, base+1); (err == nil) && !c.kept {
					t.Error("entries that are gone were copied")
				}
			})
		})
	}
}
