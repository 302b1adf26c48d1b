package sim

import (
	"encoding/binary"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/member"
)

// ruled is the tenant with rules.
const ruled = "one"

// nextEvaluation evaluates a group of rules at the leader, as role/ruler does. The state of the group is how often it
// was evaluated. A leader first learns how far the last one was, and must know every evaluation that was acknowledged.
func (s *sim) nextEvaluation() {
	if s.Now > s.end-quietFor {
		return
	}
	s.At(s.Between(500, 3*second), nil, s.nextEvaluation)
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

func (s *sim) evaluate(n *node, least uint64) {
	before := n.evaluations()
	if before < least {
		s.Fail("node %d goes on with rules after %d evaluations, but %d were acknowledged", n.n, before, least)
	}
	state := binary.AppendUvarint(nil, before+1)
	groups := entry.AppendRuleGroup(nil, &entry.RuleGroup{Key: [32]byte{1}, State: state})
	s.call(n, func(id member.ID) { n.node.KeepRules(id, ruled, groups) }, func(a member.Answer) {
		if a.Err == nil {
			s.covered.evaluations++
			s.oracle.evaluations = max(s.oracle.evaluations, before+1)
		}
	})
}

// evaluations returns how often the group of rules was evaluated, as far as a node knows.
func (n *node) evaluations() uint64 {
	for _, state := range n.node.State().Rules(ruled) {
		times, _ := binary.Uvarint(state)
		return times
	}
	return 0
}

// evaluated checks at the end that all nodes know the acknowledged evaluations.
func (s *sim) evaluated() {
	for _, n := range s.nodes {
		if got := n.evaluations(); got < s.oracle.evaluations {
			s.Fail("node %d knows %d evaluations, but %d were acknowledged", n.n, got, s.oracle.evaluations)
		}
	}
}
