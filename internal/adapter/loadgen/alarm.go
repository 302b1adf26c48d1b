//go:build linux

package loadgen

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm wakes a goroutine within 0.1 ms of a given time. Go's own timers may be 1 ms late on an
// idle machine, because they wait in epoll_wait, which takes whole milliseconds. That would distort
// measured latencies, since a receiver may answer within a millisecond.
type alarm struct {
	fd   int
	file *os.File // wraps fd, so that the network poller watches it
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	return &alarm{fd: fd, file: os.NewFile(uintptr(fd), "timerfd")}, nil
}

// near is the length of the last part of a sleep. In this part, sleepUntil uses the timerfd instead of
// Go's timers, and does not watch the context.
const near = 2 * time.Millisecond

// sleepUntil waits until `at`. If ctx ends first, it returns early, with an error.
func (a *alarm) sleepUntil(ctx context.Context, at time.Time) error {
	if err := sleep(ctx, time.Until(at)-near); err != nil {
		return err
	}
	left := time.Until(at)
	if left <= 0 {
		return nil
	}
	if err := unix.TimerfdSettime(a.fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(left))}, nil); err != nil {
		return os.NewSyscallError("timerfd_settime", err)
	}
	var expired [8]byte
	if _, err := a.file.Read(expired[:]); err != nil {
		return fmt.Errorf("wait for a timer: %w", err)
	}
	return nil
}

func (a *alarm) close() { _ = a.file.Close() }
