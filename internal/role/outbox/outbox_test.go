package outbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/coalesce"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
	"github.com/freshet-io/freshet/internal/settings"
)

// While there is a leader, no window touches the disk.
func TestWindowsGoToTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		p := start(t, memfs.New(), g, 1)
		for range 3 {
			if took := p.push(2); took != 0 {
				t.Errorf("a push took %v", took)
			}
		}
		if err := p.Push(t.Context(), nil); err != nil {
			t.Errorf("a window without batches returned %v, want no error", err)
		}
		if len(p.fs.Files) > 0 || g.samples() != 6 {
			t.Errorf("got %d files and %d counted samples, want 0 and 6", len(p.fs.Files), g.samples())
		}
		p.books(0, 6, 0, 0)
		p.terminate()
	})
}

// Without a leader, a window waits in memory for a second, and then in the file. The next windows go to
// the file at once. When a leader comes, it gets all windows in order, some at a time, and the file is
// removed.
func TestWithoutALeaderWindowsWaitInTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		p := start(t, memfs.New(), g, 1)
		g.set(func() { g.away = true })
		time.Sleep(5 * time.Second) // the tile ends meanwhile
		batches := p.window(3)
		want, err := member.PushOf(batches)
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if err := p.Push(t.Context(), batches); err != nil || time.Since(begun) != patience {
			t.Errorf("the first window returned %v after %v, want no error after 1 s", err, time.Since(begun))
		}
		for range 7 {
			time.Sleep(time.Second)
			if took := p.push(3); took != 0 {
				t.Errorf("a window behind another took %v, want 0", took)
			}
		}
		p.books(0, 0, 24, 0)
		if n := p.metric("freshet_outbox_coalesced_windows_total"); n != 0 {
			t.Errorf("%v windows were coalesced within 10 s, want 0", n)
		}
		if len(p.segments()) == 0 || p.log.count("windows wait in the outbox until") != 1 {
			t.Errorf("the segments are %v, want some; the log is %s, want one line that windows wait",
				p.segments(), p.log.text.String())
		}
		g.set(func() { g.away = false })
		time.Sleep(time.Second)
		p.books(0, 24, 0, 0)
		if got := g.sequences(); !slices.IsSorted(got) || len(got) != 8 || g.samples() != 24 {
			t.Errorf("windows %v came, and %d samples count, want 8 windows in order and 24 samples", got, g.samples())
		}
		if got := entry.AppendPush(nil, &g.pushes[0]); !bytes.Equal(got, want) {
			t.Error("the bytes of the first window changed on the way")
		}
		for _, push := range g.pushes {
			if push.Again { // no leader had seen it
				t.Errorf("window %d is marked as a repeat, want no mark", push.Sequence>>16)
			}
		}
		if names := p.segments(); len(names) > 0 || p.log.count("the outbox is empty") != 1 {
			t.Errorf("the segments are %v, want none; the log is %s, want one line that the outbox is empty",
				names, p.log.text.String())
		}
		if took := p.push(3); took != 0 || len(p.segments()) > 0 {
			t.Errorf("the next window took %v and wrote %v, want 0 and nothing", took, p.segments())
		}
		p.terminate()
	})
}

// The next process first sends the windows that it finds. They go out as windows of the previous
// process, and as repeats. A window that already counts does not count again.
func TestTheNextProcessSendsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		p := start(t, memfs.New(), g, 1)
		p.push(1)
		g.set(func() { g.mute = true })
		p.push(1) // counts, and its answer is lost
		g.set(func() { g.mute, g.away = false, true })
		p.push(1)
		synctest.Wait()
		image := p.fs.Crash()
		p.terminate()

		next := start(t, image, g, 2)
		next.push(1)
		next.books(2, 0, 3, 0)
		if next.log.count("windows of an earlier process wait") != 1 {
			t.Errorf("the log says %s", next.log.text.String())
		}
		before := len(g.sequences())
		g.set(func() { g.away = false })
		time.Sleep(time.Second)
		next.books(2, 3, 0, 0)
		if g.samples() != 4 {
			t.Errorf("%d of 4 samples count, want all", g.samples())
		}
		for i, want := range []struct {
			id
			again bool
		}{{id{1, 2}, true}, {id{1, 3}, true}, {id{2, 1}, false}} {
			got := g.pushes[before+i]
			if (id{got.Incarnation, got.Sequence >> 16}) != want.id || got.Again != want.again || got.Producer != 7 {
				t.Errorf("push %d is window %d of life %d, again %v, want %+v",
					i, got.Sequence>>16, got.Incarnation, got.Again, want)
			}
		}
		next.terminate()
	})
}

