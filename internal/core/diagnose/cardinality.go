package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/growth"
	"github.com/freshet-io/freshet/internal/core/record"
	"github.com/freshet-io/freshet/internal/core/top"
)

// A flood of series: a label takes ever new values, and each value makes a series that costs memory and
// query time. Limits are the first to notice a flood, and keep it out of the store (docs/limits.md).
const (
	// New series a second. The default limit is 30,000 a minute, 500 a second. A deploy makes as many
	// new series for some seconds, so new series alone are never a clear cause.
	newUsual = 500
	newBad   = 3_000
	newMost  = 0.4

	// maxTenants is the largest number of tenants for which evidence is shown.
	maxTenants = 4

	// A label with fewer values is not named.
	manyValues = 1_000

	// Samples per second over a limit: there should be none.
	overUsual = 1
	overBad   = 50
)

// refusedByRequests has the names of the metric that counts refused samples of remote write and
// OTLP: the present name, and the name in older records.
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
	// Series of DogStatsD that got a place, and series of all inputs that are new to a store. Many
	// series are in both counts, so the larger count is used.
	begun := max(m.grownBy("freshet_limit_series"), m.grownBy("prometheus_tsdb_head_series_created_total")) / m.seconds

	f := finding{fine: fmt.Sprintf("series: %s new ones a second (up to %s is usual); "+
		"%s samples a second are over a limit",
		count(begun), count(newUsual), count(over))}
	f.Name = Cardinality
	f.Score = max(ramp(over, overUsual, overBad), newMost*ramp(begun, newUsual, newBad))
	newest := m.flood()
	if newest != nil {
		begun = max(begun, newest.rate) // perhaps no scrape came while the record was made
		f.Score = max(f.Score, ramp(newest.rate, newUsual, newBad))
	} else {
		newest = m.mostNew()
	}
	f.Title = fmt.Sprintf("A flood of series: %s new ones a second, and %s samples a second are over a limit",
		count(begun), count(over))
	f.Because = fmt.Sprintf("%s samples a second are over a limit (score 0 up to %s, 1 from %s), "+
		"or %s series a second are new (%s to %s, and at most %.1f if a start or a deploy may explain them); "+
		"the larger score counts",
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
			f.Evidence = append(f.Evidence, newestSeries(&m.tops[i])...)
			f.Evidence = append(f.Evidence, largestLabels(&m.tops[i])...)
		}
	}
	if who == "" {
		who = m.floodedLabel()
	}
	f.Title += who
	f.Next = floodNext
	return f
}

// New values distinguish a flood from a start and a deploy. In two windows in a row, each new series of
// a flood has a label value, or a name, that no other series has. A deploy replaces old values by about
// as many new ones, and each value has many series. If series without such values keep coming for four
// minutes, a deploy is not the cause.
//
// floodWindows are the windows, in steps of growth.Step. They suit, in this order, a constant stream,
// scrapes every 15 or 20 s, scrapes every 30 s, and scrapes every minute.
var floodWindows = []int{1, 2, 4, windowSteps}

// floodSteps is the length of two of the shortest windows, in steps of growth.Step.
const floodSteps = 2

// flood returns the flood with the most new series a second, or nil.
func (m *moment) flood() (most *grown) {
	for i := range m.growing.Tenants {
		if g := m.floods(&m.growing.Tenants[i]); g != nil && g.rate > newUsual && (most == nil || g.rate > most.rate) {
			most = g
		}
	}
	return most
}

// floods returns the growth of a tenant's series if it is a flood, or nil.
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

// goesOn reports whether new series still come: the pause since the last burst is at most one step
// longer than the longest pause between bursts.
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

// histogramShare is the least part of a metric's new series that must belong to classic histograms, if
// there is one histogram for each new label value. It is below 1 because values are counted with an
// error of some per cent.
const histogramShare = 0.8

// everNew reports whether each new series of the metric, or each of its new classic histograms, has
// a label value that no other has. The buckets of one histogram share a value. A deploy does not
// make so many values.
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
	return float64(of.Labels[0].Values)*float64(of.Labels[buckets].Values) >=
		histogramShare*countedNew(of.Counted, of.New, steps)
}

// mostNew returns the tenant with the most new series, including refused ones, in the last floodSteps
// steps. If no tenant has any, mostNew looks at the last minute instead. It returns nil if no tenant has
// new series in that minute.
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
			if of := busiest(t, steps); of != nil &&
				mean(recent(of.New, steps))+mean(recent(of.Refused, steps)) >= oneMetricShare*all {
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

// overLimits names the first metric over a limit of DogStatsD, with its label and sender, and adds
// evidence for all such metrics.
func (m *moment) overLimits(f *finding) (who string) {
	for i := range m.tops[:min(maxTenants, len(m.tops))] {
		t := &m.tops[i]
		for j := range t.Over[:min(3, len(t.Over))] {
			o := &t.Over[j]
			f.Evidence = append(f.Evidence,
				Evidence{What: fmt.Sprintf("tenant %s, metric %s: label %s has %s values, over %s: %s samples %s; sender %s",
					clip(t.Tenant), clip(o.Metric), clip(o.Label), count(float64(o.Values)), clip(o.Limit), count(float64(o.Samples)),
					clip(o.Fate), clip(o.Sender))})
			if who == "" {
				who = fmt.Sprintf(": metric %s, label %s, from %s", clip(o.Metric), clip(o.Label), clip(o.Sender))
			}
		}
	}
	return who
}

// newestSeries returns the newest series and its sender.
func newestSeries(t *top.View) []Evidence {
	if len(t.Newest) == 0 {
		return nil
	}
	n := &t.Newest[0]
	var shown []string
	n.Labels.Range(func(l labels.Label) {
		if len(shown) < 10 {
			shown = append(shown, fmt.Sprintf("%s=%q", clip(l.Name), clip(l.Value)))
		}
	})
	return []Evidence{{What: fmt.Sprintf("tenant %s: the newest series is %s{%s}, from %s",
		clip(t.Tenant), clip(n.Metric), strings.Join(shown, ", "), clip(describe(n.Sender)))}}
}

// largestLabels returns the labels with the most values.
func largestLabels(t *top.View) (all []Evidence) {
	for _, l := range t.Labels[:min(2, len(t.Labels))] {
		if l.Values < manyValues {
			break
		}
		e := Evidence{What: fmt.Sprintf("tenant %s: label %s of metric %s has %s accepted values",
			clip(t.Tenant), clip(l.Label), clip(l.Metric), count(float64(l.Values)))}
		for _, text := range l.Examples[:min(3, len(l.Examples))] {
			e.Figures = append(e.Figures, "such as "+clip(text))
		}
		all = append(all, e)
	}
	return all
}

// floodedLabel returns the label with the most values. It is used if no limit has named a label.
func (m *moment) floodedLabel() string {
	most, text := manyValues, ""
	for _, t := range m.tops {
		for _, l := range t.Labels[:min(1, len(t.Labels))] {
			if l.Values > most {
				most, text = l.Values,
					fmt.Sprintf("; label %s of metric %s has the most values, %s",
						clip(l.Label), clip(l.Metric), count(float64(l.Values)))
			}
		}
	}
	return text
}
