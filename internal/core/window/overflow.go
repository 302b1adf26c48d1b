package window

import (
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/series"
)

// overflowName identifies an overflow series, under which samples of series without a place are counted.
// An empty name stands for all names of the kind that have no overflow series of their own. No context
// leads to an overflow series: each of its samples takes the slow path.
type overflowName struct {
	kind series.Kind
	name string
}

// overLimit returns the overflow series for the samples of a series without a place, or 0 if the
// samples are refused.
func (t *Table) overLimit(v limit.Verdict, resolved *Resolution, samples uint64, now int64) uint32 {
	if v.Fate == limit.Refused {
		t.stats.LimitRefused[v.Reason] += samples
		return 0
	}
	kind := series.Kind(resolved.Key[0])
	var name []byte
	policy := &series.DefaultPolicy // for all native timers, since a metric's timers may differ in policy
	if v.Fate == limit.FoldedMetric {
		name = series.Name(resolved.Key)
		if resolved.Policy.Bounds != nil {
			policy = resolved.Policy // timers of one name have the same buckets; see catalogue
		}
	}
	number := t.overflows[overflowName{kind, string(name)}]
	if number == 0 {
		key := overflowName{kind, string(name)}
		into := t.resolver.ResolveOverflow(key.kind, key.name, policy)
		if len(into.Key) > maxOwnKey {
			t.stats.LimitRefused[limit.SeriesBytes] += samples
			return 0
		}
		number = t.newSeries(&into, 0, now)
		t.overflows[key] = number
		t.overflowNames = append(t.overflowNames, key)
		t.folded = append(t.folded, number)
	} else if t.records.at(number).used != t.ordinal {
		t.folded = append(t.folded, number)
	}
	return number
}

// countFolded counts the samples of the overflow series in a window that closes.
func (t *Table) countFolded() {
	for _, number := range t.folded {
		t.stats.Folded += t.records.at(number).all(t.open, t.extras)
	}
	t.folded = t.folded[:0]
}

// leaveIdleOverflows removes idle overflow series. Each window checks a share of them, as
// leaveIdle does.
func (t *Table) leaveIdleOverflows(now int64) {
	for range min(len(t.overflowNames), int(t.last/sweepShare)+1, leaveMost) {
		if t.overflowSweep >= len(t.overflowNames) {
			t.overflowSweep = 0
		}
		name := t.overflowNames[t.overflowSweep]
		number := t.overflows[name]
		if !t.idle(t.records.at(number).used) {
			t.overflowSweep++
			continue
		}
		t.freeSeries(number, now)
		delete(t.overflows, name)
		last := len(t.overflowNames) - 1
		t.overflowNames[t.overflowSweep] = t.overflowNames[last]
		t.overflowNames[last] = overflowName{}
		t.overflowNames = t.overflowNames[:last]
	}
}

// recover makes room after a flood. A flood leaves passers-by behind: series that were in one
// window only. After the flood, passers-by whose places are wanted leave at once, before they are
// idle: first the table's own, then those without a holder. Only a bounded number leaves in each
// window, because the reader waits. During the flood they stay, or the flood would flow through the
// tables into the stores. So recover begins only after a whole window in which nothing was over a
// limit. Without a flood, recover costs one comparison of times.
func (t *Table) recover(now int64) {
	if t.options.Limits == nil {
		return
	}
	over := t.options.Limits.Over()
	if over == t.recovered || over >= t.windows[t.open].begun {
		t.recovering, t.unclaimed = 0, 0
		return
	}
	left := 0
	for looked := 0; t.recovering < t.last; looked++ {
		if looked == recoverLook || left == leaveMost {
			return
		}
		t.recovering++
		r := t.records.at(t.recovering)
		if r.flags&(live|drops|passerBy|ownKey) == live|passerBy && t.ordinal-r.used >= 2 &&
			t.options.Limits.Crowded(limit.Place(r.place), t.recovered) {
			t.remove(t.recovering, now)
			left++
		}
	}
	if left == leaveMost {
		return
	}
	if t.unclaimed = t.options.Limits.LeaveUnclaimed(t.unclaimed, t.recovered, leaveMost-left); t.unclaimed == 0 {
		t.recovered, t.recovering = over, 0
	}
}
