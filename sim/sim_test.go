package sim

import (
	"container/heap"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
)

const (
	ms     = int64(1) // the unit of virtual time
	second = 1000 * ms

	// base is when a run begins, in Unix milliseconds.
	base = 1_795_228_020_000

	group = 7

	settleFor = 25 * second // at the end, without faults
	quietFor  = 20 * second // at the very end, without new samples
)

// event is something that happens at a given time. Events with the same time happen in the order in
// which they were added.
type event struct {
	at, order int64
	node      *node // if not nil, the event happens only in this life of the node, and after any pause
	life      int
	do        func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}

// sim is one run.
type sim struct {
	rng    *rand.Rand
	dir    string // of the databases
	dirs   int    // how many were made in it
	now    int64  // ms since the beginning
	end    int64
	ending bool // nothing new begins any more
	order  int64
	events events
	story  strings.Builder
	digest uint64 // of every message, effect and read
	failed error

	nodes   []*node
	cut     [3][3]bool
	changed int64 // when the last change of the members began

	collectors []*collector
	writers    []*writer
	readers    []*reader
	oracle     oracle
	covered    coverage
	mistakes   mistakes
}

// mistakes are those that the simulation itself makes, in the place of programs that it stands for.
type mistakes struct {
	pipelined bool // a collector has several pushes in flight
	noSync    bool // a checkpoint does not wait until the stores are synced
}

// at plans an event.
func (s *sim) at(after int64, n *node, do func()) {
	s.order++
	e := event{at: s.now + after, order: s.order, node: n, do: do}
	if n != nil {
		e.life = n.life
	}
	heap.Push(&s.events, e)
}

func (s *sim) tell(format string, args ...any) {
	fmt.Fprintf(&s.story, "%7.2f  ", float64(s.now)/1000)
	fmt.Fprintf(&s.story, format, args...)
	s.story.WriteByte('\n')
}

// fail ends the run.
func (s *sim) fail(format string, args ...any) {
	if s.failed == nil {
		s.failed = fmt.Errorf(format, args...)
		s.tell("BROKEN: %v", s.failed)
	}
}

func (s *sim) note(b []byte) {
	h := fnv.New64a()
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, s.digest))
	_, _ = h.Write(b)
	s.digest = h.Sum64()
}

// between returns a random number in [from, to).
func (s *sim) between(from, to int64) int64 { return from + s.rng.Int64N(to-from) }

func (s *sim) chance(percent float64) bool { return s.rng.Float64()*100 < percent }

func (s *sim) anyNode() *node { return s.nodes[s.rng.IntN(len(s.nodes))] }

// simulate runs a group of three for some virtual seconds.
func simulate(t testing.TB, seed uint64, seconds int64, m mistakes) *sim {
	s := &sim{rng: rand.New(rand.NewPCG(seed, 19)), dir: directory(t), end: seconds * second, mistakes: m}
	defer os.RemoveAll(s.dir)
	s.oracle.begin()
	s.tell("seed %d, %d s", seed, seconds)
	first := &entrylog.Base{Index: 1, Term: 1, Members: &raftpb.ConfState{Voters: []uint64{1, 2, 3}}}
	for i := range 3 {
		n := newNode(s, i)
		s.nodes = append(s.nodes, n)
		s.start(n, first)
	}
	defer func() {
		for _, n := range s.nodes {
			n.closeStores()
		}
	}()
	s.beginSenders()
	s.at(2*second, nil, s.nextFault)
	s.run(s.end)
	s.tell("nothing new begins")
	s.ending = true
	s.run(s.end + 60*second)
	if s.failed == nil {
		s.finish()
	}
	s.tell("%v; digest %016x", s.covered, s.digest)
	return s
}

// run does the events up to a time.
func (s *sim) run(until int64) {
	for s.failed == nil && len(s.events) > 0 {
		if s.events[0].at > until {
			break
		}
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		switch n := e.node; {
		case n == nil:
		case !n.up || n.life != e.life:
			continue
		case s.now < n.pausedUntil:
			e.at = n.pausedUntil // events keep their order
			heap.Push(&s.events, e)
			continue
		}
		e.do()
	}
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
		s.fail("%v: %v", m, err)
		return
	}
	s.note(b)
	to := s.nodes[m.To-1]
	calm := s.now > s.end-settleFor
	if s.cut[from.n][to.n] || !calm && s.chance(0.5) {
		s.covered.messagesLost++
		return
	}
	times := 1
	if !calm && s.chance(1) {
		times = 2
		s.covered.messagesTwice++
	}
	sent := from.clock()
	for range times {
		delay := s.between(2, 20)
		if !calm && s.chance(1) {
			delay = s.between(20, 8*second)
		}
		s.at(delay, nil, func() { s.deliver(b, from.n, sent) })
	}
}

// deliver hands a message to the node of its member.
func (s *sim) deliver(b []byte, from int, sent int64) {
	m, err := replica.ParseMessage(b)
	if err != nil {
		s.fail("%v", err)
		return
	}
	to := s.nodes[m.To-1]
	if !to.up || s.cut[from][to.n] {
		return
	}
	s.at(0, to, func() { // after the node's pause
		if err := to.node.Step(to.clock(), sent, m); err != nil {
			s.fail("%v: %v", &m, err)
		}
		s.drain(to)
	})
}

// ask carries a call of a client to a node, and reply carries the answer back. Both may be lost.
func (s *sim) ask(n *node, call func()) {
	if n.up && (s.now > s.end-settleFor || !s.chance(0.5)) {
		s.at(s.between(1, 10), n, call)
	}
}

func (s *sim) reply(answer func()) {
	if s.now > s.end-settleFor || !s.chance(0.5) {
		s.at(s.between(1, 10), nil, answer)
	}
}

// leader returns the node that leads in the highest term, or nil.
func (s *sim) leader() (leader *node) {
	for _, n := range s.nodes {
		if n.up && s.now >= n.pausedUntil && n.leads.Leads && (leader == nil || n.leads.Term > leader.leads.Term) {
			leader = n
		}
	}
	return leader
}
