package replica

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

// coverage counts the events of a run: a run without an election shows nothing about elections.
type coverage struct {
	acknowledged, reads, retries, lost, elections, truncations, restarts, kills, powerLosses, outages, torn, pauses,
	parts, transfers, swaps, slow, full int
}

// counted is one of the counts, with its name.
type counted struct {
	what string
	n    *int
}

func (c *coverage) each() []counted {
	return []counted{{"writes acknowledged", &c.acknowledged}, {"reads", &c.reads}, {"retries", &c.retries},
		{"proposals lost", &c.lost}, {"elections", &c.elections}, {"truncations", &c.truncations},
		{"restarts", &c.restarts}, {"kills", &c.kills}, {"power losses", &c.powerLosses},
		{"outages", &c.outages}, {"broken writes", &c.torn}, {"pauses", &c.pauses}, {"partitions", &c.parts},
		{"transfers", &c.transfers}, {"swaps", &c.swaps},
		{"slow", &c.slow}, {"full disks", &c.full}}
}

func (c *coverage) add(o coverage) {
	others := o.each()
	for i, mine := range c.each() {
		*mine.n += *others[i].n
	}
}

func (c coverage) String() string {
	var list []string
	for _, e := range c.each() {
		list = append(list, fmt.Sprintf("%s %d", e.what, *e.n))
	}
	return strings.Join(list, ", ")
}

// nextFault breaks something for some time, and then plans the next fault. Sometimes two faults
// overlap, so that there is no quorum.
func (s *sim) nextFault() {
	left := s.end - settleFor - s.now
	if left <= 0 {
		return
	}
	lasts := min(s.between(200, 5*second), left)
	n := s.anyNode()
	if leader := s.leader(); leader != nil && s.chance(40) {
		n = leader
	}
	s.fault(n, lasts)
	if s.chance(20) {
		s.at(s.between(0, lasts), nil, s.nextFault)
	} else {
		s.at(lasts+s.between(100, 3*second), nil, s.nextFault)
	}
}

func (s *sim) fault(n *simNode, lasts int64) {
	if !n.up {
		return
	}
	switch what := s.rng.IntN(100); {
	case what < 15:
		s.covered.kills++
		s.tell("node %d: killed for %d ms", n.n, lasts)
		s.crash(n, lasts, func(d *memfs.FS) *memfs.FS { return d.Crash() })
	case what < 35:
		s.covered.powerLosses++
		s.tell("node %d: without power for %d ms", n.n, lasts)
		s.crash(n, lasts, s.powerLoss)
	case what < 38 && !s.emptied && len(s.nodes) > 1:
		s.emptied = true
		s.tell("node %d: its disk is replaced by an empty one", n.n)
		s.crash(n, lasts, func(*memfs.FS) *memfs.FS {
			n.checkpoint = state{applied: 1} // the checkpoint was on that disk, too
			return memfs.New()
		})
	case what < 41:
		s.covered.outages++
		s.tell("all nodes: without power")
		for _, n := range s.nodes {
			if n.up {
				s.crashNow(n, s.between(200, 3*second), s.powerLoss)
			}
		}
	case what < 50:
		s.covered.pauses++
		s.tell("node %d: paused for %d ms", n.n, lasts)
		n.pausedUntil = s.now + lasts
	case what < 75 && len(s.nodes) > 1:
		s.part(n, lasts)
	case what < 85:
		s.transfer()
	case what < 95:
		s.slow(n, lasts)
	default:
		s.covered.full++
		s.tell("node %d: its disk is full for %d ms", n.n, lasts)
		d, space := n.disk, s.rng.IntN(2000)
		d.Space = space
		s.at(lasts, nil, func() { d.Space = memfs.Plenty })
	}
}

