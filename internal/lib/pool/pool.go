// Package pool works off a bounded queue with a fixed number of goroutines, and
// says so when the queue is full. It knows nothing of what the work is.
//
// A goroutine starts with a small stack that grows by copying, each time to twice
// its size. One that is started for a single piece of work pays for that with each
// piece; a worker pays once.
package pool

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
)

const (
	// lifetime is the pieces of work, on average, after which a worker is replaced. A
	// goroutine and its growth cost some microseconds: nanoseconds a piece. The chance
	// is the one that M3 uses.
	lifetime = 1000

	// fanout is the channels that share the queue: as many locks for those who push and
	// for the workers. An idle worker waits on all of them, which takes their locks one
	// after the other, so that they are few.
	fanout = 4
)

// Options are the size of a pool.
type Options struct {
	Workers int // goroutines: pieces worked on at the same time
	Queue   int // pieces accepted at most that no worker has taken yet
}

// Pool works off what is pushed. The order is not kept.
//
// Whatever waits, waits for a worker, and not for a certain one: none is idle while
// something is queued.
type Pool[T any] struct {
	do      func(T)
	workers int
	queues  [fanout]queue[T]

	ended    atomic.Bool // nothing is accepted any more
	running  sync.WaitGroup
	replaced atomic.Uint64
}

// queue is one of the channels. Each has cache lines of its own, since they are there
// to be used by several cores at the same time.
type queue[T any] struct {
	items   chan T
	pushing atomic.Int64 // calls of Push that began here and have not returned
	_       [112]byte
}

// New makes a pool that calls do for each piece of work. It starts nothing.
func New[T any](o Options, do func(T)) *Pool[T] {
	if o.Workers < 1 || o.Queue < 1 {
		panic(fmt.Sprintf("BUG: pool: %d workers and a queue of %d: both must be 1 or more", o.Workers, o.Queue))
	}
	p := &Pool[T]{do: do, workers: o.Workers}
	for i := range p.queues {
		// Together exactly o.Queue. A channel that gets nothing of a short queue still
		// hands over to workers that wait.
		p.queues[i].items = make(chan T, (o.Queue+i)/fanout)
	}
	return p
}

// Run starts the workers. When ctx is done it accepts no more, and returns nil when
// all that was accepted is worked off and no worker runs. It is called once.
//
// A panic of do ends the process, as in any goroutine.
func (p *Pool[T]) Run(ctx context.Context) error {
	for i := range p.workers {
		p.start(i)
	}
	<-ctx.Done()
	p.ended.Store(true)
	for i := range p.queues {
		// Push does not block, so that this is over at once. Who begins later sees that
		// the pool has ended.
		for p.queues[i].pushing.Load() > 0 {
			runtime.Gosched()
		}
	}
	for i := range p.queues {
		close(p.queues[i].items)
	}
	p.running.Wait()
	return nil
}

// Push hands over item and reports whether it was accepted: not if the queue is full,
// or the pool has ended. It never blocks, and may be called before Run and after it.
func (p *Pool[T]) Push(item T) bool {
	first := rand.IntN(fanout) // a counter would be one more thing that all cores write to
	pushing := &p.queues[first].pushing
	pushing.Add(1)
	accepted := !p.ended.Load() && p.offer(first, item)
	pushing.Add(-1)
	return accepted
}

// offer puts item into the first channel that has room.
func (p *Pool[T]) offer(first int, item T) bool {
	for i := range fanout {
		select {
		case p.queues[(first+i)%fanout].items <- item:
			return true
		default:
		}
	}
	return false
}

// Len is the pieces of work that no worker has taken yet.
func (p *Pool[T]) Len() (n int) {
	for i := range p.queues {
		n += len(p.queues[i].items)
	}
	return n
}

// Replaced is the workers that ended and had a new one start in their place.
func (p *Pool[T]) Replaced() uint64 { return p.replaced.Load() }

func (p *Pool[T]) start(first int) {
	p.running.Go(func() { p.work(first) })
}

// work is one worker. It looks into another channel first each time, so that each
// channel gets its turn however few workers there are.
func (p *Pool[T]) work(first int) {
	for at := first; ; at++ {
		item, ok := p.next(at)
		if !ok {
			break
		}
		p.do(item)
		if rand.IntN(lifetime) == 0 {
			// A stack keeps the size of the deepest work it has seen: this one is given
			// back, and the next one begins small.
			p.replaced.Add(1)
			p.start(at + 1)
			return
		}
	}
	for i := range p.queues {
		for item := range p.queues[i].items {
			p.do(item)
		}
	}
}

// next waits for an item; without one, the pool has ended.
func (p *Pool[T]) next(first int) (item T, ok bool) {
	for i := range fanout {
		select {
		case item, ok = <-p.queues[(first+i)%fanout].items:
			return item, ok
		default:
		}
	}
	select {
	case item, ok = <-p.queues[0].items:
	case item, ok = <-p.queues[1].items:
	case item, ok = <-p.queues[2].items:
	case item, ok = <-p.queues[3].items:
	}
	return item, ok
}
