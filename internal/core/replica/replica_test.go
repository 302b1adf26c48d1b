package replica

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

// group is a few members without a network: a message arrives at once.
type group struct {
	t       testing.TB
	members []*member
}

type member struct {
	*Replica
	log     *entrylog.Log
	out     []Output // all of it
	writes  []*Write // not stored yet, because slow is set
	slow    bool     // stores nothing
	parted  bool     // no message arrives or leaves
	applied []string
}

func newGroup(t testing.TB, n int) *group {
	t.Helper()
	g := &group{t: t}
	base := &entrylog.Base{Index: 1, Term: 1, Members: &raftpb.ConfState{}}
	for id := uint64(1); id <= uint64(n); id++ {
		base.Members.Voters = append(base.Members.Voters, id)
	}
	for id := uint64(1); id <= uint64(n); id++ {
		g.add(id, base)
	}
	return g
}

func (g *group) add(id uint64, base *entrylog.Base) *member {
	g.t.Helper()
	r, l, err := Open(memfs.New(), Config{
		ID: id, Applied: 1, New: base, Rand: rand.New(rand.NewPCG(id, 5)), Log: entrylog.Options{Mark: 7}})
	if err != nil {
		g.t.Fatal(err)
	}
	m := &member{Replica: r, log: l}
	g.members = append(g.members, m)
	return m
}

// take does the work that one member has, and returns its messages.
func (g *group) take(m *member) []Message {
	g.t.Helper()
	out, err := m.Take()
	if err != nil {
		g.t.Fatal(err)
	}
	m.out = append(m.out, out)
	if out.Write != nil {
		m.writes = append(m.writes, out.Write)
	}
	for _, e := range out.Apply {
		if len(e.Data) > 0 {
			m.applied = append(m.applied, fmt.Sprintf("%.20s %v", e.Data, e.Own))
		}
		m.Applied(e.Index)
	}
	if !m.slow {
		g.store(m)
	}
	return out.Messages
}

func (g *group) store(m *member) {
	g.t.Helper()
	for _, w := range m.writes {
		if err := m.log.Append(&w.Write); err != nil {
			g.t.Fatal(err)
		}
		m.Stored(w.Number)
	}
	m.writes = nil
}

// settle delivers messages until no member has any.
// settle returns how many messages were sent.
func (g *group) settle() (messages int) {
	g.t.Helper()
	for silent := 0; silent < 2; silent++ {
		for _, m := range g.members {
			for _, message := range g.take(m) {
				silent = 0
				messages++
				g.deliver(m, message)
			}
		}
	}
	return messages
}

func (g *group) deliver(from *member, message Message) {
	g.t.Helper()
	b, err := message.Append(nil)
	if err != nil {
		g.t.Fatal(err)
	}
	parsed, err := ParseMessage(b)
	if err != nil {
		g.t.Fatal(err)
	}
	for _, m := range g.members {
		if m.id == message.To && !m.parted && !from.parted {
			if err := m.Step(parsed); err != nil {
				g.t.Fatal(err)
			}
		}
	}
}

func (g *group) tick(n int) {
	g.t.Helper()
	for range n {
		for _, m := range g.members {
			m.Tick()
		}
		g.settle()
	}
}

// elect lets ticks pass until there is a leader, and returns the leader and the others.
func (g *group) elect() (leader *member, others []*member) {
	g.t.Helper()
	for range 100 {
		g.tick(1)
		for i, m := range g.members {
			if m.leadership.Leads && !m.parted {
				return m, slices.Delete(slices.Clone(g.members), i, i+1)
			}
		}
	}
	g.t.Fatal("nobody leads")
	return nil, nil
}

func (g *group) propose(m *member, data string) uint64 {
	g.t.Helper()
	index, err := m.Propose([]byte(data))
	if err != nil {
		g.t.Fatal(err)
	}
	return index
}

