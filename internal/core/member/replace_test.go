package member

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/replica"
)

// newABC returns a group of the nodes a, b and c, founded by a, which leads. Node d is in no group yet. A lost node
// may be replaced without an operator after a minute.
func newABC(t *testing.T) *three {
	g := &three{t: t, now: base}
	for i := range 4 {
		s := settings
		s.Self, s.ReplaceAfter = nodeOf(i), time.Minute
		g.add([]uint64{1}, s)
	}
	g.pass(5000)
	g.nodes[0].Join(g.now, 1, nodeOf(1))
	g.nodes[0].Join(g.now, 2, nodeOf(2))
	g.pass(5000)
	if v := g.voters(); !slices.Equal(v, []uint64{1, 2, 3}) {
		t.Fatalf("the voters are %v", v)
	}
	return g
}

// emptied is node b with an empty directory: the process of node d under b's name.
var emptied = entry.Node{Name: "b", Member: 4}

// A lost node comes back with an empty directory once an operator has said so. Its new member takes the place of
// the old one in one change: there are three voters at all times.
func TestANodeIsReplaced(t *testing.T) {
	g := newABC(t)
	a, b := g.nodes[0], g.nodes[1]
	b.parted = true
	g.pass(15_000) // until it counts as lost
	a.Join(g.now, 10, emptied)
	g.pass(1000)
	if err := a.answers[10].Err; !errors.Is(err, ErrKnown) {
		t.Fatalf("before Replace, the emptied node is answered %v", err)
	}
	a.Replace(g.now, 11, "b")
	a.Join(g.now, 12, emptied)
	for range 100 {
		g.pass(100)
		if n := len(a.members.Voters); n != 3 {
			t.Fatalf("there are %d voters: %+v", n, a.members)
		}
	}
	if err := errors.Join(a.answers[11].Err, a.answers[12].Err); err != nil {
		t.Error(err)
	}
	if v := g.voters(); !slices.Equal(v, []uint64{1, 3, 4}) {
		t.Errorf("the voters are %v", v)
	}
	if want := map[string]uint64{"a": 1, "b": 4, "c": 3}; !maps.Equal(g.nodes[3].State().Nodes(), want) {
		t.Errorf("the new member knows the nodes %v, want %v", g.nodes[3].State().Nodes(), want)
	}
}

// While the new member catches up, the old one stays a voter: a quorum is two of three, and never one.
func TestTheOldMemberLeavesOnlyForOneThatHasEverything(t *testing.T) {
	g := newABC(t)
	a, b, d := g.nodes[0], g.nodes[1], g.nodes[3]
	b.parted, d.parted = true, true
	g.pass(15_000)
	a.Replace(g.now, 10, "b")
	a.Join(g.now, 11, emptied)
	g.pass(30_000)
	if !slices.Equal(a.members.Voters, []uint64{1, 2, 3}) || !slices.Equal(a.members.Learners, []uint64{4}) {
		t.Errorf("while the new member is cut off, the members are %+v", a.members)
	}
	d.parted = false
	g.pass(10_000)
	if v := g.voters(); !slices.Equal(v, []uint64{1, 3, 4}) {
		t.Errorf("the voters are %v", v)
	}
}

// A node that is lost for long needs no operator, and one that still takes part is never replaced.
func TestOnlyALostNodeIsReplaced(t *testing.T) {
	g := newABC(t)
	a, b := g.nodes[0], g.nodes[1]
	g.pass(120_000)
	a.Replace(g.now, 10, "b")
	a.Join(g.now, 11, emptied)
	a.Replace(g.now, 12, "x")
	b.Replace(g.now, 13, "c")
	g.pass(1000)
	for id, want := range map[ID]error{10: ErrAnswers, 11: ErrKnown, 12: ErrUnknownNode} {
		if err := a.answers[id].Err; !errors.Is(err, want) {
			t.Errorf("call %d is answered %v, want %v", id, err, want)
		}
	}
	if err := b.answers[13].Err; !errors.Is(err, replica.ErrNotLeader) {
		t.Errorf("a follower answers %v", err)
	}
	b.parted = true
	g.pass(50_000)
	a.Join(g.now, 14, emptied)
	g.pass(1000)
	if err := a.answers[14].Err; !errors.Is(err, ErrKnown) {
		t.Errorf("after 50 s, the emptied node is answered %v", err)
	}
	g.pass(20_000)
	a.Join(g.now, 15, emptied)
	g.pass(10_000)
	if v := g.voters(); a.answers[15].Err != nil || !slices.Equal(v, []uint64{1, 3, 4}) {
		t.Errorf("after 70 s, the emptied node is answered %v, and the voters are %v", a.answers[15].Err, v)
	}
}

