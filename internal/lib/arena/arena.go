// Package arena keeps many small byte strings in large blocks that hold no
// pointers: a garbage collector that meets a million of them looks at a few
// hundred blocks and into none. What the bytes mean is the caller's business.
package arena

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
)

// Ref is the place of a block in its Arena, in units of 16 bytes. The zero Ref is
// no block.
type Ref uint32

const (
	unit       = 16 // bytes; blocks begin at multiples of it
	chunkBits  = 16 // of a Ref that count units within a chunk
	chunkUnits = 1 << chunkBits
	chunkBytes = chunkUnits * unit // 1 MiB; pages that nothing was written to are not resident

	// exactUnits is the size up to which freed blocks are kept apart by their very
	// size; larger ones are rounded up to a power of two.
	exactUnits = 64
	classes    = exactUnits + chunkBits
)

// MaxLen is the longest block in bytes.
const MaxLen = chunkBytes / 2

// Arena is memory for byte strings. The zero Arena is empty.
//
// One goroutine at a time may call Alloc, Free and Size. Bytes may be called by
// any goroutine at the same time, for a block whose Ref it was given after Alloc
// returned and which is not freed meanwhile.
//
// What is freed is used again for blocks of the same size, and never given back.
// An arena holds 64 GiB.
type Arena struct {
	chunks atomic.Pointer[[][]byte] // replaced whole when one is added
	next   Ref                      // first unit that was never used, 0 before the first
	free   [classes]Ref             // freed blocks by class; each holds the Ref of the next one
}

// Alloc returns a block of n bytes, at least 1 and at most MaxLen, whose content
// is undefined.
func (a *Arena) Alloc(n int) (Ref, []byte) {
	class, units := classOf(n)
	if ref := a.free[class]; ref != 0 {
		b := a.Bytes(ref, unit)
		a.free[class] = Ref(binary.LittleEndian.Uint32(b))
		return ref, a.Bytes(ref, n)
	}
	if left := chunkUnits - a.next%chunkUnits; a.next == 0 || left < units || a.next%chunkUnits == 0 {
		a.grow()
	}
	ref := a.next
	a.next += units
	return ref, a.Bytes(ref, n)
}

// grow begins a chunk. The rest of the one before is lost, less than one block.
func (a *Arena) grow() {
	var all [][]byte
	if old := a.chunks.Load(); old != nil {
		all = append(all, *old...)
	}
	a.next = Ref(len(all)) << chunkBits
	if a.next == 0 {
		a.next = 1 // Ref 0 is no block
	}
	all = append(all, make([]byte, chunkBytes))
	a.chunks.Store(&all)
}

// Free gives a block of n bytes up.
func (a *Arena) Free(ref Ref, n int) {
	class, _ := classOf(n)
	binary.LittleEndian.PutUint32(a.Bytes(ref, unit), uint32(a.free[class]))
	a.free[class] = ref
}

// Bytes returns the n bytes of a block.
func (a *Arena) Bytes(ref Ref, n int) []byte {
	chunk := (*a.chunks.Load())[ref>>chunkBits]
	at := int(ref%chunkUnits) * unit
	return chunk[at : at+n : at+n]
}

// From returns a block and what comes after it in memory, for who reads in a block
// how long it is.
func (a *Arena) From(ref Ref) []byte {
	return (*a.chunks.Load())[ref>>chunkBits][int(ref%chunkUnits)*unit:]
}

// Size is the memory in use for blocks, freed ones among them, in bytes.
func (a *Arena) Size() int { return int(a.next) * unit }

// classOf returns the class of a block of n bytes and the units that it takes.
func classOf(n int) (class int, units Ref) {
	units = Ref(n+unit-1) / unit
	if units <= exactUnits {
		return int(units), units
	}
	log := bits.Len32(uint32(units - 1))
	return exactUnits + log, 1 << log
}