// All members apply the same entries, and the proposer knows which are its own.
func TestPropose(t *testing.T) {
	g := newGroup(t, 3)
	leader, others := g.elect()
	first, second := g.propose(leader, "one"), g.propose(leader, "two")
	g.settle()
	g.tick(1) // the heartbeat says that they are committed
	if second != first+1 || !slices.Equal(leader.applied, []string{"one true", "two true"}) {
		t.Errorf("entries %d and %d: the leader applied %q, want both as its own", first, second, leader.applied)
	}
	for _, m := range others {
		if !slices.Equal(m.applied, []string{"one false", "two false"}) {
			t.Errorf("member %d: %q", m.id, m.applied)
		}
		if _, err := m.Propose([]byte("three")); !errors.Is(err, ErrNotLeader) {
			t.Errorf("member %d: %v", m.id, err)
		}
		if m.leadership.Leader != leader.id {
			t.Errorf("member %d takes member %d for the leader, want %d", m.id, m.leadership.Leader, leader.id)
		}
	}
}

// Entries that are proposed at once share the message to each follower, its answer and a write. The
// followers learn from the next heartbeat or entry that these entries are committed. Then only the
// followers' commit index is new, and they need not write it at once.
func TestEntriesShareMessages(t *testing.T) {
	g := newGroup(t, 3)
	leader, others := g.elect()
	g.tick(commitTicks + 1)
	before := len(others[0].out)
	if first, err := leader.ProposeAll([][]byte{[]byte("one"), []byte("two")}); err != nil || first != leader.Last()-1 {
		t.Fatal(first, leader.Last(), err)
	}
	if n := g.settle(); n != 4 {
		t.Errorf("two entries cost %d messages, want one message and one answer for each of two followers", n)
	}
	if len(leader.applied) != 2 || len(others[0].applied) != 0 {
		t.Errorf("the leader has applied %q, a follower %q", leader.applied, others[0].applied)
	}
	writes := func() (entries, states int) {
		for _, out := range others[0].out[before:] {
			if w := out.Write; w != nil && len(w.Entries) > 0 {
				entries++
			} else if w != nil {
				states++
			}
		}
		return entries, states
	}
	if g.tick(1); len(others[0].applied) != 2 {
		t.Errorf("after a heartbeat, a follower has applied %q", others[0].applied)
	}
	if entries, states := writes(); entries != 1 || states != 0 {
		t.Errorf("a follower writes entries %d times, and the commit index alone %d times", entries, states)
	}
	g.tick(commitTicks)
	if entries, states := writes(); entries != 1 || states != 1 {
		t.Errorf("after a second, a follower has written the commit index alone %d times", states)
	}
	if _, err := others[0].ProposeAll([][]byte{[]byte("three")}); !errors.Is(err, ErrNotLeader) {
		t.Errorf("a follower's proposal: error %v", err)
	}
}

// While a follower asks for barriers, it is told at once what is committed.
func TestReadersDoNotWaitForAHeartbeat(t *testing.T) {
	g := newGroup(t, 3)
	leader, others := g.elect()
	if _, err := others[0].Barrier(); err != nil {
		t.Fatal(err)
	}
	g.settle()
	g.propose(leader, "one")
	if g.settle(); len(others[0].applied) != 1 || len(others[1].applied) != 1 {
		t.Errorf("followers have applied %q and %q", others[0].applied, others[1].applied)
	}
	g.tick(askedTicks)
	g.propose(leader, "two")
	if g.settle(); len(others[0].applied) != 1 {
		t.Errorf("a second after the last barrier, a follower has applied %q, want one entry", others[0].applied)
	}
}

