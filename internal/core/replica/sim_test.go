package replica

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
	"github.com/freshet-io/freshet/internal/core/world"
)

// This file simulates a group on three nodes, on one thread and a virtual clock. A seed decides all
// events: faults of the network, disks that lose data, kills, pauses, and the operations of clients. The
// faults are in sim_faults_test.go, and the promises that must hold in sim_oracle_test.go.

const (
	ms     = world.Millisecond
	second = world.Second

	settleFor = 15 * second // at the end, without faults
	quietFor  = 5 * second  // at the very end, without clients

	simWriters, simReaders = 4, 2
	simSegment             = 4 << 10
	simKeep                = 150 << 10 // bytes of log to keep for members that were away
)

// sim is one run.
type sim struct {
	*world.World
	end   int64
	size  int // number of voters
	nodes []*simNode
	ids   uint64 // id of the newest member

	oracle  oracle
	clients []*client
	emptied bool // a disk was emptied, and its member is not swapped yet
	swap    *swap
	covered coverage
}

// simNode is a node: a disk, and the process on it, if it is up.
type simNode struct {
	n    int
	disk *memfs.FS
	id   uint64 // of the member
	world.Process
	slowDisk  bool
	slowApply bool

	replica    *Replica
	log        *entrylog.Log
	leadership Leadership
	members    Members

	state      state
	checkpoint state // the state that a restart begins with
	toWrite    []*Write
	writing    bool
	toApply    []Committed
	applying   bool
	pending    map[uint64]*operation // by the index of the proposal
	reading    map[uint64]question   // by barrier
}

// state is the state machine: a register, and the last operation of each client.
type state struct {
	applied, value uint64
	seqs           [simWriters]uint64
}

func (s *sim) anyNode() *simNode { return s.nodes[s.Rand.IntN(len(s.nodes))] }

// simulate runs a group of three, or one, for some virtual seconds.
func simulate(seed uint64, seconds int64, members int) *sim {
	s := &sim{World: world.New(seed), end: seconds * second, size: members, ids: uint64(members)}
	s.oracle.begin()
	s.Story.WriteString(fmt.Sprintf("seed %d, %d s, %d members\n", seed, seconds, members))
	base := &entrylog.Base{Index: 1, Term: 1, Members: &raftpb.ConfState{Voters: []uint64{1, 2, 3}[:members]}}
	for n := range members {
		node := &simNode{n: n, id: uint64(n + 1), disk: memfs.New(), checkpoint: state{applied: 1}}
		s.nodes = append(s.nodes, node)
		s.start(node, base)
	}
	for n := range simWriters + simReaders {
		c := &client{n: n, reads: n >= simWriters, target: s.anyNode()}
		s.clients = append(s.clients, c)
		s.At(s.Between(0, second), nil, func() { s.next(c) })
	}
	s.At(2*second, nil, s.nextFault)
	s.Run(s.end)
	if s.Failed == nil {
		s.finish()
	}
	s.Tell("%v; digest %016x", world.Text(s.covered.each()), s.Digest())
	return s
}

// start starts the process of a node from its disk.
func (s *sim) start(n *simNode, fresh *entrylog.Base) {
	n.Life++
	c := Config{ID: n.id, Applied: n.checkpoint.applied, New: fresh, Rand: rand.New(rand.NewPCG(s.Rand.Uint64(), n.id)),
		Log: entrylog.Options{Mark: s.Rand.Uint32(), SegmentBytes: simSegment, CacheBytes: 2 << 10}}
	r, l, err := Open(n.disk, c)
	if errors.Is(err, entrylog.ErrNone) {
		s.Tell("node %d: %v", n.n, err)
		s.beginSwap(n)
		return
	}
	if err != nil {
		s.Fail("node %d does not start: %v", n.n, err)
		return
	}
	n.replica, n.log, n.Up = r, l, true
	n.state, n.leadership = n.checkpoint, Leadership{}
	n.toWrite, n.writing, n.toApply, n.applying = nil, false, nil, false
	n.pending, n.reading = map[uint64]*operation{}, map[uint64]question{}
	if n.Life > 1 && fresh == nil {
		s.covered.restarts++
	}
	s.Tell("node %d: member %d starts at entry %d, its log ends at %d", n.n, n.id, n.state.applied, l.Last())
	period := s.Between(95, 106) // no two clocks run at the same speed
	s.tick(n, s.Between(0, period), period)
	s.At(s.Between(2*second, 6*second), &n.Process, func() { s.saveCheckpoint(n) })
	s.drain(n)
}

