// Package replica is one member's part in a group that agrees on one order of entries: a driver
// around Raft (go.etcd.io/raft). Messages, ticks, "this is stored" and "this is applied" come in;
// messages to send, a write to store and entries to apply go out. It has no goroutine, no clock and
// no I/O, so a seed replays a whole group (sim_test.go). The caller provides all three:
//
//	for each event {
//		r.Tick(), r.Step(message), r.Propose(data), r.Stored(number) or r.Applied(index)
//		out, err := r.Take()
//		// send out.Messages; hand out.Write to the log, out.Apply to the state
//	}
//
// # Storing
//
// Raft offers two interfaces for this. With Ready and Advance, nothing comes out of Raft until the last
// write is on disk: a slow fsync holds up heartbeats, and the other members elect another leader. That
// interface also hands out committed entries that this member has not stored yet. So the replica
// uses the other one, local messages (AsyncStorageWrites). Ticks, heartbeats and proposals go on
// during a write, the entries that arrive meanwhile become the next write, and an entry is applied
// only if it is stored here.
//
// A message that depends on a write, such as an acknowledgement or a vote, stays inside the replica
// until Stored is called with the number of the write. So the caller may send all messages at once.
// Requests for votes wait as well, though Raft would send them: they state the length of the log,
// and after a crash the log may be shorter.
//
// A new commit index alone is worth neither a write nor a message. It is stored with the next entries,
// or after a second. Followers learn it from the next entries or heartbeat. For a while after one of
// them has asked for a barrier, the leader tells them each new commit index at once.
//
// # Elections
//
// Raft draws election timeouts from a random source of its own, which cannot be replaced. So a
// member that does not lead never ticks Raft: the replica counts the ticks since it heard from the
// leader, forgets the leader when its lease ends, and campaigns after a timeout that it draws from
// the source in Config.
//
// # Damage
//
// The library panics if the log lacks entries that this member acknowledged, or if there is a bug.
// The member is then damaged: from then on Take returns the error, and nothing else happens.
//
// Solo (solo.go) does the same for one machine, without Raft. Package entrylog is the log on disk.
package replica

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
	"github.com/freshet-io/freshet/internal/core/segment"
)

const (
	// TickEvery is the time between two ticks.
	TickEvery = 100 * time.Millisecond

	// A member campaigns when it has not heard from the leader for 1 to 2 s. A leader that has not
	// heard from a quorum for 1 s steps down.
	electionTicks  = 10
	heartbeatTicks = 1

	maxMessage     = 1 << 20  // bytes of entries in one message, unless one entry is longer
	maxInflight    = 64       // unanswered messages with entries, to one member
	maxInflightSum = 16 << 20 // bytes of entries in those messages
	maxUncommitted = 32 << 20 // bytes of entries that are proposed but that the leader has not applied
	maxApplying    = 16 << 20 // bytes of entries that are handed out but not applied yet

	commitTicks = 10 // between two writes that only store the commit index: 1 s
	askedTicks  = 10 // after a follower asked, how long followers are told at once what is committed: 1 s
)

var (
	// ErrNotLeader means that this member does not lead, or is about to hand over its leadership. The
	// caller must ask the leader.
	ErrNotLeader = errors.New("this member does not lead its group")

	// ErrFull means that too many bytes of entries already wait for the other members. The call did
	// nothing.
	ErrFull = errors.New("too many entries already wait for the other members of the group")

	// ErrDamaged means that this member must be filled again from the others.
	ErrDamaged = errors.New("this member of the group is damaged")
)

// Group lets a role take part in one order of entries. It is a Replica, or Solo on one machine. It
// is not safe for concurrent use.
type Group interface {
	// Propose asks for an entry to be added to the order, and returns its index. The data must not
	// change until the entry is applied or lost. If the index comes back in Output.Apply with Own set,
	// this entry was applied. If it comes back in Output.Lost, this entry may be applied later, or never.
	Propose(data []byte) (index uint64, err error)

	// Barrier asks for the end of the order. Once its number is in Output.Reads, every entry that was
	// acknowledged anywhere before the call is applied here. A barrier waits while there is no leader.
	Barrier() (number uint64, err error)

	// Cancel gives up a barrier. Its number is in no later Output, unless the barrier has already ended.
	Cancel(number uint64)

	// Members asks for a change of the members. The change is done when Output.Members has the new
	// ones.
	Members(voters, learners []uint64) error

	// Transfer asks another member to lead. The transfer is done when Output.Leadership names that
	// member. If that member does not answer within a second, this member goes on as the leader. Until
	// then Propose returns ErrNotLeader.
	Transfer(to uint64) error

	Tick()                 // every TickEvery
	Stored(number uint64)  // the Write with this number survives a power loss, and so do all before it
	Applied(index uint64)  // the entries of Apply up to this one are applied
	Take() (Output, error) // the work since the last Take; after ErrDamaged, always that error
}