// A member acknowledges and applies an entry only once it is on its own disk, even if the others
// have committed it. Meanwhile it answers heartbeats, and the entries that arrive become one write.
func TestASlowDiskHoldsBackOnlyWhatDependsOnIt(t *testing.T) {
	g := newGroup(t, 3)
	leader, others := g.elect()
	slow := others[0]
	slow.slow = true
	for _, data := range []string{"one", "two", "three"} {
		g.propose(leader, data)
		g.settle()
	}
	g.tick(1)
	if len(leader.applied) != 3 || len(others[1].applied) != 3 || len(slow.applied) != 0 {
		t.Errorf("the leader applied %q, a follower %q, want 3 each; the member with the slow disk %q, want none",
			leader.applied, others[1].applied, slow.applied)
	}
	writes := len(slow.writes)
	leader.Tick()
	for _, m := range g.take(leader) {
		g.deliver(leader, m)
	}
	said := g.take(slow)
	if len(said) != 1 || !strings.HasPrefix(said[0].String(), "MsgHeartbeatResp") {
		t.Errorf("a heartbeat is answered with %v, want one MsgHeartbeatResp", said)
	}
	slow.slow = false
	g.settle()
	if g.tick(1); len(slow.applied) != 3 || writes < 3 {
		t.Errorf("%d writes waited for the slow disk, want at least 3; then the member applied %q, want 3",
			writes, slow.applied)
	}

	// The same holds for the leader and its own disk.
	leader.slow = true
	for _, data := range []string{"four", "five"} {
		g.propose(leader, data)
	}
	g.settle()
	g.tick(1)
	if len(leader.applied) != 3 || len(slow.applied) != 5 {
		t.Errorf("the leader's disk is slow: the leader applied %q, want 3; another member %q, want 5",
			leader.applied, slow.applied)
	}
	if n := len(leader.writes[0].Entries); n != 2 {
		t.Errorf("the first write has %d entries, want the two that were proposed at once", n)
	}
	leader.slow = false
	if g.settle(); len(leader.applied) != 5 {
		t.Errorf("applied %q", leader.applied)
	}
}

// A candidate asks for votes only once its own vote is on disk: otherwise a crash might shorten its
// log, or let it vote again.
func TestVotesWaitForTheDisk(t *testing.T) {
	g := newGroup(t, 3)
	for _, m := range g.members {
		m.slow = true
	}
	for range 40 {
		g.members[0].Tick()
		for _, m := range g.take(g.members[0]) {
			if m.body.GetType() == raftpb.MsgVote {
				t.Fatal("a candidate asks for a vote before its own vote is stored")
			}
			g.deliver(g.members[0], m)
		}
		for _, m := range g.members[1:] {
			for _, message := range g.take(m) {
				if message.body.GetType() == raftpb.MsgVoteResp {
					t.Fatal("a vote is given before it is stored")
				}
				g.deliver(m, message)
			}
		}
	}
	if n := len(g.members[0].writes); n == 0 {
		t.Fatal("the candidate has nothing to write, want its vote")
	}
	for _, m := range g.members {
		m.slow = false
	}
	g.elect()
}

// When a leadership ends, its proposals end. Each is reported lost once. None is confused with the entry
// that the next leader puts at the same index.
func TestProposalsEndWithTheTerm(t *testing.T) {
	g := newGroup(t, 3)
	leader, others := g.elect()
	leader.parted = true
	first := g.propose(leader, "lost one")
	g.propose(leader, "lost two")
	g.settle()
	for !others[0].leadership.Leads && !others[1].leadership.Leads {
		g.tick(1)
	}
	next := others[0]
	if others[1].leadership.Leads {
		next = others[1]
	}
	if index := g.propose(next, "another"); index != first+1 { // behind the empty entry of its term
		t.Fatalf("the next leader proposed entry %d, want %d", index, first+1)
	}
	g.settle()
	leader.parted = false
	leader.out = nil
	g.tick(3)
	var lost []uint64
	for _, out := range leader.out {
		lost = append(lost, out.Lost...)
	}
	if len(lost) == 0 { // empty if the leader stepped down before it heard the others
		t.Error("no proposal is reported lost, want both")
	}
	if !slices.Equal(leader.applied, []string{"another false"}) || leader.leadership.Leads {
		t.Errorf("applied %q", leader.applied)
	}
}

// If a member's log lacks an entry that the member acknowledged, the log is damaged. From then on each
// Take reports the damage, and the member does nothing else.
func TestDamage(t *testing.T) {
	g := newGroup(t, 3)
	leader, others := g.elect()
	m := others[0]
	lie := &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(),
		From: &leader.id, To: &m.id, Term: &m.term, Commit: new(uint64(1000))}
	if err := m.Step(newMessage(lie)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		out, err := m.Take()
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "1000") ||
			len(out.Messages) > 0 || out.Write != nil {
			t.Errorf("%v, %+v", err, out)
		}
		for range 50 {
			m.Tick()
		}
		m.Stored(m.number)
		m.Applied(1)
	}
	_, proposed := m.Propose([]byte("x"))
	_, asked := m.Barrier()
	for _, err := range []error{proposed, asked, m.Members(nil, nil), m.Transfer(1)} {
		if !errors.Is(err, ErrDamaged) {
			t.Error(err)
		}
	}
}

