package m3pool

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/freshet-io/freshet/internal/lib/pool"
)

const (
	workers = 64   // batches that each technique works on at the same time
	burst   = 1024 // batches in a burst
)

// technique is a way to pass batches to goroutines. start starts the goroutines and returns two
// functions: one pushes a batch to the goroutines, and the other ends them when no batch is left.
type technique struct {
	name   string
	helper helper
	start  func(do func(batch uint64)) (push func(batch uint64), stop func())
}

var techniques = []technique{
	{"goroutine a batch, regression", outOfLine, byGoroutines},
	{"goroutine a batch, regression fixed", inlined, byGoroutines},
	{"one channel", outOfLine, byChannel},
	{"ours", outOfLine, byPool},
}

// BenchmarkDeep measures the time from the push to the end of a batch whose calls are nested 33 deep.
//
// Bound for our technique: 0 allocs/op, and less than 0.01 stack growths a batch.
func BenchmarkDeep(b *testing.B) { benchmark(b, deepWork) }

// BenchmarkShallow measures the same work without nested calls. M3's benchmarks were like this, and
// did not show the copies.
func BenchmarkShallow(b *testing.B) { benchmark(b, shallowWork) }

func benchmark(b *testing.B, of func(helper) work) {
	for _, t := range techniques {
		b.Run(t.name, func(b *testing.B) {
			do := of(t.helper)
			r := newRound(t, do)
			defer r.stop()
			runtime.GC()
			b.ReportAllocs()
			profile := startProfile(b)
			before, n := cpuTime(), 0
			for ; b.Loop(); n++ {
				r.push(n)
			}
			r.wait()
			used := cpuTime() - before
			b.ReportMetric(float64(used)/float64(n), "ns/op")
			b.ReportMetric(float64(r.growths.Load())/float64(n), "growths/op")
			b.ReportMetric(profile.growthPercent(), "growth-%")
			if got, want := r.sum.Load(), sum(do, n); got != want {
				b.Fatalf("the sum of %d batches is %d, want %d", n, got, want)
			}
		})
	}
}

// Every technique does all of the work exactly once, at every depth.
func TestTechniques(t *testing.T) {
	for _, tt := range techniques {
		for _, do := range []work{deepWork(tt.helper), shallowWork(tt.helper)} {
			r := newRound(tt, do)
			n := 3*burst + 1
			for i := range n {
				r.push(i)
			}
			r.wait()
			r.stop()
			if got, want := r.sum.Load(), sum(shallowWork(inlined), n); got != want {
				t.Errorf("%s: the sum of %d batches is %d, want %d", tt.name, n, got, want)
			}
		}
	}
}

// With a goroutine for each batch, a deep batch grows a stack once; in the build with the regression, twice. With a
// pool, a batch hardly ever grows a stack. The growths in the table are the same on every machine.
func TestGrowths(t *testing.T) {
	const n = 20 * burst
	for i, want := range []struct{ least, most float64 }{{1.5, 2}, {.75, 1}, {0, .05}, {0, .05}} {
		tt := techniques[i]
		r := newRound(tt, deepWork(tt.helper))
		for i := range n {
			r.push(i)
		}
		r.wait()
		r.stop()
		if each := float64(r.growths.Load()) / n; each < want.least || each > want.most {
			t.Errorf("%s: got %.3f growths a batch, want %v to %v", tt.name, each, want.least, want.most)
		}
	}
}

// byGoroutines is M3's first version: each batch has its own goroutine, which holds a token.
func byGoroutines(do func(uint64)) (push func(uint64), stop func()) {
	tokens := make(chan struct{}, workers)
	return func(batch uint64) {
		tokens <- struct{}{}
		go func() {
			do(batch)
			<-tokens
		}()
	}, func() {}
}

// byChannel is the simplest pool: goroutines that live for ever share one channel.
func byChannel(do func(uint64)) (push func(uint64), stop func()) {
	batches := make(chan uint64, burst)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for batch := range batches {
				do(batch)
			}
		})
	}
	return func(batch uint64) { batches <- batch }, func() {
		close(batches)
		all.Wait()
	}
}

// byPool is Freshet's technique: several channels, and workers that are replaced now and then.
func byPool(do func(uint64)) (push func(uint64), stop func()) {
	p := pool.New(pool.Options{Workers: workers, Queue: burst}, do)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		if err := p.Run(ctx); err != nil {
			panic("BUG: a pool ended with " + err.Error())
		}
	})
	return func(batch uint64) {
			if !p.Push(batch) {
				panic("BUG: the queue refused a batch although it has room for a burst")
			}
		}, func() {
			cancel()
			all.Wait()
		}
}

// round is one run of a technique.
type round struct {
	handOver     func(uint64)
	stop         func()
	left         sync.WaitGroup // batches of the burst that are not done yet
	sum, growths atomic.Uint64
}

func newRound(t technique, do work) *round {
	r := new(round)
	r.handOver, r.stop = t.start(func(batch uint64) {
		result, seen := do(batch)
		r.sum.Add(result)
		if seen.growths > 0 {
			r.growths.Add(seen.growths)
		}
		r.left.Done()
	})
	return r
}

// push pushes the i-th batch. After the last batch of a burst, it waits until the burst is done.
func (r *round) push(i int) {
	r.left.Add(1)
	r.handOver(uint64(i % burst))
	if i%burst == burst-1 {
		r.wait()
	}
}

func (r *round) wait() { r.left.Wait() }

// sum returns the expected result of n batches.
func sum(do work, n int) (total uint64) {
	for batch := range uint64(min(n, burst)) {
		result, _ := do(batch)
		times := n / burst
		if int(batch) < n%burst {
			times++
		}
		total += result * uint64(times)
	}
	return total
}
