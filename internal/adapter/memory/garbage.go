//go:build linux

package memory

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Garbage is how much garbage may pile up before a collection.
type Garbage struct {
	Percent int    // of the live memory; 1 or more
	Most    uint64 // upper limit in bytes; rounded to a whole percent of the live memory; 0: none

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

	// percentStep is the least change of the percentage, because a change stops the process for a moment.
	percentStep = 5
)

// Limit enforces g until ctx is done. The runtime's own setting is only a percentage, which allows a lot
// of garbage in a large heap. More frequent collections cost little if the heap has few pointers.
func (g Garbage) Limit(ctx context.Context) {
	tick := time.NewTicker(lookTime)
	defer tick.Stop()
	heap := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(heap)
	pace := pace{made: heap[1].Value.Uint64()}
	for set := 0; ; {
		metrics.Read(heap)
		pace.look(heap[1].Value.Uint64(), lookTime)
		percent := g.percent(heap[0].Value.Uint64(), pace)
		if change := percent - set; change <= -percentStep || change >= percentStep || g.Apart == 0 && change != 0 {
			set = percent
			debug.SetGCPercent(set)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
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
	if g.Most > 0 {
		percent = min(percent, int(100*g.Most/live))
	}
	return max(1, percent)
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
