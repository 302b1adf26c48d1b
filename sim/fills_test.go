package sim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/core/checkpoint"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
	"github.com/freshet-io/freshet/internal/core/world"
)

// In this file, the disks of nodes are emptied. Such a node takes a new member id, asks for its name, gets the data
// of another node as role/filler does, and joins: the rules for all of that are core/member's. A node whose log the
// others' logs no longer complete is filled again, and keeps its id.

// fill is the filling of a node.
type fill struct {
	old  *old   // what the member must not forget; nil for a new member
	try  int    // only answers to the present try count
	from uint64 // the other nodes must keep the entries after this one
	last uint64 // the last entry of the copy's log
	disk *memfs.FS
	dir  string // of the copied databases
	log  eventLog
}

// old is what the disk of a member has before the node is filled again.
type old struct{ last, term, vote uint64 }

// pin keeps the entries after `from` in a node's log until a time.
type pin struct {
	from  uint64
	until int64
}

// needed returns the last entry that a node's log need not have.
func (n *node) needed() uint64 {
	needed := n.base
	for _, p := range n.pins {
		if n.sim.Now < p.until {
			needed = min(needed, p.from)
		}
	}
	return needed
}

// keeps returns how many bytes of older entries a log keeps for members that were away.
func (n *node) keeps() int64 {
	if n.sim.mistakes.fills {
		return 0
	}
	return keepBytes
}

func (n *node) self() entry.Node {
	return entry.Node{Name: string(rune('a' + n.n)), Member: n.id}
}

// beginNames gives the nodes their names, as a founded group has them.
func (s *sim) beginNames() {
	if !s.mistakes.fills {
		return
	}
	for _, n := range s.nodes {
		s.join(n, func() {})
		s.watchLog(n)
	}
}

// empty empties the disk of a node, unless another node has lost its disk.
func (s *sim) empty(n *node) {
	leader := s.leader()
	if !n.Up || s.lost != nil || leader == nil || n.fill != nil || !s.settled(leader) {
		return
	}
	s.stop(n)
	s.oracle.emptied[n.id] = true
	if s.ids++; !s.mistakes.sameID {
		n.id = s.ids
	}
	n.disk, n.eventLog = memfs.New(), eventLog{}
	n.boots++
	n.useStores(s.newDir())
	s.lost, n.fill = n, &fill{from: math.MaxUint64}
	s.covered.emptied++
	s.Tell("node %d: its disk is emptied, and it is member %d now", n.n, n.id)
	if s.mistakes.sameID {
		s.start(n, founded())
		return
	}
	s.pinLogs(n)
	s.claim(n)
}

// settled reports whether all nodes vote, as far as the leader knows.
func (s *sim) settled(leader *node) bool {
	m := &leader.members
	for _, n := range s.nodes {
		if !slices.Contains(m.Voters, n.id) {
			return false
		}
	}
	return len(m.Voters) == len(s.nodes) && len(m.Learners)+len(m.Leaving) == 0
}

func (s *sim) newDir() string {
	s.dirs++
	return filepath.Join(s.dir, fmt.Sprint(s.dirs))
}

var errNoAnswer = errors.New("no answer came")

// askLeader asks the leader for something. `then` gets its answer, or errNoAnswer.
func (s *sim) askLeader(n *node, what func(*node, member.ID), then func(error)) {
	done := false
	answer := func(err error) {
		if !done {
			done = true
			then(err)
		}
	}
	s.At(second, nil, func() { answer(errNoAnswer) })
	leader := s.leader()
	if leader == nil || s.Cut(n.n, leader.n) || s.Cut(leader.n, n.n) {
		return
	}
	s.ask(leader, func() {
		s.call(leader, func(id member.ID) { what(leader, id) }, func(a member.Answer) {
			s.reply(func() { answer(a.Err) })
		})
	})
}

// claim asks for the node's name until the new member has it, and then fills the node.
func (s *sim) claim(n *node) {
	s.askLeader(n, func(l *node, id member.ID) { l.node.Claim(l.clock(), id, n.self()) }, func(err error) {
		if err != nil {
			s.At(s.Between(100, 500), nil, func() { s.claim(n) })
			return
		}
		s.fillNode(n)
	})
}

// join asks the leader to take a node in until it has.
func (s *sim) join(n *node, then func()) {
	s.askLeader(n, func(l *node, id member.ID) { l.node.Join(l.clock(), id, n.self()) }, func(err error) {
		if err != nil {
			s.At(s.Between(100, 500), nil, func() { s.join(n, then) })
			return
		}
		then()
	})
}

