package sim

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

// coverage counts the events of a run: a run without an election shows nothing about elections.
type coverage struct {
	windows, requests, reads, retries, elections, late, lateGauges, truncations, restored, requeued, turns, limits,
	tooOld, duplicates, ahead, full, kills, powerLosses, outages, torn, pauses, parts, transfers, changes, slow, hangs,
	clocks, checkpoints, replaced, messagesLost, messagesTwice, cut, histograms, stale, deltas, deltasAgain, deltaLimits,
	sickDisks, logErrors, checkpointErrors, storeErrors, waited int
}

// counted is one of the counts, with its name.
type counted struct {
	what string
	n    *int
}

func (c *coverage) each() []counted {
	return []counted{{"windows acknowledged", &c.windows}, {"requests acknowledged", &c.requests}, {"reads", &c.reads},
		{"retries at another node", &c.retries}, {"elections", &c.elections}, {"late samples", &c.late},
		{"late gauges", &c.lateGauges}, {"blocks cut from heads", &c.truncations},
		{"restarts from a checkpoint", &c.restored}, {"requests that waited at a restart", &c.requeued},
		{"HA turns", &c.turns}, {"refused by limits", &c.limits},
		{"refused as too old", &c.tooOld}, {"refused as duplicates", &c.duplicates}, {"refused as too far ahead", &c.ahead},
		{"windows refused by a full tenant", &c.full}, {"kills", &c.kills}, {"power losses", &c.powerLosses},
		{"outages", &c.outages}, {"broken writes", &c.torn}, {"pauses", &c.pauses}, {"partitions", &c.parts},
		{"transfers", &c.transfers}, {"changes of members", &c.changes}, {"slow", &c.slow}, {"stores that hang", &c.hangs},
		{"wrong clocks", &c.clocks}, {"checkpoints", &c.checkpoints}, {"entries replaced", &c.replaced},
		{"messages lost", &c.messagesLost}, {"messages twice", &c.messagesTwice}, {"requests in parts", &c.cut},
		{"histograms", &c.histograms}, {"stale markers", &c.stale}, {"requests of deltas", &c.deltas},
		{"deltas that came again", &c.deltasAgain}, {"deltas refused by limits", &c.deltaLimits},
		{"sick disks", &c.sickDisks}, {"failed writes of a log", &c.logErrors},
		{"failed checkpoints", &c.checkpointErrors}, {"failed writes of stores", &c.storeErrors},
		{"tiles that waited at a restart", &c.waited}}
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
	lasts := min(s.between(200, 6*second), left)
	n := s.anyNode()
	if leader := s.leader(); leader != nil && s.chance(40) {
		n = leader
	}
	s.fault(n, lasts)
	if s.chance(20) {
		s.at(s.between(0, lasts), nil, s.nextFault)
	} else {
		s.at(lasts+s.between(100, 2*second), nil, s.nextFault)
	}
}

func (s *sim) fault(n *node, lasts int64) {
	if !n.up {
		return
	}
	switch what := s.rng.IntN(100); {
	case what < 15:
		s.covered.kills++
		s.tell("node %d: killed for %d ms", n.n, lasts)
		s.crash(n, lasts, false)
	case what < 30:
		s.covered.powerLosses++
		s.tell("node %d: without power for %d ms", n.n, lasts)
		s.crash(n, lasts, true)
	case what < 33:
		s.covered.outages++
		s.tell("all nodes: without power")
		for _, n := range s.nodes {
			if n.up {
				s.crashNow(n, s.between(200, 3*second), true)
			}
		}
	case what < 42:
		s.covered.pauses++
		s.tell("node %d: paused for %d ms", n.n, lasts)
		n.pausedUntil = s.now + lasts
	case what < 60:
		s.part(n, lasts)
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
	default:
		s.changeMembers(n, lasts)
	}
}

