package sim

import (
	"encoding/binary"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/member"
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

// evaluations says how often each group of rules was evaluated.
type evaluations [ruleGroups]uint64

// evaluations returns how often each group was evaluated, as far as a node knows.
func (n *node) evaluations() (all evaluations) {
	for _, state := range n.node.State().Rules(ruled) {
		all[state[0]], _ = binary.Uvarint(state[1:])
	}
	return all
}

// lacksNone fails the run if a node knows fewer evaluations than were acknowledged.
func (s *sim) lacksNone(n *node, got, least evaluations) {
	for number := range got {
		if got[number] < least[number] {
			s.Fail("node %d knows %d evaluations of group %d, but %d were acknowledged", n.n, got[number], number,
				least[number])
		}
	}
}

// evaluated checks at the end that all nodes know the acknowledged evaluations.
func (s *sim) evaluated() {
	for _, n := range s.nodes {
		s.lacksNone(n, n.evaluations(), s.oracle.evaluations)
	}
}
