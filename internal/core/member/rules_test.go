package member

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/marks"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/ruleset"
)

// keep asks the leader to keep a state of rules, and returns the answer.
func (g *three) keep(id ID, key byte, state string) error {
	g.t.Helper()
	return g.drain(id, func(l *testNode) {
		l.KeepRules(id, "acme", entry.AppendRuleGroup(nil, &entry.RuleGroup{Key: [32]byte{key}, State: []byte(state)}))
	})
}

// set asks the leader to set a group of rules by the API, or to delete it if the text is empty, and returns the answer.
func (g *three) set(id ID, group, text string) error {
	g.t.Helper()
	return g.drain(id, func(l *testNode) { l.Write(g.now, id, setOf(group, text)) })
}

func setOf(group, text string) *entry.Entry {
	s := entry.RuleSet{Tenant: "acme", Namespace: "n", Group: group, MaxTenants: 1, MaxGroups: 2, MaxRules: 10,
		MaxBytes: 100, Text: []byte(text), Rules: len(text)}
	return &entry.Entry{Kind: entry.KindRuleSet, Shape: 1, RuleSet: s}
}

// groups returns the groups of a member, as NAME=TEXT.
func groups(m *Member) (all []string) {
	for _, x := range m.RuleSets().Of("acme") {
		all = append(all, x.Name+"="+string(x.YAML))
	}
	return all
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
	if err := m.sets.Fold(&setOf("g", "x").RuleSet); err != nil {
		t.Fatal(err)
	}
	section := m.AppendGroup(nil)
	r, err := Restore(7, &config, section)
	if err != nil || section[0] != withSets || !bytes.Equal(r.AppendGroup(nil), section) {
		t.Errorf("with a group set by the API, the section has version %d, error %v", section[0], err)
	}
}

// What one node takes, all have, and also one that is restored from a checkpoint. Nodes that differ are found.
func TestRulesSetByTheAPIAreOnAllMembers(t *testing.T) {
	g := newABC(t)
	for id, err := range []error{g.set(20, "a", "old"), g.set(21, "b", "b"), g.set(22, "a", "new"), g.set(23, "b", "")} {
		if err != nil {
			t.Fatalf("change %d: %v", id, err)
		}
	}
	if err := g.set(24, "b", ""); !errors.Is(err, ruleset.ErrNoGroup) {
		t.Errorf("a group that is not there is deleted: %v", err)
	}
	if err := g.set(25, "large", string(make([]byte, 11))); !errors.Is(err, ruleset.ErrMistakes) {
		t.Errorf("a group beyond a limit of its entry: %v", err)
	}
	g.pass(20_000)
	for _, n := range g.nodes[:3] {
		restored, err := Restore(g.leader().State().group, n.State().config, n.State().AppendGroup(nil))
		if err != nil {
			t.Fatal(err)
		}
		if all, again := groups(n.State()), groups(restored); !slices.Equal(all, []string{"a=new"}) ||
			!slices.Equal(again, all) {
			t.Errorf("a member has %q, and %q when it is restored; want the new text of a", all, again)
		}
	}
	last := func(m *Member) marks.Mark { return m.Marks()[len(m.Marks())-1] }
	one, other := New(group, &config), New(group, &config)
	for index := range uint64(marks.Every) {
		text := "x"
		apply := func(m *Member) {
			e := setOf("g", text)
			e.Group = group
			if _, err := m.Apply(index+1, e.Append(nil)); err != nil {
				t.Fatal(err)
			}
		}
		apply(one)
		if index+1 == marks.Every {
			text = "y"
		}
		apply(other)
	}
	if last(one).Hash == last(other).Hash {
		t.Error("members with different rules have equal marks")
	}
}

// Two nodes that each have room for one more group cannot both add one: the log decides.
func TestTheLogDecidesAboutLimitsOfRules(t *testing.T) {
	m := New(group, &config)
	for i, name := range []string{"a", "b", "c"} {
		e := setOf(name, "x")
		e.Group = group
		done, err := m.Apply(uint64(i+1), e.Append(nil))
		if err != nil || (done.Refused == nil) != (name != "c") {
			t.Errorf("group %s: refused %v, error %v; want only the third one refused", name, done.Refused, err)
		}
	}
}

// Results of rules have a queue, a store and a state of their own, so results of now decide nothing about samples of
// senders. Queries wait for both. A restored member has the same queues.
func TestResultsHaveAQueueOfTheirOwn(t *testing.T) {
	m, rnd := New(group, &config), rand.New(rand.NewPCG(1, 1))
	m.has.Admit("one", 0)
	for index, results := range []bool{false, true, true} {
		e := entry.Entry{Kind: entry.KindRequest, Group: group, Shape: 1, Request: requestOf(t, rnd, "one", base)}
		e.Request.Results = results
		if _, err := m.Apply(uint64(index+1), e.Append(nil)); err != nil {
			t.Fatal(err)
		}
	}
	restored, err := Restore(group, &config, m.AppendGroup(nil))
	for _, name := range m.Tenants() {
		err = errors.Join(err, restored.RestoreTenant(name, m.AppendTenant(nil, name, m.Index())))
	}
	if err != nil {
		t.Fatal(err)
	}
	restored.Restored(nil)
	for _, m := range []*Member{m, restored} {
		all := m.Work()
		if len(all) != 2 || all[0].Queue != "one" || len(all[0].Requests) != 1 || all[1].Queue != "one/rules" ||
			len(all[1].Requests) != 2 || all[1].Tenant != "one" || all[0].State == all[1].State {
			t.Fatalf("the work is %+v, want one request, and two results in another queue", all)
		}
		for i, r := range all[1].Requests {
			if err := r.Decode(); err != nil || !r.Write.Results {
				t.Errorf("result %d is not one for the store: %v", i, err)
			}
		}
		all[1].State.Requests = 2
		m.Done(all[1])
		if v := m.Visible("one"); v != 0 {
			t.Errorf("entries up to %d are visible, while the first one waits", v)
		}
		all[0].State.Requests = 1
		m.Done(all[0])
		if v, n := m.Visible("one"), m.Requests(); v != 3 || n["one"] != 1 || n["one/rules"] != 2 {
			t.Errorf("entries up to %d are visible, and the queues have had %v requests", v, n)
		}
	}
}

// Until all nodes know of results, they go where they went: an older node would stop.
func TestNoResultsBeforeTheVersionRises(t *testing.T) {
	g, rnd := newOlder(t, time.Hour, withRuleSets-1), rand.New(rand.NewPCG(1, 1))
	l := g.leader()
	e := &entry.Entry{Kind: entry.KindRequest, Request: requestOf(t, rnd, "one", g.now)}
	e.Request.Results = true
	l.Write(g.now, 20, e)
	g.pass(500)
	if e.Request.Results || l.State().tenants["one/rules"] != nil || l.State().tenants["one"] == nil {
		t.Error("the entry says that it has results, which no older node knows")
	}
}

// Until all nodes know of rule sets, none is proposed: an older node would stop.
func TestNoRuleSetBeforeTheVersionRises(t *testing.T) {
	g := newOlder(t, time.Hour, withRuleSets-1)
	if err := g.set(20, "a", "x"); !errors.Is(err, ErrOlder) {
		t.Errorf("the answer is %v, want ErrOlder", err)
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