func (s *sim) tick(n *simNode, after, period int64) {
	s.At(after, &n.Process, func() {
		n.replica.Tick()
		s.drain(n)
		s.tick(n, period, period)
	})
}

// stop ends the process of a node, and with it all that is in memory.
func (s *sim) stop(n *simNode) {
	n.Stop()
}

// drain does the work that the replica has for its caller.
func (s *sim) drain(n *simNode) {
	out, err := n.replica.Take()
	if err != nil {
		s.Fail("node %d: %v", n.n, strings.SplitN(err.Error(), "\n", 2)[0])
		return
	}
	for i := range out.Messages {
		s.send(n, &out.Messages[i])
	}
	if out.Write != nil {
		n.toWrite = append(n.toWrite, out.Write)
	}
	s.nextWrite(n)
	n.toApply = append(n.toApply, out.Apply...)
	s.nextApply(n)
	for _, read := range out.Reads {
		s.read(n, read)
	}
	for _, index := range out.Lost {
		if o := n.pending[index]; o != nil {
			delete(n.pending, index)
			s.covered.lost++
			s.retry(o, s.Between(1, 50))
		}
	}
	if out.Members != nil {
		n.members = *out.Members
		s.oracle.changes(s, n)
		if n.leadership.Leads || out.Leadership.Leads {
			s.Tell("node %d: voters %v, learners %v, leaving %v", n.n, n.members.Voters, n.members.Learners, n.members.Leaving)
		}
	}
	s.follow(n, out.Leadership)
}

// follow notes elections.
func (s *sim) follow(n *simNode, now Leadership) {
	if now.Leads && (!n.leadership.Leads || n.leadership.Term != now.Term) {
		s.Tell("node %d: member %d leads in term %d", n.n, n.id, now.Term)
		s.covered.elections++
		if s.oracle.transferTo == n.id && s.Now < s.oracle.transferBy {
			s.covered.transfers++
			s.oracle.transferTo = 0
		}
		s.oracle.leads(s, n, now.Term)
	}
	n.leadership = now
}

// place returns the node on which a member lives.
func (s *sim) place(member uint64) *simNode {
	for _, n := range s.nodes {
		if n.id == member {
			return n
		}
	}
	return nil
}

// send puts a message on the network, which may lose, repeat or delay it.
func (s *sim) send(from *simNode, m *Message) {
	b, err := m.Append(nil)
	if err != nil {
		s.Fail("%v: %v", m, err)
		return
	}
	s.Note(b)
	s.oracle.sends(s, from)
	if to := s.place(m.To); to != nil {
		s.Send(from.n, to.n, false, func() { s.deliver(b, from.n) })
	}
}

// deliver hands a message to the node of its member.
func (s *sim) deliver(b []byte, from int) {
	m, err := ParseMessage(b)
	if err != nil {
		s.Fail("%v", err)
		return
	}
	to := s.place(m.To)
	if to == nil || !to.Up || s.Cut(from, to.n) {
		return
	}
	s.At(0, &to.Process, func() { // after the node's pause
		if err := to.replica.Step(m); err != nil {
			s.Fail("%v: %v", &m, err)
		}
		s.drain(to)
	})
}

// nextWrite writes to the disk, one write after the other.
func (s *sim) nextWrite(n *simNode) {
	if n.writing || len(n.toWrite) == 0 {
		return
	}
	n.writing = true
	takes := s.Between(1, 5)
	if n.slowDisk {
		takes = s.Between(50, 800)
	}
	s.At(takes, &n.Process, func() { s.write(n) })
}