// A member whose disk is empty has forgotten its votes. It must not begin anew by itself.
func TestAnEmptyDirectoryIsNoMember(t *testing.T) {
	_, _, err := Open(memfs.New(), Config{ID: 2, Applied: 1, Rand: rand.New(rand.NewPCG(1, 1))})
	if !errors.Is(err, entrylog.ErrNone) || !strings.Contains(err.Error(), "member 2") {
		t.Error(err)
	}
}

// While the other members do not answer, the bytes of proposals are bounded. All proposals within the
// bound are kept.
func TestFull(t *testing.T) {
	g := newGroup(t, 3)
	leader, others := g.elect()
	others[0].parted, others[1].parted = true, true
	data := make([]byte, 4<<20)
	n := 0
	for ; n < 100; n++ {
		if _, err := leader.Propose(data); err != nil {
			if !errors.Is(err, ErrFull) {
				t.Fatal(err)
			}
			break
		}
		g.settle()
	}
	if want := maxUncommitted / len(data); n != want {
		t.Fatalf("%d proposals of %d bytes are accepted, want %d", n, len(data), want)
	}
	others[0].parted = false
	g.tick(3)
	if len(leader.applied) != n {
		t.Errorf("%d of %d proposals were applied, want all", len(leader.applied), n)
	}
	g.propose(leader, "again")
}

// A barrier waits until there is a leader, and then until all committed entries are applied here.
func TestBarrier(t *testing.T) {
	g := newGroup(t, 3)
	early, err := g.members[2].Barrier()
	if err != nil {
		t.Fatal(err)
	}
	leader, others := g.elect()
	g.tick(askAgain)
	if got := g.members[2].reads(); len(got) != 1 || got[0].Barrier != early {
		t.Errorf("after the election, the ended barriers are %v, want barrier %d", got, early)
	}

	m := others[0]
	m.slow = true // the member gets the leader's answer, but cannot apply entries
	index := g.propose(leader, "one")
	g.settle()
	m.out = nil
	number, _ := m.Barrier()
	g.tick(3)
	if got := m.reads(); len(got) != 0 {
		t.Errorf("barriers ended before their index was applied: %v, want none", got)
	}
	m.slow = false
	g.settle()
	if got := m.reads(); len(got) != 1 || got[0].Barrier != number || got[0].Index < index {
		t.Errorf("after the index is applied, the ended barriers are %v, want barrier %d at index %d or higher",
			got, number, index)
	}

	// A leader that was cut off from the others cannot know where the order ends.
	leader.parted, leader.out = true, nil
	if _, err := leader.Barrier(); err != nil {
		t.Fatal(err)
	}
	for range 9 {
		leader.Tick()
		g.settle()
	}
	if got := leader.reads(); len(got) != 0 || !leader.leadership.Leads {
		t.Errorf("the leader is cut off, but barriers ended: %v, want none", got)
	}
}

// A member asks another one, which no longer leads, for the end of the order. The asked member does not
// pass the question on: its node would send a message in the name of another member, and all nodes
// refuse such messages. When questions were still passed on, one of them stayed at the front of a node's
// queue, and no message behind it was sent.
func TestAQuestionIsNotPassedOn(t *testing.T) {
	g := newGroup(t, 3)
	_, others := g.elect()
	asking, asked := others[0], others[1]
	if _, err := asking.Barrier(); err != nil {
		t.Fatal(err)
	}
	questions := g.take(asking)
	if len(questions) != 1 {
		t.Fatalf("a barrier sends %v, want one question", questions)
	}
	questions[0].To, questions[0].body.To = asked.id, &asked.id
	g.deliver(asking, questions[0])
	if sent := g.take(asked); len(sent) > 0 {
		t.Errorf("member %d passes on %v, want nothing", asked.id, sent)
	}
	g.tick(askAgain)
	if got := asking.reads(); len(got) != 1 {
		t.Errorf("the barriers that ended are %v, want one", got)
	}
}

