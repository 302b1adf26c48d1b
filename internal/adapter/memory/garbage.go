//go:build linux

package memory

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Garbage is how much of it may lie before it is collected.
type Garbage struct {
	Percent int    // of the memory in use; 1 or more
	Most    uint64 // bytes, however much is in use, as far as whole percents say it
}

// lookTime is how often Limit looks at how much memory is in use.
const lookTime = 2 * time.Second

// Limit keeps to g until ctx is done. The runtime's own setting is a percentage
// alone: of a large heap that few pointers are in, and so is collected for next to
// nothing, it lets lie far more than is of use.
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

// percent is that of live bytes which may lie as garbage.
func (g Garbage) percent(live uint64) int {
	if live == 0 { // nothing was collected yet
		return g.Percent
	}
	return max(1, min(g.Percent, int(100*g.Most/live)))
}
