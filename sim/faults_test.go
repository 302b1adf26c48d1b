package sim

import (
	"errors"
	"slices"

	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
	"github.com/freshet-io/freshet/internal/core/world"
)

// coverage counts the events of a run: a run without an election shows nothing about elections.
type coverage struct {
	windows, leaves, requests, reads, retries, elections, late, lateGauges, truncations, restored, requeued, turns, limits,
	tooOld, duplicates, ahead, full, kills, powerLosses, outages, torn, pauses, parts, transfers, changes, slow, hangs,
	clocks, checkpoints, replaced, messagesLost, messagesTwice, cut, histograms, stale, deltas, deltasAgain, deltaLimits,
	sickDisks, logErrors, checkpointErrors, storeErrors, waited, noted, cutCrashes, openingKills, held,
	rewritten, yields, behind, events, eventsAgain, conflicts, emptied, filled, failedFills, filledAgain, evaluations,
	ruleSets, results, imports, removals int
}

func (c *coverage) each() []world.Count {
	counted := world.Counted
	return []world.Count{
		counted("windows acknowledged", &c.windows), counted("leaves", &c.leaves),
		counted("requests acknowledged", &c.requests),
		counted("reads", &c.reads), counted("retries at another node", &c.retries),
		counted("elections", &c.elections), counted("late samples", &c.late),
		counted("late gauges", &c.lateGauges), counted("blocks cut from heads", &c.truncations),
		counted("restarts from a checkpoint", &c.restored),
		counted("requests that waited at a restart", &c.requeued), counted("HA turns", &c.turns),
		counted("refused by limits", &c.limits), counted("refused as too old", &c.tooOld),
		counted("refused as duplicates", &c.duplicates), counted("refused as too far ahead", &c.ahead),
		counted("windows refused by a full tenant", &c.full), counted("kills", &c.kills),
		counted("power losses", &c.powerLosses), counted("outages", &c.outages),
		counted("broken writes", &c.torn), counted("pauses", &c.pauses), counted("partitions", &c.parts),
		counted("transfers", &c.transfers), counted("changes of members", &c.changes), counted("slow", &c.slow),
		counted("stores that hang", &c.hangs), counted("wrong clocks", &c.clocks),
		counted("checkpoints", &c.checkpoints), counted("entries replaced", &c.replaced),
		counted("messages lost", &c.messagesLost), counted("messages twice", &c.messagesTwice),
		counted("requests in parts", &c.cut), counted("histograms", &c.histograms),
		counted("stale markers", &c.stale), counted("requests of deltas", &c.deltas),
		counted("deltas that came again", &c.deltasAgain), counted("deltas refused by limits", &c.deltaLimits),
		counted("sick disks", &c.sickDisks), counted("failed writes of a log", &c.logErrors),
		counted("failed checkpoints", &c.checkpointErrors), counted("failed writes of stores", &c.storeErrors),
		counted("tiles that waited at a restart", &c.waited), counted("notes of requests that count", &c.noted),
		counted("crashes in cuts", &c.cutCrashes), counted("kills in openings", &c.openingKills),
		counted("segments that killed openings rewrote", &c.rewritten),
		counted("members that took no entries while stores hung", &c.held),
		counted("leaders that yielded", &c.yields),
		counted("writes refused since a quorum lagged", &c.behind),
		counted("events acknowledged", &c.events), counted("events that a restart wrote again", &c.eventsAgain),
		counted("counters that a gauge was ahead of", &c.conflicts),
		counted("emptied disks", &c.emptied), counted("filled nodes", &c.filled),
		counted("fills that failed", &c.failedFills), counted("members that were filled again", &c.filledAgain),
		counted("evaluations of rules acknowledged", &c.evaluations),
		counted("changes of rules acknowledged", &c.ruleSets),
		counted("imports acknowledged", &c.imports), counted("removals of imported blocks acknowledged", &c.removals),
		counted("results of rules acknowledged", &c.results),
	}
}

// nextFault breaks something for some time, and then plans the next fault. Sometimes two faults
// overlap, so that there is no quorum.
func (s *sim) nextFault() {
	left := s.calmFrom() - s.Now
	if left <= 0 {
		return
	}
	lasts := min(s.Between(200, 6*second), left)
	n := s.anyNode()
	if leader := s.leader(); leader != nil && s.Chance(40) {
		n = leader
	}
	switch {
	case s.mistakes.fills && s.Chance(30):
		s.empty(n)
	case s.mistakes.calm:
	case s.mistakes.fills && s.Chance(15): // so long that the node lacks entries
		if n.Up {
			s.crash(n, min(s.Between(10*second, 25*second), left), s.Chance(50))
		}
	default:
		s.fault(n, lasts)
	}
	if s.Chance(20) {
		s.At(s.Between(0, lasts), nil, s.nextFault)
	} else {
		s.At(lasts+s.Between(100, 2*second), nil, s.nextFault)
	}
}

