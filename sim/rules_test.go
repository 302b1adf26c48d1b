package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/labelrules"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/rewrite"
)

// ruled is the tenant with rules. It has so many groups of them that a checkpoint has states that no later entry has.
const ruled, ruleGroups = "one", 16

// nextEvaluation evaluates a group of rules at the leader, as role/ruler does. The state of a group is its number and
// how often it was evaluated. A leader first learns how far the last one was, and must know every evaluation that was
// acknowledged.
func (s *sim) nextEvaluation() {
	if s.Now > s.end-quietFor {
		return
	}
	s.At(s.Between(500, 2*second), nil, s.nextEvaluation)
	n := s.leader()
	if n == nil {
		return
	}
	least := s.oracle.evaluations
	s.ask(n, func() {
		s.barrier(n, ruled, func(err error) {
			if err == nil {
				s.evaluate(n, least)
			}
		})
	})
}

func (s *sim) evaluate(n *node, least evaluations) {
	all := n.evaluations()
	s.lacksNone(n, all, least)
	number := s.Rand.IntN(ruleGroups)
	before := all[number]
	state := binary.AppendUvarint([]byte{byte(number)}, before+1)
	groups := entry.AppendRuleGroup(nil, &entry.RuleGroup{Key: [32]byte{byte(number)}, State: state})
	s.call(n, func(id member.ID) { n.node.KeepRules(id, ruled, groups) }, func(a member.Answer) {
		if a.Err == nil {
			s.covered.evaluations++
			s.oracle.evaluations[number] = max(s.oracle.evaluations[number], before+1)
		}
	})
}

// nextRuleSet sets a group of rules by the API at the leader: its text says how often the group was set. Every node
// must know at the end what was acknowledged.
func (s *sim) nextRuleSet() {
	if s.Now > s.end-quietFor {
		return
	}
	s.At(s.Between(500, 2*second), nil, s.nextRuleSet)
	n := s.leader()
	if n == nil {
		return
	}
	number := s.Rand.IntN(ruleGroups)
	s.oracle.setsBegun[number]++
	times := s.oracle.setsBegun[number]
	const many = 1 << 20
	e := &entry.Entry{Kind: entry.KindRuleSet, RuleSet: entry.RuleSet{Tenant: ruled, Namespace: "n",
		Group: string(rune('a' + number)), MaxTenants: many, MaxGroups: many, MaxRules: many, MaxBytes: many, Rules: 1,
		Text: binary.AppendUvarint([]byte{byte(number)}, times)}}
	s.call(n, func(id member.ID) { n.node.Write(n.clock(), id, e) }, func(a member.Answer) {
		if a.Err == nil {
			s.covered.ruleSets++
			s.oracle.ruleSets[number] = max(s.oracle.ruleSets[number], times)
		}
	})
}

// nextResult writes a result of a rule at the leader, as of now. Every node must have it at the end if it was
// acknowledged, in a store that samples of senders do not share.
func (s *sim) nextResult() {
	if s.Now > s.end-quietFor {
		return
	}
	s.At(s.Between(500, 2*second), nil, s.nextResult)
	n := s.leader()
	if n == nil {
		return
	}
	x := offered{name: "result", t: base + s.Now, v: float64(s.Now)}
	in := new(writer).incoming([]offered{x})
	bodies, _ := rewrite.Sized(entry.TargetSize, entry.TargetSize).Rewrite(&in, &labelrules.Rules{})
	e := &entry.Entry{Kind: entry.KindRequest, Request: entry.Request{Tenant: ruled, Window: 60 * second, Results: true,
		Form: bodies[0].Form, Body: bytes.Clone(bodies[0].Bytes)}}
	s.call(n, func(id member.ID) { n.node.Write(n.clock(), id, e) }, func(a member.Answer) {
		if a.Err == nil && a.Outcome.Written.Samples > 0 {
			s.covered.results++
			s.oracle.results = append(s.oracle.results, fmt.Sprintf(" %d=%x", x.t-base, math.Float64bits(x.v)))
		}
	})
}

// hasResults checks that a node has all results that were acknowledged.
func (s *sim) hasResults(n *node) {
	got := n.all(ruled, tsdb.Rules)[`{__name__="result"}`]
	for _, x := range s.oracle.results {
		if !strings.Contains(got+" ", x+" ") {
			s.Fail("node %d lacks the result%s, which was acknowledged", n.n, x)
		}
	}
}

// evaluations says how often each group of rules was evaluated, or set by the API.
type evaluations [ruleGroups]uint64

// sets returns the last text of each group that was set by the API, as far as a node knows.
func (n *node) sets() (all evaluations) {
	for _, x := range n.node.State().RuleSets().Of(ruled) {
		all[x.YAML[0]], _ = binary.Uvarint(x.YAML[1:])
	}
	return all
}

// evaluations returns how often each group was evaluated, as far as a node knows.
func (n *node) evaluations() (all evaluations) {
	for _, state := range n.node.State().Rules(ruled) {
		all[state[0]], _ = binary.Uvarint(state[1:])
	}
	return all
}

// lacksNone fails the run if a node knows fewer evaluations, or changes, than were acknowledged.
func (s *sim) lacksNone(n *node, got, least evaluations) {
	for number := range got {
		if got[number] < least[number] {
			s.Fail("node %d knows %d evaluations or changes of group %d, but %d were acknowledged", n.n, got[number], number,
				least[number])
		}
	}
}

// evaluated checks at the end that all nodes know the acknowledged evaluations and changes.
func (s *sim) evaluated() {
	for _, n := range s.nodes {
		s.lacksNone(n, n.evaluations(), s.oracle.evaluations)
		s.lacksNone(n, n.sets(), s.oracle.ruleSets)
		s.hasImports(n)
		if s.mistakes.rules {
			s.hasResults(n)
		}
	}
}
