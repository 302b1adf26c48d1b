package outbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-io/freshet/internal/core/batch"
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
			t.Errorf("a window without batches: %v", err)
		}
		if len(p.fs.Files) > 0 || g.samples() != 6 {
			t.Errorf("%d files, and %d samples count", len(p.fs.Files), g.samples())
		}
		p.books(0, 6, 0, 0)
		p.terminate()
	})
}

// Without a leader a window waits in memory for a second, and in the file after that. The next ones go there at once.
// When there is a leader, it gets all windows in order, bit by bit, and the file goes.
func TestWithoutALeaderWindowsWaitInTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		p := start(t, memfs.New(), g, 1)
		g.set(func() { g.away = true })
		batches := p.window(3)
		want, err := member.PushOf(batches)
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if err := p.Push(t.Context(), batches); err != nil || time.Since(begun) != patience {
			t.Errorf("the first window: %v after %v", err, time.Since(begun))
		}
		for range 20 {
			time.Sleep(time.Second)
			if took := p.push(3); took != 0 {
				t.Errorf("a window behind another took %v", took)
			}
		}
		p.books(0, 0, 63, 0)
		if len(p.segments()) == 0 || p.log.count("windows wait in the outbox until") != 1 {
			t.Errorf("the directory has %v; the log says %s", p.segments(), p.log.text.String())
		}
		g.set(func() { g.away = false })
		time.Sleep(time.Second)
		p.books(0, 63, 0, 0)
		if got := g.sequences(); !slices.IsSorted(got) || len(got) != 21 || g.samples() != 63 {
			t.Errorf("windows %v came, and %d samples count", got, g.samples())
		}
		if got := entry.AppendPush(nil, &g.pushes[0]); !bytes.Equal(got, want) {
			t.Error("the first window came with other bytes")
		}
		for _, push := range g.pushes {
			if push.Again { // nobody had seen it
				t.Errorf("window %d came as a repeat", push.Sequence>>16)
			}
		}
		if names := p.segments(); len(names) > 0 || p.log.count("the outbox is empty") != 1 {
			t.Errorf("the directory still has %v; the log says %s", names, p.log.text.String())
		}
		if took := p.push(3); took != 0 || len(p.segments()) > 0 {
			t.Errorf("the next window took %v and wrote %v", took, p.segments())
		}
		p.terminate()
	})
}

// The next process sends what it finds first: as the windows of the process before, and as repeats. What counts
// already does not count again.
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
			t.Errorf("%d of 4 samples count", g.samples())
		}
		for i, want := range []struct {
			id
			again bool
		}{{id{1, 2}, true}, {id{1, 3}, true}, {id{2, 1}, false}} {
			got := g.pushes[before+i]
			if (id{got.Incarnation, got.Sequence >> 16}) != want.id || got.Again != want.again || got.Producer != 7 {
				t.Errorf("push %d is window %d of life %d, again %v", i, got.Sequence>>16, got.Incarnation, got.Again)
			}
		}
		next.terminate()
	})
}

// A process that stops while there is no leader leaves its windows in the file, and says so. It does not wait for long.
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

// A leader that comes during the stop gets what waits.
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

// Over the limit the oldest windows are given up, and counted.
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
		kept, _ := p.queue.Waiting()
		if kept.Frames < 24 || kept.Frames > 32 {
			t.Errorf("%d windows of 1 MiB are kept", kept.Frames)
		}
		p.books(0, 0, kept.Frames, windows-kept.Frames)
		if n := p.metric("freshet_outbox_unsent_samples_total"); n != float64(windows-kept.Frames) {
			t.Errorf("unsent_samples_total is %v", n)
		}
		p.terminate()
		if size := size(p.fs); size > settings.MinOutbox {
			t.Errorf("the file has %d bytes", size)
		}
	})
}

// What a leader refuses for good leaves the file, and goes into the books as refused.
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
				t.Errorf("a window that is refused at once: %v, and %d files", err, len(p.fs.Files))
			}
			g.set(func() { g.away = true })
			p.push(3)
			g.set(func() { g.away = false })
			time.Sleep(time.Second)
			synctest.Wait()
			s := p.Ledger.Books().Tenants[tenant].Samples
			if s.Refused[name] != 3 || s.Window != 3 { // the collector puts the first window into the books
				t.Errorf("%s: the books are %+v", name, s)
			}
			p.terminate()
		})
	}
}

// The group remembers a silent producer for an hour. A window that may count already is not sent after that, by this
// process or the next one. Others are.
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

// A window that can be neither handed over nor written is refused, and the collector keeps it. It counts once.
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
			t.Error("the second try says that it is the first")
		}
		p.fs.Fail = nil
		if err := p.Push(t.Context(), batches); err != nil {
			t.Error(err)
		}
		g.set(func() { g.mute = false })
		time.Sleep(2 * tryTime)
		p.books(0, 2, 0, 0)
		if g.samples() != 2 {
			t.Errorf("%d of 2 samples count", g.samples())
		}
		p.terminate()
	})
}

// Damage costs the window that it hits, which is counted.
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
				t.Errorf("after damage of window %d, the next one took %v", hit, took)
			}
			next.terminate()
		})
	}
}

// Whenever a collector is killed, it loses at most the window that it was pushing: the next process has all others.
// Each one counts once, however often leaders went away and answers were lost.
func TestKilledAtAnyTime(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) { killed(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func killed(t *testing.T, rng *rand.Rand) {
	g := newGroup(t)
	fs := memfs.New()
	var sent, acknowledged uint64
	for life := range uint64(3) {
		l := &lifeline{group: g}
		p := open(t, fs, l, life+1)
		ctx, end := context.WithCancel(t.Context())
		var image *memfs.FS
		operations := rng.IntN(40)
		p.fs.Fail = func(op, _ string) error { // called with the directory locked
			if operations--; image == nil && (operations == 0 || op == "list") {
				image = p.fs.Crash()
				l.dead.Store(true)
				end()
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
			time.Sleep(time.Duration(rng.IntN(4_000)) * time.Millisecond)
		}
		synctest.Wait()
		if _, err := p.fs.List(); err != nil { // kills it between two operations, unless it was killed before
			t.Error(err)
		}
		fs = image
		acknowledged += <-pushed
		sent += p.sequence * 2
		p.terminate()
	}
	g.set(func() { g.away, g.mute = false, false })
	p := start(t, fs, g, 9)
	time.Sleep(2 * tryTime)
	if counted := g.samples(); counted < acknowledged || counted > sent {
		t.Errorf("%d samples count; %d were acknowledged, and %d sent", counted, acknowledged, sent)
	}
	for of, n := range g.counted {
		if n != 2 {
			t.Errorf("window %+v counts %d samples of 2", of, n)
		}
	}
	if s := p.Ledger.Books().Tenants[tenant].Samples; s.Difference != 0 || s.HandedOver != s.Restored {
		t.Errorf("the books are %+v", s)
	}
	p.terminate()
}
