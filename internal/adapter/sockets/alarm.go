//go:build linux

package sockets

import (
	"context"
	"time"
)

// alarm ends a blocked read or accept when the handler wants its next tick, and
// when ctx is done, by moving the socket's deadline.
type alarm struct {
	ctx   context.Context
	set   func(time.Time) error
	armed int64 // Unix nanoseconds of the deadline that is set; 0: none, or it has passed
}

var longAgo = time.Unix(1, 0)

// newAlarm returns an alarm over the deadline that set sets. stop ends its watch
// of ctx; when stop returns nothing is running any more.
func newAlarm(ctx context.Context, set func(time.Time) error) (a *alarm, stop func()) {
	a = &alarm{ctx: ctx, set: set}
	done := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(done)
		_ = set(longAgo) // fails only on a closed socket, which needs no waking
	})
	return a, func() {
		if !cancel() {
			<-done
		}
	}
}

// arm sets the deadline to when next is now, Unix nanoseconds. It is cheap where next
// did not change, as it does not between the ends of two windows.
func (a *alarm) arm(now time.Time, next int64) {
	if next == a.armed {
		return
	}
	a.armed = next
	// A deadline in the past would end each read before it reads anything.
	a.after(now, max(time.Duration(next-now.UnixNano()), time.Millisecond))
}

// nap sets the deadline to d after now, or to next if that is earlier.
func (a *alarm) nap(now time.Time, d time.Duration, next int64) {
	a.armed = 0
	a.after(now, min(d, time.Duration(next-now.UnixNano())))
}

// after sets the deadline by the monotonic clock, which now has read along with the
// wall clock: that one may be set back before the kernel hears of the deadline, and a
// reader that naps would not be woken for as long as the step.
func (a *alarm) after(now time.Time, d time.Duration) {
	_ = a.set(now.Add(d))
	// ctx may have ended just before set moved the deadline away from longAgo.
	if a.ctx.Err() != nil {
		_ = a.set(longAgo)
	}
}

// passed says that the deadline was seen to end a read. The next arm sets it
// even to the same time: it is early by the wall clock if that has stepped back.
func (a *alarm) passed() { a.armed = 0 }

// pause waits a moment after a system call failed, or less if ctx is done.
func pause(ctx context.Context) {
	t := time.NewTimer(errorPause)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