func (s *sim) fault(n *node, lasts int64) {
	if !n.Up {
		return
	}
	switch what := s.Rand.IntN(100); {
	case what < 15:
		s.covered.kills++
		s.Tell("node %d: killed for %d ms", n.n, lasts)
		s.crash(n, lasts, false)
	case what < 30:
		s.covered.powerLosses++
		s.Tell("node %d: without power for %d ms", n.n, lasts)
		s.crash(n, lasts, true)
	case what < 33:
		s.covered.outages++
		s.Tell("all nodes: without power")
		for _, n := range s.nodes {
			if n.Up {
				s.crashNow(n, s.Between(200, 3*second), true)
			}
		}
	case what < 42:
		s.covered.pauses++
		s.Tell("node %d: paused for %d ms", n.n, lasts)
		n.PausedUntil = s.Now + lasts
	case what < 60:
		s.covered.parts++
		s.Part(n.n, lasts)
	case what < 68:
		s.transfer()
	case what < 76:
		s.slow(n, lasts)
	case what < 86:
		s.hang(n, 2*lasts)
	case what < 90:
		s.sickDisk(n, lasts)
	case what < 95:
		s.wrongClock(n, lasts)
	case !s.mistakes.fills:
		s.changeMembers(n, lasts)
	}
}

func (s *sim) transfer() {
	if leader := s.leader(); leader != nil {
		s.transferTo(leader.members.Voters[s.Rand.IntN(len(leader.members.Voters))])
	}
}

// transferTo asks a voter to lead, unless it leads already.
func (s *sim) transferTo(member uint64) {
	leader := s.leader()
	if leader == nil || leader.id == member || !slices.Contains(leader.members.Voters, member) {
		return
	}
	s.covered.transfers++
	s.Tell("node %d: asks member %d to lead", leader.n, member)
	if err := leader.node.Transfer(member); err != nil {
		s.Fail("transfer: %v", err)
	}
	s.drain(leader)
}

func (s *sim) slow(n *node, lasts int64) {
	s.covered.slow++
	what, which := &n.slowDisk, "disk is"
	if s.Chance(50) {
		what, which = &n.slowStores, "stores are"
	}
	s.Tell("node %d: its %s slow for %d ms", n.n, which, lasts)
	*what = true
	s.At(lasts, nil, func() { *what = false })
}

// hang makes the stores of a tenant hang or fail on one node. Sometimes the disk of the log is slow, too,
// and meanwhile the process is killed or becomes the leader.
func (s *sim) hang(n *node, lasts int64) {
	s.covered.hangs++
	tenant := tenants[s.Rand.IntN(len(tenants))]
	queues := []string{tenant + "/tiles", tenant + "/requests", "events"}
	if one := s.Rand.IntN(4); one < 3 {
		queues = queues[one : one+1]
	}
	how, what := n.hangs, "hang"
	if s.Chance(50) {
		how, what = n.fails, "fail"
		n.noSync = s.Chance(30)
	}
	s.Tell("node %d: the stores of %v %s for %d ms", n.n, queues, what, lasts)
	for _, queue := range queues {
		how[queue] = true
	}
	if s.Chance(40) {
		n.slowDisk = true
	}
	switch also := s.Rand.IntN(100); {
	case also < 40:
		s.At(s.Between(lasts/2, lasts), &n.Process, func() {
			s.covered.kills++
			s.Tell("node %d: killed, and its stores still take nothing", n.n)
			s.crash(n, s.Between(100, second), false)
		})
	case also < 80:
		s.At(s.Between(lasts/2, lasts), &n.Process, func() { s.transferTo(n.id) })
	}
	s.At(lasts, nil, func() {
		for _, queue := range queues {
			delete(how, queue)
		}
		n.slowDisk, n.noSync = false, false
	})
}

// sickDisk makes some calls to the disk of the log fail, or fills the disk. A crash ends the fault.
func (s *sim) sickDisk(n *node, lasts int64) {
	s.covered.sickDisks++
	d := n.disk
	if s.Chance(30) {
		s.Tell("node %d: the disk of its log is full for %d ms", n.n, lasts)
		d.Space = s.Rand.IntN(4000)
		s.At(lasts, nil, func() { d.Space = memfs.Plenty })
		return
	}
	op := []string{"write", "sync", "create", "rename", "remove", "syncdir"}[s.Rand.IntN(6)]
	percent := []float64{20, 50, 100}[s.Rand.IntN(3)]
	s.Tell("node %d: %v %% of the calls of %s of its log fail for %d ms", n.n, percent, op, lasts)
	d.Fail = func(called, _ string) error {
		if called == op && s.Chance(percent) {
			return memfs.ErrInjected
		}
		return nil
	}
	s.At(lasts, nil, func() { d.Fail = nil })
}