// When a process stops, it tells the leader, as soon as the leader has all its windows. If windows stay
// in the file, it tells nothing, since the next process sends them under the same incarnation.
func TestAStopTakesItsLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		leaves := func(want ...uint64) {
			t.Helper()
			g.mu.Lock()
			defer g.mu.Unlock()
			var got []uint64
			for _, p := range g.left {
				if got = append(got, p.Incarnation); p.Producer != 7 || len(p.Batches) > 0 {
					t.Errorf("this leaves: %+v", p)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("incarnations %d have left, want %d", got, want)
			}
		}
		p := start(t, memfs.New(), g, 1)
		p.terminate()
		leaves() // nobody knows it
		p = start(t, p.fs, g, 1)
		p.push(2)
		p.terminate()
		leaves(1)

		p = start(t, p.fs, g, 2)
		p.push(2)
		g.set(func() { g.away = true })
		p.push(2)
		p.terminate()
		leaves(1)
		p = start(t, p.fs, g, 3)
		g.set(func() { g.away = false })
		time.Sleep(time.Second)
		p.terminate()
		leaves(1, 2) // the process has sent what incarnation 2 left, and nothing of its own

		p = start(t, p.fs, g, 4)
		p.push(2)
		g.set(func() { g.away = true })
		begun := time.Now()
		p.terminate()
		leaves(1, 2)
		if took := time.Since(begun); took > leaveTime || p.log.count("does not know that this collector has stopped") != 1 {
			t.Errorf("the stop took %v, and the log says %s, want at most 1 s, and one line about the leader",
				took, p.log.text.String())
		}
	})
}

// If there is no leader, a process that stops leaves its windows in the file, and logs that. It does not
// wait for long.
func TestAStopWithoutALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		p := start(t, memfs.New(), g, 1)
		g.set(func() { g.away = true })
		p.push(2)
		p.push(2)
		begun := time.Now()
		p.terminate()
		if took := time.Since(begun); took > stopTime {
			t.Errorf("the stop took %v", took)
		}
		p.books(0, 0, 4, 0)
		if p.log.count("windows stay in the outbox") != 1 {
			t.Errorf("the log says %s", p.log.text.String())
		}
		next := start(t, p.fs, g, 2)
		g.set(func() { g.away = false })
		time.Sleep(time.Second)
		next.books(4, 4, 0, 0)
		next.terminate()
		if next.log.count("windows stay") != 0 {
			t.Errorf("the log says %s", next.log.text.String())
		}
	})
}

// If a leader comes during the stop, it gets the windows that wait.
func TestALeaderComesDuringTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		p := start(t, memfs.New(), g, 1)
		g.set(func() { g.away = true })
		p.push(2)
		time.AfterFunc(stopTime/2, func() { g.set(func() { g.away = false }) })
		p.terminate()
		p.books(0, 2, 0, 0)
	})
}

