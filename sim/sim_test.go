package sim

import (
	"os"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
	"github.com/freshet-io/freshet/internal/core/world"
)

const (
	ms     = world.Millisecond
	second = world.Second

	// base is when a run begins, in Unix milliseconds.
	base = 1_795_228_020_000

	group = 7

	settleFor = 25 * second // at the end, without faults
	fillFor   = 25 * second // before that, without faults, in runs with fills
	quietFor  = 20 * second // at the very end, without new samples
)

// sim is one run.
type sim struct {
	*world.World
	dir    string // of the databases
	dirs   int    // number of directories made in dir
	end    int64
	ending bool // nothing new begins any more

	nodes   []*node
	changed int64  // when the last change of the members began
	ids     uint64 // the newest member id
	lost    *node  // its disk was emptied, and its new member does not vote yet

	clocksRight int64 // when the last wrong clock is right again

	collectors []*collector
	writers    []*writer
	readers    []*reader
	oracle     oracle
	covered    coverage
	mistakes   mistakes
}

// mistakes says which mistakes the simulation itself makes, where it stands in for a program.
type mistakes struct {
	pipelined bool // a collector has several pushes in flight
	noSync    bool // a checkpoint does not wait until the stores are synced
	noCut     bool // after a power loss, stores are not cut back to their last sync

	// impatient is not a mistake. It makes a world in which a mistake shows: collectors push a window
	// again before it is stored, disks are slow, and a tenant is full as soon as a tile waits for its
	// stores.
	impatient bool

	// fills is no mistake either. Disks are emptied, and nodes are filled again: see fills_test.go. If calm is true,
	// nothing else happens.
	fills, calm bool

	// rules is no mistake either. Leaders evaluate rules, and take some and imports: see rules_test.go and
	// imports_test.go. Other runs have none, so that they stay the same.
	rules bool

	noPins bool // no log keeps the entries for a node that is being filled
	sameID bool // a node whose disk was emptied comes back under its old id, with an empty log
}

// calmFrom returns from when on there are no faults.
func (s *sim) calmFrom() int64 {
	if s.mistakes.fills {
		return s.end - settleFor - fillFor
	}
	return s.end - settleFor
}

func (s *sim) anyNode() *node { return s.nodes[s.Rand.IntN(len(s.nodes))] }

// simulate runs a group of three for some virtual seconds.
func simulate(t testing.TB, seed uint64, seconds int64, m mistakes) *sim {
	s := &sim{World: world.New(seed), dir: directory(t), end: seconds * second, mistakes: m}
	defer os.RemoveAll(s.dir)
	s.oracle.begin()
	s.ids = 3
	s.Tell("seed %d, %d s", seed, seconds)
	for i := range 3 {
		n := newNode(s, i)
		s.nodes = append(s.nodes, n)
		s.start(n, founded())
	}
	defer func() {
		for _, n := range s.nodes {
			n.closeStores()
		}
	}()
	s.beginSenders()
	s.beginNames()
	s.At(2*second, nil, s.nextFault)
	s.Run(s.end)
	s.Tell("nothing new begins")
	s.ending = true
	s.Run(s.end + 60*second)
	if s.Failed == nil {
		s.finish()
	}
	s.Tell("%v; digest %016x", world.Text(s.covered.each()), s.Digest())
	return s
}

// founded returns where the logs of the founders begin.
func founded() *entrylog.Base {
	return &entrylog.Base{Index: 1, Term: 1, Members: &raftpb.ConfState{Voters: []uint64{1, 2, 3}}}
}

// directory makes a directory for databases, in memory if there is such a file system: a run calls
// fsync thousands of times.
func directory(t testing.TB) string {
	for _, parent := range []string{"/dev/shm", ""} {
		if dir, err := os.MkdirTemp(parent, "freshet-sim-"); err == nil {
			return dir
		}
	}
	return t.TempDir()
}

// send puts a message on the network between members, which may lose, repeat or delay it.
func (s *sim) send(from *node, m *replica.Message) {
	b, err := m.Append(nil)
	if err != nil {
		s.Fail("%v: %v", m, err)
		return
	}
	s.Note(b)
	s.oracle.speaks(s, from)
	to, sent, applied := s.nodeOf(m.To), from.clock(), from.node.State().Index()
	if to == nil {
		return
	}
	fate := s.Send(from.n, to.n, s.Now > s.calmFrom(), func() { s.deliver(b, from.n, sent, applied) })
	if fate.Lost {
		s.covered.messagesLost++
	}
	if fate.Twice {
		s.covered.messagesTwice++
	}
}

// deliver hands a message to the node of its member.
func (s *sim) deliver(b []byte, from int, sent int64, applied uint64) {
	m, err := replica.ParseMessage(b)
	if err != nil {
		s.Fail("%v", err)
		return
	}
	to := s.nodeOf(m.To)
	if to == nil || !to.Up || s.Cut(from, to.n) {
		return
	}
	s.At(0, &to.Process, func() { // after the node's pause
		all := member.Message{Message: m, Sent: sent, Applied: applied, Knows: to.node.State().Knows()}
		if err := to.node.Step(to.clock(), all); err != nil {
			s.Fail("%v: %v", &m, err)
		}
		s.drain(to)
	})
}

// nodeOf returns the node of a member, or nil if its disk was emptied.
func (s *sim) nodeOf(member uint64) *node {
	for _, n := range s.nodes {
		if n.id == member {
			return n
		}
	}
	return nil
}

// ask carries a call of a client to a node, and reply carries the answer back. Both may be lost.
func (s *sim) ask(n *node, call func()) {
	if n.Up && (s.Now > s.calmFrom() || !s.Chance(0.5)) {
		s.At(s.Between(1, 10), &n.Process, call)
	}
}

func (s *sim) reply(answer func()) {
	if s.Now > s.calmFrom() || !s.Chance(0.5) {
		s.At(s.Between(1, 10), nil, answer)
	}
}

// leader returns the node that leads in the highest term, or nil.
func (s *sim) leader() (leader *node) {
	for _, n := range s.nodes {
		if n.Up && s.Now >= n.PausedUntil && n.leads.Leads && (leader == nil || n.leads.Term > leader.leads.Term) {
			leader = n
		}
	}
	return leader
}
