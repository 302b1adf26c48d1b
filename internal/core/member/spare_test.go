package member

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/entry"
)

// newSpare returns the group of newABC with node d as its spare. Node a leads.
func newSpare(t *testing.T) *three {
	g := newABC(t)
	g.nodes[0].Join(g.now, 5, nodeOf(3))
	g.pass(5000)
	g.spares(1, 2, 3)(4)
	return g
}

// spares checks which members vote, and which are spares.
func (g *three) spares(voters ...uint64) func(learners ...uint64) {
	return func(learners ...uint64) {
		g.t.Helper()
		m := g.leader().members
		if !slices.Equal(slices.Sorted(slices.Values(m.Voters)), voters) || !slices.Equal(m.Learners, learners) ||
			len(m.Leaving) > 0 {
			g.t.Fatalf("the members are %+v, want the voters %v and the spares %v", m, voters, learners)
		}
	}
}

// watch lets time pass, and checks at each moment that three members vote, and that two of them have everything.
func (g *three) watch(ms int64) {
	g.t.Helper()
	for range ms / 100 {
		g.pass(100)
		for _, n := range g.nodes {
			if !n.leads.Leads || n.parted {
				continue
			}
			if len(n.members.Voters) != MaxVoters {
				g.t.Fatalf("there are %d voters: %+v", len(n.members.Voters), n.members)
			}
			have := 0
			for _, p := range n.Progress() {
				if slices.Contains(n.members.Voters, p.Member) && p.Match >= n.Committed() {
					have++
				}
			}
			if have < 2 {
				g.t.Fatalf("%d voters have the log: %+v of %+v", have, n.Progress(), n.members)
			}
		}
	}
}

// A fourth node that joins does not vote, however long it waits, and has all entries.
func TestAFourthNodeIsASpare(t *testing.T) {
	g := newSpare(t)
	g.watch(3_600_000)
	g.spares(1, 2, 3)(4)
	a, d := g.nodes[0], g.nodes[3]
	if d.State().Index() != a.State().Index() {
		t.Errorf("the spare has applied %d entries of %d", d.State().Index(), a.State().Index())
	}
	if d.leads.Leads || d.leads.Leader != 1 {
		t.Errorf("the spare knows the leadership %+v", d.leads)
	}
}

// A voter that is lost for Settings.ReplaceAfter, a minute here, leaves for the spare in one change. Its name is free
// from then on: when it comes back, it is no member, and with an empty directory it joins as the next spare.
func TestASpareTakesThePlaceOfALostNode(t *testing.T) {
	g := newSpare(t)
	b := g.nodes[1]
	b.parted = true
	g.watch(55_000)
	g.spares(1, 2, 3)(4)
	g.watch(10_000)
	g.spares(1, 3, 4)()
	want := map[string]uint64{"a": 1, "b": 0, "c": 3, "d": 4}
	for _, n := range []*testNode{g.nodes[0], g.nodes[2], g.nodes[3]} {
		if !maps.Equal(n.State().Nodes(), want) {
			t.Errorf("a member knows the nodes %v, want %v", n.State().Nodes(), want)
		}
	}
	s := settings
	s.Self, s.ReplaceAfter = entry.Node{Name: "b", Member: 5}, time.Minute
	g.add([]uint64{1}, s)
	g.nodes[0].Join(g.now, 10, s.Self)
	g.watch(10_000)
	if err := g.nodes[0].answers[10].Err; err != nil {
		t.Fatal(err)
	}
	g.spares(1, 3, 4)(5)
}

// The leader itself is lost. The next leader counts from its own election, since followers do not hear each other.
func TestALostLeaderIsReplaced(t *testing.T) {
	g := newSpare(t)
	g.nodes[0].parted = true
	g.pass(55_000)
	g.spares(1, 2, 3)(4)
	g.watch(20_000)
	g.spares(2, 3, 4)()
}

// A node that restarts in time stays, and so does the spare.
func TestANodeThatComesBackInTimeStays(t *testing.T) {
	g := newSpare(t)
	for range 5 {
		g.nodes[2].parted = true
		g.watch(50_000)
		g.nodes[2].parted = false
		g.watch(20_000)
	}
	g.spares(1, 2, 3)(4)
}

// A drained node is away on purpose, so it is replaced only once its drain has ended. The same holds for a drained
// spare: it is about to go, too.
func TestADrainedNodeKeepsItsPlace(t *testing.T) {
	g := newSpare(t)
	if err := g.drain(20, func(l *testNode) { l.Drain(g.now, 20, "c", 10*time.Minute) }); err != nil {
		t.Fatal(err)
	}
	g.nodes[2].parted = true
	g.watch(590_000)
	g.spares(1, 2, 3)(4)
	if err := g.drain(21, func(l *testNode) { l.Drain(g.now, 21, "d", 10*time.Minute) }); err != nil {
		t.Fatal(err)
	}
	g.watch(500_000)
	g.spares(1, 2, 3)(4)
	g.watch(110_000)
	g.spares(1, 2, 4)()
}