// If the outbox is over its limit, its oldest windows are given up and counted.
func TestAFullOutboxGivesUpTheOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		p := start(t, memfs.New(), g, 1)
		g.set(func() { g.away = true })
		const windows = 60
		for i := range windows {
			batches := p.window(1)
			batches[0].Bytes = append(batches[0].Bytes, make([]byte, 1<<20)...) // damaged behind its increments
			if err := p.Push(t.Context(), batches); err != nil {
				t.Fatalf("window %d: %v", i, err)
			}
		}
		kept, _ := p.amount()
		if kept.Frames < 12 || kept.Frames > 16 {
			t.Errorf("%d windows of 1 MiB are kept, want 12 to 16", kept.Frames)
		}
		p.books(0, 0, kept.Frames, windows-kept.Frames)
		if n := p.metric("freshet_outbox_unsent_samples_total"); n != float64(windows-kept.Frames) {
			t.Errorf("unsent_samples_total is %v, want 1 for each window that was given up", n)
		}
		p.terminate()
		if size := size(p.fs); size > settings.MinOutbox {
			t.Errorf("the file has %d bytes, want at most settings.MinOutbox", size)
		}
	})
}

// After windows have waited for 10 s, the windows of a tile become one. A window that a leader may have
// got stays as it is.
func TestTheWindowsOfATileAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		p := start(t, memfs.New(), g, 1)
		g.set(func() { g.mute, g.leaves = true, 1 })
		p.push(3)
		g.set(func() { g.mute = false })
		for range 99 {
			time.Sleep(time.Second)
			p.push(3)
		}
		synctest.Wait()
		if sum, _ := p.amount(); sum.Frames < 10 || sum.Frames > 30 || sum.Samples != 300 {
			t.Errorf("%+v waits after 100 s, want 10 to 30 frames with 300 samples", sum)
		}
		time.Sleep(20 * time.Second)
		if sum, _ := p.amount(); sum.Frames != 11 {
			t.Errorf("after all windows are coalesced, %+v waits in %v, want 11 frames", sum, p.segments())
		}
		for _, name := range p.segments() {
			if strings.HasPrefix(name, "seconds") {
				t.Errorf("%s is left", name)
			}
		}
		p.books(0, 0, 300, 0)
		g.set(func() { g.away = false })
		time.Sleep(tryTime)
		p.books(0, 300, 0, 0)
		if g.samples() != 300 || g.counted["of_all_1"] != 100 {
			t.Errorf("%d of 300 samples count, want all", g.samples())
		}
		if again := g.pushes[1]; again.Sequence != g.pushes[0].Sequence || !again.Again || g.pushes[2].Again {
			t.Errorf("the second push is window %d, again %v, want a repeat of the first push, and a third push that "+
				"is no repeat; all: %v",
				again.Sequence>>16, again.Again, g.sequences())
		}
		for _, push := range g.pushes[2:] {
			tiles := map[int64]bool{}
			for b := range push.Batches.All() {
				h, _ := batch.ParseHeader(b)
				tiles[coalesce.Tile(h.Second)] = true
			}
			if len(tiles) != 1 {
				t.Errorf("a push has the tiles %v, want one tile", tiles)
			}
		}
		if len(p.segments()) > 0 {
			t.Errorf("the directory has %v, want nothing", p.segments())
		}
		p.terminate()
	})
}

// The next process coalesces the windows that the last process left, tile by tile. Its books have each
// tenant's samples.
func TestTheNextProcessCoalesces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		g.away = true
		p := open(t, memfs.New(), g, 1) // does not run, so nothing is coalesced
		for range 30 {
			for _, of := range []string{tenant, "other"} {
				if err := p.Push(t.Context(), p.windowOf(of, 2)); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(time.Second)
		}
		image := p.fs.Crash()
		p.begin()
		p.terminate()
		next := start(t, image, g, 2)
		time.Sleep(20 * time.Second)
		if sum, _ := next.amount(); sum.Frames != 4 { // the push of the first window took a second
			t.Errorf("%+v waits", sum)
		}
		image = next.fs.Crash()
		next.terminate()

		last := start(t, image, g, 3)
		last.books(60, 0, 60, 0)
		g.set(func() { g.away = false })
		time.Sleep(tryTime)
		last.books(60, 60, 0, 0)
		if s := last.Ledger.Books().Tenants["other"].Samples; s.HandedOver != 60 || g.samples() != 120 {
			t.Errorf("the books of the other tenant are %+v, and %d samples count, want 60 handed over and 120 counted",
				s, g.samples())
		}
		last.terminate()
	})
}

