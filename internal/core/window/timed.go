package window

import (
	"cmp"
	"slices"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
)

// maxTimed is how many different times of their own (|T, d:) the values of one
// series may have in one window: 17 minutes of a client that stamps each second.
// It bounds what a client with wild times costs, in memory and in the search.
const maxTimed = 1024

// keepTimed is how many of them a series keeps memory for from window to window.
const keepTimed = 64

// timedValue is what lines with the same time add up to: the sum of a counter,
// the value of a gauge or a check that was read last.
type timedValue struct {
	time    int64 // Unix seconds
	value   float64
	samples uint64
	at      int64 // Unix nanoseconds at which value was read
}

// timedMetric notes values that are stamped by their sender: only counters and
// gauges can be.
func (a *accumulator) timedMetric(m *dogstatsd.Metric, scale float64, samples uint64, now int64) fate {
	if m.Type == dogstatsd.Gauge {
		return a.timedLast(m.Time, m.Values[len(m.Values)-1]*scale, samples, now)
	}
	total := sum(m.Values) / m.Rate * scale
	at, found := a.findTimed(m.Time)
	if found {
		total += a.timed[at].value
	}
	return a.setTimed(at, found, timedValue{m.Time, total, samples, now})
}

// timedLast notes a value that replaces the one of the same time.
func (a *accumulator) timedLast(time int64, value float64, samples uint64, now int64) fate {
	at, found := a.findTimed(time)
	return a.setTimed(at, found, timedValue{time, value, samples, now})
}

// findTimed returns the place of a time among the values, which are in its order,
// and whether there is a value.
func (a *accumulator) findTimed(time int64) (at int, found bool) {
	return slices.BinarySearchFunc(a.timed, time, func(v timedValue, time int64) int { return cmp.Compare(v.time, time) })
}

// setTimed puts a value in its place; its samples add to those that it replaces.
func (a *accumulator) setTimed(at int, found bool, v timedValue) fate {
	switch {
	case !finite(v.value):
		return overflows
	case found:
		v.samples += a.timed[at].samples
		a.timed[at] = v
	case len(a.timed) == maxTimed:
		return tooManyTimes
	default:
		a.timed = slices.Insert(a.timed, at, v)
	}
	return taken
}

func (a *accumulator) resetTimed() {
	if cap(a.timed) > keepTimed {
		a.timed = nil
	}
	a.timed = a.timed[:0]
}
