package window

import (
	"time"

	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/series"
)

// overflow is a series that samples of series without a place are counted under.
// No context leads to it: each of those samples takes the slow path.
type overflow struct {
	*record
	used uint32 // ordinal of the last window with a sample
}

// overflowName is the metric of an overflow series; empty for all of a kind that
// have no series.
type overflowName struct {
	kind series.Kind
	name string
}

// overLimit returns the overflow series for the samples of a series without a
// place, nil if they are refused.
func (t *Table) overLimit(v limit.Verdict, resolved *Resolution, samples uint64) *record {
	if v.Fate == limit.Refused {
		t.stats.LimitRefused[v.Reason] += samples
		return nil
	}
	kind := series.Kind(resolved.Key[0])
	var name []byte
	policy := &series.DefaultPolicy // for all native timers: those of a metric may have several
	if v.Fate == limit.FoldedMetric {
		name = series.Name(resolved.Key)
		if resolved.Policy.Bounds != nil {
			policy = resolved.Policy // timers of one name have the same buckets: see catalogue
		}
	}
	o := t.overflows[overflowName{kind, string(name)}]
	if o == nil {
		key := overflowName{kind, string(name)}
		into := t.resolver.ResolveOverflow(key.kind, key.name, policy)
		o = &overflow{record: t.newSeries(&into, 0)}
		t.overflows[key] = o
		t.folded = append(t.folded, o.record)
	} else if o.used != t.ordinal {
		t.folded = append(t.folded, o.record)
	}
	o.used = t.ordinal
	return o.record
}

// countFolded counts the samples of the overflow series in a window that closes.
func (t *Table) countFolded() {
	for i, r := range t.folded {
		t.stats.Folded += r.windows[t.open].samples()
		t.folded[i] = nil
	}
	t.folded = t.folded[:0]
}

// leaveIdleOverflows removes the overflow series that have had no sample for long.
func (t *Table) leaveIdleOverflows() {
	if t.ordinal%sweepShare != 0 {
		return
	}
	for name, o := range t.overflows {
		if t.ordinal-o.used > t.options.IdleWindows {
			delete(t.overflows, name)
		}
	}
}

// calm is how long nothing may have been over a limit before passers-by leave: a
// whole window. While a flood lasts they stay, or it would flow through the tables
// into the stores.
const calm = int64(time.Second)

// recover makes room after a flood. What was in one window only and in none since
// is what a flood leaves behind; those whose places are wanted leave at once, and
// need not wait to be idle. Without a flood it costs one look at the clock of the
// last.
func (t *Table) recover(now int64) {
	if t.options.Limits == nil {
		return
	}
	over := t.options.Limits.Over()
	if over == t.recovered || now-over < calm {
		return
	}
	for at := 1; at < len(t.entries); at++ {
		e := &t.entries[at]
		if r := e.series; r != nil && r.place != 0 && r.used == r.born && t.ordinal-r.used >= 2 &&
			t.options.Limits.Crowded(r.place, t.recovered) {
			t.remove(uint32(at))
		}
	}
	t.options.Limits.LeaveUnclaimed(t.recovered)
	t.recovered = over
}

// Release gives up the place of every series, for a table that takes over from this
// one: it is called once, instead of any further sample. now is Unix nanoseconds.
func (t *Table) Release(now int64) {
	for _, r := range t.series {
		if r.place != 0 {
			t.options.Limits.Release(now, r.place, r.used == r.born)
		}
	}
	clear(t.series)
}