func (s *sim) write(n *simNode) {
	w := n.toWrite[0]
	truncates := len(w.Entries) > 0 && w.Entries[0].Index <= n.log.Last()
	if err := n.log.Append(&w.Write); err != nil {
		if errors.Is(err, memfs.ErrNoSpace) {
			s.At(200*ms, &n.Process, func() { s.write(n) })
		} else {
			s.Fail("node %d: %v", n.n, err)
		}
		return
	}
	if truncates {
		s.covered.truncations++
		s.Tell("node %d: replaces its entries from %d on", n.n, w.Entries[0].Index)
	}
	n.toWrite, n.writing = n.toWrite[1:], false
	n.replica.Stored(w.Number)
	s.drain(n)
}

// nextApply applies the entries that wait, some at a time.
func (s *sim) nextApply(n *simNode) {
	if n.applying || len(n.toApply) == 0 {
		return
	}
	n.applying = true
	takes := s.Between(1, 5)
	if n.slowApply {
		takes = s.Between(50, 500)
	}
	s.At(takes, &n.Process, func() { s.apply(n) })
}

func (s *sim) apply(n *simNode) {
	now := n.toApply[:min(len(n.toApply), 1+s.Rand.IntN(20))]
	n.toApply = n.toApply[len(now):]
	for i := range now {
		e := &now[i]
		s.oracle.applies(s, n, e)
		n.state.apply(e)
		if o := n.pending[e.Index]; e.Own && o != nil {
			delete(n.pending, e.Index)
			s.acknowledge(o, e.Index)
		}
	}
	n.applying = false
	n.replica.Applied(n.state.applied)
	s.nextApply(n)
	s.drain(n)
}

// apply is the state machine. An operation counts once, however often it is repeated.
func (st *state) apply(e *Committed) {
	st.applied = e.Index
	if o, ok := parseOperation(e.Data); ok && o.seq > st.seqs[o.client] {
		st.seqs[o.client], st.value = o.seq, o.value()
	}
}

// saveCheckpoint saves the node's state for the next restart, and shortens the log.
func (s *sim) saveCheckpoint(n *simNode) {
	n.checkpoint = n.state
	if err := n.log.Compact(n.checkpoint.applied, simKeep); err != nil {
		s.Fail("node %d: %v", n.n, err)
	}
	s.At(s.Between(2*second, 6*second), &n.Process, func() { s.saveCheckpoint(n) })
}

// operation is a write with a number of its own, or a read.
type operation struct {
	client, seq uint64
	reads       bool
	c           *client
}

// question is one try of a read. The read must see the order up to floor.
type question struct {
	o     *operation
	floor uint64
}

func (o *operation) value() uint64 { return o.client<<32 | o.seq }

func (o *operation) data() []byte {
	b := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, o.client), o.seq)
	return append(b, bytes.Repeat([]byte{'.'}, int(o.seq%90))...)
}

func parseOperation(b []byte) (o operation, ok bool) {
	if len(b) < 16 {
		return o, false
	}
	return operation{client: binary.LittleEndian.Uint64(b), seq: binary.LittleEndian.Uint64(b[8:])}, true
}

// client has one operation at a time, and repeats it until it is acknowledged.
type client struct {
	n      int
	reads  bool
	seq    uint64
	try    int
	doing  *operation
	target *simNode
}

// next begins the next operation of a client.
func (s *sim) next(c *client) {
	if s.Now > s.end-quietFor {
		return
	}
	c.seq++
	c.doing = &operation{client: uint64(c.n), seq: c.seq, reads: c.reads, c: c}
	s.ask(c.doing)
}

// ask sends an operation to a node, which may be down or may not lead.
func (s *sim) ask(o *operation) {
	c, n := o.c, o.c.target
	if c.doing != o {
		return
	}
	c.try++
	try := c.try
	s.At(1500*ms, nil, func() {
		if c.doing == o && c.try == try {
			s.retry(o, 0)
		}
	})
	if !n.Up || s.Now < n.PausedUntil {
		return // the try times out
	}
	if c.reads {
		number, err := n.replica.Barrier()
		if err == nil {
			n.reading[number] = question{o, s.oracle.floor}
			s.drain(n)
		}
		return
	}
	index, err := n.replica.Propose(o.data())
	if err == nil {
		n.pending[index] = o
		s.drain(n)
		return
	}
	if leader := s.place(n.leadership.Leader); leader != nil && leader != n {
		c.target = leader
		s.At(s.Between(1, 30), nil, func() { s.ask(o) })
	} else {
		s.retry(o, s.Between(50, 300))
	}
}

