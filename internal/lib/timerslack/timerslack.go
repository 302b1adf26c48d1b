//go:build linux

// Package timerslack sets how late the kernel may wake the threads of this process: the timer slack. Timers
// that end within the slack of each other share a wake-up.
//
// It matters because of a thread of Go's runtime, sysmon. While any goroutine runs or is in a system call,
// sysmon sleeps for 20 us, looks around, and sleeps again, for a millisecond or more. The kernel's default
// slack of 50 us makes that 13,000 wake-ups a second. A process that is busy for a millisecond every few
// milliseconds, such as a node of a cluster, spends a tenth of its CPU time on them.
package timerslack

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Widen sets the slack of all threads, unless it is that wide already. Threads inherit their slack from the
// thread that makes them, and sysmon runs before any code of ours. So Widen starts the program again in this
// process, with the same arguments, environment and open files. Call it before anything else. If it fails,
// the program just goes on.
func Widen(to time.Duration) {
	runtime.LockOSThread() // the slack belongs to a thread
	defer runtime.UnlockOSThread()
	if has := slack(); has < 0 || has >= to {
		return
	}
	path, err := os.Executable()
	if err != nil {
		return
	}
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(to.Nanoseconds()), 0, 0, 0)
	if slack() < to { // threads with a real-time priority have none, and starting again would not end
		return
	}
	_ = syscall.Exec(path, os.Args, os.Environ())
}

// slack returns the slack of this thread, or a negative number if the kernel does not tell.
func slack() time.Duration {
	n, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return -1
	}
	return time.Duration(n)
}