// A directory that is emptied twice, before its first new member is a voter, leaves no member behind.
func TestANodeIsEmptiedTwice(t *testing.T) {
	g := newABC(t)
	a, b := g.nodes[0], g.nodes[1]
	s := settings
	s.Self, s.ReplaceAfter = nodeOf(4), time.Minute
	g.add([]uint64{1}, s)
	b.parted, g.nodes[3].parted = true, true
	g.pass(15_000)
	a.Replace(g.now, 10, "b")
	a.Join(g.now, 11, emptied)
	g.pass(5000)
	a.Join(g.now, 12, entry.Node{Name: "b", Member: 5})
	g.pass(10_000)
	if v := g.voters(); !slices.Equal(v, []uint64{1, 3, 5}) || len(a.members.Learners) != 0 {
		t.Errorf("the members are %+v", a.members)
	}
}

// A node that must be filled claims its name first. Its fill may then take hours, and another node may lead when it
// ends. Until it votes, the old member stays a voter.
func TestANameIsClaimedBeforeAFill(t *testing.T) {
	g := newABC(t)
	a, b := g.nodes[0], g.nodes[1]
	b.parted = true
	g.pass(15_000)
	a.Claim(g.now, 10, emptied)
	a.Claim(g.now, 11, entry.Node{Name: "e", Member: 5})
	g.pass(1000)
	a.Replace(g.now, 12, "b")
	a.Claim(g.now, 13, emptied)
	g.pass(1000)
	if err := a.answers[10].Err; !errors.Is(err, ErrKnown) {
		t.Errorf("before Replace, the claim is answered %v", err)
	}
	if x, is := a.answers[13]; !is || x.Err != nil {
		t.Errorf("after Replace, the claim is answered %v, error %v", is, x.Err)
	}
	want := map[string]uint64{"a": 1, "b": 4, "c": 3}
	if a.answers[11].Err != nil || !maps.Equal(a.State().Nodes(), want) {
		t.Errorf("the nodes are %v, want %v: a free name is not claimed", a.State().Nodes(), want)
	}
	if !slices.Equal(a.members.Voters, []uint64{1, 2, 3}) || len(a.members.Learners) > 0 {
		t.Errorf("during the fill, the members are %+v", a.members)
	}
	if err := a.Transfer(3); err != nil {
		t.Fatal(err)
	}
	g.pass(700_000)
	next := g.leader()
	if next == a {
		t.Fatal("node a still leads")
	}
	next.Join(g.now, 14, emptied)
	g.pass(10_000)
	if v := g.voters(); next.answers[14].Err != nil || !slices.Equal(v, []uint64{1, 3, 4}) {
		t.Errorf("after the fill, the join is answered %v, and the voters are %v", next.answers[14].Err, v)
	}
}

// A node that has claimed a name is removed before it joins. The member whose name it was leaves, too.
func TestAClaimIsRemoved(t *testing.T) {
	g := newABC(t)
	a := g.nodes[0]
	g.nodes[1].parted = true
	g.pass(15_000)
	a.Replace(g.now, 10, "b")
	a.Claim(g.now, 11, emptied)
	g.pass(1000)
	a.Remove(g.now, 12, "b")
	g.pass(5000)
	v, nodes := g.voters(), a.State().Nodes()
	if want := map[string]uint64{"a": 1, "b": 0, "c": 3}; a.answers[12].Err != nil || !slices.Equal(v, []uint64{1, 3}) ||
		!maps.Equal(nodes, want) {
		t.Errorf("answered %v, the voters are %v, the nodes %v", a.answers[12].Err, v, nodes)
	}
}

