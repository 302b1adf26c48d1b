// Package arena keeps many small byte strings in large blocks of memory without pointers. For a
// million strings, the garbage collector visits a few hundred such blocks and scans none.
package arena

import (
	"encoding/binary"
	"sync/atomic"
)

// Ref is the place of a block in its Arena. The zero Ref is no block.
//
// Below largeRef, a Ref counts units of memory from the first chunk on. From largeRef on, it is
// the number of a large block.
type Ref uint32

const (
	unit       = 8  // bytes; every block begins at a multiple of unit
	chunkBits  = 17 // bits of a Ref that hold the position in a chunk, in units
	chunkUnits = 1 << chunkBits
	chunkBytes = chunkUnits * unit // 1 MiB; the kernel provides a page when it is first written to

	// A chunk is cut into slabs of 16 KiB. With smaller slabs, a few remaining blocks would keep
	// less memory in use, but the unused ends of slabs would waste more. With 16 KiB the ends waste
	// at most 5 %, and 1 % for blocks of 200 bytes.
	slabBits  = 11 // bits of a Ref that hold the position in a slab, in units
	slabUnits = 1 << slabBits
	slabBytes = slabUnits * unit

	// exactUnits is the size up to which blocks are only rounded up to whole units. Larger blocks
	// are rounded up so that 2 to 15 of them fill a slab.
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
// One goroutine at a time may call Alloc, Free and Size. Other goroutines may call Bytes and From
// meanwhile, for a block that Alloc has returned and that nobody frees during the call.
//
// All blocks of a slab have one size. A freed block is reused for blocks of this size, and an empty slab
// is reused for blocks of any size. So an arena takes as much memory as all its blocks together took at
// their peak, and not the sum of the peaks of each size. Blocks above 8 KiB are allocated separately and
// released when freed. An arena holds up to 16 GiB of smaller blocks.
type Arena struct {
	chunks atomic.Pointer[[][]byte] // the first chunk is nil, so no block has Ref 0
	large  atomic.Pointer[[][]byte] // large blocks; nil where one was freed

	slabs      []slab          // by number: Ref / slabUnits
	roomy      [classes]uint32 // by class: the first slab with room
	empty      uint32          // the first slab of the list of empty slabs
	unused     uint32          // the first slab that was never used
	freed      []Ref           // Refs of freed large blocks, for reuse
	largeBytes int
}

// slab is the state of 16 KiB of blocks. Number 0 is no slab.
type slab struct {
	free       Ref    // the first freed block; each freed block holds the Ref of the next
	prev, next uint32 // in the class's list of roomy slabs, or in the list of empty slabs (next only)
	fresh      uint16 // units that were ever used
	live       uint16 // blocks in use
}

// Alloc returns a block of n bytes, whose content is undefined. n is at least 1 and at most MaxLen.
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

// Free releases a block of n bytes.
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

// full is true if the slab has no room for another block of this many units.
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
			all = *old // a reader of the old list sees nothing beyond its end
		}
		a.unused = uint32(len(all)) * (chunkUnits / slabUnits)
		all = append(all, make([]byte, chunkBytes))
		a.chunks.Store(&all)
		a.slabs = append(a.slabs, make([]slab, len(all)*(chunkUnits/slabUnits)-len(a.slabs))...)
	}
	a.unused++
	return a.unused - 1
}

// link puts a slab at the front of its class's list of slabs with room.
func (a *Arena) link(class int, number uint32) {
	first := a.roomy[class]
	a.slabs[first].prev = number // for slab 0, prev is never read
	a.slabs[number].prev, a.slabs[number].next = 0, first
	a.roomy[class] = number
}

// unlink removes a slab from its class's list of slabs with room.
func (a *Arena) unlink(class int, number uint32) {
	s := &a.slabs[number]
	a.slabs[s.next].prev = s.prev
	if s.prev == 0 {
		a.roomy[class] = s.next
	} else {
		a.slabs[s.prev].next = s.next
	}
}

// classOf returns the class of a block of n bytes, and the units that it takes.
func classOf(n int) (class int, units uint16) {
	units = uint16((n + unit - 1) / unit)
	if units <= exactUnits {
		return int(units) - 1, units
	}
	fit := slabUnits / units
	return exactUnits + int(fit), slabUnits / fit
}

// allocLarge allocates a block outside of slabs.
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
		all = *old // a reader of the old list sees nothing beyond its end
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

// From returns a block and the memory after it, for callers that read the block's length from
// the block itself.
func (a *Arena) From(ref Ref) []byte {
	if ref >= largeRef {
		return (*a.large.Load())[ref-largeRef]
	}
	return (*a.chunks.Load())[ref>>chunkBits][int(ref%chunkUnits)*unit:]
}

// Size returns the memory in use for blocks, including freed ones, in bytes.
func (a *Arena) Size() int {
	if a.unused == 0 {
		return a.largeBytes
	}
	return int(a.unused-chunkUnits/slabUnits)*slabBytes + a.largeBytes
}
