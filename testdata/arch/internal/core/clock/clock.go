// Package clock asks for the time, in every way there is.
package clock

import (
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