// part cuts links of a node: all links, all incoming ones, all outgoing ones, or both links with one
// other node.
func (s *sim) part(n *simNode, lasts int64) {
	s.covered.parts++
	other := s.nodes[(n.n+1+s.rng.IntN(2))%3]
	how := s.rng.IntN(4)
	s.tell("node %d: parted for %d ms, %s", n.n, lasts, []string{
		"both ways", "it hears nothing", "nobody hears it", fmt.Sprintf("from node %d", other.n)}[how])
	set := func(cut bool) {
		for _, o := range s.nodes {
			switch {
			case o == n || how == 3 && o != other:
				continue
			}
			if how != 1 {
				s.cut[n.n][o.n] = cut
			}
			if how != 2 {
				s.cut[o.n][n.n] = cut
			}
		}
	}
	set(true)
	s.at(lasts, nil, func() { set(false) })
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
	to := others[s.rng.IntN(len(others))]
	s.tell("node %d: asks member %d to lead", leader.n, to)
	s.oracle.transferTo, s.oracle.transferBy = to, s.now+second
	if err := leader.replica.Transfer(to); err != nil {
		s.fail("transfer: %v", err)
	}
	s.drain(leader)
}

func (s *sim) slow(n *simNode, lasts int64) {
	s.covered.slow++
	what, which := &n.slowDisk, "disk"
	if s.chance(50) {
		what, which = &n.slowApply, "state"
	}
	s.tell("node %d: its %s is slow for %d ms", n.n, which, lasts)
	*what = true
	s.at(lasts, nil, func() { *what = false })
}

// crash ends a process, often in the middle of a write, and starts it again with the files that are
// left.
func (s *sim) crash(n *simNode, lasts int64, left func(*memfs.FS) *memfs.FS) {
	if s.chance(60) {
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
		s.at(1*ms, n, func() { s.crashInWrite(n, tries-1, lasts, left) })
	}
}

func (s *sim) crashNow(n *simNode, lasts int64, left func(*memfs.FS) *memfs.FS) {
	s.stop(n)
	stored := n.log.Last()
	n.disk = left(n.disk)
	for _, o := range n.pendingInOrder() {
		s.retry(o, 1500*ms) // its client gets no answer
	}
	s.at(lasts, nil, func() {
		if n.up {
			return
		}
		s.start(n, nil)
		if n.up && n.log.Last() < stored && mutant.founding == nil {
			s.fail("node %d: its log ended at %d, and now at %d", n.n, stored, n.log.Last())
		}
	})
}

// pendingInOrder returns the operations that wait for a node, in order, so that a seed repeats.
func (n *simNode) pendingInOrder() (list []*operation) {
	for _, index := range slices.Sorted(maps.Keys(n.pending)) {
		list = append(list, n.pending[index])
	}
	return list
}

// breakOff does a part of the write that is under way: the process dies at one of the write's
// calls.
func (s *sim) breakOff(n *simNode) {
	type death struct{}
	calls := []int{0, 1, 1, 1, 2, 4}[s.rng.IntN(6)] // most writes are a write and a sync
	n.disk.Fail = func(op, _ string) error {
		if calls--; calls < 0 {
			panic(death{})
		}
		return nil
	}
	defer func() {
		n.disk.Fail = nil
		if cause := recover(); cause != nil {
			if _, ok := cause.(death); !ok {
				panic(cause)
			}
			s.covered.torn++
		}
	}()
	// The log's memory is gone with the process.
	_ = n.log.Append(&n.toWrite[0].Write)
}

// powerLoss returns a disk after a power loss: all synced bytes, and any part of the bytes written
// since, perhaps with a hole.
func (s *sim) powerLoss(d *memfs.FS) *memfs.FS {
	lost := d.PowerLoss(rand.New(rand.NewPCG(s.rng.Uint64(), 1)))
	for _, name := range slices.Sorted(maps.Keys(lost.Files)) {
		f, synced := lost.Files[name], d.Durable[name].Synced
		if unsynced := len(f.Data) - synced; unsynced > 0 && s.chance(50) {
			from := synced + s.rng.IntN(unsynced)
			clear(f.Data[from:min(len(f.Data), from+1+s.rng.IntN(64))])
		}
	}
	return lost
}
