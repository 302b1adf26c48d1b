package member

import (
	"errors"
	"strings"
	"testing"
)

// A disk that is nearly full stops only what needs it: three nodes refuse writes once two of them have no room, and
// take them again when one has. Tiles close meanwhile.
func TestFullDisksStopWrites(t *testing.T) {
	g := newABC(t)
	a, b, c := g.nodes[0], g.nodes[1], g.nodes[2]
	id := ID(100)
	push := func() error {
		id++
		a.Push(g.now, id, pushOf(g.now, "default", 7, uint64(id), 1))
		g.pass(1000)
		return a.answers[id].Err
	}
	full := func(n *testNode, is bool) {
		n.short = is
		n.Short(is)
		g.pass(1000)
	}
	if err := push(); err != nil {
		t.Fatal(err)
	}
	full(b, true)
	if err := push(); err != nil {
		t.Errorf("with one full disk, a push is answered %v", err)
	}
	full(c, true)
	err := push()
	if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "node b and node c") {
		t.Errorf("with two full disks, a push is answered %v", err)
	}
	full(b, false)
	if err := push(); err != nil {
		t.Errorf("when one disk has room again, a push is answered %v", err)
	}
	b.parted = true
	g.pass(2 * fresh)
	if err := push(); !errors.Is(err, ErrFull) {
		t.Errorf("while b is away and c's disk is full, a push is answered %v", err)
	}
}
