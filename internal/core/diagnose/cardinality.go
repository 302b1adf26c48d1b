package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/freshet-io/freshet/internal/core/growth"
	"github.com/freshet-io/freshet/internal/core/record"
)

// A flood of series: a label with ever new values, each of which is a series that takes
// memory and a part of each query. Limits keep it off the store (docs/limits.md), and are
// the first to know.
const (
	// New series a second. The default limit is 30,000 a minute, 500 a second. A deploy
	// makes as many for some seconds, so that these alone are never a clear cause.
	newUsual = 500
	newBad   = 3_000
	newMost  = 0.4

	// maxTenants is of how many tenants there is evidence.
	maxTenants = 4

	// A label with fewer values is named by nobody.
	manyValues = 1_000

	// Samples over a limit, a second: there should be none.
	overUsual = 1
	overBad   = 50
)

// refusedByRequests are the metric that counts what was refused of remote write and OTLP, and the
// name that it has in older records.
var refusedByRequests = [...]string{"freshet_distributor_refused_total", "freshet_ingest_refused_total"}

func cardinality(m *moment) finding {
	sockets, requests := m.grownBy("freshet_limit_samples_total")/m.seconds, 0.0
	for _, name := range refusedByRequests {
		for _, l := range m.grown(name) {
			if l.labels["reason"] == "too_many_series" {
				requests += l.value / m.seconds
			}
		}
	}
	over := sockets + requests
	// Of DogStatsD's series those that have got a place, and of all inputs what is new to
	// a store. Both count those of the other, in part: the larger counts.
	begun := max(m.grownBy("freshet_limit_series"), m.grownBy("prometheus_tsdb_head_series_created_total")) / m.seconds

	f := finding{fine: fmt.Sprintf("series: %s new ones a second, up to %s is usual; %s samples a second are over a limit", count(begun), count(newUsual), count(over))}
	f.Name = Cardinality
	f.Score = max(ramp(over, overUsual, overBad), newMost*ramp(begun, newUsual, newBad))
	newest := m.flood()
	if newest != nil {
		begun = max(begun, newest.rate) // no scrape may have come while the record was made
		f.Score = max(f.Score, ramp(newest.rate, newUsual, newBad))
	} else {
		newest = m.mostNew()
	}
	f.Title = fmt.Sprintf("A flood of series: %s new ones a second, and %s samples a second of series that a limit has no place for", count(begun), count(over))
	f.Because = fmt.Sprintf("%s samples a second are over a limit (nothing below %s, all from %s on), or %s series a second are new (%s to %s, and %.1f at most if they may be a start's or a deploy's); the larger counts",
		count(over), count(overUsual), count(overBad), count(begun), count(newUsual), count(newBad), newMost)
	who := ""
	datagrams := sockets >= requests
	if sockets+requests == 0 && newest != nil {
		of := busiest(newest.GrowingTenant, newest.steps)
		datagrams = of != nil && of.Store != raw
	}
	if datagrams {
		who = m.overLimits(&f)
	}
	if newest != nil {
		f.Evidence = append(f.Evidence, m.growthEvidence(&newest.Tenant, newest.steps)...)
		if who == "" {
			who = m.culprit(newest)
		}
	}
	if datagrams {
		for i := range m.tops[:min(maxTenants, len(m.tops))] {
			f.Evidence = append(f.Evidence, m.tops[i].newest()...)
			f.Evidence = append(f.Evidence, m.tops[i].largestLabels()...)
		}
	}
	if who == "" {
		who = m.floodedLabel()
	}
	f.Title += who
	f.Next = floodNext
	return f
}

// A flood is told from a start and a deploy by its values: each of its series has one of its
// own of one label, or a name of its own, and so have those of the next window. A deploy brings
// about as many values as it ends, each with many series. What has no such values and goes on
// for four minutes is no deploy.
//
// floodWindows are the windows in steps of growth.Step: for what is sent all the time, and for
// scrapes each 15 or 20 s, 30 s and a minute.
var floodWindows = []int{1, 2, 4, windowSteps}

// floodSteps is the time of two of the shortest.
const floodSteps = 2

// flood is the tenant with the flood of most series a second; nil for none.
func (m *moment) flood() (most *grown) {
	for i := range m.growing.Tenants {
		if g := m.floods(&m.growing.Tenants[i]); g != nil && g.rate > newUsual && (most == nil || g.rate > most.rate) {
			most = g
		}
	}
	return most
}

// floods is how the series of a tenant grow if that is a flood, and else nil.
func (m *moment) floods(t *record.GrowingTenant) *grown {
	starts := func(steps int) bool { return m.growing.At-t.Began < startSeconds+int64(steps*growth.Step) }
	for _, window := range floodWindows {
		g, does := grows(t, 2, window)
		if does && goesOn(recent(t.New, g.steps)) && (everNew(g.metric, g.steps) || g.names && !starts(g.steps)) {
			return &g
		}
	}
	if g, does := growsInBursts(t); does && g.metric != nil && !starts(g.steps) {
		return &g
	}
	return nil
}

