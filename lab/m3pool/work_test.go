package m3pool

import (
	"runtime/debug"
	"testing"
	"unsafe"
)

// calls is the depth of the work, in nested calls.
const calls = 33

// stack is a variable that detects copies of the goroutine's stack, since a copy changes its
// address. It must not escape to the heap, so it is never passed to a function that the compiler
// cannot see.
type stack struct {
	at      uintptr // address of this variable
	growths uint64
	bytes   uintptr // bytes of stack between this variable and the deepest call
}

func (s *stack) look(deepest uintptr) {
	at := uintptr(unsafe.Pointer(s))
	if s.at != 0 && s.at != at {
		s.growths++
	}
	s.at = at
	s.bytes = max(s.bytes, at-deepest)
}

// work stands for the processing of a batch. It returns a result for x, and the growths of the
// stack that it saw.
type work func(x uint64) (result uint64, seen stack)

// deepWork returns work like a write path: calls within calls, the last of which calls a helper.
func deepWork(h helper) work {
	return func(x uint64) (uint64, stack) {
		var s stack
		s.look(uintptr(unsafe.Pointer(&s)))
		x = call(&s, x, calls, h)
		return x, s
	}
}

// shallowWork returns the same work with its calls one after the other, as in M3's benchmark.
func shallowWork(h helper) work {
	return func(x uint64) (uint64, stack) {
		var s stack
		s.look(uintptr(unsafe.Pointer(&s)))
		for left := range calls {
			x = call(&s, x, 1, h && left == calls-1)
		}
		return x, s
	}
}

// helper says how the helper at the end of the write path is compiled.
type helper bool

const (
	inlined   helper = false
	outOfLine helper = true // the regression: it has its own stack frame
)

// call takes 80 bytes of stack, and makes the remaining calls. 33 calls fit into a stack of 4 KiB.
// The stack grows before the first line of a function, so no growth is missed.
//
//go:noinline
func call(s *stack, x uint64, left int, h helper) uint64 {
	var local [4]uint64
	s.look(uintptr(unsafe.Pointer(&local)))
	for i := range local {
		x = x*6364136223846793005 + 1442695040888963407
		local[i] = x
	}
	x ^= local[x>>62]
	switch {
	case left > 1:
		return call(s, x, left-1, h)
	case h == outOfLine:
		return clone(s, x)
	}
	return x
}

// clone returns `x`. Its frame takes 0.5 KiB, so the 33 calls and clone together do not fit into a
// stack of 4 KiB.
//
//go:noinline
func clone(s *stack, x uint64) uint64 {
	var local [64]uint64
	s.look(uintptr(unsafe.Pointer(&local)))
	local[x>>58] = x
	return local[x>>58]
}

// The type stack counts growths correctly. Deep work makes a new goroutine grow its stack of 2 KiB
// once, or twice with the regression. A goroutine that has done such work before does not grow its
// stack again. Shallow work fits into any stack.
func TestStack(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // collections would shrink stacks
	for _, c := range []struct {
		name    string
		do      work
		growths uint64
	}{
		{"shallow", shallowWork(inlined), 0},
		{"shallow, regression", shallowWork(outOfLine), 0},
		{"deep", deepWork(inlined), 1},
		{"deep, regression", deepWork(outOfLine), 2},
	} {
		done := make(chan [2]stack)
		go func() {
			var seen [2]stack
			for i := range seen {
				_, seen[i] = c.do(1)
			}
			done <- seen
		}()
		seen := <-done
		t.Logf("%s: %d bytes", c.name, seen[0].bytes)
		if seen[0].growths != c.growths || seen[1].growths != 0 {
			t.Errorf("%s: the stack grew %d times at first, and %d times once it was large; want %d and 0",
				c.name, seen[0].growths, seen[1].growths, c.growths)
		}
	}
}

func TestSameWork(t *testing.T) {
	for x := range uint64(100) {
		one, _ := deepWork(inlined)(x)
		for _, do := range []work{deepWork(outOfLine), shallowWork(inlined), shallowWork(outOfLine)} {
			if other, _ := do(x); one != other {
				t.Fatalf("for %d, one kind of work returned %d, but another kind returned %d", x, one, other)
			}
		}
	}
}
