package group

import (
	"testing"

	"github.com/freshet-io/freshet/internal/core/replica"
)

// A learner is a spare while three members vote that belong to nodes. Otherwise it is to vote itself.
func TestASpareIsALearnerBesideThreeVoters(t *testing.T) {
	nodes := map[string]uint64{"a": 1, "b": 2, "c": 3, "d": 4}
	for _, c := range []struct {
		name    string
		members replica.Members
		nodes   map[string]uint64
		want    bool
	}{
		{"beside three voters", replica.Members{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}}, nodes, true},
		{"beside two voters", replica.Members{Voters: []uint64{1, 2}, Learners: []uint64{4}}, nodes, false},
		{"a voter is being replaced", replica.Members{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}},
			map[string]uint64{"a": 1, "b": 0, "c": 3, "d": 4}, false},
		{"a voter", replica.Members{Voters: []uint64{1, 2, 4}, Learners: []uint64{3}}, nodes, false},
		{"no member yet", replica.Members{Voters: []uint64{1, 2, 3}}, nodes, false},
	} {
		s := Status{Nodes: c.nodes, Members: c.members}
		if got := s.Spare(4); got != c.want {
			t.Errorf("%s: a spare is %t", c.name, got)
		}
	}
}
