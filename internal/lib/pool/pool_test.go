package pool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// gate is work that begins and then waits. Each value sent to the channel `open` ends one piece of work.
type gate struct {
	open                 chan struct{}
	begun, ended, atOnce atomic.Int64
}

func newGate() *gate { return &gate{open: make(chan struct{})} }

func (g *gate) work(int) {
	n := g.begun.Add(1) - g.ended.Load()
	for most := g.atOnce.Load(); n > most && !g.atOnce.CompareAndSwap(most, n); most = g.atOnce.Load() {
	}
	<-g.open
	g.ended.Add(1)
}

// run starts the pool. The returned function ends the pool and waits for Run.
func run[T any](t *testing.T, p *Pool[T]) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		if err := p.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return func() {
		cancel()
		all.Wait()
	}
}

// pushUntilRefused returns how many items were accepted.
func pushUntilRefused(p *Pool[int]) (n int) {
	for p.Push(n) {
		n++
	}
	return n
}

// small calls f for all sizes of a pool up to 2*fanout+1. The largest size exceeds the number of
// channels and is no multiple of it.
func small(t *testing.T, f func(*testing.T, Options)) {
	for workers := 1; workers <= 2*fanout+1; workers++ {
		for queue := 1; queue <= 2*fanout+1; queue++ {
			o := Options{Workers: workers, Queue: queue}
			t.Run(fmt.Sprintf("%+v", o), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { f(t, o) })
			})
		}
	}
}

// However work is spread over the channels, no work is refused before all channels are full, and no
// work waits while a worker is idle.
func TestBounds(t *testing.T) {
	small(t, func(t *testing.T, o Options) {
		g := newGate()
		p := New(o, g.work)
		stop := run(t, p)
		synctest.Wait()
		for i := range o.Workers {
			if !p.Push(0) {
				t.Fatalf("Push was refused with %d of %d workers busy", i, o.Workers)
			}
			synctest.Wait()
			if begun := g.begun.Load(); begun != int64(i+1) {
				t.Fatalf("%d pieces pushed, %d begun: a piece waits although a worker is idle", i+1, begun)
			}
		}
		if n := pushUntilRefused(p); n != o.Queue || p.Len() != n {
			t.Errorf("while all workers are busy, %d items were accepted and %d are queued, want %d each",
				n, p.Len(), o.Queue)
		}
		g.open <- struct{}{} // a worker is free, and takes the next item
		synctest.Wait()
		if n := pushUntilRefused(p); n != 1 {
			t.Errorf("%d items were accepted after a worker took one, want 1", n)
		}
		close(g.open)
		synctest.Wait()
		if n := p.Len(); n != 0 {
			t.Errorf("%d items wait although all workers are idle", n)
		}
		stop()
		if most := g.atOnce.Load(); most != int64(o.Workers) {
			t.Errorf("up to %d workers worked at the same time, want %d", most, o.Workers)
		}
	})
}

// New work does not overtake old work for ever, even with a single worker and a queue that is full
// at all times.
func TestNoneWaitsForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const queue = 10 * fanout
		left := map[int]bool{} // which of the first pieces are not done yet
		var p *Pool[int]
		pieces, last := 0, 0
		p = New(Options{Workers: 1, Queue: queue}, func(i int) {
			if delete(left, i); len(left) > 0 {
				last = pieces
			}
			if pieces++; pieces < 10*queue {
				p.Push(-1)
			}
		})
		for i := range queue {
			left[i] = true
			p.Push(i)
		}
		stop := run(t, p)
		synctest.Wait()
		stop()
		if last >= 2*queue {
			t.Errorf(
				"%d pieces were done when the last of the first %d was done, want less than %d", last, queue, 2*queue)
		}
	})
}

