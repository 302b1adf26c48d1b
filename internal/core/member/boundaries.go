package member

import (
	"slices"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/mutant"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
)

const (
	// cautious is how long a new leader closes no tile, unless all senders were heard. In that time the
	// windows that the last leader did not take come again, and their gauges must not be too late.
	cautious = 5000 // ms

	// recently is how far back from its election a new leader looks: it waits for the senders whose
	// windows came in that time.
	recently = 10_000 // ms

	// spread is the time over which the shards close the same tile, one after the other, so that a
	// flush of many series is not a burst.
	spread = 4000 // ms

	// leap is how far behind at least one shard must be before all shards leap over the tiles in
	// between. Otherwise they close every tile and repeat their totals as usual. It equals the
	// lookback of PromQL.
	leap = 5 * 60_000 // ms
)

// note adds to `begin` the shards of a push that hold no series.
func (n *Node) note(bytes []byte, begin *entry.Shards) {
	p, err := entry.ParsePush(bytes)
	if err != nil {
		return // CheckPush has refused it
	}
	for b := range p.Batches.All() {
		h, err := batch.ParseHeader(b)
		if err != nil {
			continue
		}
		if s := n.state.shards.Of(h.Shard); s == nil || s.Len() == 0 {
			begin.Add(h.Shard)
		}
	}
}

// beginShards moves shards without series to the present, since shards get no boundaries while they have
// no series. It also begins new shards: the first entry of a shard is a boundary. An entry under way may
// bring series to a shard. Then the boundary leaves this shard alone, since a new leader must not close
// its tiles before it has heard the senders.
func (n *Node) beginShards(begin *entry.Shards) {
	byEnd := map[int64]*entry.Shards{}
	for number := range uint16(series.Shards) {
		if !begin.Has(number) {
			continue
		}
		end := n.due(number)
		if s := n.state.shards.Of(number); s == nil || s.Closed() < end {
			add(byEnd, end, number)
		}
	}
	n.propose(byEnd, nil, true)
}

// beginEmpty moves all shards without series to the present, since it is not known which shards a
// request of deltas touches.
func (n *Node) beginEmpty() {
	if n.now-n.leader.begun < 1000 {
		return
	}
	n.leader.begun = n.now
	var begin entry.Shards
	for number := range uint16(series.Shards) {
		if s := n.state.shards.Of(number); s == nil || s.Len() == 0 {
			begin.Add(number)
		}
	}
	n.beginShards(&begin)
}

func add(byEnd map[int64]*entry.Shards, end int64, number uint16) {
	if byEnd[end] == nil {
		byEnd[end] = new(entry.Shards)
	}
	byEnd[end].Add(number)
}

// due returns the end of the last tile that a shard must have closed by now.
func (n *Node) due(number uint16) int64 {
	t := max(0, n.leader.clocks.bounded()-n.settings.Lateness.Milliseconds()-spread*int64(number)/series.Shards)
	return t - t%tileMillis
}

const tileMillis = 10_000

// proposeBoundaries closes the tiles that are due, one of each shard. While nobody can tell what time it is,
// tiles stay open, since the windows of their time wait.
func (n *Node) proposeBoundaries() {
	l := &n.leader
	if l.closes != 0 || !n.settled() || l.clocks.apart() != 0 {
		return
	}
	byEnd := map[int64]*entry.Shards{}
	leaps := n.leaps()
	for number := range uint16(series.Shards) {
		s := n.state.shards.Of(number)
		if s == nil || s.Len() == 0 {
			continue
		}
		next, due := s.Closed()+tileMillis, n.due(number)
		if leaps {
			next = max(next, due)
		}
		if next <= due {
			add(byEnd, next, number)
		}
	}
	n.propose(byEnd, n.state.full(n.settings.MaxPending), false)
}

// settled is true if tiles may be closed after an election: all recent senders were heard, or
// enough time has passed.
func (n *Node) settled() bool {
	if n.term != n.leadership.Term && !mutant.Hasty {
		return false // some earlier windows may not be applied here yet
	}
	if n.leader.ticks*replica.TickEvery.Milliseconds() > cautious || mutant.Hasty {
		return true
	}
	if n.state.since == 0 || n.state.since > n.leader.since-recently {
		return false // a restart has forgotten some senders
	}
	known := false
	for producer, last := range n.state.senders {
		if last.clock < n.leader.since-recently {
			continue
		}
		if known = true; !n.leader.heard[producer] {
			return false
		}
	}
	return known
}

// leaps reports whether the shards skip the tiles of a downtime and go on at the present. They do if
// some shard is far behind and all shards rest: see tile.Shard.Rests.
func (n *Node) leaps() bool {
	far := false
	for number := range uint16(series.Shards) {
		s := n.state.shards.Of(number)
		far = far || s != nil && s.Len() > 0 && n.due(number)-s.Closed() > leap
	}
	for number := uint16(0); far && number < series.Shards; number++ {
		s := n.state.shards.Of(number)
		far = s == nil || s.Rests()
	}
	return far
}

// propose proposes boundaries, the earliest first.
func (n *Node) propose(byEnd map[int64]*entry.Shards, full []string, begins bool) {
	ends := make([]int64, 0, len(byEnd))
	for end := range byEnd {
		ends = append(ends, end)
	}
	slices.Sort(ends)
	for _, end := range ends {
		e := entry.Entry{Kind: entry.KindBoundary, Group: n.state.group, Shape: shape}
		e.Boundary = boundaryOf(end, *byEnd[end], &n.settings.Tiles, full)
		e.Boundary.Begins = begins
		index, err := n.replica.Propose(e.Append(nil))
		if err != nil {
			return // the next tick tries again
		}
		n.leader.closes = index
	}
}

func boundaryOf(end int64, shards entry.Shards, config *tile.Config, full []string) entry.Boundary {
	b := entry.Boundary{
		End: end, CounterTTL: config.CounterTTL.Milliseconds(), GaugeTTL: config.GaugeTTL.Milliseconds(),
		CheckTTL: config.CheckTTL.Milliseconds(), UpDownTTL: config.UpDownTTL.Milliseconds(),
		Timed: config.OutOfOrder.Milliseconds(), Shards: shards,
	}
	for _, tenant := range full {
		b.Full = b.Full.AppendText(tenant)
	}
	return b
}