// wrongClock lets the clock of a node leap, and leap back.
func (s *sim) wrongClock(n *node, lasts int64) {
	// A group cannot work with two wrong clocks of three. Members treat a clock that is right again
	// as wrong for 5 s more.
	if s.Now < s.clocksRight+6*second {
		return
	}
	s.clocksRight = s.Now + lasts
	s.covered.clocks++
	before := n.off
	n.off += []int64{3600 * second, -3600 * second, 5 * second, -5 * second, 1500, -1500}[s.Rand.IntN(6)]
	s.Tell("node %d: its clock is %d ms off for %d ms", n.n, n.off, lasts)
	s.At(lasts, nil, func() { n.off = before })
}

// changeMembers makes a voter a learner for some time. Meanwhile the group has two voters.
func (s *sim) changeMembers(n *node, lasts int64) {
	leader := s.leader()
	if leader == nil || s.changed != 0 {
		return
	}
	var voters []uint64
	for _, o := range s.nodes {
		if o != n {
			voters = append(voters, o.id)
		}
	}
	s.changed = s.Now
	s.Tell("node %d: becomes a learner for %d ms", n.n, lasts)
	s.askForMembers(voters, []uint64{n.id}, func() {
		s.At(lasts, nil, func() {
			s.askForMembers([]uint64{1, 2, 3}, nil, func() {
				s.covered.changes++
				s.changed = 0
			})
		})
	})
}

// askForMembers asks the leader again and again until the group has exactly these voters and learners,
// and then calls `then`. A leader makes a voter of each learner that has caught up, so the group may
// never show a learner. Near the end of the run, all members become voters.
func (s *sim) askForMembers(voters, learners []uint64, then func()) {
	if s.Now > s.calmFrom() {
		voters, learners, then = []uint64{1, 2, 3}, nil, func() {}
	}
	leader := s.leader()
	if leader != nil {
		if m := &leader.members; slices.Equal(m.Voters, voters) && slices.Equal(m.Learners, learners) && len(m.Leaving) == 0 {
			then()
			return
		}
		err := leader.node.Members(voters, learners)
		if err != nil && !errors.Is(err, replica.ErrChanging) && !errors.Is(err, replica.ErrNotLeader) &&
			!errors.Is(err, replica.ErrFull) {
			s.Fail("change the members: %v", err)
		}
		s.drain(leader)
	}
	s.At(300*ms, nil, func() { s.askForMembers(voters, learners, then) })
}

// crash ends a process, often in the middle of a write, and starts it again with the files that are
// left.
func (s *sim) crash(n *node, lasts int64, power bool) {
	if s.Chance(60) {
		s.crashInWrite(n, 200, lasts, power)
	} else {
		s.crashNow(n, lasts, power)
	}
}

// breakOff does only a part of a write.
func (s *sim) breakOff(n *node, calls int, write func()) {
	if world.BreakOff(n.disk, calls, write) {
		s.covered.torn++
	}
}

// crashInWrite waits a little for a write of the log or of a checkpoint, and crashes the process in the
// middle of it.
func (s *sim) crashInWrite(n *node, tries int, lasts int64, power bool) {
	switch {
	case n.saving != nil && n.saving.commits:
		s.breakOff(n, s.Rand.IntN(12), func() {
			if n.saving.Commit(n.base) == nil {
				n.rewriteNotes(n.saving.Base())
			}
		})
		s.crashNow(n, lasts, power)
	case n.writing:
		// Most writes take two calls: a write and a sync.
		s.breakOff(n, []int{0, 1, 1, 1, 2, 4}[s.Rand.IntN(6)], func() { _ = n.entries.Append(&n.toWrite[0].Write) })
		fallthrough
	case tries == 0:
		s.crashNow(n, lasts, power)
	default:
		s.At(1*ms, &n.Process, func() { s.crashInWrite(n, tries-1, lasts, power) })
	}
}

// crashNow crashes a process.
func (s *sim) crashNow(n *node, lasts int64, power bool) {
	stored := n.entries.Last()
	if n.writing && len(n.toWrite[0].Entries) > 0 { // the write may have removed the entries that it replaces
		stored = min(stored, n.toWrite[0].Entries[0].Index-1)
	}
	s.stop(n)
	if power {
		n.disk = s.PowerLoss(n.disk)
		n.boots++
	} else {
		n.disk = n.disk.Crash()
	}
	n.crashStores(power)
	s.At(lasts, nil, func() {
		if n.Up {
			return
		}
		s.start(n, nil)
		if n.Up && n.entries.Last() < stored {
			s.Fail("node %d: its log ended at entry %d, but now ends at entry %d", n.n, stored, n.entries.Last())
		}
	})
}
