// Package delta turns a request of OTLP deltas into increments of totals. The caller says which totals
// exist, and how many series the tenant has. So equal requests and equal totals give equal increments
// and equal outcomes, in one process and on every member of a group.
package delta

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/write"
)

// Deltas holds a request while its values are turned into increments of totals.
type Deltas struct {
	// Increments are set by Count, at most one for each series and time. They are in order of time,
	// since a tile treats an interval that comes after a later one as a repeat.
	Increments []Increment

	// New has the series of the request that had no total. Count sets it.
	New []New

	// Refused has the series that Count refused because of the totals that exist.
	Refused []Refused

	request *write.Request
	all     []keyed
	keys    [][]byte
	added   map[string]byte // kinds of new series, by their keys without the kind
}

// Increment is a value to be added to a total.
type Increment struct {
	batch.Increment
	Shard uint16
}

// New is a series that had no total.
type New struct {
	Labels  labels.Labels
	Refused bool // because of write.Request.MaxSeries
}

// Refused is a series of a request that is refused because of the totals that exist.
type Refused struct {
	Series uint32 // its index in the request
	Reason outcome.Reason
}

// keyed is a series of the request with its labels after relabelling.
type keyed struct {
	sent    *remotewrite.Series
	labels  labels.Labels // empty if a rule drops the series
	key     []byte        // of its total; nil if the series is dropped or refused
	refusal *outcome.Refusal
}

// Resolve finds the totals to which the values of a request are added. Each value has the time up to
// which its sender counted: see otlp.Convert.
func Resolve(r *write.Request) *Deltas {
	d := &Deltas{request: r, all: make([]keyed, len(r.Series)), keys: make([][]byte, 0, len(r.Series))}
	for i := range d.all {
		if d.all[i] = d.resolve(&r.Series[i]); d.all[i].key != nil {
			d.keys = append(d.keys, d.all[i].key)
		}
	}
	return d
}

// resolve finds the key of a series.
func (d *Deltas) resolve(sent *remotewrite.Series) keyed {
	ls, refusal := d.request.Terms.Rules.Resolve(d.request.Request, sent)
	s := keyed{sent: sent, labels: ls, refusal: refusal}
	if refusal != nil || ls.IsEmpty() {
		return s
	}
	kind := series.Counter
	switch {
	case len(d.request.Histograms(sent)) > 0:
		kind = series.Timer
	case sent.Metadata.Type == remotewrite.GaugeType:
		kind = series.UpDown
	}
	s.key = series.AppendKey(nil, kind, ls)
	return s
}

// Keys returns the keys of the totals, in the form of series.AppendKey.
func (d *Deltas) Keys() [][]byte { return d.keys }

// Count makes the increments. Afterwards each series of the request has its outcome. For each key that
// Keys returns, `kinds` has the kind of the existing total with the same labels, or 0. `have` is the
// number of the tenant's series that have totals. Count returns the number of new totals.
func (d *Deltas) Count(kinds []series.Kind, have int) (added int) {
	d.count(func(i int, s *keyed) *outcome.Refusal {
		held := kinds[0]
		kinds = kinds[1:]
		refusal := d.admit(s, held, have+added)
		if refusal != nil {
			d.Refused = append(d.Refused, Refused{uint32(i), refusal.Reason})
		} else {
			added = len(d.added)
		}
		return refusal
	})
	return added
}

var errAgain = errors.New("it was refused when the request came for the first time")

// Recount repeats Count for a request that was counted before. `refused` are the series that Count
// refused then. Recount sets the same Increments and the same numbers in the outcome, whatever
// totals exist now.
func (d *Deltas) Recount(refused []Refused) {
	d.count(func(i int, _ *keyed) *outcome.Refusal {
		if len(refused) == 0 || refused[0].Series != uint32(i) {
			return nil
		}
		refusal := &outcome.Refusal{Reason: refused[0].Reason, Cause: errAgain}
		refused = refused[1:]
		return refusal
	})
}

func (d *Deltas) count(admit func(i int, s *keyed) *outcome.Refusal) {
	for i := range d.all {
		s := &d.all[i]
		parts := d.request.Parts(s.sent)
		parts.Exemplars = 0 // totals have no exemplars
		switch {
		case s.refusal != nil:
			d.refuse(s, s.refusal.Reason, parts, s.refusal.Cause)
		case s.key == nil:
			d.request.Outcome.Dropped.Add(parts)
		default:
			if refusal := admit(i, s); refusal != nil {
				d.refuse(s, refusal.Reason, parts, refusal.Cause)
			} else {
				d.add(s)
			}
		}
	}
	d.Increments = merge(d.Increments)
	slices.SortStableFunc(d.Increments, func(a, b Increment) int { return cmp.Compare(a.Delta, b.Delta) })
}