// A cancelled barrier does not end, and takes no place any more, no matter what the barrier was waiting
// for.
func TestACancelledBarrier(t *testing.T) {
	g := newGroup(t, 3)
	m := g.members[2]
	begin := func() uint64 {
		t.Helper()
		number, err := m.Barrier()
		if err != nil {
			t.Fatal(err)
		}
		return number
	}
	asked, kept := begin(), begin()
	for range maxBarriers {
		m.Cancel(begin())
	}
	m.Cancel(asked)
	leader, others := g.elect()
	g.tick(askAgain)
	if got := m.reads(); len(got) != 1 || got[0].Barrier != kept {
		t.Errorf("barriers %v ended, want only %d, which was not cancelled", got, kept)
	}
	m = others[0]
	m.slow = true
	g.propose(leader, "one")
	g.settle()
	m.out = nil
	known := begin()
	g.tick(3)
	m.Cancel(known)
	m.Cancel(known)
	m.slow = false
	g.settle()
	if b := &m.barriers; len(m.reads()) > 0 || len(b.asked)+len(b.waiting)+len(b.known) > 0 {
		t.Errorf("a cancelled barrier ended, or still takes a place: %+v", b)
	}
}

// The commit index needs no sync. So after a crash of the only voter, it may be lower than the last
// entry that the voter acknowledged. Until an entry of the new term is stored, no barrier may end,
// neither the voter's own nor a learner's. TestGroupOfOne found this fault.
func TestABarrierOfTheOnlyVoter(t *testing.T) {
	g := newGroup(t, 1)
	m := g.members[0]
	asks := func() (answers int) {
		question := &raftpb.Message{Type: raftpb.MsgReadIndex.Enum(),
			From: new(uint64(2)), To: &m.id, Entries: []*raftpb.Entry{{Data: []byte("?")}}}
		if err := m.Step(newMessage(question)); err != nil {
			t.Fatal(err)
		}
		for _, said := range g.take(m) {
			if said.body.GetType() == raftpb.MsgReadIndexResp {
				answers++
			}
		}
		return answers
	}
	for range 2 { // the same in each of two terms
		m.out, m.slow = nil, true
		for !m.leadership.Leads {
			m.Tick()
			g.take(m)
			if n := len(m.writes); n > 0 && len(m.writes[n-1].Entries) == 0 {
				g.store(m) // its vote
			}
		}
		if _, err := m.Barrier(); err != nil {
			t.Fatal(err)
		}
		if n := asks(); n > 0 || len(m.reads()) > 0 {
			t.Errorf("before the entry of the term is stored: %d answers, ended barriers %v, want none", n, m.reads())
		}
		m.slow = false
		g.settle()
		if n := asks(); n != 1 || len(m.reads()) != 1 || m.reads()[0].Index != m.last {
			t.Errorf("after the entry of the term is stored: %d answers, ended barriers %v, want 1 each, at %d",
				n, m.reads(), m.last)
		}
		other := &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(2)), To: &m.id, Term: new(m.term + 1)}
		if err := m.Step(newMessage(other)); err != nil || m.leadership.Leads {
			t.Fatalf("%v, %+v", err, m.leadership)
		}
		g.settle()
	}
}

func (m *member) reads() (list []Read) {
	for _, out := range m.out {
		list = append(list, out.Reads...)
	}
	return list
}

// Each life of a member numbers its questions anew. A late answer to a question of an earlier life
// must not end a barrier of this life: the index in that answer is too low.
func TestAnAnswerToAnEarlierLife(t *testing.T) {
	g := newGroup(t, 3)
	leader, others := g.elect()
	m := others[0]
	if _, err := m.Barrier(); err != nil {
		t.Fatal(err)
	}
	g.take(m) // the question is lost
	m.out = nil
	earlier := m.barriers
	earlier.life++
	for _, answer := range []*barriers{&earlier, &m.barriers} {
		late := &raftpb.Message{Type: raftpb.MsgReadIndexResp.Enum(), From: &leader.id, To: &m.id, Term: &m.term,
			Index: new(uint64(1)), Entries: []*raftpb.Entry{{Data: answer.question()}}}
		if err := m.Step(newMessage(late)); err != nil {
			t.Fatal(err)
		}
		g.take(m)
		if got, want := len(m.reads()) > 0, answer == &m.barriers; got != want {
			t.Errorf("an answer to life %x ends a barrier of life %x: %v, want %v",
				answer.life, m.barriers.life, got, want)
		}
	}
}

