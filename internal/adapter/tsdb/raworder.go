package tsdb

import (
	"math"

	"github.com/freshet-io/freshet/internal/core/seriescache"
)

// rawOrder knows the times of one series while its samples are written, and tells where a sample
// lies among them.
type rawOrder struct {
	last  int64 // Unix milliseconds; the series has no newer sample, stored or waiting for the commit
	exact bool  // it has one at last
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
	return rawOrder{last: entry.LastT, exact: entry.Exact, waits: entry.Commit == commit, late: math.MinInt64}
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

// known reports whether the series has a sample at from or later, and whether that is certain
// without a look into the store.
func (o *rawOrder) known(from int64) (has, certain bool) {
	if from > o.last {
		return false, true
	}
	return true, o.exact
}

// learned notes what the store has at from or later: its newest sample at last, or none.
func (o *rawOrder) learned(entry *seriescache.Series, from, last int64, found bool) {
	if o.last, o.exact = from-1, found; found {
		o.last = last
	}
	if entry != nil {
		entry.LastT, entry.Exact, entry.Float = o.last, found, false
	}
}

// appended notes a sample that now waits for the commit.
func (o *rawOrder) appended(entry *seriescache.Series, commit uint32, x rawValue) {
	if x.t <= o.last {
		o.late = x.t
	} else {
		o.last, o.exact, o.waits = x.t, true, true
		entry.Bits, entry.Float = math.Float64bits(x.v), x.isFloat()
	}
	entry.LastT, entry.Exact, entry.Commit = o.last, o.exact, commit
}

// anyWaits reports whether a sample of the series waits for the commit, where no look finds it.
func (o *rawOrder) anyWaits() bool { return o.waits || o.late != math.MinInt64 }

// committed notes that no sample waits any more.
func (o *rawOrder) committed() { o.waits, o.late = false, math.MinInt64 }
