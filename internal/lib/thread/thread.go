//go:build linux

// Package thread says how the kernel treats the thread of a goroutine.
package thread

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// background is the nice value of work that gives way: beside a thread without one
// it has a tenth of a processor that both want, and all of what nobody else wants.
const background = 10

// GiveWay makes the calling goroutine give way to the process's other work where
// processors are short. It has a thread of its own from then on, which ends with it.
// Where the kernel refuses, as under some seccomp filters, nothing is worse than before.
func GiveWay() {
	runtime.LockOSThread()
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), background)
}