// A window in the file whose answer was lost is sent again, as a repeat.
func TestALostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		p := start(t, memfs.New(), g, 1)
		g.set(func() { g.away = true })
		p.push(1)
		g.set(func() { g.away, g.mute = false, true })
		time.Sleep(2 * tryTime)
		g.set(func() { g.mute = false })
		time.Sleep(tryTime)
		p.books(0, 1, 0, 0)
		for i, push := range g.pushes {
			if push.Again != (i > 0) {
				t.Errorf("try %d has Again = %v, want true for all but the first", i, push.Again)
			}
		}
		if len(g.pushes) < 3 || g.samples() != 1 {
			t.Errorf("%d tries, and %d samples count, want at least 3 tries, and 1 sample", len(g.pushes), g.samples())
		}
		p.terminate()
	})
}

// coalesces reports whether the first windows are coalesced.
func (p *process) coalesces() bool {
	for name := range p.fs.Files {
		if strings.HasPrefix(name, "tiles.") && strings.HasSuffix(name, ".segment") {
			return true
		}
	}
	return false
}

// A process dies after it has written coalesced windows, before it has removed the originals. The next
// process has each window once.
func TestKilledWhileWindowsAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		p := open(t, memfs.New(), g, 1)
		var image *memfs.FS
		p.fs.Fail = func(op, name string) error { // called with the directory locked
			if op == "write" && strings.HasPrefix(name, "seconds.done") && image == nil && p.coalesces() {
				image = p.fs.Crash()
			}
			return nil
		}
		p.begin()
		g.set(func() { g.away = true })
		for range 30 {
			p.push(2)
			time.Sleep(time.Second)
		}
		p.terminate()
		next := start(t, image, g, 2)
		synctest.Wait()
		restored := next.Ledger.Books().Tenants[tenant].Samples.Restored
		if sum, _ := next.amount(); sum.Samples != restored {
			t.Errorf("%d samples wait, want %d as restored in the books", sum.Samples, restored)
		}
		g.set(func() { g.away = false })
		time.Sleep(tryTime)
		next.books(restored, restored, 0, 0)
		if g.samples() != restored || restored < 10 {
			t.Errorf("%d samples count, want %d as restored, which must be at least 10", g.samples(), restored)
		}
		next.terminate()
	})
}

// A coalesced frame has a window of each tenant, and each window has its own fate. If the frame is given
// up, windows that a leader has taken still count as handed over.
func TestAPartOfAFrameIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		p := start(t, memfs.New(), g, 1)
		g.set(func() { g.away = true })
		for range 25 {
			for _, of := range []string{tenant, "other"} {
				if err := p.Push(t.Context(), p.windowOf(of, 1)); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(time.Second)
		}
		g.set(func() { g.away, g.leaves = false, 1 })
		time.Sleep(tryTime)
		taken := g.samples()
		for i := range 60 { // fills both files
			if i%4 == 0 {
				time.Sleep(20 * time.Second)
			}
			batches := p.window(1)
			batches[0].Bytes = append(batches[0].Bytes, make([]byte, 1<<20)...) // damaged behind its increments
			if err := p.Push(t.Context(), batches); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		one, other := p.Ledger.Books().Tenants[tenant].Samples, p.Ledger.Books().Tenants["other"].Samples
		if taken == 0 || one.HandedOver+other.HandedOver != taken || one.Difference != 0 || other.Difference != 0 ||
			other.Window != 0 || other.Unsent[unsentFull]+other.HandedOver != 25 {
			t.Errorf("%d samples count, want as many handed over in the books %+v and %+v", taken, one, other)
		}
		if sum, _ := p.amount(); sum.Samples != one.Window {
			t.Errorf("%d samples wait, want %d as in the books", sum.Samples, one.Window)
		}
		p.terminate()
	})
}

