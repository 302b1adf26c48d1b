package replica

import (
	"bytes"
	"fmt"
)

// oracle knows all that has happened on all nodes, and checks the promises of the group.
type oracle struct {
	agreed  map[uint64]Committed // by index, as the first member applied them
	leaders map[uint64]uint64
	emptied map[uint64]bool // members whose disks were emptied
	acked   []ack
	seen    []seen
	floor   uint64 // highest index acknowledged or read: a read that begins now must see it

	transferTo uint64
	transferBy int64
}

type ack struct {
	o     *operation
	index uint64
}

// seen is the result of a read.
type seen struct{ index, value uint64 }

func (o *oracle) begin() {
	o.agreed, o.leaders, o.emptied = map[uint64]Committed{}, map[uint64]uint64{}, map[uint64]bool{}
}

// changes(s, n) is called when a node learns of other members. It checks that the group has not lost a voter,
// not even while members are swapped: with two voters, one more fault would stop the group.
func (o *oracle) changes(s *sim, n *simNode) {
	if len(n.members.Voters) != s.size {
		s.Fail("node %d: the group of %d has the voters %v", n.n, s.size, n.members.Voters)
	}
}

// sends(s, n) is called when a member sends a message. It checks that a member whose disk was emptied says
// nothing: it has forgotten its votes and what it acknowledged.
func (o *oracle) sends(s *sim, n *simNode) {
	if o.emptied[n.id] {
		s.Fail("node %d: member %d lost its disk, and sends a message", n.n, n.id)
	}
}

// leads(s, n, term) is called when a member begins to lead. It checks that no other member led in the
// same term.
func (o *oracle) leads(s *sim, n *simNode, term uint64) {
	if other, ok := o.leaders[term]; ok && other != n.id {
		s.Fail("members %d and %d lead in term %d", other, n.id, term)
	}
	o.leaders[term] = n.id
}

// applies(s, n, e) is called when a member applies an entry. It checks that members apply the same
// entries in the same order, each once, and only entries on their own disk.
func (o *oracle) applies(s *sim, n *simNode, e *Committed) {
	s.Note(fmt.Appendf(nil, "%d %d %d", n.n, e.Index, e.Term))
	if e.Index != n.state.applied+1 {
		s.Fail("node %d applies entry %d after entry %d", n.n, e.Index, n.state.applied)
	}
	if term, err := n.log.Term(e.Index); err != nil || term != e.Term {
		s.Fail("node %d applies entry %d of term %d, its disk has term %d (%v)", n.n, e.Index, e.Term, term, err)
	}
	if a, ok := o.agreed[e.Index]; !ok {
		o.agreed[e.Index] = *e
	} else if a.Term != e.Term || !bytes.Equal(a.Data, e.Data) {
		s.Fail("node %d applies entry %d of term %d, another node applied one of term %d there", n.n, e.Index, e.Term, a.Term)
	}
}

func (o *oracle) acknowledged(op *operation, index uint64) {
	o.acked = append(o.acked, ack{op, index})
	o.floor = max(o.floor, index)
}

// reads(s, n, floor) is called when a read is answered. It checks that the read sees all operations that
// were acknowledged or read, on any node, before it began.
func (o *oracle) reads(s *sim, n *simNode, floor uint64) {
	s.Note(fmt.Appendf(nil, "%d reads %d", n.n, n.state.value))
	if n.state.applied < floor {
		s.Fail("node %d answers a read at entry %d, but entry %d was known before it began", n.n, n.state.applied, floor)
	}
	o.floor = max(o.floor, n.state.applied)
	o.seen = append(o.seen, seen{n.state.applied, n.state.value})
}

// finish checks the group after all faults have ended: it answers, all members have the same state, and
// that state has all acknowledged operations. It also checks that each read returned the value that the
// register had at the read's place in the order.
func (s *sim) finish() {
	var model state
	model.applied = 1
	values := map[uint64]uint64{1: 0}
	done := map[uint64]bool{}
	for i := uint64(2); ; i++ {
		e, ok := s.oracle.agreed[i]
		if !ok {
			break
		}
		model.apply(&e)
		values[i] = model.value
		if op, ok := parseOperation(e.Data); ok {
			done[op.value()] = true
		}
	}
	for _, a := range s.oracle.acked {
		if !done[a.o.value()] {
			s.Fail("write %d of client %d was acknowledged with entry %d, and is lost", a.o.seq, a.o.client, a.index)
		}
	}
	for _, r := range s.oracle.seen {
		if value, ok := values[r.index]; !ok || value != r.value {
			s.Fail("a read at entry %d returned %x, the register held %x", r.index, r.value, value)
		}
	}
	for _, n := range s.nodes {
		if !n.Up || n.state != model {
			s.Fail("node %d, up %v, ends with %+v, the order with %+v", n.n, n.Up, n.state, model)
		}
	}
	for _, c := range s.clients {
		if c.doing != nil {
			s.Fail("client %d still waits for operation %d", c.n, c.doing.seq)
		}
	}
	if s.swap != nil {
		s.Fail("node %d was not swapped", s.swap.node.n)
	}
}