// Output is the work that a replica has for its caller.
type Output struct {
	Messages   []Message
	Write      *Write      // nil if there is nothing to store; store it after earlier Writes
	Apply      []Committed // committed and stored here; apply them after earlier entries
	Reads      []Read
	Lost       []uint64   // indexes of proposals whose leadership ended before they were applied
	Leadership Leadership // after all of the above; a leader must drop its queue of proposals when its term ends
	Members    *Members   // nil if they have not changed
}

// Write holds entries and state that the caller stores. After that, the caller calls Stored with the
// number of the Write. The Write of a Replica belongs to the caller, so another goroutine may store it.
type Write struct {
	Number uint64
	entrylog.Write
}

// Committed is an entry to apply. A Replica hands out each index once in its life, in order and
// without gaps.
type Committed struct {
	Index, Term uint64
	Data        []byte // if empty, there is nothing to apply
	Own         bool   // proposed here, in the present leadership: its proposer can be answered
}

// Leadership says whether a member leads, or else which other member does.
type Leadership struct {
	Term   uint64
	Leader uint64 // 0 if it is not known
	Leads  bool
}

// Config configures a Replica.
type Config struct {
	ID      uint64 // of the member; never used again, not even for the same directory once it was emptied
	Applied uint64 // index of the last entry in the member's state
	Rand    *rand.Rand
	Log     entrylog.Options

	// New is where the log of a new member begins. It is nil for a member that comes back. If the
	// directory of a returning member is empty, the member has forgotten its votes, and Open returns
	// entrylog.ErrNone.
	New *entrylog.Base
}

// Replica implements Group for one member of a group of several. Solo implements it for one
// machine.
type Replica struct {
	id      uint64
	rand    *rand.Rand
	node    *raft.RawNode
	damaged error
	out     Output

	term, vote uint64
	leadership Leadership
	begun      bool           // this member leads, and an entry of its term is committed, so all earlier entries are, too
	spectator  bool           // does not campaign: see Candidate
	elapsed    int            // ticks since the leader was heard, or since the last election began
	timeout    int            // ticks
	ticks      int            // since the start
	heard      map[uint64]int // the tick at which each member last answered

	last    uint64 // index of the last entry, stored or not
	number  uint64 // of the last Write
	writes  []write
	commit  *entrylog.State // not in a Write yet, since only the commit index is new; nil if there is none
	waits   int             // ticks since commit was last nil
	acks    bool            // the present call into Raft is about stored entries: see tells
	asked   int             // ticks until followers need not be told at once what is committed: see tells
	handed  []*raftpb.Entry // to be applied
	applied uint64
	own     []uint64 // indexes of proposals of this leadership, in order

	members  members
	barriers barriers

	base  func() uint64 // index before the first entry of the log
	blind int           // heartbeats since the leader last sent anything else: see showLog
}

// write is a Write that is not stored yet.
type write struct {
	number uint64
	then   []*raftpb.Message // to be sent once it is stored
}

// Open opens the log of a member, or creates the log of a new one, and begins to take part. The
// caller closes the log.
func Open(fs segment.FS, c Config) (*Replica, *entrylog.Log, error) {
	l, err := entrylog.Open(fs, c.Log)
	if errors.Is(err, entrylog.ErrNone) && (c.New != nil || mutant.founding != nil) {
		base := c.New
		if base == nil {
			base = mutant.founding
		}
		l, err = entrylog.Create(fs, c.Log, *base)
	}
	if err == nil {
		err = l.Start(c.Applied)
	}
	if err == nil {
		err = l.CommitAlone(c.ID)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("member %d: %w", c.ID, err)
	}
	r, err := begin(l, c)
	if err != nil {
		return nil, nil, errors.Join(err, l.Close())
	}
	return r, l, nil
}

