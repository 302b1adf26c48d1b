package arena

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"testing"
)

// Blocks of all sizes keep their bytes while other blocks come and go.
func TestBlocksKeepTheirBytes(t *testing.T) {
	type block struct {
		ref  Ref
		want []byte
	}
	var a Arena
	random := rand.New(rand.NewPCG(1, 2))
	var blocks []block
	for i := range 200_000 {
		if len(blocks) > 0 && random.IntN(3) == 0 {
			at := random.IntN(len(blocks))
			b := blocks[at]
			if got := a.Bytes(b.ref, len(b.want)); !bytes.Equal(got, b.want) {
				t.Fatalf("block %d of %d bytes changed", b.ref, len(b.want))
			}
			a.Free(b.ref, len(b.want))
			blocks[at] = blocks[len(blocks)-1]
			blocks = blocks[:len(blocks)-1]
			continue
		}
		n := 1 + random.IntN(200)
		if i%1000 == 0 {
			n = []int{1, unit, exactUnits * unit, exactUnits*unit + 1, maxSmall, maxSmall + 1, 100_000, MaxLen}[i/1000%8]
		}
		ref, b := a.Alloc(n)
		if ref == 0 || len(b) != n {
			t.Fatalf(
				"Alloc(%d) returned %d bytes at Ref %d, want the given length and a Ref other than 0", n, len(b), ref)
		}
		for j := range b {
			b[j] = byte(i + j)
		}
		blocks = append(blocks, block{ref, bytes.Clone(b)})
	}
	for _, b := range blocks {
		if got := a.Bytes(b.ref, len(b.want)); !bytes.Equal(got, b.want) || !bytes.HasPrefix(a.From(b.ref), b.want) {
			t.Fatalf("block %d of %d bytes changed", b.ref, len(b.want))
		}
	}
}

// The longest block fits, even as the first one, which must not get Ref 0.
func TestLongestBlock(t *testing.T) {
	var a Arena
	first, b := a.Alloc(MaxLen)
	second, c := a.Alloc(MaxLen)
	if len(b) != MaxLen || len(c) != MaxLen || first == 0 || first == second {
		t.Fatalf("got blocks of %d and %d bytes at the Refs %d and %d, want MaxLen bytes each",
			len(b), len(c), first, second)
	}
}

// Blocks that are allocated and freed many times take no more memory than their largest total.
func TestFreedMemoryIsUsedAgain(t *testing.T) {
	var a Arena
	var size int
	for round := range 10 {
		var refs []Ref
		for range 10_000 {
			ref, _ := a.Alloc(100)
			refs = append(refs, ref)
		}
		for _, ref := range refs {
			a.Free(ref, 100)
		}
		if round == 0 {
			size = a.Size()
		}
	}
	if a.Size() != size {
		t.Errorf("after ten rounds the arena has %d bytes, want the %d that it had after one", a.Size(), size)
	}
}

// Blocks become ever longer, as keys do when each deployment of a fleet adds a label. An earlier version
// of the arena kept memory for the blocks of each length.
func TestMemoryFollowsWhatIsLive(t *testing.T) {
	const blocks = 5000
	var a Arena
	var most int
	for n := 16; n <= maxSmall+1000; n += unit {
		refs := make([]Ref, blocks)
		for i := range refs {
			refs[i], _ = a.Alloc(n)
		}
		if most = max(most, a.Size()); most > 2*max(n*blocks, 1<<20) {
			t.Fatalf("for %d blocks of %d bytes each, the arena grew to %d bytes, want at most twice their size",
				blocks, n, most)
		}
		for _, ref := range refs {
			a.Free(ref, n)
		}
	}
	if most < maxSmall*blocks {
		t.Errorf("the arena never had more than %d bytes, too few for %d blocks of %d bytes", most, blocks, maxSmall)
	}
	if rest := a.Size(); rest > 3*maxSmall*blocks/2 {
		t.Errorf("after all blocks were freed, the arena has %d bytes, want at most %d", rest, 3*maxSmall*blocks/2)
	}
}

// An empty slab takes blocks of any size. Any other slab takes only blocks of the size that it already
// holds. The order in which blocks are freed does not matter.
func TestASlabServesWhoNeedsIt(t *testing.T) {
	const all = slabUnits / 2 // number of two-unit blocks in a slab
	var a Arena
	var refs []Ref
	for range 3 * all {
		ref, _ := a.Alloc(2 * unit)
		refs = append(refs, ref)
	}
	for i := 2 * all; i < 3*all; i++ { // empties the third slab, and half of the first
		a.Free(refs[i], 2*unit)
		if i%2 == 0 {
			a.Free(refs[i-2*all], 2*unit)
		}
	}
	for range all / 2 {
		a.Alloc(2 * unit)
	}
	a.Alloc(maxSmall)
	a.Alloc(maxSmall)
	if a.Size() != 3*slabBytes {
		t.Errorf("the arena has %d bytes, want %d for three slabs", a.Size(), 3*slabBytes)
	}
	a.Alloc(unit)
	if a.Size() != 4*slabBytes {
		t.Errorf("the arena has %d bytes, want %d for four slabs", a.Size(), 4*slabBytes)
	}
}

// Readers need not wait while the arena grows, or while large blocks are allocated and freed.
func TestReadersDoNotWait(t *testing.T) {
	var a Arena
	ref, b := a.Alloc(5)
	copy(b, "hello")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 1000 {
			if string(a.Bytes(ref, 5)) != "hello" {
				t.Error("a block changed while other blocks were allocated")
				return
			}
			runtime.Gosched()
		}
	}()
	for range 50_000 {
		a.Alloc(100)
		large, _ := a.Alloc(maxSmall + 1)
		a.Free(large, maxSmall+1)
	}
	<-done
}

func TestNoAllocation(t *testing.T) {
	var a Arena
	ref, _ := a.Alloc(100)
	a.Free(ref, 100)
	allocs := testing.AllocsPerRun(100, func() {
		ref, _ := a.Alloc(100)
		a.Bytes(ref, 100)[0] = 1
		a.Free(ref, 100)
	})
	if allocs != 0 {
		t.Errorf("got %v allocations a block", allocs)
	}
}