// A spare that lacks entries, or is away, takes no place: a lost node keeps its own until the spare has the log.
func TestASpareThatLagsTakesNoPlace(t *testing.T) {
	g := newSpare(t)
	g.nodes[3].parted = true
	g.watch(15_000)
	g.nodes[1].parted = true
	g.watch(120_000)
	g.spares(1, 2, 3)(4)
	g.nodes[3].parted = false
	g.watch(5000)
	g.spares(1, 3, 4)()
}

// The same holds for a spare that answers, but whose disk takes nothing.
func TestASpareWithoutADiskTakesNoPlace(t *testing.T) {
	g := newSpare(t)
	d := g.nodes[3]
	d.frozen = true
	for i := range uint64(2 * caughtUp) {
		g.nodes[0].Push(g.now, ID(100+i), pushOf(g.now, "one", 9, i+1, 1))
		g.watch(100)
	}
	g.nodes[1].parted = true
	g.watch(120_000)
	g.spares(1, 2, 3)(4)
	d.frozen = false
	g.watch(5000)
	g.spares(1, 3, 4)()
}

// A group that has four voters, as of an older program, gets no fifth one. A lost one leaves for the spare.
func TestFourVotersStayFour(t *testing.T) {
	g := newSpare(t)
	a := g.nodes[0]
	if err := a.Members([]uint64{1, 2, 3, 4}, nil); err != nil {
		t.Fatal(err)
	}
	s := settings
	s.Self, s.ReplaceAfter = nodeOf(4), time.Minute
	g.add([]uint64{1}, s)
	a.Join(g.now, 10, s.Self)
	g.pass(5000)
	g.spares(1, 2, 3, 4)(5)
	g.nodes[1].parted = true
	g.pass(120_000)
	g.spares(1, 3, 4, 5)()
}

// Without most of the other voters nothing is decided, and a single node that is left replaces nobody.
func TestNobodyIsReplacedByAMinority(t *testing.T) {
	g := newSpare(t)
	g.nodes[1].parted, g.nodes[2].parted = true, true
	g.pass(300_000)
	for _, n := range g.nodes {
		if !slices.Equal(n.members.Voters, []uint64{1, 2, 3}) || n.State().Nodes()["b"] != 2 {
			t.Errorf("the members are %+v, the nodes %v", n.members, n.State().Nodes())
		}
	}
	g.nodes[1].parted = false
	g.pass(5000)
	g.watch(80_000) // node c is lost since the election
	g.spares(1, 2, 4)()
}

// When a voter is removed, the spare votes in its place from the same change on. A removed spare just goes.
func TestARemovedNodeLeavesForTheSpare(t *testing.T) {
	g := newSpare(t)
	a := g.nodes[0]
	a.Remove(g.now, 10, "b")
	g.watch(5000)
	g.spares(1, 3, 4)()
	a.Join(g.now, 11, entry.Node{Name: "e", Member: 2}) // the process of node b with another name
	g.watch(5000)
	g.spares(1, 3, 4)(2)
	a.Remove(g.now, 12, "e")
	g.watch(5000)
	g.spares(1, 3, 4)()
	for id := ID(10); id <= 12; id++ {
		if x, is := a.answers[id]; !is || x.Err != nil {
			t.Errorf("call %d: answered %v, error %v", id, is, x.Err)
		}
	}
}

// A voter is not removed while only the leader would have everything: of two voters that are left, both have the log.
func TestANodeIsNotRemovedWhileTheOthersLag(t *testing.T) {
	g := newABC(t)
	a, c := g.nodes[0], g.nodes[2]
	c.parted = true
	g.pass(3000) // it still counts as there
	a.Remove(g.now, 10, "b")
	g.pass(3000)
	g.spares(1, 2, 3)()
	c.parted = false
	g.pass(5000)
	g.spares(1, 3)()
	if x, is := a.answers[10]; !is || x.Err != nil {
		t.Errorf("answered %v, error %v", is, x.Err)
	}
}

// A lost node comes back with an empty directory, after an operator said so. The spare votes in its place at once,
// since it has everything already, and the emptied node is the spare.
func TestAReplacedNodeLeavesForTheSpare(t *testing.T) {
	g := newSpare(t)
	a := g.nodes[0]
	s := settings
	s.Self, s.ReplaceAfter = entry.Node{Name: "b", Member: 5}, time.Minute
	g.add([]uint64{1}, s)
	g.nodes[1].parted = true
	g.watch(15_000)
	a.Replace(g.now, 10, "b")
	a.Join(g.now, 11, s.Self)
	g.watch(10_000)
	if err := errors.Join(a.answers[10].Err, a.answers[11].Err); err != nil {
		t.Fatal(err)
	}
	g.spares(1, 3, 4)(5)
}
