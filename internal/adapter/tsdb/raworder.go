package tsdb

import (
	"math"

	"github.com/freshet-io/freshet/internal/core/mutant"
	"github.com/freshet-io/freshet/internal/core/seriescache"
)

// rawOrder knows the times of one series while its samples are written. It decides where a sample
// lies among them.
type rawOrder struct {
	last  int64 // Unix milliseconds; no sample of the series, stored or waiting for the commit, is newer
	exact bool  // the series has a sample at the time `last`
	waits bool  // a sample that came as the newest of the series waits for the commit
	late  int64 // Unix milliseconds; time of the newest other sample that waits for the commit; MinInt64 for none
}

// rawPlace is where a sample lies among the samples of its series.
type rawPlace uint8

const (
	rawNewest      rawPlace = iota // newer than all others
	rawRepeat                      // equal to the newest sample
	rawConflict                    // at the time of the newest, with another value
	rawLate                        // older: the store knows whether there is a sample at its time
	rawLateWaiting                 // older, too, but the store knows only after all waiting samples are committed
)

// rawOrderOf returns what is known of a series before its samples are written. If the head does not have
// the series, entry is nil, and no sample of the series is newer than `onDisk`. `commit` is the number
// of the commit under way.
func rawOrderOf(entry *seriescache.Series, commit uint32, onDisk int64) rawOrder {
	if entry == nil {
		return rawOrder{last: onDisk, late: math.MinInt64}
	}
	return rawOrder{last: entry.LastT, exact: entry.Exact, waits: entry.Commit == commit, late: math.MinInt64}
}

// place decides where a sample lies. Only the store knows about a late sample, but the store does not
// have the samples that wait for the commit. A late sample that is newer than all late samples before
// it, as in a backlog, has the time of none of them.
func (o *rawOrder) place(entry *seriescache.Series, x rawValue) rawPlace {
	switch {
	case x.t > o.last:
		return rawNewest
	case entry == nil:
		return rawLate
	case x.t == o.last && entry.Float && x.isFloat():
		if math.Float64bits(x.v) == entry.Bits { // true for two stale markers, too
			return rawRepeat
		}
		return rawConflict
	case (o.waits || x.t <= o.late) && !mutant.CommitGroups:
		return rawLateWaiting
	}
	return rawLate
}

// known says whether the series has a sample at or after `from`, and whether that is certain
// without reading the store.
func (o *rawOrder) known(from int64) (has, certain bool) {
	if from > o.last {
		return false, true
	}
	return true, o.exact || mutant.Reopened
}

// learned is called with the store's answer about samples at or after `from`. If `found` is true, the
// newest of these samples is at `last`; otherwise there are none.
func (o *rawOrder) learned(entry *seriescache.Series, from, last int64, found bool) {
	if o.last, o.exact = from-1, found; found {
		o.last = last
	}
	if entry != nil {
		entry.LastT, entry.Exact, entry.Float = o.last, found, false
	}
}

// appended is called for a sample that now waits for the commit.
func (o *rawOrder) appended(entry *seriescache.Series, commit uint32, x rawValue) {
	if x.t <= o.last {
		o.late = max(o.late, x.t)
	} else {
		o.last, o.exact, o.waits = x.t, true, true
		entry.Bits, entry.Float = math.Float64bits(x.v), x.isFloat()
	}
	entry.LastT, entry.Exact, entry.Commit = o.last, o.exact, commit
}

// anyWaits reports whether a sample of the series waits for the commit, where queries do not find
// it.
func (o *rawOrder) anyWaits() bool { return o.waits || o.late != math.MinInt64 }

// committed is called when no sample waits any more.
func (o *rawOrder) committed() { o.waits, o.late = false, math.MinInt64 }
