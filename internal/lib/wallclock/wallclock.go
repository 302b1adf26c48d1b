// Package wallclock decides whether the wall clock can be believed.
package wallclock

import (
	"log/slog"
	"time"
)

// A wall clock that leaps ahead by more than maxLeap is not believed until it has kept the new time
// for `patience`. Tiles from the future would make the stores refuse all samples until that time.
// While the clock is not believed, windows wait and grow, so nothing is lost.
const (
	maxLeap  = time.Minute
	patience = 30 * time.Second
)

// Clock compares the wall clock with the monotonic clock, to distinguish a wall clock that was set
// from one that leapt by mistake. The clock of a machine that was asleep looks like one that leapt,
// so windows then wait, too.
type Clock struct {
	now     func() time.Time
	begun   time.Time // when this Clock was made, on the monotonic clock
	logger  *slog.Logger
	offset  time.Duration // wall clock minus monotonic time, when the clock was last believed
	suspect time.Duration // monotonic time of a leap that is not believed yet; else 0
}

// New returns a clock that believes the present time.
func New(now func() time.Time, logger *slog.Logger) *Clock {
	return &Clock{now: now, begun: time.Now(), logger: logger, offset: time.Duration(now().UnixNano())}
}

// Look returns the time, and whether it can be believed.
func (c *Clock) Look() (now time.Time, believed bool) {
	now = c.now()
	return now, c.believe(now, time.Since(c.begun))
}

// believe reports whether the wall clock can be believed. `passed` is the monotonic time since the
// start.
func (c *Clock) believe(wall time.Time, passed time.Duration) bool {
	offset := time.Duration(wall.UnixNano()) - passed
	leap := offset - c.offset
	switch {
	case leap <= maxLeap:
		if c.suspect != 0 {
			c.logger.Info("the clock leapt back; the windows that waited are counted")
		}
	case c.suspect == 0:
		c.suspect = passed
		c.logger.Warn("the clock leapt ahead; windows wait until it leaps back, or has kept the new time for a while",
			"leap", leap, "wait", patience)
		return false
	case passed-c.suspect < patience:
		return false
	default:
		c.logger.Warn("the clock leapt ahead and did not leap back; its time is used from now on", "leap", leap)
	}
	c.offset, c.suspect = offset, 0
	return true
}
