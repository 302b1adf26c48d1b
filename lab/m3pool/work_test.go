package m3pool

import (
	"runtime/debug"
	"testing"
	"unsafe"
)

// calls is how deep the work is.
const calls = 30

// stack watches the stack that it lies on: when that is copied, so is the watch, which
// then finds itself at another address. It must not escape to the heap, so that it is
// never handed to a function that the compiler does not know.
type stack struct {
	at      uintptr // address of the watch itself
	growths uint64
	bytes   uintptr // from the watch to the deepest call
}

func (s *stack) look(deepest uintptr) {
	at := uintptr(unsafe.Pointer(s))
	if s.at != 0 && s.at != at {
		s.growths++
	}
	s.at = at
	s.bytes = max(s.bytes, at-deepest)
}

// work stands for what is done with a batch: it returns what it computed of x, and what
// became of the stack meanwhile.
type work func(x uint64) (result uint64, seen stack)

// deep is work as in a write path, calls within calls.
func deep(x uint64) (uint64, stack) {
	var s stack
	s.look(uintptr(unsafe.Pointer(&s)))
	x = call(&s, x, calls)
	return x, s
}

// shallow is the same work as in a benchmark, one call after the other.
func shallow(x uint64) (uint64, stack) {
	var s stack
	s.look(uintptr(unsafe.Pointer(&s)))
	for range calls {
		x = call(&s, x, 1)
	}
	return x, s
}

// call needs about 200 bytes of stack, and goes on with the calls that are left. It
// grows the stack before its first line, so that none goes unseen.
//
//go:noinline
func call(s *stack, x uint64, left int) uint64 {
	var local [16]uint64
	s.look(uintptr(unsafe.Pointer(&local)))
	for i := range local {
		x = x*6364136223846793005 + 1442695040888963407
		local[i] = x
	}
	x ^= local[x>>60]
	if left > 1 {
		return call(s, x, left-1)
	}
	return x
}

// What is measured happens: deep work makes a new goroutine grow its stack past 4 KiB,
// and not one that has done such work before; shallow work has room in any.
func TestStack(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which would shrink stacks
	done := make(chan [3]stack)
	go func() {
		var seen [3]stack
		for i, do := range []work{shallow, deep, deep} {
			_, seen[i] = do(1)
		}
		done <- seen
	}()
	seen := <-done
	for i, name := range []string{"shallow", "deep", "deep again"} {
		t.Logf("%s: %d bytes, %d growths", name, seen[i].bytes, seen[i].growths)
	}
	if seen[0].bytes > 1<<10 {
		t.Error("shallow work needs more stack than every goroutine has")
	}
	if seen[1].growths == 0 || seen[1].bytes < 4<<10 {
		t.Error("deep work did not grow the stack past 4 KiB")
	}
	if seen[2].growths != 0 {
		t.Error("deep work grew a stack that was large before")
	}
}

func TestSameWork(t *testing.T) {
	for x := range uint64(100) {
		one, _ := deep(x)
		other, _ := shallow(x)
		if one != other {
			t.Fatalf("%d: deep work gives %d, shallow work %d", x, one, other)
		}
	}
}
