// Package coalesce makes one window of several windows of a collector. A collector that has no leader keeps one
// window for each second. Windows that have waited for long are coalesced: the ten windows of a tile become one,
// which takes a tenth of the space, and a tenth of the work once there is a leader again.
//
// The coalesced window has the sequence of the last window in it. A group that has folded it treats each of the
// windows in it as a repeat. So only windows that were never sent may be coalesced.
package coalesce

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/distinct"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/series"
)

// tileSeconds is the width of the finest tile.
const tileSeconds = 10

// Tile returns the end of the tile to which a window belongs. `second` is the beginning of the window. Only
// windows of one tile may be coalesced.
func Tile(second int64) int64 { return second - second%tileSeconds + tileSeconds }

// Coalescer takes the pushes of one incarnation, in the order of their sequences. The zero value is ready.
type Coalescer struct {
	tenants map[string]*tenant
	reader  batch.Reader
}

// tenant has the coalesced windows of one tenant.
type tenant struct {
	header batch.Header // of the last window, but with the earliest birth of all windows
	found  map[place]*batch.Increment
	all    []shardIncrement // in the order in which they came
}

type shardIncrement struct {
	shard uint16
	*batch.Increment
}

// place is what increments must have in common to be coalesced.
type place struct {
	shard       uint16
	key, policy string
	source      uint64
	time        int64
}

// Add adds the windows of a push. It does not keep the bytes of the push. After an error, the
// Coalescer must not be used again.
func (j *Coalescer) Add(push []byte) error {
	p, err := entry.ParsePush(push)
	if err != nil {
		return err
	}
	for b := range p.Batches.All() {
		if err := j.reader.Reset(b); err != nil {
			return err
		}
		t := j.tenant(&j.reader.Header)
		for inc := j.reader.Next(); inc != nil; inc = j.reader.Next() {
			if err := t.add(j.reader.Header.Shard, inc); err != nil {
				return err
			}
		}
		if err := j.reader.Err(); err != nil {
			return err
		}
	}
	return nil
}

func (j *Coalescer) tenant(h *batch.Header) *tenant {
	t := j.tenants[string(h.Tenant)]
	if t == nil {
		if j.tenants == nil {
			j.tenants = map[string]*tenant{}
		}
		t = &tenant{found: map[place]*batch.Increment{}, header: *h}
		j.tenants[string(h.Tenant)] = t
	}
	birth, second := min(t.header.Birth, h.Birth), max(t.header.Second, h.Second)
	t.header = *h
	t.header.Tenant = slices.Clone(h.Tenant)
	t.header.Birth, t.header.Second = birth, second
	return t
}

// add coalesces an increment with the earlier increment of the same place. If that is impossible,
// it keeps both.
func (t *tenant) add(shard uint16, inc *batch.Increment) error {
	policy, err := series.ParsePolicy(inc.Policy)
	if err != nil {
		return err
	}
	at := place{shard, string(inc.Key), string(inc.Policy), inc.Source, inc.Time}
	if earlier := t.found[at]; earlier != nil && inc.Delta == 0 && earlier.Delta == 0 && coalesce(earlier, inc, policy) {
		return nil
	}
	own := clone(inc)
	t.found[at] = own
	t.all = append(t.all, shardIncrement{shard, own})
	return nil
}

// clone returns an increment that shares no memory with the reader.
func clone(inc *batch.Increment) *batch.Increment {
	own := *inc
	own.Key, own.Policy = slices.Clone(inc.Key), slices.Clone(inc.Policy)
	own.Classic = slices.Clone(inc.Classic)
	if inc.Timer != nil {
		own.Timer = inc.Timer.Clone()
	}
	if inc.Set != nil {
		own.Set = new(distinct.Set)
		own.Set.Merge(inc.Set)
	}
	if inc.Exemplar != nil {
		own.Exemplar = new(*inc.Exemplar)
	}
	return &own
}