// part cuts links of a node: all, all incoming, all outgoing, or the two to one other node.
func (s *sim) part(n *node, lasts int64) {
	s.covered.parts++
	other := s.nodes[(n.n+1+s.rng.IntN(2))%3]
	how := s.rng.IntN(4)
	s.tell("node %d: parted for %d ms, %s", n.n, lasts, []string{
		"both ways", "it hears nothing", "nobody hears it", fmt.Sprintf("from node %d", other.n)}[how])
	set := func(cut bool) {
		for _, o := range s.nodes {
			if o == n || how == 3 && o != other {
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
	if leader := s.leader(); leader != nil {
		s.transferTo(leader.members.Voters[s.rng.IntN(len(leader.members.Voters))])
	}
}

// transferTo asks a voter to lead, unless it leads already.
func (s *sim) transferTo(member uint64) {
	leader := s.leader()
	if leader == nil || leader.id == member || !slices.Contains(leader.members.Voters, member) {
		return
	}
	s.covered.transfers++
	s.tell("node %d: asks member %d to lead", leader.n, member)
	if err := leader.node.Transfer(member); err != nil {
		s.fail("transfer: %v", err)
	}
	s.drain(leader)
}

func (s *sim) slow(n *node, lasts int64) {
	s.covered.slow++
	what, which := &n.slowDisk, "disk is"
	if s.chance(50) {
		what, which = &n.slowStores, "stores are"
	}
	s.tell("node %d: its %s slow for %d ms", n.n, which, lasts)
	*what = true
	s.at(lasts, nil, func() { *what = false })
}

// hang lets the stores of a tenant take nothing, on one node. They hang or fail. Sometimes the disk of the
// log is slow, too, and the process is killed meanwhile or becomes the leader.
func (s *sim) hang(n *node, lasts int64) {
	s.covered.hangs++
	tenant := tenants[s.rng.IntN(len(tenants))]
	queues := []string{tenant + "/tiles", tenant + "/requests"}
	if one := s.rng.IntN(3); one < 2 {
		queues = queues[one : one+1]
	}
	how, what := n.hangs, "hang"
	if s.chance(50) {
		how, what = n.fails, "fail"
		n.noSync = s.chance(30)
	}
	s.tell("node %d: the stores of %v %s for %d ms", n.n, queues, what, lasts)
	for _, queue := range queues {
		how[queue] = true
	}
	if s.chance(40) {
		n.slowDisk = true
	}
	switch also := s.rng.IntN(100); {
	case also < 40:
		s.at(s.between(lasts/2, lasts), n, func() {
			s.covered.kills++
			s.tell("node %d: killed, and its stores still take nothing", n.n)
			s.crash(n, s.between(100, second), false)
		})
	case also < 80:
		s.at(s.between(lasts/2, lasts), n, func() { s.transferTo(n.id) })
	}
	s.at(lasts, nil, func() {
		for _, queue := range queues {
			delete(how, queue)
		}
		n.slowDisk, n.noSync = false, false
	})
}

// sickDisk lets some calls of the disk of the log fail, or fills it. Each crash ends that.
func (s *sim) sickDisk(n *node, lasts int64) {
	s.covered.sickDisks++
	d := n.disk
	if s.chance(30) {
		s.tell("node %d: the disk of its log is full for %d ms", n.n, lasts)
		d.Space = s.rng.IntN(4000)
		s.at(lasts, nil, func() { d.Space = memfs.Plenty })
		return
	}
	op := []string{"write", "sync", "create", "rename", "remove", "syncdir"}[s.rng.IntN(6)]
	percent := []float64{20, 50, 100}[s.rng.IntN(3)]
	s.tell("node %d: %v %% of the calls of %s of its log fail for %d ms", n.n, percent, op, lasts)
	d.Fail = func(called, _ string) error {
		if called == op && s.chance(percent) {
			return memfs.ErrInjected
		}
		return nil
	}
	s.at(lasts, nil, func() { d.Fail = nil })
}

// wrongClock lets the clock of a node leap, and leap back.
func (s *sim) wrongClock(n *node, lasts int64) {
	for _, o := range s.nodes {
		if o.off > 100 || o.off < -100 {
			return // two wrong clocks of three are not a fault that a group bears
		}
	}
	s.covered.clocks++
	before := n.off
	n.off += []int64{3600 * second, -3600 * second, 5 * second, -5 * second, 1500, -1500}[s.rng.IntN(6)]
	s.tell("node %d: its clock is %d ms off for %d ms", n.n, n.off, lasts)
	s.at(lasts, nil, func() { n.off = before })
}

// changeMembers makes a voter a learner for some time. The group is two voters meanwhile.
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
	s.changed = s.now
	s.tell("node %d is to learn for %d ms", n.n, lasts)
	s.askForMembers(voters, []uint64{n.id}, func() {
		s.at(lasts, nil, func() {
			s.askForMembers([]uint64{1, 2, 3}, nil, func() {
				s.covered.changes++
				s.changed = 0
			})
		})
	})
}

// askForMembers asks the leader until the members are these.
func (s *sim) askForMembers(voters, learners []uint64, then func()) {
	leader := s.leader()
	if leader != nil {
		if m := &leader.members; slices.Equal(m.Voters, voters) && slices.Equal(m.Learners, learners) && len(m.Leaving) == 0 {
			then()
			return
		}
		err := leader.node.Members(voters, learners)
		if err != nil && !errors.Is(err, replica.ErrChanging) && !errors.Is(err, replica.ErrNotLeader) &&
			!errors.Is(err, replica.ErrFull) {
			s.fail("change the members: %v", err)
		}
		s.drain(leader)
	}
	s.at(300*ms, nil, func() { s.askForMembers(voters, learners, then) })
}

// crash ends a process, often in the middle of a write, and starts it again with the files that are
// left.
func (s *sim) crash(n *node, lasts int64, power bool) {
	if s.chance(60) {
		s.crashInWrite(n, 200, lasts, power)
	} else {
		s.crashNow(n, lasts, power)
	}
}

// crashInWrite waits a little for a write of the log or of a checkpoint, and crashes the process in the
// middle of it.
func (s *sim) crashInWrite(n *node, tries int, lasts int64, power bool) {
	switch {
	case n.saving != nil && n.saving.commits:
		s.breakOff(n, []int{0, 1, 2, 3, 4}[s.rng.IntN(5)], func() { _ = n.saving.Commit(n.last.base) })
		s.crashNow(n, lasts, power)
	case n.writing:
		// Most writes are a write and a sync.
		s.breakOff(n, []int{0, 1, 1, 1, 2, 4}[s.rng.IntN(6)], func() { _ = n.entries.Append(&n.toWrite[0].Write) })
		fallthrough
	case tries == 0:
		s.crashNow(n, lasts, power)
	default:
		s.at(1*ms, n, func() { s.crashInWrite(n, tries-1, lasts, power) })
	}
}

func (s *sim) crashNow(n *node, lasts int64, power bool) {
	s.stop(n)
	stored := n.entries.Last()
	if power {
		n.disk = s.powerLoss(n.disk)
		n.boots++
	} else {
		n.disk = n.disk.Crash()
	}
	n.crashStores(power)
	s.at(lasts, nil, func() {
		if n.up {
			return
		}
		s.start(n, nil)
		if n.up && n.entries.Last() < stored {
			s.fail("node %d: its log ended at %d, and now at %d", n.n, stored, n.entries.Last())
		}
	})
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
