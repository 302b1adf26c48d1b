package replica

import (
	"errors"
	"slices"
	"testing"
)

// On one machine alone an entry is committed once it is stored, and its data is not copied.
func TestSolo(t *testing.T) {
	var g Group = NewSolo(7)
	one, two, three := []byte("one"), []byte("two"), []byte("three")
	take := func() Output {
		t.Helper()
		out, err := g.Take()
		if err != nil || !out.Leadership.Leads {
			t.Fatalf("%v, %+v", err, out.Leadership)
		}
		return out
	}
	if out := take(); out.Members == nil || !slices.Equal(out.Members.Voters, []uint64{1}) || out.Write != nil {
		t.Errorf("at first: %+v", out)
	}
	for i, data := range [][]byte{one, two} {
		if index, err := g.Propose(data); err != nil || index != uint64(8+i) {
			t.Errorf("entry %d, %v", index, err)
		}
	}
	out := take()
	if out.Write == nil || len(out.Write.Entries) != 2 || &out.Write.Entries[1].Data[0] != &two[0] || len(out.Apply) > 0 {
		t.Fatalf("got the write %+v and %v to apply, want both entries uncopied and none to apply",
			out.Write, out.Apply)
	}
	first := out.Write.Number
	if _, err := g.Propose(three); err != nil {
		t.Fatal(err)
	}
	second := take().Write.Number
	barrier, _ := g.Barrier()
	g.Stored(first)
	out = take()
	if len(out.Apply) != 2 || out.Apply[0].Index != 8 || out.Apply[1].Index != 9 ||
		!out.Apply[0].Own || &out.Apply[0].Data[0] != &one[0] {
		t.Errorf("stored: %+v", out.Apply)
	}
	if len(out.Reads) != 1 || out.Reads[0].Barrier != barrier || out.Reads[0].Index != 7 {
		t.Errorf(
			"the barrier began before anything was stored: ended %v, want barrier %d at index 7", out.Reads, barrier)
	}
	later, _ := g.Barrier()
	if out := take(); len(out.Reads) > 0 {
		t.Errorf("barriers ended before the entry was applied: %v, want none", out.Reads)
	}
	g.Applied(9)
	if out := take(); len(out.Reads) != 1 || out.Reads[0] != (Read{later, 9}) {
		t.Errorf("applied: %v", out.Reads)
	}
	g.Stored(second)
	if out := take(); len(out.Apply) != 1 || out.Apply[0].Index != 10 || string(out.Apply[0].Data) != "three" {
		t.Errorf("the third: %+v", out.Apply)
	}
	if err := errors.Join(g.Members(nil, nil), g.Transfer(2)); !errors.Is(err, ErrSolo) {
		t.Error(err)
	}
}

// After its first rounds, one machine alone allocates no more memory.
func TestSoloAllocatesNothing(t *testing.T) {
	g := NewSolo(0)
	data := make([]byte, 100_000)
	if n := testing.AllocsPerRun(100, func() { soloRound(g, data) }); n > 0 {
		t.Errorf("%v allocations for a round of entries, want 0", n)
	}
}

// soloRound is one round of a role: propose, store, apply.
func soloRound(g *Solo, data []byte) {
	for range 8 {
		_, _ = g.Propose(data)
	}
	_, _ = g.Barrier()
	out, _ := g.Take()
	g.Stored(out.Write.Number)
	out, _ = g.Take()
	g.Applied(out.Apply[len(out.Apply)-1].Index)
	_, _ = g.Take()
}

// Bound: 1 us for 8 entries, far less than the write to the journal takes.
func BenchmarkSolo(b *testing.B) {
	g, data := NewSolo(0), make([]byte, 100_000)
	b.ReportAllocs()
	for b.Loop() {
		soloRound(g, data)
	}
}