// fillNode tries to fill a node until it has succeeded. Any node that is up may give its data.
func (s *sim) fillNode(n *node) {
	f := n.fill
	f.try++
	f.from = math.MaxUint64
	c := &copying{fill: f, try: f.try, from: s.anyNode()}
	c.life = c.from.Life
	s.At(20*second, nil, func() { s.fillFails(n, c, errors.New("it takes too long")) })
	if c.from == n || !c.from.Up || c.from.fill != nil {
		s.At(100, nil, func() { s.fillFails(n, c, errors.New("no node gives its data")) })
		return
	}
	s.Tell("node %d: is filled by node %d", n.n, c.from.n)
	s.saveNow(c.from, func(base, reaches uint64, err error) {
		if c.try != f.try {
			return
		}
		if f.from, f.last = base, reaches; err == nil {
			f.disk, err = c.from.copyLog(base, reaches)
		}
		if err != nil {
			s.fillFails(n, c, err)
			return
		}
		s.goOnCopying(n, c)
	})
}

// copying is a try to fill a node.
type copying struct {
	*fill
	try    int
	from   *node
	life   int    // of `from`
	dir    string // of the links to the files of the databases
	files  []tsdb.Copied
	copied bool // links and events are there
}

func (s *sim) fillFails(n *node, c *copying, err error) {
	if c.try != c.fill.try {
		return
	}
	c.fill.try++
	s.covered.failedFills++
	s.Tell("node %d: its fill failed: %v", n.n, err)
	s.At(s.Between(100, second), nil, func() { s.fillNode(n) })
}

// goOnCopying takes the steps of a copy that come after its log. Meanwhile the other node goes on, or dies.
func (s *sim) goOnCopying(n *node, c *copying) {
	takes := s.Between(1, 300)
	if c.copied {
		takes = s.Between(200, s.longest(12*second))
	}
	s.At(takes, nil, func() {
		if wait := c.from.PausedUntil - s.Now; wait > 0 {
			s.At(wait, nil, func() { s.goOnCopying(n, c) })
			return
		}
		if c.try != c.fill.try {
			return
		}
		var err error
		switch {
		case !c.from.Up || c.from.Life != c.life:
			err = fmt.Errorf("node %d dies", c.from.n)
		case c.dir == "":
			c.dir = s.newDir()
			c.files, err = c.from.stores.Copy(context.Background(), filepath.Join(c.dir, "tsdb"))
		case !c.copied:
			c.copied = true
			c.log = eventLog{slices.Clone(c.from.eventLog.events), c.from.eventLog.reached}
		case s.Chance(10) && s.Now < s.calmFrom():
			err = errors.New("the node that is being filled dies")
		default:
			if err = s.fetch(c); err == nil {
				c.fill.try++
				s.filled(n)
				return
			}
		}
		if err != nil {
			s.fillFails(n, c, err)
			return
		}
		s.goOnCopying(n, c)
	})
}

// longest returns how long something may take, in ms. Without faults, nothing takes long.
func (s *sim) longest(most int64) int64 {
	if s.Now > s.calmFrom() {
		return min(most, second)
	}
	return most
}

// saveNow writes a checkpoint of everything that the node has applied.
func (s *sim) saveNow(n *node, then func(base, reaches uint64, err error)) {
	n.copies = append(n.copies, then)
	if n.saving == nil {
		s.beginSaving(n)
	}
}

// copyLog copies a checkpoint, and the entries behind it.
func (n *node) copyLog(base, reaches uint64) (*memfs.FS, error) {
	to := memfs.New()
	if err := checkpoint.Copy(n.disk, to, base); err != nil {
		return nil, err
	}
	return to, n.entries.CopyTo(to, n.mark, base, reaches)
}

// fetch reads the files of a copy, which end where they ended when they were copied.
func (s *sim) fetch(c *copying) error {
	c.fill.dir = s.newDir()
	for _, file := range c.files {
		name := filepath.Join("tsdb", filepath.FromSlash(file.Name))
		b, err := os.ReadFile(filepath.Join(c.dir, name))
		if err != nil {
			return err
		}
		to := filepath.Join(c.fill.dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
			return err
		}
		if err := os.WriteFile(to, b[:file.Size], 0o666); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(c.fill.dir, "tsdb"), 0o777); err != nil {
		return err
	}
	if err := tsdb.CheckCopy(context.Background(), filepath.Join(c.fill.dir, "tsdb")); err != nil {
		s.Fail("a copy of node %d is damaged: %v", c.from.n, err)
	}
	return os.RemoveAll(c.dir)
}

// filled lets a node that has all data of another one join, or take part again.
func (s *sim) filled(n *node) {
	f := n.fill
	if f.old == nil {
		s.Tell("node %d: is filled up to entry %d", n.n, f.last)
		s.join(n, func() { s.install(n) })
		return
	}
	if f.last < f.old.last {
		s.Tell("node %d: is filled up to entry %d, but had entry %d", n.n, f.last, f.old.last)
		s.fillNode(n)
		return
	}
	if err := entrylog.KeepVote(f.disk, s.Rand.Uint32(), f.old.term, f.old.vote); err != nil {
		s.Fail("node %d: keep its vote: %v", n.n, err)
		return
	}
	s.Tell("node %d: is filled again up to entry %d", n.n, f.last)
	s.install(n)
}