// Nodes are removed until one is left, also the one that leads. A removed name is free for a new directory.
func TestNodesAreRemoved(t *testing.T) {
	g := newABC(t)
	g.nodes[0].Remove(g.now, 10, "a")
	g.settle()
	if err := g.nodes[0].answers[10].Err; !errors.Is(err, replica.ErrNotLeader) {
		t.Fatalf("the leader answers %v, want ErrNotLeader", err)
	}
	g.pass(5000)
	next := g.leader()
	if next == g.nodes[0] {
		t.Fatal("the leader did not let another node lead")
	}
	next.Remove(g.now, 11, "a")
	g.pass(5000)
	other := next.settings.Self.Member ^ 2 ^ 3
	if next.answers[11].Err != nil || len(g.voters()) != 2 {
		t.Fatalf("answered %v, the voters are %v", next.answers[11].Err, g.voters())
	}
	next.Remove(g.now, 12, nodeOf(int(other-1)).Name)
	g.pass(5000)
	if v := g.voters(); next.answers[12].Err != nil || !slices.Equal(v, []uint64{next.settings.Self.Member}) {
		t.Fatalf("answered %v, the voters are %v", next.answers[12].Err, v)
	}
	next.Remove(g.now, 15, nodeOf(int(other-1)).Name) // again, since the first answer may be lost
	next.Remove(g.now, 13, next.settings.Self.Name)
	next.Join(g.now, 14, entry.Node{Name: "a", Member: 4})
	g.pass(5000)
	if x, is := next.answers[15]; !is || x.Err != nil {
		t.Errorf("a repeated removal: answered %v, error %v", is, x.Err)
	}
	if err := next.answers[13].Err; !errors.Is(err, ErrTooFew) {
		t.Errorf("the removal of the last node is answered %v", err)
	}
	if v := g.voters(); next.answers[14].Err != nil || !slices.Contains(v, 4) {
		t.Errorf("the new node is answered %v, and the voters are %v", next.answers[14].Err, v)
	}
}

// A new leader has heard the old one alone. It removes a node once it has heard the third, and says that too few answer
// only after some time.
func TestANewLeaderRemovesANode(t *testing.T) {
	for _, c := range []struct {
		name   string
		parted int64 // milliseconds
		want   error
	}{{"the third is heard", 2000, nil}, {"the third is not heard", 15_000, ErrTooFew}} {
		t.Run(c.name, func(t *testing.T) {
			g := newABC(t)
			a, b, third := g.nodes[0], g.nodes[1], g.nodes[2]
			third.parted = true
			g.pass(1000) // so that the leader asks the other one to lead
			a.Remove(g.now, 10, "a")
			g.settle()
			if g.leader() != b {
				t.Fatal("node b does not lead")
			}
			b.Remove(g.now, 11, "a")
			g.pass(c.parted)
			if x, is := b.answers[11]; is != (c.want != nil) || !errors.Is(x.Err, c.want) {
				t.Fatalf("answered: %v, error %v, want %v", is, x.Err, c.want)
			}
			if c.want != nil {
				return
			}
			third.parted = false
			g.pass(5000)
			if x, is := b.answers[11]; !is || x.Err != nil || !slices.Equal(g.voters(), []uint64{2, 3}) {
				t.Errorf("answered: %v, error %v, the voters are %v", is, x.Err, g.voters())
			}
		})
	}
}

// A node is not removed if the others could then decide nothing.
func TestANodeThatIsNeededIsNotRemoved(t *testing.T) {
	g := newABC(t)
	a := g.nodes[0]
	g.nodes[2].parted = true
	g.pass(15_000)
	a.Remove(g.now, 10, "b")
	a.Remove(g.now, 11, "c")
	g.pass(5000)
	if err := a.answers[10].Err; !errors.Is(err, ErrTooFew) {
		t.Errorf("the removal of the only node that answers is answered %v", err)
	}
	if v := g.voters(); a.answers[11].Err != nil || !slices.Equal(v, []uint64{1, 2}) {
		t.Errorf("the removal of a lost node is answered %v, and the voters are %v", a.answers[11].Err, v)
	}
}

// A log that was restored from a backup gives the name of this node to another member. The node takes its name.
func TestARestoredNodeTakesItsName(t *testing.T) {
	g := &three{t: t, now: base}
	s := settings
	s.Self = nodeOf(0)
	a := g.add([]uint64{1}, s)
	a.state.nodes.Name("a", 9, 0)
	g.pass(5000)
	if want := map[string]uint64{"a": 1}; !maps.Equal(a.State().Nodes(), want) {
		t.Errorf("the nodes are %v, want %v", a.State().Nodes(), want)
	}
}

// While a node runs a program that does not know replacements, there are none.
func TestReplacementsWaitForTheVersion(t *testing.T) {
	g := newMixed(t, time.Hour)
	a := g.leader()
	for _, n := range g.nodes {
		n.state.version.Format = withReplacements - 1
	}
	a.Replace(g.now, 10, "b")
	a.Remove(g.now, 11, "b")
	a.Drain(g.now, 12, "b", 0)
	g.settle()
	for id := ID(10); id <= 12; id++ {
		if err := a.answers[id].Err; !errors.Is(err, ErrOlder) {
			t.Errorf("call %d is answered %v, want ErrOlder", id, err)
		}
	}
}
