package member

import "slices"

const (
	// maxSkew is how far, in milliseconds, a clock may be off the median of the members' clocks. A
	// member whose clock is further off must not lead: it would close tiles of the future.
	maxSkew = 2000

	// maxAhead bounds how far, in milliseconds, a leader's time may be ahead of the median.
	maxAhead = 1000

	// fresh is how long what another member's clock showed is of use, in milliseconds.
	fresh = 10_000
)

// clocks are the members' clocks, as distances from ours in milliseconds.
type clocks struct {
	others map[uint64]clock
}

type clock struct {
	off int64 // ahead of ours
	at  int64 // when it was heard
}

// heard notes what another member's clock showed a moment ago.
func (c *clocks) heard(member uint64, now, shown int64) {
	if c.others == nil {
		c.others = map[uint64]clock{}
	}
	c.others[member] = clock{shown - now, now}
	for id, x := range c.others {
		if now-x.at > fresh || x.at > now {
			delete(c.others, id)
		}
	}
}

// median returns how far the median of all clocks is ahead of ours. Two clocks have none: nobody
// could say which of them is wrong.
func (c *clocks) median() (off int64, known bool) {
	if len(c.others) < 2 {
		return 0, false
	}
	all := []int64{0}
	for _, x := range c.others {
		all = append(all, x.off)
	}
	slices.Sort(all)
	return all[len(all)/2], true
}

// wrong reports whether our clock is too far off.
func (c *clocks) wrong() bool {
	off, known := c.median()
	return known && (off > maxSkew || off < -maxSkew)
}

// atMost returns our time, bounded by the median.
func (c *clocks) atMost(now int64) int64 {
	if off, known := c.median(); known {
		return min(now, now+off+maxAhead)
	}
	return now
}