// A member answers a late heartbeat of an earlier term with only the newer term. Suppose that the
// heartbeat's sender leads again, and has not heard from the member since. Then Raft takes the answer as
// an acknowledgement of entry 0, goes back to the first entry, which may have been removed, and is
// stuck. The simulation found this fault with seed 265.
func TestAnAnswerToAnOldTermIsNoAcknowledgement(t *testing.T) {
	g := newGroup(t, 3)
	leader, others := g.elect()
	for i := range 300 {
		g.propose(leader, fmt.Sprint(i))
		g.settle()
	}
	// The old leader leads again, in another term, and probes the others.
	others[0].parted, others[1].parted = true, true
	term := leader.term
	for leader.leadership.Leads {
		g.tick(1)
	}
	others[0].parted = false
	for leader.term == term || !leader.leadership.Leads {
		others[0].elapsed = 0 // so that it does not campaign
		g.tick(1)
	}
	bare := &raftpb.Message{Type: raftpb.MsgAppResp.Enum(), From: &others[1].id, To: &leader.id, Term: new(leader.term)}
	if err := leader.Step(newMessage(bare)); err != nil {
		t.Fatal(err)
	}
	for _, m := range g.take(leader) {
		if m.To == others[1].id && m.body.GetType() == raftpb.MsgApp && m.body.GetIndex() < 100 {
			t.Errorf("the leader sends entries from %d on, want only the last of its %d entries",
				m.body.GetIndex()+1, leader.last)
		}
	}
	if next := leader.node.Status().Progress[others[1].id].Next; next < 100 {
		t.Errorf("the leader goes back to entry %d of its %d entries, want at least entry 100", next, leader.last)
	}
}

// One change swaps a voter, and needs a quorum of both the old voters and the new. Only the leader makes
// changes, one after the other.
func TestMembers(t *testing.T) {
	g := newGroup(t, 3)
	leader, others := g.elect()
	fourth := g.add(4, &entrylog.Base{Index: 1, Term: 1, Members: &raftpb.ConfState{Voters: []uint64{1, 2, 3}}})
	if err := others[0].Members([]uint64{1, 2, 3}, []uint64{4}); !errors.Is(err, ErrNotLeader) {
		t.Error(err)
	}
	if err := leader.Members([]uint64{1, 2, 3}, nil); err != nil || leader.members.proposed != 0 {
		t.Errorf("a change that keeps the present members: got error %v, want no error and no proposal", err)
	}
	if err := leader.Members(nil, nil); err == nil {
		t.Error("a change to a group without voters is accepted, want an error")
	}
	if err := leader.Members([]uint64{1, 2, 3}, []uint64{4}); err != nil {
		t.Fatal(err)
	}
	if err := leader.Members([]uint64{1, 2, 3}, nil); !errors.Is(err, ErrChanging) {
		t.Errorf("a second change while the first is under way: %v, want ErrChanging", err)
	}
	g.propose(leader, "one")
	g.tick(5)
	if !slices.Equal(fourth.applied, []string{"one false"}) {
		t.Errorf("the learner applied %q, want only the first entry", fourth.applied)
	}
	gone := others[0]
	voters := []uint64{leader.id, others[1].id, 4}
	slices.Sort(voters)
	if err := leader.Members(voters, []uint64{gone.id}); err != nil {
		t.Fatal(err)
	}
	leader.out = nil
	g.tick(5)
	var story []string
	for _, out := range leader.out {
		if out.Members != nil {
			story = append(story, fmt.Sprint(*out.Members))
		}
	}
	want := []string{
		fmt.Sprint(Members{voters, []uint64{gone.id}, []uint64{1, 2, 3}}),
		fmt.Sprint(Members{voters, []uint64{gone.id}, []uint64{}})}
	if !slices.Equal(story, want) {
		t.Errorf("%q\nwant %q", story, want)
	}
	// A learner neither votes nor campaigns, and keeps up.
	others[1].parted = true
	g.propose(leader, "two")
	g.tick(40)
	if !slices.Equal(gone.applied, []string{"one false", "two false"}) || gone.leadership.Leads {
		t.Errorf("the member that became a learner has applied %q, want one and two", gone.applied)
	}
	fourth.parted = true
	g.propose(leader, "three")
	if g.tick(5); len(gone.applied) != 2 {
		t.Errorf("without a quorum of the voters, the learner applied %q, want no third entry", gone.applied)
	}
}

