//go:build linux

package timerslack

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const wanted = 123 * time.Microsecond

// TestMain lets the test run its own program as a process that calls Widen.
func TestMain(m *testing.M) {
	if os.Getenv("TIMERSLACK_TEST") == "" {
		os.Exit(m.Run())
	}
	fmt.Printf("started %s with %v\n", os.Args[1], slack())
	Widen(wanted)
	all := make(chan time.Duration)
	for range 8 { // blocked in a system call, each needs a thread of its own
		go func() {
			_ = unix.Nanosleep(&unix.Timespec{Nsec: 10_000_000}, nil)
			all <- slack()
		}()
	}
	for range 8 {
		if s := <-all; s != wanted {
			fmt.Printf("a thread has %v\n", s)
		}
	}
}

// The program starts once more, with the same arguments, and all of its threads have the slack. A process that
// has the slack already does not start again.
func TestWiden(t *testing.T) {
	if slack() < 0 || slack() >= wanted {
		t.Fatalf("the timer slack of the test is %v, and it must be the kernel's default", slack())
	}
	cmd := exec.Command(os.Args[0], "same")
	cmd.Env = append(os.Environ(), "TIMERSLACK_TEST=1")
	out, err := cmd.CombinedOutput()
	want := fmt.Sprintf("started same with %v\nstarted same with %v\n", slack(), wanted)
	if err != nil || string(out) != want {
		t.Errorf("%v\n%swant\n%s", err, out, want)
	}
}