// install starts a node with the data of another one. Its databases are cut back as after a power loss.
func (s *sim) install(n *node) {
	f := n.fill
	n.disk, n.eventLog = f.disk, f.log
	n.boots++
	n.useStores(f.dir)
	n.stores.synced = nil
	s.start(n, nil)
	s.votesAgain(n)
}

// votesAgain waits until a filled node votes.
func (s *sim) votesAgain(n *node) {
	if leader := s.leader(); leader != nil && s.settled(leader) {
		s.covered.filled++
		s.Tell("node %d: votes", n.n)
		if n.fill = nil; s.lost == n {
			s.lost = nil
		}
		for _, o := range s.nodes {
			delete(o.pins, n)
		}
		return
	}
	s.At(300*ms, nil, func() { s.votesAgain(n) })
}

// pinLogs makes the other nodes keep the entries that a node needs, until the node votes.
func (s *sim) pinLogs(n *node) {
	f := n.fill
	if f == nil || s.mistakes.noPins {
		return
	}
	from := f.from
	if n.Up {
		from = n.node.State().Index()
	} else if f.old == nil && f.last > 0 {
		from = min(from, f.last)
	}
	for _, o := range s.nodes {
		if o != n && o.Up && from != math.MaxUint64 && !s.Cut(n.n, o.n) {
			o.pins[n] = pin{from, s.Now + 60*second}
		}
	}
	s.At(second, nil, func() { s.pinLogs(n) })
}

// watchLog fills a node again if the leader's log no longer has the entries that the node lacks.
func (s *sim) watchLog(n *node) {
	s.At(second, nil, func() { s.watchLog(n) })
	leader := s.leader()
	if n.lacks++; leader == nil || leader == n || !n.Up || leader.entries.Base() <= n.entries.Last() {
		n.lacks = 0
	}
	if n.lacks < 3 {
		return
	}
	n.lacks = 0
	s.covered.filledAgain++
	s.Tell("node %d: lacks entries from %d on, and the log of node %d begins behind %d", n.n, n.entries.Last()+1, leader.n,
		leader.entries.Base())
	if s.mistakes.calm {
		s.Fail("node %d was filled, and then lacks entries", n.n)
	}
	state, _, err := n.entries.InitialState()
	if err != nil {
		s.Fail("node %d: %v", n.n, err)
		return
	}
	s.stop(n)
	n.fill = &fill{old: &old{n.entries.Last(), state.GetTerm(), state.GetVote()}, from: math.MaxUint64}
	s.pinLogs(n)
	s.fillNode(n)
}

// votes is a check that each change leaves three voters, of which two have everything.
func (o *oracle) votes(s *sim, leader *node) {
	if !s.mistakes.fills {
		return
	}
	have := 0
	for _, id := range leader.members.Voters {
		if n := s.nodeOf(id); n != nil && n.entries.Last()+100 >= leader.node.State().Index() {
			have++
		}
	}
	if len(leader.members.Voters) < 3 || have < 2 {
		s.Fail("the group has the voters %v, of which %d have its entries", leader.members.Voters, have)
	}
}

// speaks is a check that a member whose disk was emptied sends nothing any more: it has forgotten its votes, and
// what it acknowledged.
func (o *oracle) speaks(s *sim, n *node) {
	if o.emptied[n.id] {
		s.Fail("node %d: member %d lost its disk, and sends a message", n.n, n.id)
	}
}

// fillSeconds is how long a run with fills is, in virtual seconds.
const fillSeconds = 100

// leastFills has the numbers of events that the runs of TestFills must reach together.
var leastFills = coverage{elections: 20, kills: 5, powerLosses: 5, checkpoints: 100, emptied: 6, filled: 6,
	failedFills: 10}

// Nodes whose disks are emptied come back as new members, and nodes that lack entries are filled again. All promises
// of TestSim hold, whatever happens meanwhile.
func TestFills(t *testing.T) {
	t.Parallel()
	last, seconds := uint64(8), int64(fillSeconds)
	if soaking {
		last, seconds = 500, 150
	}
	var sum coverage
	for seed := uint64(1); seed <= last; seed++ {
		s := simulate(t, seed, seconds, mistakes{fills: true})
		world.Sum(sum.each(), s.covered.each())
		if s.Failed != nil {
			t.Errorf("seed %d: %v\n%s", seed, s.Failed, s.Story.String())
		}
	}
	world.Enough(t, sum.each(), leastFills.each())
}

// If nothing else happens, a node that was filled once finds all further entries in the logs of the others.
func TestCalmFills(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		s := simulate(t, seed+1, fillSeconds, mistakes{fills: true, calm: true})
		if s.Failed != nil || s.covered.filled < 2 {
			t.Errorf("seed %d: %d nodes were filled: %v\n%s", seed+1, s.covered.filled, s.Failed, s.Story.String())
		}
	}
}