// coalesce adds a later increment to an earlier one as a tile would. It returns false if a sum would overflow, or
// if the increments have different forms.
func coalesce(into, inc *batch.Increment, policy *series.Policy) bool {
	if uint64(into.Samples)+uint64(inc.Samples) > math.MaxUint32 || (into.Classic == nil) != (inc.Classic == nil) {
		return false
	}
	switch {
	case inc.Kind() == series.Gauge || inc.Kind() == series.Check:
		if !coalesceReading(into, inc, policy) {
			return false
		}
	case inc.Classic != nil:
		if len(into.Classic) != len(inc.Classic) || !finite(into.Sum+inc.Sum) || !finite(sum(into.Classic)+sum(inc.Classic)) {
			return false
		}
		for i, n := range inc.Classic {
			into.Classic[i] += n
		}
		into.Sum += inc.Sum
	case inc.Timer != nil:
		if !finite(into.Timer.Sum+inc.Timer.Sum) || !finite(into.Timer.Count+inc.Timer.Count) {
			return false
		}
		into.Timer.Merge(inc.Timer, int(policy.MaxBuckets))
	case inc.Set != nil:
		into.Set.Merge(inc.Set)
	default:
		if !finite(into.Value + inc.Value) {
			return false
		}
		into.Value += inc.Value
	}
	into.Samples += inc.Samples
	if x := inc.Exemplar; x != nil && (into.Exemplar == nil || x.Time >= into.Exemplar.Time) {
		into.Exemplar = new(*x)
	}
	return true
}

// coalesceReading coalesces values of a gauge or a check: the newest value replaces the earlier
// one, but a change is added to the earlier one.
func coalesceReading(into, inc *batch.Increment, policy *series.Policy) bool {
	switch {
	case inc.Time != 0:
		into.Value, into.At = inc.Value, inc.At
	case inc.Relative && policy.Merge == series.MergeLast:
		if !finite(into.Value + inc.Value) {
			return false
		}
		into.Value, into.At = into.Value+inc.Value, max(into.At, inc.At)
	case into.Relative || inc.At >= into.At:
		into.Value, into.At, into.Relative = inc.Value, inc.At, inc.Relative
	}
	return true
}

func finite(v float64) bool { return v-v == 0 }

func sum(counts []float64) (n float64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// Coalesced is a window of one tenant.
type Coalesced struct {
	Tenant  string
	Samples uint64
	Push    []byte // in the form of entry.AppendPush
}

// Windows returns the coalesced windows, in the order of their sequences. The error is batch.ErrRefused if one is too
// large for a push.
func (j *Coalescer) Windows() (all []Coalesced, err error) {
	tenants := make([]*tenant, 0, len(j.tenants))
	for _, t := range j.tenants {
		tenants = append(tenants, t)
	}
	slices.SortFunc(tenants, func(a, b *tenant) int {
		return cmp.Or(cmp.Compare(a.header.Sequence, b.header.Sequence),
			strings.Compare(string(a.header.Tenant), string(b.header.Tenant)))
	})
	var w batch.Writer
	for _, t := range tenants {
		coalesced := Coalesced{Tenant: string(t.header.Tenant)}
		t.header.Sequence, t.header.UpDown = batch.Portion(t.header.Sequence), false // the writer sets UpDown
		w.Begin(t.header)
		for _, inc := range t.all {
			addTo(&w, inc)
		}
		batches := w.End()
		for _, b := range batches {
			coalesced.Samples += b.Samples
		}
		if coalesced.Push, err = member.PushOf(batches); err != nil {
			return nil, fmt.Errorf("a coalesced window of tenant %s: %w", coalesced.Tenant, err)
		}
		all = append(all, coalesced)
	}
	return all, nil
}

// addTo adds an increment to a coalesced window. It adds a plain reading twice: first with the time at which it
// was read, then without. If the tile is already closed when there is a leader again, the store keeps the
// reading with its time, so it is not late. Only the first of the two counts as a sample.
func addTo(w *batch.Writer, inc shardIncrement) {
	if isPlainReading(inc.Increment) {
		timed := *inc.Increment
		timed.Time = readAt(inc.At)
		w.Add(inc.shard, &timed)
		inc.Samples = 0
	}
	w.Add(inc.shard, inc.Increment)
}

// isPlainReading reports whether an increment is the whole value of a gauge or a check: not a
// change, not one of several values to merge, and without a time that its sender set.
func isPlainReading(inc *batch.Increment) bool {
	return (inc.Kind() == series.Gauge || inc.Kind() == series.Check) &&
		inc.Time == 0 && inc.Source == 0 && !inc.Relative && inc.At >= 1e9
}

// readAt returns the second at which a value was read, from Unix nanoseconds. A value that was read in the
// first second after the end of a tile gets the next second: at the end itself, the store has the tile's own
// sample.
func readAt(at int64) int64 {
	second := at / 1e9
	if second%tileSeconds == 0 {
		second++
	}
	return second
}
