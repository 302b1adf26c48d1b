package window

import (
	"cmp"
	"slices"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
)

// maxTimed is how many different times (|T, d:) the lines of one series may give in one window. It is
// enough for 17 minutes of a client that stamps each second. It bounds the memory and the search time
// that a client with random times can cost.
const maxTimed = 1024

// MaxAhead is how many seconds the time of a gauge or a check may lie ahead of the clock: the value
// waits in memory until then, and is written at that time. Values further ahead are refused. Counts
// have no such bound, since their time only decides which tile takes them.
const MaxAhead = 60

// keepTimed is the number of timed values for which a series keeps memory from window to window.
const keepTimed = 64

// timedValue is the sum of all lines of a counter with the same time, or the last value of a gauge or a
// check with that time.
type timedValue struct {
	time    int64 // Unix seconds
	value   float64
	samples uint64
	at      int64 // Unix nanoseconds at which value was read
}

// timed holds the values that have times of their own, ordered by time.
type timed []timedValue

// timedMetric notes values with their sender's time. Only counters and gauges can have such a time.
func (t *Table) timedMetric(r *record, m *dogstatsd.Metric, scale float64, samples uint64, now int64) fate {
	if m.Type == dogstatsd.Gauge {
		return t.timedLast(r, m.Time, m.Values[len(m.Values)-1]*scale, samples, now)
	}
	values := t.timed(r)
	total := weighted(m, scale)
	at, found := values.find(m.Time)
	if found {
		total += (*values)[at].value
	}
	return values.set(at, found, timedValue{m.Time, total, samples, now})
}

// timedLast notes a value, which replaces an earlier value of the same time.
func (t *Table) timedLast(r *record, time int64, value float64, samples uint64, now int64) fate {
	if time > now/1e9+MaxAhead {
		return tooFarAhead
	}
	values := t.timed(r)
	at, found := values.find(time)
	return values.set(at, found, timedValue{time, value, samples, now})
}

// timed returns a series' timed values in the open window. The flusher empties them.
func (t *Table) timed(r *record) *timed { return &t.extend(r).windows[t.open].timed }

// find returns the index of a time, and whether it has a value.
func (v timed) find(time int64) (at int, found bool) {
	return slices.BinarySearchFunc(v, time, func(v timedValue, time int64) int { return cmp.Compare(v.time, time) })
}

// set puts a value at its index. If the value replaces another, set adds up the samples of both.
func (v *timed) set(at int, found bool, value timedValue) fate {
	switch {
	case !finite(value.value):
		return overflows
	case found:
		value.samples += (*v)[at].samples
		(*v)[at] = value
	case len(*v) == maxTimed:
		return tooManyTimes
	default:
		*v = slices.Insert(*v, at, value)
	}
	return taken
}

func (v *timed) reset() {
	if cap(*v) > keepTimed {
		*v = nil
	}
	*v = (*v)[:0]
}