// retry repeats an operation at another node.
func (s *sim) retry(o *operation, after int64) {
	o.c.target = s.anyNode()
	s.covered.retries++
	s.At(after, nil, func() { s.ask(o) })
}

func (s *sim) acknowledge(o *operation, index uint64) {
	if o.c.doing != o {
		return // the answer to an earlier try; the client has gone on
	}
	s.oracle.acknowledged(o, index)
	s.covered.acknowledged++
	o.c.doing = nil
	s.At(s.Between(10, 120), nil, func() { s.next(o.c) })
}

// read answers a client's read from the state of a node.
func (s *sim) read(n *simNode, read Read) {
	q, ok := n.reading[read.Barrier]
	delete(n.reading, read.Barrier)
	o := q.o
	if !ok || o.c.doing != o {
		return
	}
	s.oracle.reads(s, n, q.floor)
	s.covered.reads++
	o.c.doing = nil
	if s.Chance(70) { // otherwise the client asks the same node again
		o.c.target = s.anyNode()
	}
	s.At(s.Between(10, 120), nil, func() { s.next(o.c) })
}

// leader returns the node that leads in the highest term, or nil.
func (s *sim) leader() (leader *simNode) {
	for _, n := range s.nodes {
		if n.Up && s.Now >= n.PausedUntil && n.leadership.Leads &&
			(leader == nil || n.leadership.Term > leader.leadership.Term) {
			leader = n
		}
	}
	return leader
}

// swap is a change under way, in which a new member takes the place of the old one on a node.
type swap struct {
	node   *simNode
	old    uint64
	filled bool
}

// beginSwap starts another member on a node whose disk was emptied, in place of the node's old
// member.
func (s *sim) beginSwap(n *simNode) {
	s.swap = &swap{node: n, old: n.id}
	s.At(second, nil, s.goOnSwapping)
}

// goOnSwapping does the steps of an operator, and repeats those that fail: it fills the new member, lets
// it learn, and then puts it in the place of the old one in one change.
func (s *sim) goOnSwapping() {
	w, n, leader := s.swap, s.swap.node, s.leader()
	defer func() {
		if s.swap != nil {
			s.At(300*ms, nil, s.goOnSwapping)
		}
	}()
	if leader == nil {
		return
	}
	if !w.filled {
		s.fill(n, leader)
		return
	}
	var err error
	switch m := leader.members; {
	case slices.Contains(m.Voters, n.id) && len(m.Leaving) == 0:
		s.Tell("node %d: member %d has taken the place of member %d", n.n, n.id, w.old)
		s.covered.swaps++
		s.swap, s.emptied = nil, false
		return
	case len(m.Leaving) > 0:
		return
	case !slices.Contains(m.Learners, n.id):
		err = leader.replica.Members(m.Voters, []uint64{n.id})
	case n.Up && n.state.applied+20 > leader.state.applied:
		voters := append(slices.DeleteFunc(slices.Clone(m.Voters), func(id uint64) bool { return id == w.old }), n.id)
		slices.Sort(voters)
		err = leader.replica.Members(voters, nil)
	}
	if err != nil && !errors.Is(err, ErrChanging) && !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrFull) {
		s.Fail("change the members: %v", err)
	}
	s.drain(leader)
}

// fill gives a new member the state of another member.
func (s *sim) fill(n, from *simNode) {
	if len(from.replica.handed) > 0 {
		return // the list of members in its log may be newer than its state
	}
	term, err := from.log.Term(from.state.applied)
	if err != nil {
		s.Fail("fill node %d: %v", n.n, err)
		return
	}
	s.ids++
	s.swap.filled = true
	n.id, n.disk, n.checkpoint = s.ids, memfs.New(), from.state
	s.Tell("node %d: member %d is filled from node %d up to entry %d", n.n, n.id, from.n, n.checkpoint.applied)
	s.start(n, &entrylog.Base{Index: n.checkpoint.applied, Term: term, Members: from.replica.members.now})
}
