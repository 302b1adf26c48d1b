//go:build linux

package memory

import (
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Garbage is how much garbage may pile up before a collection.
type Garbage struct {
	Percent int    // of the live memory; 1 or more
	Most    uint64 // upper limit in bytes; rounded to a whole percent of the live memory; 0: none
	Least   int    // percent of the live memory that Most always allows

	// Apart is how far collections should be apart, because each one costs as much as marking the live
	// memory. A process that makes garbage faster may have more than Percent of it, up to 100 percent. 0
	// means that the time does not matter.
	Apart time.Duration
}

const (
	// lookTime is how often Limit looks at the live memory.
	lookTime = 2 * time.Second

	// meanTime is the time over which garbage is averaged for Apart. It is a few tiles long, since a store gets a
	// tile's samples in a burst.
	meanTime = 30 * time.Second

	// burstApart is how far collections should be apart in a burst, which the mean does not show yet.
	burstApart = 5 * time.Second

	// floodTime is the shortest time over which garbage is averaged, when a collection ends soon after a look. In
	// this time a store gets the samples of a tile, so that such a burst does not look like a flood.
	floodTime = time.Second

	// percentStep is the least change of the percentage, because a change stops the process for a moment.
	percentStep = 5
)

// Limit enforces g until ctx is done. The runtime's own setting is only a percentage, which allows a lot
// of garbage in a large heap. More frequent collections cost little if the heap has few pointers.
//
// It looks regularly, and after each collection: the series of a new sender come within a second, and a quarter of
// their cost were collections of a small heap with 25 percent of garbage. The heap of a start grows by gigabytes
// between two looks, and with it what a percentage allows.
func (g Garbage) Limit(ctx context.Context) {
	tick := time.NewTicker(lookTime)
	defer tick.Stop()
	g.limit(ctx, tick.C)
}

func (g Garbage) limit(ctx context.Context, tick <-chan time.Time) {
	collected := make(chan struct{}, 1)
	if g.Apart > 0 || g.Most > 0 {
		tellCollections(ctx, collected)
	}
	heap, looked := readHeap(), time.Now()
	pace := pace{made: heap.made}
	for set := g.set(0, g.percent(heap.live, pace)); ; {
		select {
		case <-tick:
			heap = readHeap()
			pace.look(heap.made, max(time.Since(looked), floodTime))
			looked = time.Now()
			set = g.set(set, g.percent(heap.live, pace))
		case <-collected:
			heap = readHeap()
			flood := pace // a copy, since the next look includes this time, too
			flood.look(heap.made, max(time.Since(looked), floodTime))
			set = g.set(set, min(max(set, g.percent(heap.live, flood)), g.bound(heap.live)))
		case <-ctx.Done():
			return
		}
	}
}

// set sets the runtime's percentage from `now` to `to`, unless they are about the same. It returns what is set.
func (g Garbage) set(now, to int) int {
	if change := to - now; change <= -percentStep || change >= percentStep || g.Apart == 0 && change != 0 {
		debug.SetGCPercent(to)
		return to
	}
	return now
}

// heap is what the runtime says about its heap, in bytes.
type heap struct {
	live uint64 // after the last collection; 0 before the first
	made uint64 // since the start of the process
}

func readHeap() heap {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return heap{live: s[0].Value.Uint64(), made: s[1].Value.Uint64()}
}

// tellCollections tells of each collection until ctx is done. If the channel is full, it was told already.
func tellCollections(ctx context.Context, to chan<- struct{}) {
	type unreachable struct{ _ [32]byte } // an object below 16 bytes could stay because of its neighbours
	runtime.AddCleanup(new(unreachable), func(to chan<- struct{}) {
		select {
		case to <- struct{}{}:
		default:
		}
		if ctx.Err() == nil {
			tellCollections(ctx, to)
		}
	}, to)
}

// percent returns how much garbage may pile up, in percent of the live bytes.
func (g Garbage) percent(live uint64, p pace) int {
	if live == 0 { // before the first collection
		return g.Percent
	}
	percent := g.Percent
	if g.Apart > 0 {
		garbage := max(p.mean*g.Apart.Seconds(), p.now*burstApart.Seconds())
		percent = max(percent, min(100, int(100*garbage/float64(live))))
	}
	return min(percent, g.bound(live))
}

// bound returns what Most allows, in percent of the live bytes.
func (g Garbage) bound(live uint64) int {
	if g.Most == 0 || live == 0 {
		return math.MaxInt
	}
	return max(1, g.Least, int(100*g.Most/live))
}

// pace is how fast a process makes garbage, in bytes a second. Memory that stays in use counts, too, until the
// process has grown.
type pace struct {
	made      uint64 // bytes since the start of the process
	now, mean float64
}

// look takes the bytes that were made since the start of the process. It is `since` after the last look.
func (p *pace) look(made uint64, since time.Duration) {
	p.now = float64(made-p.made) / since.Seconds()
	p.mean += (p.now - p.mean) * min(1, since.Seconds()/meanTime.Seconds())
	p.made = made
}
