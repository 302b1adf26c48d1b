package replica

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
)

// ErrChanging means that the members are being changed already.
var ErrChanging = errors.New("another change of the group's members is under way")

// Members are the members of a group. Voters count for a quorum. Learners get all entries but do
// not count. While Leaving is not empty, a decision needs a quorum of Voters and a quorum of
// Leaving.
type Members struct{ Voters, Learners, Leaving []uint64 }

// members is a replica's knowledge of the group's members.
type members struct {
	now      *raftpb.ConfState
	proposed uint64 // index of the last entry that changes the members, applied or not
}

// changed(out) puts the members into the output.
func (m *members) changed(out *Output) {
	out.Members = &Members{
		Voters:   slices.Clone(m.now.GetVoters()),
		Learners: slices.Sorted(slices.Values(slices.Concat(m.now.GetLearners(), m.now.GetLearnersNext()))),
		Leaving:  slices.Clone(m.now.GetVotersOutgoing()),
	}
}

// Members implements Group. A change is one step, which needs a quorum of the old voters and a
// quorum of the new ones. So while one of three voters is swapped, the group never has two or
// four voters. Afterwards the group goes on with the new voters, without another call.
func (r *Replica) Members(voters, learners []uint64) error {
	switch {
	case r.damaged != nil:
		return r.damaged
	case !r.leadership.Leads:
		return ErrNotLeader
	case len(r.members.now.GetVotersOutgoing()) > 0 || r.members.proposed > r.applied:
		return ErrChanging
	}
	change := changeTo(r.members.now, voters, learners)
	if len(change.Changes) == 0 {
		return nil
	}
	data, err := proto.Marshal(change)
	if err == nil {
		_, err = entrylog.Change(r.members.now, data)
	}
	if err != nil {
		return fmt.Errorf("change the members to voters %v and learners %v: %w", voters, learners, err)
	}
	before := r.last
	err = r.do(func() error {
		if err := r.node.ProposeConfChange(change); err != nil {
			return r.refused()
		}
		return nil
	})
	if err == nil && r.members.proposed <= before {
		return ErrChanging // Raft replaced the change by an empty entry
	}
	return err
}

// changeTo returns the change from the present members to these voters and learners.
func changeTo(now *raftpb.ConfState, voters, learners []uint64) *raftpb.ConfChangeV2 {
	change := &raftpb.ConfChangeV2{Transition: raftpb.ConfChangeTransitionAuto.Enum()}
	add := func(what raftpb.ConfChangeType, id uint64) {
		change.Changes = append(change.Changes, &raftpb.ConfChangeSingle{Type: what.Enum(), NodeId: new(id)})
	}
	for _, id := range voters {
		if !slices.Contains(now.GetVoters(), id) {
			add(raftpb.ConfChangeAddNode, id)
		}
	}
	for _, id := range learners {
		if !slices.Contains(now.GetLearners(), id) {
			add(raftpb.ConfChangeAddLearnerNode, id)
		}
	}
	for _, id := range slices.Concat(now.GetVoters(), now.GetLearners()) {
		if !slices.Contains(voters, id) && !slices.Contains(learners, id) {
			add(raftpb.ConfChangeRemoveNode, id)
		}
	}
	if last := len(change.Changes) - 1; mutant.removeFirst && last > 0 {
		change.Changes = change.Changes[last:]
	}
	return change
}

// changeMembers applies a change that is committed.
func (r *Replica) changeMembers(data []byte) {
	change := &raftpb.ConfChangeV2{}
	if err := proto.Unmarshal(data, change); err != nil {
		panic(fmt.Sprintf("read a change of the members: %v", err))
	}
	r.members.now = r.node.ApplyConfChange(change)
	maps.DeleteFunc(r.heard, func(id uint64, _ int) bool {
		return !slices.Contains(r.members.now.GetVoters(), id) && !slices.Contains(r.members.now.GetLearners(), id)
	})
	r.members.changed(&r.out)
}

// Progress says how far the log of a member has got, as the leader knows it.
type Progress struct {
	Member uint64
	Match  uint64 // index of the last entry that the member is known to have stored
	Active bool   // the member answered in the last election timeout
}

// Progress returns the progress of all members, ascending, if this member leads. The leader itself is
// always active.
func (r *Replica) Progress() (all []Progress) {
	if r.damaged != nil || !r.leadership.Leads {
		return nil
	}
	r.node.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		// Raft's RecentActive is not this: every election timeout, Raft clears it until the next answer.
		heard, has := r.heard[id]
		all = append(all, Progress{Member: id, Match: p.Match, Active: id == r.id || has && r.ticks-heard < electionTicks})
	})
	slices.SortFunc(all, func(a, b Progress) int { return cmp.Compare(a.Member, b.Member) })
	return all
}

// Committed returns the index up to which entries are known to be committed.
func (r *Replica) Committed() uint64 {
	if r.damaged != nil {
		return r.applied
	}
	return r.node.BasicStatus().GetCommit()
}