func begin(l *entrylog.Log, c Config) (r *Replica, err error) {
	r = &Replica{id: c.ID, rand: c.Rand, applied: c.Applied, last: l.Last(), base: l.Base, heard: map[uint64]int{}}
	defer r.guard(&err)
	state, members, err := l.InitialState()
	if err != nil {
		return nil, err
	}
	r.node, err = raft.NewRawNode(&raft.Config{
		ID: c.ID, ElectionTick: electionTicks, HeartbeatTick: heartbeatTicks,
		Storage: l, Applied: c.Applied, AsyncStorageWrites: true,
		MaxSizePerMsg: maxMessage, MaxCommittedSizePerReady: maxApplying, MaxUncommittedEntriesSize: maxUncommitted,
		MaxInflightMsgs: maxInflight, MaxInflightBytes: maxInflightSum,
		CheckQuorum: true, PreVote: true, ReadOnlyOption: raft.ReadOnlySafe,
		DisableProposalForwarding: true, StepDownOnRemoval: true, Logger: quiet{},
	})
	if err != nil {
		return nil, err
	}
	r.term, r.vote = state.GetTerm(), state.GetVote()
	r.leadership.Term = r.term
	r.barriers.life = c.Rand.Uint64()
	r.members.now = members
	r.members.changed(&r.out)
	r.restartTimeout()
	r.pump()
	return r, nil
}

// guard turns a panic of the library into damage.
func (r *Replica) guard(err *error) {
	if cause := recover(); cause != nil {
		r.damaged = fmt.Errorf("%w: %v\n%s", ErrDamaged, cause, debug.Stack())
		*err = r.damaged
	}
}

// do makes a call into the library: it runs f, and collects the library's output.
func (r *Replica) do(f func() error) (err error) {
	if r.damaged != nil {
		return r.damaged
	}
	defer r.guard(&err)
	err = f()
	r.pump()
	return err
}

// Take implements Group.
func (r *Replica) Take() (Output, error) {
	if r.damaged != nil {
		return Output{}, r.damaged
	}
	out := r.out
	out.Leadership = r.leadership
	r.out = Output{}
	return out, nil
}

// Step takes a message from another member. An error means that the message is bad; the member
// itself goes on.
func (r *Replica) Step(m Message) error {
	if m.body.GetTo() != r.id {
		return fmt.Errorf("member %d got a message for member %d", r.id, m.body.GetTo())
	}
	if answersOldTerm(m.body) && m.body.GetTerm() <= r.term {
		return nil // Raft would treat it as an acknowledgement
	}
	if m.body.GetType() == raftpb.MsgReadIndex && r.alone() {
		return nil // a learner's question; the learner asks again
	}
	if mutant.applyUncommitted && m.body.GetType() == raftpb.MsgApp {
		m.body.Commit = new(m.body.GetIndex() + uint64(len(m.body.GetEntries())))
	}
	r.acks = m.body.GetType() == raftpb.MsgAppResp && !m.body.GetReject()
	if m.body.GetType() == raftpb.MsgReadIndex {
		r.asked = askedTicks
	}
	_ = r.do(func() error { return r.node.Step(m.body) }) // Raft drops a message that is of no use
	r.acks = false
	if answers(m.body) && m.body.GetTerm() == r.term {
		r.heard[m.body.GetFrom()] = r.ticks
	}
	if fromLeader(m.body) && m.body.GetTerm() == r.term && m.body.GetFrom() == r.leadership.Leader {
		r.elapsed = 0
		r.showLog(m.body)
	}
	return nil
}

// blindTicks is how many heartbeats in a row show that a leader sends this member no entries.
const blindTicks = 20

// showLog tells the leader what this member has, if the leader cannot find out: its heartbeats say that it knows of
// no entry that is still in this member's log, and it sends nothing else. This happens after the member was filled
// again: the leader's log begins behind the last entry that the leader knows the member to have. What the member
// knows to be committed is the same in all logs.
func (r *Replica) showLog(m *raftpb.Message) {
	if r.blind++; m.GetType() != raftpb.MsgHeartbeat || m.GetCommit() >= r.base() {
		r.blind = 0
	}
	if r.blind < blindTicks {
		return
	}
	r.blind = 0
	r.deliver([]*raftpb.Message{{Type: raftpb.MsgAppResp.Enum(), To: new(m.GetFrom()), From: new(r.id), Term: new(r.term),
		Index: new(r.Committed())}})
}

// Tick implements Group.
func (r *Replica) Tick() {
	r.ticks++
	r.asked = max(0, r.asked-1)
	r.storeCommit()
	_ = r.do(func() error {
		if r.barriers.overdue() {
			r.ask()
		}
		if r.leadership.Leads {
			r.node.Tick()
			return nil
		}
		r.elapsed++
		if r.elapsed >= electionTicks && r.leadership.Leader != raft.None {
			_ = r.node.ForgetLeader() // the leader's lease ends: others may get this member's vote
		}
		if r.elapsed >= r.timeout {
			r.restartTimeout()
			if !r.spectator {
				_ = r.node.Campaign() // does nothing if the member has no vote
			}
		}
		return nil
	})
}