// Windows that a leader refuses for good leave the file, and count as refused in the books.
func TestRefusedWindows(t *testing.T) {
	for name, refusal := range map[string]error{
		reasonNotTaken: fmt.Errorf("%w: too large", batch.ErrRefused),
		reasonPending:  &batch.FullError{Samples: map[string]uint64{tenant: 3}},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGroup(t)
			p := start(t, memfs.New(), g, 1)
			g.set(func() { g.refuses = refusal })
			if err := p.Push(t.Context(), p.window(3)); !errors.Is(err, refusal) || len(p.fs.Files) > 0 {
				t.Errorf("a window was refused at once: got %v and %d files, want the refusal and no file",
					err, len(p.fs.Files))
			}
			g.set(func() { g.away = true })
			p.push(3)
			g.set(func() { g.away = false })
			time.Sleep(time.Second)
			synctest.Wait()
			s := p.Ledger.Books().Tenants[tenant].Samples
			if s.Refused[name] != 3 || s.Window != 3 { // the collector puts the first window into the books
				t.Errorf("%s: the books are %+v, want 3 refused samples, and 3 in windows", name, s)
			}
			p.terminate()
		})
	}
}

// The group remembers a silent producer for an hour. After that, a window that may count already is not
// sent, neither by this process nor by the next. Others are sent.
func TestAnOldWindowThatMayCountIsNotSent(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := newGroup(t)
			p := start(t, memfs.New(), g, 1)
			g.set(func() { g.mute = true })
			p.push(1)
			g.set(func() { g.mute, g.away = false, true })
			p.push(1)
			restored := uint64(0)
			if restarts {
				p.terminate()
				p, restored = start(t, p.fs, g, 2), 2
			}
			time.Sleep(forgetting + tryTime)
			before := len(g.sequences())
			g.set(func() { g.away = false })
			time.Sleep(tryTime)
			p.books(restored, 1, 0, 1)
			if got := g.sequences()[before:]; !slices.Equal(got, []uint64{2}) {
				t.Errorf("windows %v came", got)
			}
			p.terminate()
		})
	}
}

// A window that can be neither handed over nor written is refused, and the collector keeps it. In the
// end the window counts once.
func TestADiskThatTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		p := start(t, memfs.New(), g, 1)
		g.set(func() { g.mute = true })
		p.fs.Fail = func(op, _ string) error {
			if op == "create" || op == "write" {
				return memfs.ErrInjected
			}
			return nil
		}
		batches := p.window(2)
		for range 2 {
			if err := p.Push(t.Context(), batches); !errors.Is(err, memfs.ErrInjected) ||
				!errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the window: %v", err)
			}
		}
		if again := g.pushes[len(g.pushes)-1].Again; !again {
			t.Error("the second try is not marked as a repeat")
		}
		p.fs.Fail = nil
		if err := p.Push(t.Context(), batches); err != nil {
			t.Error(err)
		}
		g.set(func() { g.mute = false })
		time.Sleep(2 * tryTime)
		p.books(0, 2, 0, 0)
		if g.samples() != 2 {
			t.Errorf("%d of 2 samples count, want all", g.samples())
		}
		p.terminate()
	})
}

// Damage costs only the window that it hits, and that window is counted.
func TestADamagedFile(t *testing.T) {
	for hit := range 3 {
		synctest.Test(t, func(t *testing.T) {
			g := newGroup(t)
			p := start(t, memfs.New(), g, 1)
			g.set(func() { g.away = true })
			var ends []int
			for range 3 {
				p.push(1)
				ends = append(ends, len(p.fs.Files[p.segments()[0]].Data))
			}
			image := p.fs.Crash()
			p.terminate()
			next := open(t, image, g, 2)
			image.Files[next.segments()[0]].Data[ends[hit]-1] ^= 1
			next.begin()
			g.set(func() { g.away = false })
			time.Sleep(2 * tryTime)
			next.books(3, 2, 0, 1)
			if took := next.push(1); took != 0 {
				t.Errorf("after damage of window %d, the next window took %v, want 0", hit, took)
			}
			next.terminate()
		})
	}
}

