package arena

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"testing"
)

// Blocks of all sizes keep what was written to them while others come and go.
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
			n = []int{1, unit, unit + 1, exactUnits * unit, exactUnits*unit + 1, 100_000, MaxLen - unit, MaxLen}[i/1000%8]
		}
		ref, b := a.Alloc(n)
		if ref == 0 || len(b) != n {
			t.Fatalf("a block of %d bytes is %d bytes at %d", n, len(b), ref)
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

// The longest block fits, also as the first, where Ref 0 must stay free.
func TestLongestBlock(t *testing.T) {
	var a Arena
	first, b := a.Alloc(MaxLen)
	second, c := a.Alloc(MaxLen)
	if len(b) != MaxLen || len(c) != MaxLen || first == 0 || first == second {
		t.Fatalf("blocks of %d and %d bytes at %d and %d", len(b), len(c), first, second)
	}
}

// A crowd that comes and goes takes no more memory than it had at its largest.
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
		t.Errorf("%d bytes after ten rounds, %d after one", a.Size(), size)
	}
}

// Reading goes on while the arena grows.
func TestReadersDoNotWait(t *testing.T) {
	var a Arena
	ref, b := a.Alloc(5)
	copy(b, "hello")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 1000 {
			if string(a.Bytes(ref, 5)) != "hello" {
				t.Error("a block changed while others were allocated")
				return
			}
			runtime.Gosched()
		}
	}()
	for range 50_000 {
		a.Alloc(100)
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
		t.Errorf("%v allocations a block", allocs)
	}
}
