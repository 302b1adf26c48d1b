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
	Most    uint64 // upper limit in bytes; rounded to a whole percent of the live memory
}

// lookTime is how often Limit looks at the live memory.
const lookTime = 2 * time.Second

// Limit enforces g until ctx is done. The runtime's own setting is only a percentage, which allows a lot
// of garbage in a large heap. More frequent collections cost little if the heap has few pointers.
func (g Garbage) Limit(ctx context.Context) {
	tick := time.NewTicker(lookTime)
	defer tick.Stop()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for set := 0; ; {
		metrics.Read(live)
		if percent := g.percent(live[0].Value.Uint64()); percent != set {
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
func (g Garbage) percent(live uint64) int {
	if live == 0 { // before the first collection
		return g.Percent
	}
	return max(1, min(g.Percent, int(100*g.Most/live)))
}
