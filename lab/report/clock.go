package report

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime returns the CPU time of a process since its start: user and system time of all threads,
// including those that have ended. It reads the kernel's clock and not /proc, since the clock
// counts nanoseconds and costs the process nothing. Every receiver is measured with this clock.
func CPUTime(pid int) (time.Duration, error) {
	const scheduler = 2 // CPUCLOCK_SCHED of linux/posix-timers.h
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduler), &t); err != nil {
		return 0, fmt.Errorf("read the CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}
