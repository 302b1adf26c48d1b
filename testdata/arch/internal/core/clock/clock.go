// Package clock asks for the time, in every way there is.
package clock

import (
	"context"
	"time"
	clock "time"
)

var (
	now   = time.Now
	since = clock.Since(clock.Time{})
	until = time.Until(clock.Time{})
	timer = time.NewTimer(1)
)

func waits() {
	time.Sleep(1)
	<-time.After(1)
	time.AfterFunc(1, waits)
	<-time.NewTicker(1).C
	<-time.Tick(1)
}

func waitsByContext(ctx context.Context) {
	context.AfterFunc(ctx, waits)
	context.WithDeadline(ctx, now())
	context.WithDeadlineCause(ctx, now(), nil)
	context.WithTimeout(ctx, 1)
	context.WithTimeoutCause(ctx, 1, nil)
	context.WithCancel(ctx) // asks nobody for the time
}
