package replica

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
)

// pump collects output from the library until there is none left.
func (r *Replica) pump() {
	for r.node.HasReady() {
		ready := r.node.Ready()
		r.follow(&ready)
		var campaign []*raftpb.Message
		for _, m := range ready.Messages {
			switch {
			case m.GetTo() == raft.LocalAppendThread:
				r.store(m, ready.MustSync)
			case m.GetTo() == raft.LocalApplyThread:
				r.apply(m.GetEntries())
			case m.GetType() == raftpb.MsgVote || m.GetType() == raftpb.MsgPreVote:
				campaign = append(campaign, m)
			case r.tells(m):
			default:
				r.deliver([]*raftpb.Message{m})
			}
		}
		r.after(campaign)
		for i := range ready.ReadStates {
			r.confirm(&ready.ReadStates[i])
		}
	}
}

// tells(m) reports whether the message m only tells a follower what is committed. Such a message is not
// sent, unless a member has lately asked for a barrier: the next heartbeat or message with entries says
// the same. So an entry costs one message to a follower and one answer, instead of two of each.
//
// Raft also sends messages without entries to find out what a follower has. It does so after heartbeats and
// refusals, and not after entries are stored.
func (r *Replica) tells(m *raftpb.Message) bool {
	return r.acks && r.asked == 0 && m.GetType() == raftpb.MsgApp && len(m.GetEntries()) == 0
}

// follow takes over term, vote and leadership from Raft.
func (r *Replica) follow(ready *raft.Ready) {
	before := r.leadership
	if !raft.IsEmptyHardState(ready.HardState) {
		if vote := ready.GetVote(); vote != r.vote && vote != raft.None {
			r.elapsed = 0 // the candidate gets time to win
		}
		r.term, r.vote, r.leadership.Term = ready.GetTerm(), ready.GetVote(), ready.GetTerm()
	}
	if s := ready.SoftState; s != nil {
		r.leadership.Leader, r.leadership.Leads = s.Lead, s.RaftState == raft.StateLeader
	}
	if r.leadership == before {
		return
	}
	if before.Leads && (!r.leadership.Leads || r.leadership.Term != before.Term) && !mutant.answerOldTerm {
		r.out.Lost = append(r.out.Lost, r.own...)
		r.own = nil
	}
	if r.leadership.Term != before.Term || r.leadership.Leads != before.Leads {
		r.begun = false
		r.restartTimeout()
	}
	if r.leadership.Leader != raft.None && r.leadership.Leader != before.Leader && r.barriers.asking {
		r.ask()
	}
}

// store adds a message's entries and state to the next Write.
func (r *Replica) store(m *raftpb.Message, sync bool) {
	then := m.GetResponses()
	if mutant.sendBeforeStore {
		kept := then[:0:0]
		for _, m := range then {
			if m.GetTo() == r.id {
				kept = append(kept, m)
			} else {
				r.deliver([]*raftpb.Message{m})
			}
		}
		then = kept
	}
	if m.Term != nil && !mutant.forgetState {
		r.commit = &entrylog.State{Term: m.GetTerm(), Vote: m.GetVote(), Commit: m.GetCommit()}
	}
	if len(m.GetEntries()) == 0 && !sync {
		r.after(then) // a commit index may wait for the next write
		return
	}
	w := r.write()
	w.Sync = w.Sync || sync
	for i, e := range m.GetEntries() {
		if i == 0 && len(w.Entries) > 0 && e.GetIndex() <= w.Entries[len(w.Entries)-1].Index {
			w.Entries = w.Entries[:max(e.GetIndex(), w.Entries[0].Index)-w.Entries[0].Index]
		}
		change := e.GetType() == raftpb.EntryConfChangeV2
		w.Entries = append(w.Entries, entrylog.Entry{
			Index: e.GetIndex(), Term: e.GetTerm(), Change: change, Data: e.GetData()})
		r.last = e.GetIndex()
		if change {
			r.members.proposed = r.last
		}
		if mutant.applyUnstored {
			r.out.Apply = append(r.out.Apply, Committed{e.GetIndex(), e.GetTerm(), e.GetData(), r.isOwn(e)})
		}
	}
	r.after(then)
}

// write returns the next Write, which has the state.
func (r *Replica) write() *Write {
	w := r.out.Write
	if w == nil {
		r.number++
		w = &Write{Number: r.number}
		r.out.Write = w
		r.writes = append(r.writes, write{number: r.number})
	}
	if r.commit != nil {
		w.State, r.commit = r.commit, nil
	}
	return w
}

// storeCommit stores a commit index that no other write has stored for a while. A start then finds most of what
// was committed; it learns the rest from the leader.
func (r *Replica) storeCommit() {
	if r.waits++; r.commit == nil {
		r.waits = 0
	}
	if r.waits >= commitTicks && r.damaged == nil {
		r.write()
		r.waits = 0
	}
}

// after(messages) delivers messages that depend on writes, once all writes up to now are stored.
func (r *Replica) after(messages []*raftpb.Message) {
	if len(r.writes) == 0 {
		r.deliver(messages)
		return
	}
	w := &r.writes[len(r.writes)-1]
	w.then = append(w.then, messages...)
}

// deliver sends the messages for other members, and handles the messages for this one. If this member no
// longer leads, Raft passes on another member's question for the end of the order, with that member as
// the sender. deliver drops such a message, since others refuse it as forged. The member that asked asks
// again.
func (r *Replica) deliver(messages []*raftpb.Message) {
	for _, m := range messages {
		switch {
		case m.GetTo() == r.id:
			_ = r.node.Step(m)
		case m.GetFrom() == r.id:
			r.out.Messages = append(r.out.Messages, newMessage(m))
		}
	}
}

// apply hands out committed entries.
func (r *Replica) apply(entries []*raftpb.Entry) {
	r.handed = append(r.handed, entries...)
	for _, e := range entries {
		out := Committed{Index: e.GetIndex(), Term: e.GetTerm(), Own: r.isOwn(e)}
		switch e.GetType() {
		case raftpb.EntryNormal:
			out.Data = e.GetData()
		case raftpb.EntryConfChangeV2:
			r.changeMembers(e.GetData())
		default:
			panic(fmt.Sprintf("entry %d has type %v", e.GetIndex(), e.GetType()))
		}
		if !mutant.applyUnstored {
			r.out.Apply = append(r.out.Apply, out)
		}
		if r.leadership.Leads && !r.begun && e.GetTerm() == r.term {
			if r.begun = true; r.barriers.asking {
				r.ask()
			}
		}
	}
}

// isOwn reports whether the entry was proposed here in the present leadership.
func (r *Replica) isOwn(e *raftpb.Entry) bool {
	for len(r.own) > 0 && r.own[0] < e.GetIndex() {
		r.own = r.own[1:]
	}
	if len(r.own) == 0 || r.own[0] != e.GetIndex() || e.GetTerm() != r.term && !mutant.answerOldTerm {
		return false
	}
	r.own = r.own[1:]
	return true
}
