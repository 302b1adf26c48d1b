// Package pool does work from a bounded queue with a fixed number of goroutines, and refuses work
// when the queue is full.
//
// A goroutine starts with a small stack. When the stack is too small, the runtime copies it to a
// stack of twice the size. With a goroutine for each piece of work, each piece pays for these
// copies; a worker of the pool pays once.
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
	// lifetime is the average number of pieces of work after which a worker is replaced. A new
	// goroutine and its growing stack cost some microseconds, which is some nanoseconds per piece.
	// The metrics database M3 uses the same number.
	lifetime = 1000

	// fanout is the number of channels that share the queue. Each has a lock. An idle worker waits
	// on all channels and takes their locks one after the other, so there are few channels.
	fanout = 4
)

// Options are the size of a pool.
type Options struct {
	Workers int // number of goroutines; each works on one piece at a time
	Queue   int // limit of pieces that are accepted but not yet taken by a worker
}

// Pool does work on pushed items, in no particular order. No worker is idle while an item is
// queued.
type Pool[T any] struct {
	do      func(T)
	workers int
	queues  [fanout]queue[T]

	ended    atomic.Bool // no more items are accepted
	running  sync.WaitGroup
	replaced atomic.Uint64
}

// queue is one of the channels. Each queue has its own cache lines, since several cores use the
// queues at the same time.
type queue[T any] struct {
	items   chan T
	pushing atomic.Int64 // calls of Push that are using this queue
	_       [112]byte
}

// New makes a pool that calls `do` for each piece of work. Run starts it.
func New[T any](o Options, do func(T)) *Pool[T] {
	if o.Workers < 1 || o.Queue < 1 {
		panic(fmt.Sprintf("BUG: pool: %d workers and a queue of %d: both must be 1 or more", o.Workers, o.Queue))
	}
	p := &Pool[T]{do: do, workers: o.Workers}
	for i := range p.queues {
		// The buffers of all channels sum to o.Queue. If o.Queue is small, some channels have no
		// buffer; they still hand over to waiting workers.
		p.queues[i].items = make(chan T, (o.Queue+i)/fanout)
	}
	return p
}

// Run starts the workers. When ctx is done the pool accepts no more items, and Run returns
// nil once all accepted items are done and no worker runs. Call it once.
//
// A panic of do ends the process, as in any goroutine.
func (p *Pool[T]) Run(ctx context.Context) error {
	for i := range p.workers {
		p.start(i)
	}
	<-ctx.Done()
	p.ended.Store(true)
	for i := range p.queues {
		// Push does not block, so this wait is short. A later Push sees that the pool has
		// ended.
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

// Push hands over an item. It reports false if the queue is full or the pool has ended. It never
// blocks, and may be called before Run and after it.
func (p *Pool[T]) Push(item T) bool {
	first := rand.IntN(fanout) // random, not a counter, to which all cores would write
	pushing := &p.queues[first].pushing
	pushing.Add(1)
	accepted := !p.ended.Load() && p.offer(first, item)
	pushing.Add(-1)
	return accepted
}

// offer puts `item` into the first channel that has room.
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

// Take takes an item out of the queue, in place of a worker, if one waits.
func (p *Pool[T]) Take() (item T, ok bool) {
	for i := range p.queues {
		select {
		case item, ok = <-p.queues[i].items:
			if ok {
				return item, true
			}
		default:
		}
	}
	return item, false
}

// Len returns how many items wait for a worker.
func (p *Pool[T]) Len() (n int) {
	for i := range p.queues {
		n += len(p.queues[i].items)
	}
	return n
}

// Replaced returns how many workers were replaced by new workers.
func (p *Pool[T]) Replaced() uint64 { return p.replaced.Load() }

func (p *Pool[T]) start(first int) {
	p.running.Go(func() { p.work(first) })
}

// work is one worker. It starts each round with another channel, so that each channel gets its turn
// even with a single worker.
func (p *Pool[T]) work(first int) {
	for at := first; ; at++ {
		item, ok := p.next(at)
		if !ok {
			break
		}
		p.do(item)
		if rand.IntN(lifetime) == 0 {
			// A stack stays as large as the deepest work of its goroutine needed. Exiting frees
			// this stack; the next worker begins with a small one.
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

// next waits for an item. It returns none once the pool has ended.
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
