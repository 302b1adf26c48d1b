package member

import (
	"bytes"
	"errors"
	"testing"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/replica"
)

// keep asks the leader to keep a state of rules, and returns the answer.
func (g *three) keep(id ID, key byte, state string) error {
	g.t.Helper()
	return g.drain(id, func(l *testNode) {
		l.KeepRules(id, "acme", entry.AppendRuleGroup(nil, &entry.RuleGroup{Key: [32]byte{key}, State: []byte(state)}))
	})
}

// Until all members know of rules, a node may go back to the program that it had, which must read its checkpoint.
func TestASectionWithoutRulesIsAsBefore(t *testing.T) {
	m := New(7, &config)
	if section := m.AppendGroup(nil); section[0] != withNames {
		t.Errorf("a section without rules has version %d, want %d", section[0], withNames)
	}
	for _, state := range []string{"state", ""} {
		m.rules.Fold(&entry.Rules{Tenant: "acme",
			Groups: entry.AppendRuleGroup(nil, &entry.RuleGroup{State: []byte(state)})})
		section := m.AppendGroup(nil)
		if (section[0] == withStates) != (state != "") {
			t.Errorf("with the state %q, the section has version %d", state, section[0])
		}
		if r, err := Restore(7, &config, section); err != nil || !bytes.Equal(r.AppendGroup(nil), section) {
			t.Errorf("with the state %q, the section is not restored: %v", state, err)
		}
	}
}

// A new leader goes on with the rules where the last one was.
func TestStatesOfRulesAreOnAllMembers(t *testing.T) {
	g := newABC(t)
	for id, state := range []string{"pending", "firing"} {
		if err := g.keep(ID(20+id), 1, state); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.keep(22, 2, "gone"); err != nil {
		t.Fatal(err)
	}
	if err := g.keep(23, 2, ""); err != nil {
		t.Fatal(err)
	}
	g.pass(1000)
	for _, n := range g.nodes[:3] {
		if all := n.State().Rules("acme"); len(all) != 1 || string(all[0]) != "firing" {
			t.Errorf("a member has the states %q, want firing alone", all)
		}
		restored, err := Restore(g.leader().State().group, n.State().config, n.State().AppendGroup(nil))
		if err != nil {
			t.Fatal(err)
		}
		if all := restored.Rules("acme"); len(all) != 1 || string(all[0]) != "firing" {
			t.Errorf("a restored member has the states %q, want firing alone", all)
		}
	}
	for _, n := range g.nodes[:3] {
		if n != g.leader() {
			n.KeepRules(30, "acme", entry.AppendRuleGroup(nil, &entry.RuleGroup{State: []byte("old")}))
			g.pass(100)
			if x := n.answers[30]; !errors.Is(x.Err, replica.ErrNotLeader) {
				t.Errorf("a member that does not lead answers %v", x.Err)
			}
		}
	}
}
