// Package arena keeps many small byte strings in large blocks that hold no
// pointers: a garbage collector that meets a million of them looks at a few
// hundred blocks and into none. What the bytes mean is the caller's business.
package arena

import (
	"encoding/binary"
	"sync/atomic"
)

// Ref is the place of a block in its Arena. The zero Ref is no block.
//
// Below largeRef it counts units from the first chunk on; above, large blocks.
type Ref uint32

const (
	unit       = 8  // bytes; blocks begin at multiples of it
	chunkBits  = 17 // of a Ref that count units within a chunk
	chunkUnits = 1 << chunkBits
	chunkBytes = chunkUnits * unit // 1 MiB; pages that nothing was written to are not resident

	// A chunk is cut into slabs of 16 KiB. The smaller they are, the less memory a few
	// blocks hold that stay behind, and the more is lost at the ends of slabs: 5 % at
	// worst, 1 % for blocks of 200 bytes.
	slabBits  = 11 // of a Ref that count units within a slab
	slabUnits = 1 << slabBits
	slabBytes = slabUnits * unit

	// exactUnits is the size up to which blocks are rounded up to units only. Of larger
	// ones a slab has as many as fit, 15 to 2, all of the same size.
	exactUnits = 128
	classes    = exactUnits + slabUnits/exactUnits

	// maxSmall is the longest block in a slab, in bytes.
	maxSmall = slabBytes / 2

	largeRef Ref = 1 << 31
)

// MaxLen is the longest block in bytes.
const MaxLen = 512 << 10

// Arena is memory for byte strings. The zero Arena is empty.
//
// One goroutine at a time may call Alloc, Free and Size. Bytes and From may be called
// by any goroutine at the same time, for a block whose Ref it was given after Alloc
// returned and which is not freed meanwhile.
//
// Blocks lie in slabs, each of which has blocks of one size. What is freed is used
// again for blocks of that size; a slab without any block left is for those of any
// size. So an arena is as large as all blocks together ever were, and not as those of
// each size. Blocks above 8 KiB have memory of their own, which goes when they are
// freed. An arena holds 16 GiB besides those.
type Arena struct {
	chunks atomic.Pointer[[][]byte] // the first is nil, so that no block has Ref 0
	large  atomic.Pointer[[][]byte] // large blocks; nil where one was freed

	slabs      []slab          // by number: Ref / slabUnits
	roomy      [classes]uint32 // for each class the first slab that has room
	empty      uint32          // the first slab that has no block
	unused     uint32          // slabs that were never used begin here
	freed      []Ref           // of large blocks
	largeBytes int
}

// slab is what Alloc and Free know of 16 KiB. 0 is no slab.
type slab struct {
	free       Ref    // the first of the freed blocks; each holds the Ref of the next one
	prev, next uint32 // slabs of the class that have room, or empty slabs, which have no prev
	fresh      uint16 // units; no block was ever behind them
	live       uint16 // blocks
}

// Alloc returns a block of n bytes, at least 1 and at most MaxLen, whose content
// is undefined.
func (a *Arena) Alloc(n int) (Ref, []byte) {
	if n > maxSmall {
		return a.allocLarge(n)
	}
	class, units := classOf(n)
	number := a.roomy[class]
	if number == 0 {
		number = a.takeSlab()
		a.link(class, number)
	}
	s := &a.slabs[number]
	ref := s.free
	if ref != 0 {
		s.free = Ref(binary.LittleEndian.Uint32(a.From(ref)))
	} else {
		ref = Ref(number)<<slabBits + Ref(s.fresh)
		s.fresh += units
	}
	s.live++
	if s.full(units) {
		a.unlink(class, number)
	}
	return ref, a.Bytes(ref, n)
}

// Free gives a block of n bytes up.
func (a *Arena) Free(ref Ref, n int) {
	if n > maxSmall {
		a.freeLarge(ref, n)
		return
	}
	class, units := classOf(n)
	number := uint32(ref >> slabBits)
	s := &a.slabs[number]
	if s.full(units) {
		a.link(class, number)
	}
	binary.LittleEndian.PutUint32(a.From(ref), uint32(s.free))
	s.free = ref
	if s.live--; s.live == 0 {
		a.unlink(class, number)
		*s = slab{next: a.empty}
		a.empty = number
	}
}

// full reports whether there is no room for another block of so many units.
func (s *slab) full(units uint16) bool { return s.free == 0 && s.fresh+units > slabUnits }

// takeSlab returns a slab without blocks.
func (a *Arena) takeSlab() uint32 {
	if number := a.empty; number != 0 {
		a.empty = a.slabs[number].next
		return number
	}
	if int(a.unused) == len(a.slabs) {
		all := [][]byte{nil}
		if old := a.chunks.Load(); old != nil {
			all = *old // whoever reads the old list sees nothing beyond its end
		}
		a.unused = uint32(len(all)) * (chunkUnits / slabUnits)
		all = append(all, make([]byte, chunkBytes))
		a.chunks.Store(&all)
		a.slabs = append(a.slabs, make([]slab, len(all)*(chunkUnits/slabUnits)-len(a.slabs))...)
	}
	a.unused++
	return a.unused - 1
}

// link makes a slab the first of its class that has room.
func (a *Arena) link(class int, number uint32) {
	first := a.roomy[class]
	a.slabs[first].prev = number // of slab 0 nobody reads it
	a.slabs[number].prev, a.slabs[number].next = 0, first
	a.roomy[class] = number
}

// unlink takes a slab out of those of its class that have room.
func (a *Arena) unlink(class int, number uint32) {
	s := &a.slabs[number]
	a.slabs[s.next].prev = s.prev
	if s.prev == 0 {
		a.roomy[class] = s.next
	} else {
		a.slabs[s.prev].next = s.next
	}
}

// classOf returns the class of a block of n bytes in a slab and the units that it
// takes.
func classOf(n int) (class int, units uint16) {
	units = uint16((n + unit - 1) / unit)
	if units <= exactUnits {
		return int(units) - 1, units
	}
	fit := slabUnits / units
	return exactUnits + int(fit), slabUnits / fit
}

// allocLarge makes a block with memory of its own.
func (a *Arena) allocLarge(n int) (Ref, []byte) {
	block := make([]byte, n)
	a.largeBytes += n
	if last := len(a.freed) - 1; last >= 0 {
		ref := a.freed[last]
		a.freed = a.freed[:last]
		(*a.large.Load())[ref-largeRef] = block
		return ref, block
	}
	var all [][]byte
	if old := a.large.Load(); old != nil {
		all = *old // whoever reads the old list sees nothing beyond its end
	}
	all = append(all, block)
	a.large.Store(&all)
	return largeRef + Ref(len(all)-1), block
}

func (a *Arena) freeLarge(ref Ref, n int) {
	(*a.large.Load())[ref-largeRef] = nil
	a.freed = append(a.freed, ref)
	a.largeBytes -= n
}

// Bytes returns the n bytes of a block.
func (a *Arena) Bytes(ref Ref, n int) []byte { return a.From(ref)[:n:n] }

// From returns a block and what comes after it in memory, for who reads in a block
// how long it is.
func (a *Arena) From(ref Ref) []byte {
	if ref >= largeRef {
		return (*a.large.Load())[ref-largeRef]
	}
	return (*a.chunks.Load())[ref>>chunkBits][int(ref%chunkUnits)*unit:]
}

// Size is the memory in use for blocks, freed ones among them, in bytes.
func (a *Arena) Size() int {
	if a.unused == 0 {
		return a.largeBytes
	}
	return int(a.unused-chunkUnits/slabUnits)*slabBytes + a.largeBytes
}
