package member

import (
	"bytes"
	"testing"
)

// The leader notes in the log up to which entry a backend has the forwarded data, and all members know
// it. The next leader sends nothing before it knows the notes of the last leader.
func TestTheLogKnowsWhatIsForwarded(t *testing.T) {
	g := newThree(t, 3)
	first := g.leader()
	for _, n := range g.nodes {
		if n.Sends() != (n == first) {
			t.Error("a member other than the leader sends")
		}
	}
	for _, n := range g.others(first) {
		n.Forwarded(map[string]uint64{"mimir": 1})
	}
	g.settle()
	first.Forwarded(map[string]uint64{"mimir": 2, "thanos": 0})
	first.Forwarded(map[string]uint64{"mimir": 3}) // while the first entry is under way
	g.settle()
	ends := first.log.Last()
	first.Forwarded(map[string]uint64{"mimir": 2})
	g.settle()
	if first.log.Last() != ends {
		t.Error("an entry notes what the log has already")
	}
	g.pass(100) // a heartbeat tells the others that the entry is committed
	for i, n := range g.nodes {
		if index := n.State().Forwarded("mimir"); index != 2 || n.State().Forwarded("thanos") != 0 {
			t.Errorf("member %d: entry %d", i, index)
		}
	}
	first.parted = true
	for _, n := range g.others(first) {
		n.muffled = true
	}
	g.pass(5000)
	if next := g.leader(); next == first || next.Sends() {
		t.Error("a leader sends before it knows that it has all entries of the last leader")
	}
	for _, n := range g.others(first) {
		n.muffled = false
	}
	g.pass(5000)
	if next := g.leader(); !next.Sends() || next.State().Forwarded("mimir") != 2 {
		t.Errorf("the next leader: sends %v, forwarded entry %d; want true and entry 2",
			next.Sends(), next.State().Forwarded("mimir"))
	}
}

// The section of the group says what is forwarded. A section of an earlier version does not.
func TestTheSectionHasWhatIsForwarded(t *testing.T) {
	g := newThree(t, 1)
	g.leader().Forwarded(map[string]uint64{"mimir": 2, "thanos": 1})
	g.settle()
	section := g.leader().State().AppendGroup(nil)
	m, err := Restore(group, &config, section)
	if err != nil || m.Forwarded("mimir") != 2 || m.Forwarded("thanos") != 1 {
		t.Fatalf("restored: %v", err)
	}
	if _, err := Restore(group, &config, section[:len(section)-1]); err == nil {
		t.Error("a cut section is restored")
	}
	empty := New(group, &config).AppendGroup(nil)
	names := 1 + len(noNames) // with their length
	third := append([]byte{3}, empty[1:len(empty)-names]...)
	if m, err = Restore(group, &config, third); err != nil || !bytes.Equal(m.AppendGroup(nil), empty) {
		t.Errorf("a section of version 3: %v", err)
	}
	earlier := append([]byte{1}, empty[1:len(empty)-names-2]...) // without the numbers of backends and events
	if m, err = Restore(group, &config, earlier); err != nil || m.Forwarded("mimir") != 0 {
		t.Errorf("a section of version 1: %v", err)
	}
}

// Unstored is the first entry whose samples the store of any tenant may lack.
func TestUnstored(t *testing.T) {
	g := newThree(t, 1)
	n := g.leader()
	if n.State().Unstored() != n.State().Index()+1 {
		t.Errorf("nothing waits, but Unstored() is %d after entry %d", n.State().Unstored(), n.State().Index())
	}
	n.hangs = true
	n.Write(g.now, 1, requestEntry(t, g.now))
	g.settle()
	waits := n.State().Index()
	n.Write(g.now, 2, requestEntry(t, g.now+1))
	n.Forwarded(map[string]uint64{"mimir": 1})
	g.settle()
	if n.State().Unstored() != waits || n.State().Index() != waits+2 {
		t.Errorf("Unstored() is %d, but entry %d waits", n.State().Unstored(), waits)
	}
	n.hangs = false
	g.settle()
	if n.State().Unstored() != n.State().Index()+1 {
		t.Errorf("unstored stays %d", n.State().Unstored())
	}
}