// A caller of Push need not know whether the pool runs yet.
func TestPushBeforeRun(t *testing.T) {
	small(t, func(t *testing.T, o Options) {
		var done atomic.Int64
		p := New(o, func(int) { done.Add(1) })
		if n := pushUntilRefused(p); n != o.Queue || p.Len() != n {
			t.Errorf("before Run, %d items were accepted and %d are queued, want %d each", n, p.Len(), o.Queue)
		}
		synctest.Wait()
		if n := done.Load(); n != 0 {
			t.Errorf("before Run, %d pieces were done, want 0", n)
		}
		stop := run(t, p)
		synctest.Wait()
		if n := done.Load(); n != int64(o.Queue) {
			t.Errorf("%d of %d items were done", n, o.Queue)
		}
		stop()
	})
}

func TestRunDrains(t *testing.T) {
	small(t, func(t *testing.T, o Options) {
		g := newGate()
		p := New(o, g.work)
		accepted := pushUntilRefused(p)
		ctx, cancel := context.WithCancel(t.Context())
		var ended atomic.Bool
		go func() {
			p.Run(ctx)
			ended.Store(true)
		}()
		synctest.Wait()
		accepted += pushUntilRefused(p)

		cancel()
		synctest.Wait()
		if p.Push(0) {
			t.Error("Push accepted an item although the pool has ended")
		}
		for i := range accepted {
			if ended.Load() {
				t.Fatalf("Run returned with %d of %d pieces done", i, accepted)
			}
			g.open <- struct{}{}
			synctest.Wait()
		}
		if n := g.ended.Load(); n != int64(accepted) || !ended.Load() {
			t.Errorf("%d of %d pieces done, Run returned: %t; want all, true", n, accepted, ended.Load())
		}
		if p.Push(0) || p.Len() != 0 {
			t.Errorf("after Run, Push accepted an item, or %d items are queued, want neither", p.Len())
		}
	})
}

// Work that is pushed while the pool ends is either refused or done before Run returns.
func TestPushWhileRunEnds(t *testing.T) {
	const rounds, pushers = 300, 4
	for range rounds {
		var accepted, done atomic.Int64
		p := New(Options{Workers: 2, Queue: 1000}, func(int) { done.Add(1) })
		stop := run(t, p)
		var all sync.WaitGroup
		for range pushers {
			all.Go(func() {
				for !p.ended.Load() {
					for p.Push(0) {
						accepted.Add(1)
					}
					runtime.Gosched() // to let the workers and Run continue
				}
			})
		}
		for accepted.Load() < 100 {
			runtime.Gosched()
		}
		stop()
		worked := done.Load()
		all.Wait()
		if got := accepted.Load(); got != worked || p.Len() != 0 {
			t.Fatalf("%d items were accepted, but when Run returned, %d were done and %d queued", got, worked, p.Len())
		}
	}
}

// Each accepted piece of work is done once, even with many callers and while workers are replaced.
func TestEachOnce(t *testing.T) {
	const pushers, each = 4, 5 * lifetime
	done := make([]atomic.Int32, pushers*each)
	p := New(Options{Workers: 3, Queue: 100}, func(i int) { done[i].Add(1) })
	stop := run(t, p)
	var all sync.WaitGroup
	for pusher := range pushers {
		all.Go(func() {
			for i := range each {
				for !p.Push(pusher*each + i) {
					runtime.Gosched()
				}
			}
		})
	}
	all.Wait()
	stop()
	for i := range done {
		if n := done[i].Load(); n != 1 {
			t.Fatalf("piece %d was done %d times, want once", i, n)
		}
	}
}