// After a transfer another member leads within a round of messages. If that member does not answer, the
// old leader keeps the leadership.
func TestTransfer(t *testing.T) {
	g := newGroup(t, 3)
	leader, others := g.elect()
	if err := others[0].Transfer(others[1].id); !errors.Is(err, ErrNotLeader) {
		t.Error(err)
	}
	others[1].parted = true
	if err := leader.Transfer(others[1].id); err != nil {
		t.Fatal(err)
	}
	if _, err := leader.Propose([]byte("x")); !errors.Is(err, ErrNotLeader) {
		t.Errorf("a proposal while the leader hands over: %v, want ErrNotLeader", err)
	}
	g.tick(electionTicks)
	g.propose(leader, "y")
	g.settle()
	if err := leader.Transfer(others[0].id); err != nil {
		t.Fatal(err)
	}
	if g.settle(); !others[0].leadership.Leads || leader.leadership.Leads {
		t.Errorf("%+v, %+v", leader.leadership, others[0].leadership)
	}
}

// At every moment, the leader knows which members answered in the last election timeout. So a leader that stops finds
// a successor.
func TestTheLeaderKnowsWhoAnswers(t *testing.T) {
	g := newGroup(t, 3)
	leader, others := g.elect()
	active := func() (all []uint64) {
		for _, p := range leader.Progress() {
			if p.Active {
				all = append(all, p.Member)
			}
		}
		return all
	}
	for tick := range 3 * electionTicks {
		leader.Tick()
		if got := active(); !slices.Equal(got, []uint64{1, 2, 3}) {
			t.Errorf("tick %d: members %v answer, want all", tick, got)
		}
		g.settle()
	}
	others[0].parted = true
	g.tick(electionTicks)
	if got := active(); len(got) != 2 || slices.Contains(got, others[0].id) {
		t.Errorf("member %d is away, and %v answer", others[0].id, got)
	}
}

// A member that was away does not disturb the leader when it returns: it asks the others before it
// raises the term. A member that hears its leader votes for no other.
func TestAReturnDisturbsNobody(t *testing.T) {
	g := newGroup(t, 3)
	leader, others := g.elect()
	term := leader.term
	others[0].parted = true
	g.tick(200)
	others[0].parted = false
	g.tick(30)
	if !leader.leadership.Leads || leader.term != term || others[0].term != term {
		t.Errorf("the term went from %d to %d, and the leadership is %+v, want no change",
			term, leader.term, leader.leadership)
	}
}

// A leader without a quorum steps down within two election timeouts, and reports it.
func TestALeaderAloneStepsDown(t *testing.T) {
	g := newGroup(t, 3)
	leader, others := g.elect()
	others[0].parted, others[1].parted = true, true
	g.tick(2 * electionTicks)
	if leader.leadership.Leads || leader.leadership.Leader != 0 {
		t.Errorf("%+v", leader.leadership)
	}
}

// Only the random source in a member's Config decides when the member campaigns.
func TestTimeoutsFollowTheSource(t *testing.T) {
	campaign := func(seed uint64) (ticks int) {
		base := &entrylog.Base{Index: 1, Term: 1, Members: &raftpb.ConfState{Voters: []uint64{1, 2, 3}}}
		r, _, err := Open(memfs.New(), Config{ID: 1, Applied: 1, New: base, Rand: rand.New(rand.NewPCG(seed, 0))})
		if err != nil {
			t.Fatal(err)
		}
		for {
			ticks++
			r.Tick()
			if out, _ := r.Take(); len(out.Messages) > 0 {
				return ticks
			}
		}
	}
	seen := map[int]bool{}
	for seed := range uint64(100) {
		n := campaign(seed)
		if n < electionTicks || n >= 2*electionTicks || campaign(seed) != n {
			t.Errorf("seed %d: a campaign after %d ticks, and with the same seed again after %d, want the same",
				seed, n, campaign(seed))
		}
		seen[n] = true
	}
	if len(seen) != electionTicks {
		t.Errorf("%d different timeouts, want all that are possible", len(seen))
	}
}

