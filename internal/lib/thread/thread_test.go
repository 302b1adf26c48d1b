//go:build linux

package thread

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Only the goroutine that gives way does: what others do afterwards is as urgent as ever.
func TestGiveWayConcernsOneGoroutine(t *testing.T) {
	nice := func() int {
		raw, err := unix.Getpriority(unix.PRIO_PROCESS, unix.Gettid())
		if err != nil {
			t.Error(err)
		}
		return 20 - raw // what the system call returns
	}
	before := nice()
	in := make(chan int)
	go func() {
		GiveWay()
		in <- nice()
	}()
	if got := <-in; got != max(before, background) {
		t.Errorf("nice %d in the goroutine that gives way, want %d", got, background)
	}
	for range 8 {
		go func() { in <- nice() }()
	}
	for range 8 {
		if got := <-in; got != before {
			t.Errorf("nice %d in another, want %d", got, before)
		}
	}
}
