package report

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime is what a process has used of the CPU since its start, user and system,
// all of its threads, also those that have ended. The kernel's clock is asked, not
// /proc: it counts nanoseconds, and asks nothing of the process. Everyone is
// measured by it.
func CPUTime(pid int) (time.Duration, error) {
	const scheduler = 2 // CPUCLOCK_SCHED of linux/posix-timers.h
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduler), &t); err != nil {
		return 0, fmt.Errorf("read the CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}
