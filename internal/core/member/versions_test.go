package member

import (
	"errors"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/entry"
)

// older makes a node run a program that knows only an older version.
func (n *testNode) older() {
	n.state.knows.Format--
	n.state.version = n.state.knows
}

// upgrade lets a node go on with the present program.
func (n *testNode) upgrade() { n.state.knows.Format = Format }

// newMixed returns a group of three nodes that was founded with an older program, which all of them still run.
func newMixed(t *testing.T, after time.Duration) *three { return newOlder(t, after, Format-1) }

// newOlder is newMixed for a program that knows formats up to one.
func newOlder(t *testing.T, after time.Duration, format uint32) *three {
	g := &three{t: t, now: base}
	for i := range 3 {
		s := settings
		s.Self, s.UpgradeAfter = nodeOf(i), after
		n := g.add([]uint64{1, 2, 3}, s)
		n.state.knows.Format = format
		n.state.version = n.state.knows
	}
	g.pass(5000)
	return g
}

// uses checks the format that all nodes use.
func (g *three) uses(when string, format uint32) {
	g.t.Helper()
	for i, n := range g.nodes {
		if got := n.state.Version().Format; got != format {
			g.t.Errorf("%s, node %d uses format %d, want %d", when, i, got, format)
		}
	}
}

// While one node runs the older program, the log has only what that program knows. Once all nodes have run the
// newer one for a while, the group uses it.
func TestTheVersionRisesWhenAllKnowIt(t *testing.T) {
	g := newMixed(t, 10*time.Second)
	g.nodes[0].upgrade()
	g.nodes[1].upgrade()
	g.pass(60_000)
	g.uses("with one older node", Format-1)
	g.nodes[2].upgrade()
	g.pass(8000)
	g.uses("8 s after the upgrade", Format-1)
	g.pass(4000)
	g.uses("12 s after the upgrade", Format)
}

// A node that goes back before the version has risen begins the time anew.
func TestANodeGoesBackToItsOlderProgram(t *testing.T) {
	g := newMixed(t, 10*time.Second)
	for _, n := range g.nodes {
		n.upgrade()
	}
	g.pass(8000)
	g.nodes[1].older()
	g.pass(60_000)
	g.nodes[1].upgrade()
	g.pass(8000)
	g.uses("8 s after the second upgrade", Format-1)
	g.pass(4000)
	g.uses("12 s after the second upgrade", Format)
}

// A node that is away may come back with its older program, so the version waits for it.
func TestTheVersionWaitsForNodesThatAreAway(t *testing.T) {
	g := newMixed(t, 20*time.Second)
	for _, n := range g.nodes {
		n.upgrade()
	}
	g.pass(5000)
	away := g.nodes[(g.leader().settings.Self.Member)%3] // the one after the leader
	away.parted = true
	g.pass(60_000)
	if got := g.leader().state.Version().Format; got != Format-1 {
		t.Errorf("with a node away, the leader uses format %d, want %d", got, Format-1)
	}
	away.parted = false
	g.pass(25_000)
	g.uses("once all are there", Format)
}

// A leader proposes nothing that an older node cannot apply.
func TestNothingNewIsProposedBeforeTheVersionRises(t *testing.T) {
	g := newMixed(t, time.Hour)
	for _, n := range g.nodes {
		n.state.version.Format = withForwardedEntries - 1
	}
	g.leader().Forwarded(map[string]uint64{"mimir": 1})
	g.settle()
	if index := g.leader().State().Forwarded("mimir"); index != 0 {
		t.Errorf("the log has what only format %d brings: %d", withForwardedEntries, index)
	}
}

// After the version has risen, an older program cannot go on: neither from the log, nor from a checkpoint.
func TestAnOlderProgramStopsAtTheNewerVersion(t *testing.T) {
	m := New(group, &config)
	m.knows.Format, m.version.Format = Format-1, Format-1
	e := entry.Entry{Kind: entry.KindVersion, Group: group, Shape: shape,
		Version: entry.Version{Format: Format, Semantics: Semantics}}
	if _, err := m.Apply(1, e.Append(nil)); !errors.Is(err, entry.ErrNewer) {
		t.Errorf("the entry is answered %v, want ErrNewer", err)
	}
	newer := New(group, &config)
	newer.version.Format = Format + 1
	if _, err := Restore(group, &config, newer.AppendGroup(nil)); !errors.Is(err, entry.ErrNewer) {
		t.Errorf("the section is answered %v, want ErrNewer", err)
	}
}
