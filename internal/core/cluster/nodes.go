// Package cluster has the names of a cluster's nodes, and the member of each.
package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Nodes has the member of each node that ever joined a group. All members fold it from the entries of the group's
// log, so they agree on it. The zero value has no nodes and is ready for use. One goroutine at a time uses it.
type Nodes struct {
	members map[string]uint64
	drained map[string]int64 // until when a node must not lead, Unix ms
}

// Name records the member of a node, unless the node already has another one than `replaces`. A node that is
// removed gets the member 0.
func (n *Nodes) Name(node string, member, replaces uint64) {
	if n.members[node] != replaces {
		return
	}
	if n.members == nil {
		n.members = map[string]uint64{}
	}
	n.members[strings.Clone(node)] = member
	if member == 0 {
		delete(n.drained, node)
	}
}

// Drain records until when a node must not lead, in Unix ms; 0 if it may lead again. It does nothing if the node
// has no member.
func (n *Nodes) Drain(node string, until int64) {
	if until == 0 || n.members[node] == 0 {
		delete(n.drained, node)
		return
	}
	if n.drained == nil {
		n.drained = map[string]int64{}
	}
	n.drained[strings.Clone(node)] = until
}

// Drained returns until when nodes must not lead. The caller must not change it.
func (n *Nodes) Drained() map[string]int64 { return n.drained }

// Member returns the member of a node, and whether the node is known. The member of a removed node is 0.
func (n *Nodes) Member(node string) (member uint64, known bool) {
	member, known = n.members[node]
	return member, known
}

// All returns a copy of the members, by the name of the node. The member of a removed node is 0.
func (n *Nodes) All() map[string]uint64 { return maps.Clone(n.members) }

const (
	nodesVersion = 1
	withRemoved  = 2 // a node was removed
	withDrained  = 3 // a node is drained; others may have been removed
)

var errNodes = errors.New("the list of the group's nodes is damaged")

// Append appends the state: a version, then the nodes, ascending by name. Each node is written as the
// length of its name, the name, and its member in 8 bytes. In version 3 it is followed by 8 bytes, until when the node
// is drained, or 0. Equal Nodes have equal bytes.
func (n *Nodes) Append(b []byte) []byte {
	version := byte(nodesVersion)
	if slices.Contains(slices.Collect(maps.Values(n.members)), 0) {
		version = withRemoved
	}
	if len(n.drained) > 0 {
		version = withDrained
	}
	b = append(b, version)
	for _, node := range slices.Sorted(maps.Keys(n.members)) {
		b = binary.AppendUvarint(b, uint64(len(node)))
		b = append(b, node...)
		b = binary.LittleEndian.AppendUint64(b, n.members[node])
		if version == withDrained {
			b = binary.LittleEndian.AppendUint64(b, uint64(n.drained[node]))
		}
	}
	return b
}

// Parse is the inverse of Append.
func (n *Nodes) Parse(b []byte) error {
	if len(b) == 0 || b[0] < nodesVersion || b[0] > withDrained {
		return errNodes
	}
	version, figures := b[0], uint64(8)
	if version == withDrained {
		figures = 16
	}
	b = b[1:]
	all, last, removed := Nodes{members: map[string]uint64{}}, "", false
	for len(b) > 0 {
		length, size := binary.Uvarint(b)
		if size <= 0 || size > 1 && b[size-1] == 0 { // the second condition: a length in more bytes than it needs
			return errNodes
		}
		if length == 0 || length > math.MaxUint8 || uint64(len(b)) < uint64(size)+length+figures {
			return errNodes
		}
		b = b[size:]
		node := string(b[:length])
		member := binary.LittleEndian.Uint64(b[length:])
		if node <= last {
			return errNodes
		}
		all.members[node], removed = member, removed || member == 0
		if version == withDrained {
			until := int64(binary.LittleEndian.Uint64(b[length+8:]))
			if until < 0 || until > 0 && member == 0 {
				return errNodes
			}
			all.Drain(node, until)
		}
		last, b = node, b[length+figures:]
	}
	if removed != (version == withRemoved) && version != withDrained || len(all.drained) > 0 != (version == withDrained) {
		return errNodes
	}
	*n = all
	return nil
}

// ErrNotAdmitted means that a node must not join. Asking again does not help.
var ErrNotAdmitted = errors.New("the cluster does not admit this node")

// ErrLacksEntries means that a node may join once it has been filled: the log of the group no longer has the entries
// that the node lacks.
var ErrLacksEntries = errors.New("the log of the group lacks entries that the node needs")

// maxName bounds the name of a node, in bytes.
const maxName = 63

// CheckName returns what is wrong with the name of a node.
func CheckName(name string) error {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	if name == "" || len(name) > maxName || strings.Trim(name, allowed) != "" {
		return fmt.Errorf("%.80q is no name of a node: it needs 1 to %d letters, digits, dashes, underscores and dots",
			name, maxName)
	}
	return nil
}
