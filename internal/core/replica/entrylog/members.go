package entrylog

import (
	"fmt"

	"go.etcd.io/raft/v3/confchange"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"
)

// Change returns the members after the change in an entry's data. Raft itself does the same when
// the entry is applied. Change returns an error if Raft would refuse the change.
func Change(members *raftpb.ConfState, data []byte) (*raftpb.ConfState, error) {
	change := &raftpb.ConfChangeV2{}
	if err := proto.Unmarshal(data, change); err != nil {
		return nil, fmt.Errorf("read a change of the members: %w", err)
	}
	t := tracker.MakeProgressTracker(1, 0)
	var err error
	if t.Config, t.Progress, err = confchange.Restore(confchange.Changer{Tracker: t}, members); err != nil {
		return nil, fmt.Errorf("members %v: %w", members, err)
	}
	changer := confchange.Changer{Tracker: t}
	if change.LeaveJoint() {
		t.Config, t.Progress, err = changer.LeaveJoint()
	} else if leave, joint := change.EnterJoint(); joint {
		t.Config, t.Progress, err = changer.EnterJoint(leave, change.Changes...)
	} else {
		t.Config, t.Progress, err = changer.Simple(change.Changes...)
	}
	if err != nil {
		return nil, fmt.Errorf("change the members: %w", err)
	}
	return t.ConfState(), nil
}

// membersAt returns the members as of an index between base and last. It is called with mu held, or
// by the only goroutine that changes the log.
func (l *Log) membersAt(index uint64) (*raftpb.ConfState, error) {
	members := l.members
	for _, c := range l.changes {
		if c.index > index {
			break
		}
		var err error
		if members, err = Change(members, c.data); err != nil {
			return nil, fmt.Errorf("entry %d: %w", c.index, err)
		}
	}
	return members, nil
}
