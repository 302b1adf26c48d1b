//go:build linux

package sockets

import (
	"context"
	"time"
)

// alarm ends a blocked read or accept when the handler's next tick is due, or when ctx is done. For
// that it moves the socket's deadline.
type alarm struct {
	ctx   context.Context
	set   func(time.Time) error
	armed int64 // the deadline in force, Unix nanoseconds; 0 if there is none, or it has passed
}

var longAgo = time.Unix(1, 0)

// newAlarm returns an alarm that calls `set` to change the deadline. The function `stop` ends the watch
// of `ctx`, and returns when that watch no longer calls `set`.
func newAlarm(ctx context.Context, set func(time.Time) error) (a *alarm, stop func()) {
	a = &alarm{ctx: ctx, set: set}
	done := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(done)
		_ = set(longAgo) // fails only on a closed socket, which need not be woken
	})
	return a, func() {
		if !cancel() {
			<-done
		}
	}
}

// arm sets the deadline to `next`. The current time is `now`; both are Unix nanoseconds. A call
// with an unchanged `next` is cheap. Most calls are like that, because `next` changes only once a
// window.
func (a *alarm) arm(now time.Time, next int64) {
	if next == a.armed {
		return
	}
	a.armed = next
	// A deadline in the past would end each read before it gets any data.
	a.after(now, max(time.Duration(next-now.UnixNano()), time.Millisecond))
}

// nap sets the deadline to the time `d` after `now`, or to `next` if that is earlier.
func (a *alarm) nap(now time.Time, d time.Duration, next int64) {
	a.armed = 0
	a.after(now, min(d, time.Duration(next-now.UnixNano())))
}

// after sets the deadline by the monotonic clock reading in `now`. With the wall clock, a napping
// reader would sleep too long if the clock was set back before the kernel gets the deadline.
func (a *alarm) after(now time.Time, d time.Duration) {
	_ = a.set(now.Add(d))
	// ctx may have ended just before set moved the deadline away from longAgo.
	if a.ctx.Err() != nil {
		_ = a.set(longAgo)
	}
}

// passed is called when the deadline has ended a read. The next call of arm then sets the deadline
// even if `next` is unchanged: if the wall clock was set back, `next` is in the future again.
func (a *alarm) passed() { a.armed = 0 }

// pause waits a moment after a failed system call, or until ctx is done.
func pause(ctx context.Context) {
	t := time.NewTimer(errorPause)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
