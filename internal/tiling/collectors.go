package tiling

import "maps"

// Collectors tracks up to which time the windows of several collectors are counted. It belongs to one
// goroutine at a time. Times are Unix milliseconds.
type Collectors struct {
	last map[uint64]lastWindow // the last window of each producer
}

// lastWindow is the last window of a collector.
type lastWindow struct {
	incarnation uint64
	end         int64 // end of the window
	at          int64 // when the window was counted, by the leader's clock
}

// silent is the time, in milliseconds, after which nobody waits for a collector that pushes no windows.
// A collector pushes a window for each second in which something happened.
const silent = 2500

// Pushed notes that a window of a collector is counted. `clock` is the leader's clock.
func (c *Collectors) Pushed(producer, incarnation uint64, end, clock int64) {
	if c.last == nil {
		c.last = map[uint64]lastWindow{}
	}
	c.last[producer] = lastWindow{incarnation, max(end, c.last[producer].end), clock}
}

// Left notes that an incarnation of a collector pushes no more windows, so nobody waits for one.
func (c *Collectors) Left(producer, incarnation uint64) {
	if c.last[producer].incarnation == incarnation {
		delete(c.last, producer)
	}
}

// Through returns the time up to which the windows of all collectors are counted, except collectors that
// were silent lately. It is never more than `silent` behind the leader's clock: if a collector cannot
// reach the leader for longer, its windows come late.
func (c *Collectors) Through(clock int64) int64 {
	maps.DeleteFunc(c.last, func(_ uint64, w lastWindow) bool { return w.at < clock-silent })
	through, first := clock-silent, true
	earliest := through
	for _, w := range c.last {
		if first || w.end < earliest {
			earliest, first = w.end, false
		}
	}
	return max(through, earliest)
}