// A message that no member would send is refused.
func TestMessages(t *testing.T) {
	g := newGroup(t, 3)
	g.elect()
	for name, m := range map[string]*raftpb.Message{
		"a local message": {Type: raftpb.MsgHup.Enum()},
		"a proposal":      {Type: raftpb.MsgProp.Enum(), Entries: []*raftpb.Entry{{Data: []byte("x")}}},
		"a snapshot":      {Type: raftpb.MsgApp.Enum(), Snapshot: &raftpb.Snapshot{}},
		"no sender":       {Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(0))},
		"a local sender":  {Type: raftpb.MsgHeartbeat.Enum(), From: new(^uint64(0))},
		"no term":         {Type: raftpb.MsgHeartbeat.Enum(), Term: new(uint64(0))},
		"a short context": {Type: raftpb.MsgHeartbeatResp.Enum(), Context: []byte{1}},
		"no question":     {Type: raftpb.MsgReadIndexResp.Enum()},
		"a gap of entries": {Type: raftpb.MsgApp.Enum(),
			Entries: []*raftpb.Entry{{Index: new(uint64(7)), Term: new(uint64(1))}}},
		"entries of a later term": {Type: raftpb.MsgApp.Enum(),
			Entries: []*raftpb.Entry{{Index: new(uint64(1)), Term: new(uint64(9))}}},
	} {
		m.To = new(uint64(1))
		if m.From == nil {
			m.From = new(uint64(2))
		}
		if m.Term == nil {
			m.Term = new(uint64(3))
		}
		b, err := (&Message{body: m}).Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseMessage(b); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if err := g.members[0].Step(newMessage(&raftpb.Message{To: new(uint64(2))})); err == nil {
		t.Error("a message for another member is accepted, want an error")
	}
	urgent := newMessage(&raftpb.Message{Type: raftpb.MsgHeartbeat.Enum()})
	bulk := newMessage(&raftpb.Message{Type: raftpb.MsgApp.Enum()})
	if !urgent.Urgent || bulk.Urgent {
		t.Error("a heartbeat is not urgent, or a message with entries is")
	}
}

// Whatever bytes another member sends, this member refuses them, takes them, or becomes damaged and
// reports it. The process goes on in each case.
func FuzzMessage(f *testing.F) {
	g := newGroup(f, 3)
	leader, _ := g.elect()
	g.propose(leader, "one")
	for _, m := range g.members {
		m.Tick()
		out, _ := m.Take()
		for _, message := range out.Messages {
			b, err := message.Append(nil)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b, true)
			f.Add(bytes.ReplaceAll(b, []byte{1}, []byte{2}), false)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, toLeader bool) {
		readAsProtobuf(t, b)
		m, err := ParseMessage(b)
		if err != nil {
			return
		}
		g := newGroup(t, 3)
		leader, others := g.elect()
		to := others[0]
		if toLeader {
			to = leader
		}
		m.body.To = &to.id
		if err := to.Step(m); err != nil {
			t.Fatal(err)
		}
		to.Tick()
		if _, err := to.Take(); err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
	})
}

// readAsProtobuf checks that a message is read as protobuf reads it, and that it is the same once it is encoded and
// read again.
func readAsProtobuf(t *testing.T, b []byte) {
	t.Helper()
	var want raftpb.Message
	failure := proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, &want)
	got, err := parseMessage(b)
	if (err == nil) != (failure == nil) || err == nil && !proto.Equal(got, &want) {
		t.Fatalf("read as %v, error %v; want %v, error %v", got, err, &want, failure)
	}
	if err != nil {
		return
	}
	for _, e := range got.GetEntries() { // members set all fields
		e.Type, e.Term, e.Index = new(e.GetType()), new(e.GetTerm()), new(e.GetIndex())
		e.Data = append([]byte{}, e.GetData()...)
	}
	again, err := (&Message{body: got}).Append([]byte("before"))
	if err != nil || !bytes.HasPrefix(again, []byte("before")) {
		t.Fatal(again, err)
	}
	var is raftpb.Message
	if err := proto.Unmarshal(again[len("before"):], &is); err != nil || !proto.Equal(got, &is) {
		t.Fatalf("encoded and read as %v, error %v; want %v", &is, err, got)
	}
}
