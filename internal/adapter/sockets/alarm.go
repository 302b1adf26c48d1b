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

// arm sets the deadline to next. It is cheap where next did not change, as it
// does not between the ends of two windows.
func (a *alarm) arm(now, next int64) {
	if next == a.armed {
		return
	}
	a.armed = next
	// A deadline in the past would end each read before it reads anything.
	_ = a.set(time.Unix(0, max(next, now+int64(time.Millisecond))))
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