// About one piece of work in a thousand makes its worker exit and be replaced. The number of workers
// stays the same.
func TestReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers, pieces = 5, 100 * lifetime
		g := newGate()
		p := New(Options{Workers: workers, Queue: workers}, func(i int) {
			if i == 0 {
				g.work(0)
			}
		})
		stop := run(t, p)
		for i := 1; i <= pieces; i++ {
			for !p.Push(i) {
				synctest.Wait()
			}
		}
		synctest.Wait()
		// On average 100 workers are replaced, with a standard deviation of 10. A difference of six
		// standard deviations occurs less than once in a hundred million runs.
		if n := p.Replaced(); n < 40 || n > 160 {
			t.Errorf("%d workers replaced in %d pieces of work, want about %d", n, pieces, pieces/lifetime)
		}
		for range 2 * workers {
			p.Push(0)
			synctest.Wait()
		}
		if n := g.begun.Load(); n != workers {
			t.Errorf("after replacements there are %d workers, want %d", n, workers)
		}
		close(g.open)
		stop()
	})
}

func TestPushAllocatesNothing(t *testing.T) {
	p := New(Options{Workers: 1, Queue: 1}, func([]byte) {})
	item := make([]byte, 10)
	refused := testing.AllocsPerRun(100, func() { p.Push(item) })
	p = New(Options{Workers: 2, Queue: 1000}, func([]byte) {})
	stop := run(t, p)
	defer stop()
	if accepted := testing.AllocsPerRun(10_000, func() { p.Push(item) }); accepted+refused > 0 {
		t.Errorf("%v allocations for an accepted item, %v for a refused one, want 0", accepted, refused)
	}
}

// Take takes the items that wait for a worker, so that no worker gets them. It takes no item that a worker has, and
// finds none in a pool that has ended.
func TestTake(t *testing.T) {
	small(t, func(t *testing.T, o Options) {
		g := newGate()
		p := New(o, g.work)
		stop := run(t, p)
		for range o.Workers {
			synctest.Wait()
			p.Push(-1)
		}
		synctest.Wait()
		pushUntilRefused(p)
		taken := map[int]bool{}
		for item, ok := p.Take(); ok; item, ok = p.Take() {
			taken[item] = true
		}
		if len(taken) != o.Queue || taken[-1] || p.Len() != 0 {
			t.Errorf("took %v, want %d different ones; %d wait, want 0", taken, o.Queue, p.Len())
		}
		close(g.open)
		stop()
		if item, ok := p.Take(); ok || g.ended.Load() != int64(o.Workers) {
			t.Errorf("took %v, %t; %d were done, want %d", item, ok, g.ended.Load(), o.Workers)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	for _, o := range []Options{{Workers: 0, Queue: 1}, {Workers: 1, Queue: 0}, {Workers: -1, Queue: -1}} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "BUG: pool: ") {
					t.Errorf("%+v: recovered %q, want it to begin with BUG: pool:", o, text)
				}
			}()
			New(o, func(int) {})
		}()
	}
}

// A panic must end the process. If the pool recovered from it, work would stay undone and state
// half changed, in a process that seems healthy.
func TestPanicEndsTheProcess(t *testing.T) {
	if os.Getenv("POOL_TEST_PANIC") != "" {
		p := New(Options{Workers: 2, Queue: 2}, func(int) { panic("disk on fire") })
		p.Push(0)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		p.Run(ctx)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPanicEndsTheProcess$")
	cmd.Env = append(os.Environ(), "POOL_TEST_PANIC=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(string(out), "panic: disk on fire") {
		t.Errorf("the process ended with %v and printed\n%s\nwant a panic", err, out)
	}
}

// Bound: 0 allocs/op, and at most 500 ns to push and do a piece of work, so that 100k batches a
// second cost 5 % of a core.
func BenchmarkPool(b *testing.B) {
	var done atomic.Int64
	p := New(Options{Workers: 8, Queue: 1000}, func(int) { done.Add(1) })
	ctx, cancel := context.WithCancel(b.Context())
	var all sync.WaitGroup
	all.Go(func() { p.Run(ctx) })
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			for !p.Push(0) {
				runtime.Gosched()
			}
		}
	})
	cancel()
	all.Wait()
	if n := done.Load(); n != int64(b.N) {
		b.Fatalf("%d of %d worked off", n, b.N)
	}
}