// goesOn reports whether the next series are not overdue: the last came no longer ago than
// two bursts were apart, and a step for one that is late.
func goesOn(counts []uint64) bool {
	usual, quiet, begun := 0, 0, false
	for _, n := range counts {
		if float64(n) < mean(counts)/2 {
			quiet++
			continue
		}
		if begun {
			usual = max(usual, quiet)
		}
		quiet, begun = 0, true
	}
	return quiet <= usual+1
}

// histogramShare is the part of a metric's new series from which on they are one classic
// histogram for each new value of a label. What is counted of values is some per cent off.
const histogramShare = 0.8

// everNew reports whether each new series of the metric has a value of its own of one label, or
// each classic histogram of it has, whose buckets share it: so many of these are of no deploy.
func everNew(of *growth.Metric, steps int) bool {
	if of == nil {
		return false
	}
	if ownValues(of, steps) {
		return true
	}
	buckets := slices.IndexFunc(of.Labels, func(l growth.Label) bool { return l.Name == "le" })
	if buckets < 1 || of.Labels[0].Values < manyValues {
		return false
	}
	return float64(of.Labels[0].Values)*float64(of.Labels[buckets].Values) >= histogramShare*countedNew(of.Counted, of.New, steps)
}

// mostNew is the tenant with most new series, those without a place among them, in the last
// steps or else in the last minute; nil if none has any.
func (m *moment) mostNew() (most *grown) {
	for _, steps := range []int{floodSteps, windowSteps} {
		highest := 0.0
		for i := range m.growing.Tenants {
			t := &m.growing.Tenants[i]
			all := mean(recent(t.New, steps)) + mean(recent(t.Refused, steps))
			if all <= highest {
				continue
			}
			highest, most = all, &grown{GrowingTenant: t, steps: steps}
			if of := busiest(t, steps); of != nil && mean(recent(of.New, steps))+mean(recent(of.Refused, steps)) >= oneMetricShare*all {
				most.metric = of
			}
			most.names = most.metric == nil && float64(t.Names) >= oneMetricShare*all*float64(steps)
		}
		if most != nil {
			return most
		}
	}
	return nil
}

// overLimits is who is over a limit of DogStatsD, with the evidence.
func (m *moment) overLimits(f *finding) (who string) {
	for i := range m.tops[:min(maxTenants, len(m.tops))] {
		t := &m.tops[i]
		for j := range t.Over[:min(3, len(t.Over))] {
			o := &t.Over[j]
			f.Evidence = append(f.Evidence, Evidence{What: fmt.Sprintf("tenant %s, metric %s: label %s has %s values, over %s: %s samples %s; sender %s",
				clip(t.Tenant), clip(o.Metric), clip(o.Label), count(o.Values), clip(o.Limit), count(o.Count), clip(o.Fate), clip(o.Sender))})
			if who == "" {
				who = fmt.Sprintf(": metric %s, label %s, from %s", clip(o.Metric), clip(o.Label), clip(o.Sender))
			}
		}
	}
	return who
}

// newest is the last series that began, and who sent it.
func (t *top) newest() []Evidence {
	if len(t.Newest) == 0 {
		return nil
	}
	n := &t.Newest[0]
	var labels []string
	for _, name := range sortedNames(n.Labels) {
		if len(labels) < 10 {
			labels = append(labels, fmt.Sprintf("%s=%q", clip(name), clip(n.Labels[name])))
		}
	}
	return []Evidence{{What: fmt.Sprintf("tenant %s: the newest series is %s{%s}, from %s", clip(t.Tenant), clip(n.Metric), strings.Join(labels, ", "), clip(n.Sender.String()))}}
}

// largestLabels are those with most values.
func (t *top) largestLabels() (all []Evidence) {
	for _, l := range t.Labels[:min(2, len(t.Labels))] {
		if l.Values < manyValues {
			break
		}
		e := Evidence{What: fmt.Sprintf("tenant %s: label %s of metric %s has %s values that have a place", clip(t.Tenant), clip(l.Label), clip(l.Metric), count(float64(l.Values)))}
		for _, text := range l.Examples[:min(3, len(l.Examples))] {
			e.Figures = append(e.Figures, "such as "+clip(text))
		}
		all = append(all, e)
	}
	return all
}

// floodedLabel is the label with most values, where no limit has named one.
func (m *moment) floodedLabel() string {
	most, text := manyValues, ""
	for _, t := range m.tops {
		for _, l := range t.Labels[:min(1, len(t.Labels))] {
			if l.Values > most {
				most, text = l.Values, fmt.Sprintf("; label %s of metric %s has most values, %s", clip(l.Label), clip(l.Metric), count(float64(l.Values)))
			}
		}
	}
	return text
}
