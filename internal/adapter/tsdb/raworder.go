package tsdb

import (
	"math"

	"github.com/freshet-io/freshet/internal/core/seriescache"
)

// rawOrder knows the times of one series while its samples are written, and tells where a sample
// lies among them.
type rawOrder struct {
	last  int64 // Unix milliseconds; the series has no newer sample, stored or waiting for the commit
	waits bool  // a sample that came as the newest of the series waits for the commit
	late  int64 // Unix milliseconds of the newest other sample that waits for it; MinInt64 for none
}

// rawPlace is where a sample lies among those of its series.
type rawPlace uint8

const (
	rawNewest      rawPlace = iota // behind all others: none has its time
	rawRepeat                      // the newest is the same
	rawConflict                    // the newest has its time, and another value
	rawLate                        // the store knows whether another has its time
	rawLateWaiting                 // likewise, once all samples that wait are committed
)

// rawOrderOf begins the order of a series, whose entry is nil if the head does not have it. Then
// no sample of it is newer than onDisk. commit is the number of the commit under way.
func rawOrderOf(entry *seriescache.Series, commit uint32, onDisk int64) rawOrder {
	if entry == nil {
		return rawOrder{last: onDisk, late: math.MinInt64}
	}
	return rawOrder{last: entry.LastT, waits: entry.Commit == commit, late: math.MinInt64}
}

// place decides about a sample. A sample that waits for the commit cannot be looked up in the
// store. Late samples that come in the order of time, like a backlog, cannot meet each other.
func (o *rawOrder) place(entry *seriescache.Series, x rawValue) rawPlace {
	switch {
	case x.t > o.last:
		return rawNewest
	case entry == nil:
		return rawLate
	case x.t == o.last && entry.Float && x.isFloat():
		if math.Float64bits(x.v) == entry.Bits { // as for all markers of staleness
			return rawRepeat
		}
		return rawConflict
	case o.waits || x.t <= o.late:
		return rawLateWaiting
	}
	return rawLate
}

// zeroBefore decides whether a zero goes before a sample, at the time start at which its series
// began to count, so that rate() sees the first increment. It does not if the series has a sample
// at start or later. A series that began more than window before the sample, in milliseconds, has
// no first increment here. start is 0 if it is unknown.
func (o *rawOrder) zeroBefore(x rawValue, start, window int64) bool {
	return start != 0 && start > o.last && start < x.t && start >= x.t-window
}

// appended notes a sample that now waits for the commit.
func (o *rawOrder) appended(entry *seriescache.Series, commit uint32, x rawValue) {
	entry.Commit = commit
	if x.t <= o.last {
		o.late = x.t
		return
	}
	o.last, o.waits = x.t, true
	entry.LastT, entry.Bits, entry.Float = x.t, math.Float64bits(x.v), x.isFloat()
}

// committed notes that no sample waits any more.
func (o *rawOrder) committed() { o.waits, o.late = false, math.MinInt64 }