// add makes the increments of one series.
func (d *Deltas) add(s *keyed) {
	shard := series.Shard(d.request.Tenant, s.key)
	add := func(inc batch.Increment, part outcome.Counts, t int64) {
		if t < 1 {
			d.refuse(s, outcome.TooOld, part, errors.New("its time is in the first millisecond of 1970, or before"))
			return
		}
		if latest := d.request.Arrival + write.MaxAhead.Milliseconds(); t > latest {
			d.refuse(s, outcome.TooFarAhead, part, fmt.Errorf("its time %s is more than %v ahead of the clock here",
				time.UnixMilli(t).UTC().Format(time.RFC3339), write.MaxAhead))
			return
		}
		inc.Key, inc.Samples, inc.Delta = s.key, 1, t
		d.Increments = append(d.Increments, Increment{inc, shard})
		d.request.Outcome.Written.Add(part)
	}
	for _, x := range d.request.Samples(s.sent) {
		add(batch.Increment{Value: x.Value}, outcome.Counts{Samples: 1}, x.Time)
	}
	histograms := d.request.Histograms(s.sent)
	for i := range histograms {
		part := outcome.Counts{Histograms: 1}
		timer, err := timerOf(&histograms[i])
		if err != nil {
			d.refuse(s, outcome.BadHistogram, part, err)
			continue
		}
		policy := series.DefaultPolicy
		policy.Schema = timer.Schema
		add(batch.Increment{Timer: timer, Policy: series.AppendPolicy(nil, &policy)}, part, histograms[i].Time)
	}
}

func (d *Deltas) refuse(s *keyed, reason outcome.Reason, parts outcome.Counts, cause error) {
	d.request.Refuse(s.sent, reason, parts, cause)
}

// admit refuses a new series if a total of another kind has its labels, or if the tenant already
// has as many series as allowed. `held` is the kind of the total that has these labels, 0 if there
// is none.
func (d *Deltas) admit(s *keyed, held series.Kind, have int) *outcome.Refusal {
	if byte(held) == s.key[0] {
		return nil
	}
	// A key is a kind, then the labels. Stores see only the labels.
	if kind, added := d.added[string(s.key[1:])]; added && kind == s.key[0] {
		return nil
	} else if added {
		return kindConflict(kind)
	}
	if held != 0 {
		return kindConflict(byte(held))
	}
	if limit := d.request.MaxSeries; limit > 0 && have >= limit {
		d.New = append(d.New, New{s.labels, true})
		return &outcome.Refusal{Reason: outcome.TooManySeries, Cause: fmt.Errorf(
			"the tenant has %d series with totals of deltas or DogStatsD in memory, and distributor.max_series allows %d; "+
				"samples of known series are still accepted", have, limit)}
	}
	if d.added == nil {
		d.added = map[string]byte{}
	}
	d.added[string(s.key[1:])] = s.key[0]
	d.New = append(d.New, New{s.labels, false})
	return nil
}

func kindConflict(kind byte) *outcome.Refusal {
	return &outcome.Refusal{Reason: outcome.Mixed, Cause: fmt.Errorf(
		"another metric with this name and these labels is already a %v here; give one of them another "+
			"name", series.Kind(kind))}
}

// merge adds up increments of one series at one time: from two scopes, or from two series that
// relabelling merged. Otherwise a tile would treat all but the first as repeats.
func merge(all []Increment) []Increment {
	type at struct {
		key   string
		delta int64
	}
	first := make(map[at]int, len(all))
	merged := all[:0]
	for _, inc := range all {
		k := at{string(inc.Key), inc.Delta}
		i, again := first[k]
		if !again {
			first[k] = len(merged)
			merged = append(merged, inc)
			continue
		}
		to := &merged[i].Increment
		to.Samples += inc.Samples
		to.Value += inc.Value
		if to.Timer != nil {
			to.Timer.Merge(inc.Timer, int(series.DefaultPolicy.MaxBuckets))
		}
	}
	return merged
}
