package prefetch

import (
	"testing"
	"unsafe"
)

// Addresses are only hints. Any address is allowed, even nil, and the list may be empty.
func TestLinesTakesAnyAddress(t *testing.T) {
	block := make([]byte, 4096)
	Lines(nil)
	Lines([]unsafe.Pointer{nil, unsafe.Pointer(&block[0]), unsafe.Pointer(&block[len(block)-1]), nil})
	for i := range block {
		if block[i] != 0 {
			t.Fatalf("byte %d was written to", i)
		}
	}
}

// Lines allocates nothing for a list.
func TestLinesAllocatesNothing(t *testing.T) {
	var block [256]byte
	var at [4]unsafe.Pointer
	if n := testing.AllocsPerRun(100, func() {
		for i := range at {
			at[i] = unsafe.Pointer(&block[i*64])
		}
		Lines(at[:])
	}); n != 0 {
		t.Errorf("got %v allocations, want none", n)
	}
}
