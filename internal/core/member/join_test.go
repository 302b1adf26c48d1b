package member

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/replica"
)

// found returns a group whose only member is node a, its founder, and two nodes that are not in the
// group yet.
func found(t *testing.T) *three {
	g := &three{t: t, now: base}
	for i := range 3 {
		s := settings
		s.Self = nodeOf(i)
		g.add([]uint64{1}, s)
	}
	g.pass(5000)
	return g
}

func nodeOf(i int) entry.Node {
	return entry.Node{Name: fmt.Sprintf("%c", 'a'+i), Member: uint64(i + 1)}
}

func (g *three) voters() []uint64 { return slices.Sorted(slices.Values(g.leader().members.Voters)) }

// Nodes that ask to join become learners, catch up, and become voters by themselves. All members know
// the nodes by name.
func TestNodesJoin(t *testing.T) {
	g := found(t)
	a := g.nodes[0]
	if !a.leads.Leads {
		t.Fatal("the founder does not lead")
	}
	a.Join(g.now, 1, nodeOf(1))
	a.Join(g.now, 2, nodeOf(2))
	g.pass(5000)
	for id := ID(1); id <= 2; id++ {
		if x, is := a.answers[id]; !is || x.Err != nil {
			t.Errorf("join %d: answered %v, error %v", id, is, x.Err)
		}
	}
	if v := g.voters(); !slices.Equal(v, []uint64{1, 2, 3}) {
		t.Errorf("the voters are %v", v)
	}
	for _, n := range g.nodes {
		if want := map[string]uint64{"a": 1, "b": 2, "c": 3}; !maps.Equal(n.State().Nodes(), want) {
			t.Errorf("a member knows the nodes %v, want %v", n.State().Nodes(), want)
		}
		if len(n.members.Voters) != 3 || len(n.members.Learners) != 0 {
			t.Errorf("a member knows the members %+v, want three voters", n.members)
		}
	}
}

// A learner that does not answer does not become a voter: it could only harm.
func TestALearnerThatLagsDoesNotVote(t *testing.T) {
	g := found(t)
	a, b := g.nodes[0], g.nodes[1]
	b.parted = true
	a.Join(g.now, 1, nodeOf(1))
	g.pass(20_000)
	if v := g.voters(); len(v) != 1 || len(a.members.Learners) != 1 {
		t.Errorf("while the learner is cut off, the members are %+v, want one voter and one learner", a.members)
	}
	b.parted = false
	g.pass(20_000)
	if v := g.voters(); len(v) != 2 {
		t.Errorf("once the learner is back, the voters are %v, want two", v)
	}
}

// If a known name comes with another member, the node's directory was emptied, or two nodes have the
// same name.
func TestAKnownNodeIsRefused(t *testing.T) {
	g := found(t)
	a := g.nodes[0]
	a.Join(g.now, 1, nodeOf(1))
	g.pass(2000)
	a.Join(g.now, 2, entry.Node{Name: "b", Member: 99})
	a.Join(g.now, 3, entry.Node{Name: "a", Member: 98})
	a.Join(g.now, 4, nodeOf(1)) // again, since the first answer may be lost
	g.pass(2000)
	for id := ID(2); id <= 3; id++ {
		if err := a.answers[id].Err; !errors.Is(err, ErrKnown) {
			t.Errorf("join %d is answered %v", id, err)
		}
	}
	if x, is := a.answers[4]; !is || x.Err != nil {
		t.Errorf("a repeated join: answered %v, error %v", is, x.Err)
	}
	if v := g.voters(); !slices.Equal(v, []uint64{1, 2}) {
		t.Errorf("the voters are %v", v)
	}
}

// Only a leader admits nodes. A leader that loses its place sends them to the next leader.
func TestOnlyALeaderAdmitsNodes(t *testing.T) {
	g := found(t)
	a := g.nodes[0]
	a.Join(g.now, 1, nodeOf(1))
	a.Join(g.now, 2, nodeOf(2))
	g.pass(5000)
	b := g.nodes[1]
	b.Join(g.now, 3, entry.Node{Name: "d", Member: 4})
	g.settle()
	if err := b.answers[3].Err; !errors.Is(err, replica.ErrNotLeader) {
		t.Errorf("a follower answers %v", err)
	}
	a.parted = true
	a.Join(g.now, 4, entry.Node{Name: "e", Member: 5})
	g.pass(5000)
	if err := a.answers[4].Err; !errors.Is(err, replica.ErrNotLeader) {
		t.Errorf("a leader that was cut off answers %v, want ErrNotLeader", err)
	}
}

// The nodes are in the group's section, in one order on all members.
func TestTheSectionHasTheNodes(t *testing.T) {
	g := found(t)
	g.nodes[0].Join(g.now, 1, nodeOf(1))
	g.nodes[0].Join(g.now, 2, nodeOf(2))
	g.pass(5000)
	section := g.nodes[0].State().AppendGroup(nil)
	for _, n := range g.nodes {
		if string(n.State().AppendGroup(nil)) != string(section) {
			t.Error("members differ in the section of the group")
		}
	}
	m, err := Restore(group, &config, section)
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(m.Nodes(), g.nodes[0].State().Nodes()) {
		t.Errorf("restored: %v", m.Nodes())
	}
}
