package member

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/replica"
)

// ErrKnown means that a node wants to join whose name already belongs to another member: the node's
// directory was emptied, or two nodes have the same name.
var ErrKnown = errors.New("the cluster knows another directory of this node")

const (
	// caughtUp is how many entries a learner's log may lack when the learner becomes a voter. Under load it
	// always lacks the newest.
	caughtUp = 100

	// maxJoins bounds the nodes that wait to become learners.
	maxJoins = 64
)

// join is a node that waits to become a learner.
type join struct {
	id ID
	entry.Node
}

// applyNode gives a node its member, unless the name has one.
func (m *Member) applyNode(n entry.Node) {
	if _, known := m.nodes[n.Name]; !known {
		m.nodes[strings.Clone(n.Name)] = n.Member // the name points into the entry
	}
}

// Nodes returns the member of each node that ever joined, by the node's name. The caller must not change
// the map, and the next entry may.
func (m *Member) Nodes() map[string]uint64 { return m.nodes }

func (m *Member) appendNodes(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(m.nodes)))
	for _, name := range slices.Sorted(maps.Keys(m.nodes)) {
		dst = appendBytes(dst, []byte(name))
		dst = binary.LittleEndian.AppendUint64(dst, m.nodes[name])
	}
	return dst
}

func (m *Member) parseNodes(d *decoder) {
	for range d.count() {
		name := string(d.bytes())
		m.nodes[name] = d.uint64()
	}
}

// Join asks that a node's member gets all entries. The answer comes once it is a learner or a voter. Its
// error is ErrKnown if the name belongs to another member. A learner becomes a voter by itself when its
// log has almost all entries.
func (n *Node) Join(now int64, id ID, node entry.Node) {
	n.tell(now)
	switch {
	case !n.leadership.Leads:
		n.answer(id, replica.ErrNotLeader)
	case len(n.leader.joins) >= maxJoins:
		n.answer(id, fmt.Errorf("%w: %d nodes wait to join", ErrFull, maxJoins))
	default:
		n.leader.joins = append(n.leader.joins, join{id, node})
	}
}

// admitNodes lets nodes join, and makes voters of learners. The next tick does what cannot be done yet.
func (n *Node) admitNodes() {
	if n.term != n.leadership.Term {
		return // entries of earlier leaders may name nodes
	}
	if _, known := n.state.nodes[n.settings.Self.Name]; !known && n.settings.Self.Name != "" {
		n.nameNode(n.settings.Self)
	}
	joins := n.leader.joins
	n.leader.joins = nil
	for _, j := range joins {
		switch member, known := n.state.nodes[j.Name]; {
		case known && member != j.Member:
			n.answer(j.id, fmt.Errorf("%w: %q is member %d", ErrKnown, j.Name, member))
			continue
		case known && n.has(j.Member):
			n.answer(j.id, nil)
			continue
		case known:
			_ = n.replica.Members(n.members.Voters, append(slices.Clone(n.members.Learners), j.Member))
		default:
			n.nameNode(j.Node)
		}
		n.leader.joins = append(n.leader.joins, j)
	}
	n.promote()
}

// nameNode proposes the member of a node, unless such an entry is under way.
func (n *Node) nameNode(node entry.Node) {
	if n.leader.names > n.state.Index() {
		return
	}
	e := entry.Entry{Kind: entry.KindNode, Group: n.state.group, Shape: shape, Node: node}
	if index, err := n.replica.Propose(e.Append(nil)); err == nil {
		n.leader.names = index
	}
}

// has reports whether a member gets all entries.
func (n *Node) has(member uint64) bool {
	return slices.Contains(n.members.Voters, member) || slices.Contains(n.members.Learners, member)
}

// promote makes a voter of a learner whose log has almost all entries.
func (n *Node) promote() {
	if len(n.members.Learners) == 0 || len(n.members.Leaving) > 0 {
		return
	}
	for _, p := range n.replica.Progress() {
		at := slices.Index(n.members.Learners, p.Member)
		if at < 0 || !p.Active || p.Match == 0 || p.Match+caughtUp < n.state.Index() {
			continue
		}
		voters := append(slices.Clone(n.members.Voters), p.Member)
		_ = n.replica.Members(voters, slices.Delete(slices.Clone(n.members.Learners), at, at+1))
		return
	}
}
