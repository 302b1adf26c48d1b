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
	x.Name("b", 2)
	x.Name("a", 1)
	x.Name("b", 9)
	y.Name("a", 1)
	y.Name("b", 2)
	if string(x.Append(nil)) != string(y.Append(nil)) {
		t.Error("equal Nodes have different bytes")
	}
	var read Nodes
	if err := read.Parse(x.Append(nil)); err != nil || !maps.Equal(read.All(), map[string]uint64{"a": 1, "b": 2}) {
		t.Errorf("read %v, %v", read.All(), err)
	}
}

func FuzzNodes(f *testing.F) {
	var n Nodes
	f.Add(n.Append(nil))
	n.Name("b", 2)
	n.Name("a", 1)
	f.Add(n.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var n Nodes
		if n.Parse(b) == nil && string(n.Append(nil)) != string(b) {
			t.Errorf("%x is read as %v", b, n.All())
		}
	})
}
