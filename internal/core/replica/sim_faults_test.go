package replica

import (
	"maps"
	"slices"

	"github.com/freshet-io/freshet/internal/core/segment/memfs"
	"github.com/freshet-io/freshet/internal/core/world"
)

// coverage counts the events of a run: a run without an election shows nothing about elections.
type coverage struct {
	acknowledged, reads, retries, lost, elections, truncations, restarts, kills, powerLosses, outages, torn, pauses,
	parts, transfers, swaps, slow, full int
}

func (c *coverage) each() []world.Count {
	counted := world.Counted
	return []world.Count{
		counted("writes acknowledged", &c.acknowledged), counted("reads", &c.reads),
		counted("retries", &c.retries), counted("proposals lost", &c.lost), counted("elections", &c.elections),
		counted("truncations", &c.truncations), counted("restarts", &c.restarts), counted("kills", &c.kills),
		counted("power losses", &c.powerLosses), counted("outages", &c.outages),
		counted("broken writes", &c.torn), counted("pauses", &c.pauses), counted("partitions", &c.parts),
		counted("transfers", &c.transfers), counted("swaps", &c.swaps), counted("slow", &c.slow),
		counted("full disks", &c.full),
	}
}

// nextFault breaks something for some time, and then plans the next fault. Sometimes two faults
// overlap, so that there is no quorum.
func (s *sim) nextFault() {
	left := s.end - settleFor - s.Now
	if left <= 0 {
		return
	}
	lasts := min(s.Between(200, 5*second), left)
	n := s.anyNode()
	if leader := s.leader(); leader != nil && s.Chance(40) {
		n = leader
	}
	s.fault(n, lasts)
	if s.Chance(20) {
		s.At(s.Between(0, lasts), nil, s.nextFault)
	} else {
		s.At(lasts+s.Between(100, 3*second), nil, s.nextFault)
	}
}

func (s *sim) fault(n *simNode, lasts int64) {
	if !n.Up {
		return
	}
	switch what := s.Rand.IntN(100); {
	case what < 15:
		s.covered.kills++
		s.Tell("node %d: killed for %d ms", n.n, lasts)
		s.crash(n, lasts, func(d *memfs.FS) *memfs.FS { return d.Crash() })
	case what < 35:
		s.covered.powerLosses++
		s.Tell("node %d: without power for %d ms", n.n, lasts)
		s.crash(n, lasts, s.PowerLoss)
	case what < 38 && !s.emptied && len(s.nodes) > 1:
		s.emptied = true
		id := n.id
		s.Tell("node %d: its disk is replaced by an empty one", n.n)
		s.crash(n, lasts, func(*memfs.FS) *memfs.FS {
			s.oracle.emptied[id] = true
			n.checkpoint = state{applied: 1} // the checkpoint was on that disk, too
			return memfs.New()
		})
	case what < 41:
		s.covered.outages++
		s.Tell("all nodes: without power")
		for _, n := range s.nodes {
			if n.Up {
				s.crashNow(n, s.Between(200, 3*second), s.PowerLoss)
			}
		}
	case what < 50:
		s.covered.pauses++
		s.Tell("node %d: paused for %d ms", n.n, lasts)
		n.PausedUntil = s.Now + lasts
	case what < 75 && len(s.nodes) > 1:
		s.covered.parts++
		s.Part(n.n, lasts)
	case what < 85:
		s.transfer()
	case what < 95:
		s.slow(n, lasts)
	default:
		s.covered.full++
		s.Tell("node %d: its disk is full for %d ms", n.n, lasts)
		d, space := n.disk, s.Rand.IntN(2000)
		d.Space = space
		s.At(lasts, nil, func() { d.Space = memfs.Plenty })
	}
}

func (s *sim) transfer() {
	leader := s.leader()
	if leader == nil {
		return
	}
	others := slices.DeleteFunc(slices.Clone(leader.members.Voters), func(id uint64) bool { return id == leader.id })
	if len(others) == 0 {
		return
	}
	to := others[s.Rand.IntN(len(others))]
	s.Tell("node %d: asks member %d to lead", leader.n, to)
	s.oracle.transferTo, s.oracle.transferBy = to, s.Now+second
	if err := leader.replica.Transfer(to); err != nil {
		s.Fail("transfer: %v", err)
	}
	s.drain(leader)
}

func (s *sim) slow(n *simNode, lasts int64) {
	s.covered.slow++
	what, which := &n.slowDisk, "disk"
	if s.Chance(50) {
		what, which = &n.slowApply, "state"
	}
	s.Tell("node %d: its %s is slow for %d ms", n.n, which, lasts)
	*what = true
	s.At(lasts, nil, func() { *what = false })
}

// crash ends a process, often in the middle of a write, and starts it again with the files that are
// left.
func (s *sim) crash(n *simNode, lasts int64, left func(*memfs.FS) *memfs.FS) {
	if s.Chance(60) {
		s.crashInWrite(n, 200, lasts, left)
	} else {
		s.crashNow(n, lasts, left)
	}
}

// crashInWrite waits a little for a write, and crashes the process in the middle of it.
func (s *sim) crashInWrite(n *simNode, tries int, lasts int64, left func(*memfs.FS) *memfs.FS) {
	switch {
	case n.writing:
		s.breakOff(n)
		fallthrough
	case tries == 0:
		s.crashNow(n, lasts, left)
	default:
		s.At(1*ms, &n.Process, func() { s.crashInWrite(n, tries-1, lasts, left) })
	}
}

func (s *sim) crashNow(n *simNode, lasts int64, left func(*memfs.FS) *memfs.FS) {
	s.stop(n)
	stored := n.log.Last()
	n.disk = left(n.disk)
	for _, o := range n.pendingInOrder() {
		s.retry(o, 1500*ms) // its client gets no answer
	}
	s.At(lasts, nil, func() {
		if n.Up {
			return
		}
		s.start(n, nil)
		if n.Up && n.log.Last() < stored && mutant.founding == nil {
			s.Fail("node %d: its log ended at entry %d, and now ends at entry %d", n.n, stored, n.log.Last())
		}
	})
}

// pendingInOrder returns the operations that wait for a node, in the order of their indexes, so that a
// seed repeats the same run.
func (n *simNode) pendingInOrder() (list []*operation) {
	for _, index := range slices.Sorted(maps.Keys(n.pending)) {
		list = append(list, n.pending[index])
	}
	return list
}

// breakOff does a part of the write that is under way: the process dies at one of the write's
// calls.
func (s *sim) breakOff(n *simNode) {
	calls := []int{0, 1, 1, 1, 2, 4}[s.Rand.IntN(6)] // most writes take two calls: write and sync
	if world.BreakOff(n.disk, calls, func() { _ = n.log.Append(&n.toWrite[0].Write) }) {
		s.covered.torn++
	}
}
