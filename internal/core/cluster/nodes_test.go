package cluster

import (
	"maps"
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	for _, bad := range []string{"", "a b", "ä", "a/b", "a=b", strings.Repeat("a", 64)} {
		if CheckName(bad) == nil {
			t.Errorf("the name %q is accepted", bad)
		}
	}
	for _, good := range []string{"a", "node-1.eu_west", strings.Repeat("a", 63)} {
		if err := CheckName(good); err != nil {
			t.Error(err)
		}
	}
}

// A node keeps its first member, and equal states have equal bytes.
func TestNodes(t *testing.T) {
	var x, y Nodes
	x.Name("b", 2, 0)
	x.Name("a", 1, 0)
	x.Name("b", 9, 0)
	y.Name("a", 1, 0)
	y.Name("b", 2, 0)
	if string(x.Append(nil)) != string(y.Append(nil)) {
		t.Error("equal Nodes have different bytes")
	}
	var read Nodes
	if err := read.Parse(x.Append(nil)); err != nil || !maps.Equal(read.All(), map[string]uint64{"a": 1, "b": 2}) {
		t.Errorf("read %v, %v", read.All(), err)
	}
}

// Another member takes a node's name only in place of the present one. A removed node stays known, without a member,
// and its name is free.
func TestNodesAreReplacedAndRemoved(t *testing.T) {
	var n Nodes
	n.Name("a", 1, 0)
	n.Name("b", 2, 0)
	before := n.Append(nil)
	n.Name("b", 9, 3)
	if string(n.Append(nil)) != string(before) {
		t.Errorf("a member that the node does not have is replaced: %v", n.All())
	}
	n.Name("b", 9, 2)
	n.Name("a", 0, 1)
	if is, known := n.Member("a"); !known || is != 0 || !maps.Equal(n.All(), map[string]uint64{"a": 0, "b": 9}) {
		t.Errorf("the nodes are %v", n.All())
	}
	var read Nodes
	if err := read.Parse(n.Append(nil)); err != nil || !maps.Equal(read.All(), n.All()) {
		t.Errorf("read %v, %v", read.All(), err)
	}
	n.Name("a", 4, 0)
	if is, _ := n.Member("a"); is != 4 {
		t.Errorf("the name of a removed node is not free: %v", n.All())
	}
}

// A node is drained until it is undrained or removed.
func TestNodesAreDrained(t *testing.T) {
	var n Nodes
	n.Name("a", 1, 0)
	n.Name("b", 2, 0)
	n.Name("c", 3, 0)
	n.Name("c", 0, 3)
	before := n.Append(nil)
	n.Drain("a", 1000)
	n.Drain("b", 2000)
	n.Drain("c", 3000) // it was removed
	n.Drain("x", 3000)
	want := map[string]int64{"a": 1000, "b": 2000}
	if !maps.Equal(n.Drained(), want) {
		t.Errorf("drained are %v, want %v", n.Drained(), want)
	}
	var read Nodes
	err := read.Parse(n.Append(nil))
	if err != nil || !maps.Equal(read.Drained(), want) || !maps.Equal(read.All(), n.All()) {
		t.Errorf("read %v, drained %v, %v", read.All(), read.Drained(), err)
	}
	n.Drain("a", 0)
	n.Drain("b", 0)
	if string(n.Append(nil)) != string(before) {
		t.Error("the end of a drain leaves something")
	}
	n.Drain("b", 2000)
	n.Name("b", 0, 2)
	if len(n.Drained()) != 0 {
		t.Error("a removed node is drained")
	}
}

func FuzzNodes(f *testing.F) {
	var n Nodes
	f.Add(n.Append(nil))
	n.Name("b", 2, 0)
	n.Name("a", 1, 0)
	f.Add(n.Append(nil))
	n.Name("a", 0, 1)
	f.Add(n.Append(nil))
	n.Drain("b", 1795228020154)
	f.Add(n.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var n Nodes
		if n.Parse(b) == nil && string(n.Append(nil)) != string(b) {
			t.Errorf("%x is read as %v", b, n.All())
		}
	})
}