// The process could not note some acknowledgements. After a kill, the windows concerned come back. After
// a power loss, all acknowledged windows come back. Each counts once, even if the next process coalesces
// windows meanwhile.
func TestAcknowledgedWindowsThatComeBackCountOnce(t *testing.T) {
	for name, c := range map[string]struct {
		sick    func(fs *memfs.FS)
		power   bool
		answers int // how many windows the leader takes before the kill
	}{
		"the position cannot be written": {func(fs *memfs.FS) {
			fs.Fail = func(op, name string) error {
				if strings.Contains(name, "done") && (op == "create" || op == "write") {
					return memfs.ErrInjected
				}
				return nil
			}
		}, false, 1},
		"the disk is full":   {func(fs *memfs.FS) { fs.Space = 0 }, false, 4},
		"the power is lost":  {func(*memfs.FS) {}, true, 4},
		"and the boot is ''": {func(*memfs.FS) {}, true, 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t)
				p := openIn(t, "first", memfs.New(), g, 1)
				g.set(func() { g.away = true })
				for range 6 {
					p.push(2)
				}
				before := p.fs.Crash()
				c.sick(p.fs)
				g.set(func() { g.away, g.leaves = false, 4 }) // the leader takes four windows
				p.begin()
				time.Sleep(2 * time.Second)
				synctest.Wait()
				image, boot := p.fs.Crash(), "first"
				if c.power { // nothing written after `before` is on disk
					image, boot = before, strings.TrimPrefix("second", strings.Repeat("second", strings.Count(name, "''")))
				}
				if n := g.samples(); n != uint64(2*c.answers) {
					t.Errorf("before the kill, %d samples counted, want %d", n, 2*c.answers)
				}
				g.set(func() { g.away = true })
				p.terminate()
				next := openIn(t, boot, image, g, 2)
				next.push(2)
				next.begin()
				time.Sleep(30 * time.Second)
				g.set(func() { g.away, g.leaves = false, 0 })
				time.Sleep(2 * tryTime)
				if g.samples() != 14 {
					t.Errorf("%d samples count, want 14 as sent; %v windows were coalesced", g.samples(),
						next.metric("freshet_outbox_coalesced_windows_total"))
				}
				next.terminate()
			})
		})
	}
}

// A window was tried, and then written to the file behind other windows. In the next process it stays as
// it is.
func TestATriedWindowBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		p := open(t, memfs.New(), g, 1)
		var sick atomic.Bool
		p.fs.Fail = func(op, name string) error {
			if sick.Load() && (strings.Contains(name, "done") && op != "list" || op == "remove") {
				return memfs.ErrInjected
			}
			return nil
		}
		p.begin()
		g.set(func() { g.mute = true })
		p.push(2) // counts, and its answer is lost
		sick.Store(true)
		g.set(func() { g.mute = false })
		time.Sleep(2 * tryTime) // the first window is acknowledged, and waits no more
		g.set(func() { g.mute = true })
		p.push(2) // is tried at once
		g.set(func() { g.away, g.mute = true, false })
		p.push(2)
		synctest.Wait()
		image := p.fs.Crash()
		p.terminate()
		next := start(t, image, g, 2)
		time.Sleep(30 * time.Second)
		g.set(func() { g.away = false })
		time.Sleep(2 * tryTime)
		if g.samples() != 6 || next.metric("freshet_outbox_coalesced_windows_total") == 0 {
			t.Errorf("%d samples count, want 6 as sent, and some windows coalesced", g.samples())
		}
		next.terminate()
	})
}