// Candidate sets whether this member may campaign. By default it may campaign. It votes in any case.
func (r *Replica) Candidate(may bool) { r.spectator = !may }

func (r *Replica) restartTimeout() {
	r.elapsed, r.timeout = 0, electionTicks+r.rand.IntN(electionTicks)
}

// Propose implements Group.
func (r *Replica) Propose(data []byte) (index uint64, err error) { return r.ProposeAll([][]byte{data}) }

// ProposeAll proposes entries that follow each other, all or none, and returns the index of the first. They share
// messages and a write.
func (r *Replica) ProposeAll(all [][]byte) (first uint64, err error) {
	proposal := &raftpb.Message{Type: raftpb.MsgProp.Enum(), From: new(r.id)}
	for _, data := range all {
		if len(data) == 0 || len(data) > entrylog.MaxEntry {
			panic(fmt.Sprintf("BUG: an entry of %d bytes is proposed", len(data)))
		}
		proposal.Entries = append(proposal.Entries, &raftpb.Entry{Data: data})
	}
	if r.damaged == nil && !r.leadership.Leads {
		return 0, ErrNotLeader
	}
	first = r.last + 1
	after := r.last + uint64(len(all))
	err = r.do(func() error {
		if err := r.node.Step(proposal); err != nil {
			return r.refused()
		}
		for index := first; index <= after; index++ {
			r.own = append(r.own, index)
		}
		return nil
	})
	if err == nil && r.last != after {
		panic(fmt.Sprintf("BUG: the proposal of entries %d to %d made %d entries", first, after, r.last+1-first))
	}
	return first, err
}

// refused() returns the error for a proposal of the leader that Raft did not take.
func (r *Replica) refused() error {
	if r.node.BasicStatus().LeadTransferee != raft.None {
		return ErrNotLeader
	}
	return ErrFull
}

// Transfer implements Group.
func (r *Replica) Transfer(to uint64) error {
	if r.damaged == nil && !r.leadership.Leads {
		return ErrNotLeader
	}
	return r.do(func() error { r.node.TransferLeader(to); return nil })
}

// Yield asks another voter to lead at once. This leader goes on until that member is elected. Unlike after
// Transfer, that member may lack entries that are not committed, which are then lost. So Yield also helps a
// leader whose entries do not get through.
func (r *Replica) Yield(to uint64) error {
	if r.damaged == nil && !r.leadership.Leads {
		return ErrNotLeader
	}
	return r.do(func() error {
		r.deliver([]*raftpb.Message{{Type: raftpb.MsgTimeoutNow.Enum(), To: new(to), From: new(r.id), Term: new(r.term)}})
		return nil
	})
}

// Last returns the index of the last entry of the log, stored or not.
func (r *Replica) Last() uint64 { return r.last }

// Stored implements Group.
func (r *Replica) Stored(number uint64) {
	if number > r.number || len(r.writes) > 0 && number < r.writes[0].number {
		panic(fmt.Sprintf("BUG: write %d is stored, of %d", number, r.number))
	}
	r.acks = true
	_ = r.do(func() error {
		for len(r.writes) > 0 && r.writes[0].number <= number {
			then := r.writes[0].then
			r.writes = r.writes[1:]
			r.deliver(then)
		}
		return nil
	})
	r.acks = false
}

// Applied implements Group.
func (r *Replica) Applied(index uint64) {
	_ = r.do(func() error {
		n := 0
		for n < len(r.handed) && r.handed[n].GetIndex() <= index {
			n++
		}
		if n == 0 {
			return nil
		}
		r.applied = r.handed[n-1].GetIndex()
		done := &raftpb.Message{Type: raftpb.MsgStorageApplyResp.Enum(),
			To: new(r.id), From: new(raft.LocalApplyThread), Entries: r.handed[:n:n]}
		r.handed = r.handed[n:]
		_ = r.node.Step(done)
		r.release()
		return nil
	})
}

// quiet discards Raft's log messages: the caller learns of leadership, members and damage from
// Take.
type quiet struct{}

func (quiet) Debug(...any)            {}
func (quiet) Debugf(string, ...any)   {}
func (quiet) Error(...any)            {}
func (quiet) Errorf(string, ...any)   {}
func (quiet) Info(...any)             {}
func (quiet) Infof(string, ...any)    {}
func (quiet) Warning(...any)          {}
func (quiet) Warningf(string, ...any) {}

func (quiet) Fatal(v ...any)                 { panic(fmt.Sprint(v...)) }
func (quiet) Fatalf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
func (quiet) Panic(v ...any)                 { panic(fmt.Sprint(v...)) }
func (quiet) Panicf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
