package member

import (
	"errors"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/replica"
)

// drain asks the leader to drain the node of a member, or to end that, and returns the answer.
func (g *three) drain(id ID, call func(l *testNode)) error {
	g.t.Helper()
	l := g.leader()
	call(l)
	g.pass(500)
	x, is := l.answers[id]
	if !is {
		g.t.Fatalf("call %d is not answered", id)
	}
	return x.Err
}

// A drained leader hands over, and does not lead even if the next leader dies. It votes. The drain ends by itself, and
// by Undrain.
func TestADrainedNodeDoesNotLead(t *testing.T) {
	g := newABC(t)
	drained := g.leader()
	name := drained.settings.Self.Name
	if err := g.drain(20, func(l *testNode) { l.Drain(g.now, 20, name, time.Minute) }); err != nil {
		t.Fatal(err)
	}
	g.pass(3000)
	if g.leader() == drained {
		t.Fatal("a drained node leads")
	}
	for _, n := range g.nodes[:3] {
		if until := n.State().Drained()[name]; until < base || until > g.now+60_000 {
			t.Errorf("a member knows that the drain lasts until %d", until)
		}
	}
	lost := g.leader()
	lost.parted = true
	g.pass(9000)
	if l := g.leader(); l == drained || l == lost {
		t.Error("the third node does not lead, or lacks the vote of the drained one")
	}
	lost.parted = false
	g.pass(60_000)
	if until := g.leader().State().Drained()[name]; until != 0 {
		t.Errorf("after its end, the drain lasts until %d", until)
	}
	if err := g.drain(21, func(l *testNode) { l.Drain(g.now, 21, name, 0) }); err != nil {
		t.Fatal(err)
	}
	g.pass(3_600_000)
	if g.leader().State().Drained()[name] == 0 {
		t.Error("a drain without an end ends")
	}
	if err := g.drain(22, func(l *testNode) { l.Undrain(g.now, 22, name) }); err != nil {
		t.Fatal(err)
	}
	if len(g.leader().State().Drained()) != 0 {
		t.Error("Undrain does not end the drain")
	}
}

// A node can be drained only if another one can lead.
func TestSomeNodeCanLead(t *testing.T) {
	g := newABC(t)
	others := g.others(g.leader())[:2]
	for i, n := range others {
		id := ID(20 + i)
		if err := g.drain(id, func(l *testNode) { l.Drain(g.now, id, n.settings.Self.Name, 0) }); err != nil {
			t.Fatal(err)
		}
	}
	self := g.leader().settings.Self.Name
	if err := g.drain(30, func(l *testNode) { l.Drain(g.now, 30, self, 0) }); !errors.Is(err, ErrNobodyElse) {
		t.Errorf("the drain of the last node that may lead is answered %v", err)
	}
	if err := g.drain(31, func(l *testNode) { l.Drain(g.now, 31, "x", 0) }); !errors.Is(err, ErrUnknownNode) {
		t.Errorf("the drain of an unknown node is answered %v", err)
	}
	others[0].Drain(g.now, 32, self, 0)
	g.settle()
	if err := others[0].answers[32].Err; !errors.Is(err, replica.ErrNotLeader) {
		t.Errorf("a follower answers %v", err)
	}
	found := found(t)
	if err := found.drain(33, func(l *testNode) { l.Drain(found.now, 33, "a", 0) }); !errors.Is(err, ErrNobodyElse) {
		t.Errorf("the drain of the only voter is answered %v", err)
	}
}

// If all others are gone or drained, a drained node leads after 10 s rather than nobody.
func TestADrainedNodeLeadsRatherThanNobody(t *testing.T) {
	g := newABC(t)
	leads := g.leader()
	for i, n := range g.others(leads)[:2] {
		id := ID(20 + i)
		if err := g.drain(id, func(l *testNode) { l.Drain(g.now, id, n.settings.Self.Name, 0) }); err != nil {
			t.Fatal(err)
		}
	}
	leads.parted = true
	g.pass(8000)
	for _, n := range g.others(leads) {
		if n.leads.Leads {
			t.Error("a drained node leads at once")
		}
	}
	g.pass(10_000)
	first := g.leader()
	for range 100 {
		g.pass(100)
		if g.leader() != first {
			t.Fatal("drained nodes hand the lead to each other")
		}
	}
	leads.parted = false
	g.pass(8000)
	if g.leader() != leads {
		t.Error("the node that is not drained does not lead once it is back")
	}
}

// A removed node is no longer drained when its name is used again.
func TestARemovedNodeIsNoLongerDrained(t *testing.T) {
	g := newABC(t)
	b := g.others(g.leader())[0]
	name := b.settings.Self.Name
	if err := g.drain(20, func(l *testNode) { l.Drain(g.now, 20, name, 0) }); err != nil {
		t.Fatal(err)
	}
	g.leader().Remove(g.now, 21, name)
	g.pass(5000)
	if err := g.leader().answers[21].Err; err != nil || len(g.leader().State().Drained()) != 0 {
		t.Errorf("after the removal, drained are %v; %v", g.leader().State().Drained(), err)
	}
}
