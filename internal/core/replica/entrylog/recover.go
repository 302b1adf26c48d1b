package entrylog

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// ErrAlone means that a member is the only one of its group already.
var ErrAlone = errors.New("the group has no other member")

// Recover makes a member the only one of its group, since most of the others are gone for good. All entries of its
// log count as committed from then on, although the others may not have had them. The changes of the members
// follow these entries. After a crash, some of the changes may be there and not committed; another call goes on.
// Nothing else may use the log meanwhile.
//
// The others must not come back: they could form a quorum of the group as it was.
func (l *Log) Recover(self uint64) error {
	members, err := l.membersAt(l.last)
	if err != nil {
		return err
	}
	changes := leadToOne(members, self)
	if len(changes) == 0 {
		return ErrAlone
	}
	state := State{Term: max(l.state.Term, l.termOf(l.last)) + 1, Commit: l.last + uint64(len(changes))}
	w := Write{State: &state, Sync: true}
	for i, c := range changes {
		data, err := proto.Marshal(c)
		if err != nil {
			return err
		}
		if members, err = Change(members, data); err != nil {
			return fmt.Errorf("leave member %d alone: %w", self, err)
		}
		w.Entries = append(w.Entries, Entry{Index: l.last + 1 + uint64(i), Term: state.Term, Change: true, Data: data})
	}
	return l.Append(&w)
}

// leadToOne returns changes of one step each, in order, after which `self` is the only member.
func leadToOne(members *raftpb.ConfState, self uint64) (all []*raftpb.ConfChangeV2) {
	if len(members.GetVotersOutgoing()) > 0 {
		all = append(all, &raftpb.ConfChangeV2{}) // ends the change under way
	}
	add := func(what raftpb.ConfChangeType, id uint64) {
		all = append(all, &raftpb.ConfChangeV2{
			Changes: []*raftpb.ConfChangeSingle{{Type: what.Enum(), NodeId: new(id)}}})
	}
	if !slices.Contains(members.GetVoters(), self) {
		add(raftpb.ConfChangeAddNode, self)
	}
	for _, id := range slices.Concat(members.GetVoters(), members.GetLearners(), members.GetLearnersNext()) {
		if id != self {
			add(raftpb.ConfChangeRemoveNode, id)
		}
	}
	return all
}