// Whenever a collector is killed, it loses at most the window that it was pushing. The next process has
// all others. Each counts once, however often leaders went away, answers were lost and the disk failed.
// After a power loss windows may be lost, but none counts twice.
func TestKilledAtAnyTime(t *testing.T) {
	for name, c := range map[string]struct{ sick, power bool }{
		"": {false, false}, "its disk fails": {true, false}, "power losses": {true, true},
	} {
		seeds := uint64(200)
		if testing.Short() {
			seeds = 40
		}
		coalesced := 0.0
		for seed := range seeds {
			synctest.Test(t, func(t *testing.T) {
				defer func() {
					if t.Failed() {
						t.Logf("%s, seed %d", name, seed)
					}
				}()
				coalesced += killed(t, rand.New(rand.NewPCG(seed, 1)), c.sick, c.power)
			})
		}
		if coalesced < 2.5*float64(seeds) {
			t.Errorf("%s: of %d seeds, %v windows were coalesced, want 2.5 of each", name, seeds, coalesced)
		}
	}
}

func killed(t *testing.T, rng *rand.Rand, sick, power bool) (coalesced float64) {
	g := newGroup(t)
	fs := memfs.New()
	var sent, acknowledged uint64
	boot, powerLost := 1, false
	for life := range uint64(3) {
		l := &lifeline{group: g}
		p := openIn(t, fmt.Sprint(boot), fs, l, life+1)
		ctx, end := context.WithCancel(t.Context())
		var image *memfs.FS
		operations := rng.IntN(120)
		var fails atomic.Int64 // percent of the calls that change something
		faults := rand.New(rand.NewPCG(rng.Uint64(), 1))
		p.fs.Fail = func(op, _ string) error { // called with the directory locked
			if operations--; image == nil && (operations == 0 || op == "list") {
				image = p.fs.Crash()
				if power && faults.IntN(2) == 0 {
					image, powerLost = p.fs.PowerLoss(faults), true
					boot++
				}
				l.dead.Store(true)
				end()
			}
			if int(fails.Load()) > faults.IntN(100) && slices.Contains([]string{"write", "create", "rename", "remove"}, op) {
				return memfs.ErrInjected
			}
			return nil
		}
		p.begin()
		time.AfterFunc(time.Duration(rng.IntN(60_000))*time.Millisecond, end)
		pushed := make(chan uint64)
		go func() {
			var taken uint64
			for ctx.Err() == nil {
				if err := p.Push(t.Context(), p.window(2)); err == nil && ctx.Err() == nil {
					taken += 2
				}
				time.Sleep(time.Second)
			}
			pushed <- taken
		}()
		for ctx.Err() == nil {
			g.set(func() { g.away, g.mute = rng.IntN(2) == 0, rng.IntN(3) == 0 })
			if sick {
				fails.Store([]int64{0, 0, 30, 100}[rng.IntN(4)])
				p.fs.SetSpace([]int{memfs.Plenty, memfs.Plenty, 0}[rng.IntN(3)])
			}
			time.Sleep(time.Duration(rng.IntN(12_000)) * time.Millisecond)
		}
		synctest.Wait()
		if _, err := p.fs.List(); err != nil { // kills it between two operations, unless it was killed before
			t.Error(err)
		}
		fs = image
		acknowledged += <-pushed
		sent += p.sequence * 2
		p.terminate()
		coalesced += p.metric("freshet_outbox_coalesced_windows_total")
	}
	g.set(func() { g.away, g.mute = false, false })
	p := start(t, fs, g, 9)
	time.Sleep(2 * tryTime)
	if counted := g.samples(); counted < acknowledged && !powerLost || counted > sent {
		t.Errorf("%d samples count, want at least the %d acknowledged, at most the %d sent", counted, acknowledged, sent)
	}
	windows := 0
	for series, n := range g.counted {
		if strings.HasPrefix(series, "only") {
			windows++
			if n != 1 {
				t.Errorf("%s counts %d times", series, n)
			}
		}
	}
	if windows != int(g.counted["of_all_1"]) {
		t.Errorf("%d windows count, but the series that all windows have counts %d samples", windows, g.counted["of_all_1"])
	}
	if s := p.Ledger.Books().Tenants[tenant].Samples; s.Difference != 0 || s.HandedOver != s.Restored {
		t.Errorf("the books are %+v, want all restored samples handed over; the log is %s", s, p.log.text.String())
	}
	p.terminate()
	return coalesced
}
