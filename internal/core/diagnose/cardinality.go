package diagnose

import (
	"fmt"
	"strings"

	"github.com/freshet-io/freshet/internal/core/growth"
	"github.com/freshet-io/freshet/internal/core/record"
)

// A flood of series: a label with ever new values, each of which is a series that takes
// memory and a part of each query. Limits keep it off the store (docs/limits.md), and are
// the first to know.
const (
	// New series a second. The default limit is 30,000 a minute, 500 a second. A deploy
	// makes as many for some seconds, so that what no limit turns away is never a clear
	// cause.
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

// floodNext is what to do about new series.
const floodNext = "Take the label out of the application, or meanwhile let a rule drop it, which needs no restart: for DogStatsD mapping.rules: [{match: METRIC, drop_labels: [LABEL]}] (docs/limits.md), for remote write and OTLP ingest.relabel: [{action: labeldrop, regex: LABEL}] (docs/remote-write.md). If the series are wanted, raise the limit, at 6 kB for each of DogStatsD and 2 kB for each other."

func cardinality(m *moment) finding {
	sockets, requests := m.grownBy("freshet_limit_samples_total")/m.seconds, 0.0
	for _, l := range m.grown("freshet_ingest_refused_total") { // of remote write and OTLP
		if l.labels["reason"] == "too_many_series" {
			requests += l.value / m.seconds
		}
	}
	over := sockets + requests
	// Of DogStatsD's series those that have got a place, and of all inputs what is new to
	// a store. Both count those of the other, in part: the larger counts.
	begun := max(m.grownBy("freshet_limit_series"), m.grownBy("prometheus_tsdb_head_series_created_total")) / m.seconds

	f := finding{fine: fmt.Sprintf("series: %s new ones a second, up to %s is usual; %s samples a second are over a limit", count(begun), count(newUsual), count(over))}
	f.Name = Cardinality
	steady, most := m.flood(), newMost
	if steady != nil && m.isFlood(steady) {
		most = 1
	}
	f.Score = max(ramp(over, overUsual, overBad), most*ramp(begun, newUsual, newBad))
	f.Title = fmt.Sprintf("A flood of series: %s new ones a second, and %s samples a second of series that a limit has no place for", count(begun), count(over))
	f.Because = fmt.Sprintf("%s samples a second are over a limit (nothing below %s, all from %s on), or %s series a second are new (%s to %s, and %.1f at most unless one metric has them for %d s); the larger counts",
		count(over), count(overUsual), count(overBad), count(begun), count(newUsual), count(newBad), newMost, floodSteps*growth.Step)
	who, newest := "", m.mostNew()
	datagrams := sockets >= requests
	if sockets+requests == 0 && newest != nil {
		of := busiest(newest, floodSteps)
		datagrams = of != nil && of.Store != raw
	}
	if datagrams {
		who = m.overLimits(&f)
	}
	if newest != nil {
		f.Evidence = append(f.Evidence, m.growthEvidence(&newest.Tenant, ownSteps)...)
		if who == "" {
			who = m.newest(newest)
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

// floodSteps is for how many steps of growth.Step a metric has had most of the new series
// when that is a flood without any limit: a metric's first samples come within a step or two.
const floodSteps = 2

// isFlood tells a flood in one metric from a start, in which a histogram may have most of the
// series: either each has a value of its own of one label, or the tenant is no newcomer.
func (m *moment) isFlood(g *grown) bool {
	if g.metric == nil {
		return false
	}
	if m.growing.At-g.Began >= startSeconds+int64(g.seconds()) {
		return true
	}
	return ownValues(g.metric, floodSteps)
}

// flood is the tenant with most new series that has had them for some steps; nil for none.
func (m *moment) flood() (most *grown) {
	for i := range m.growing.Tenants {
		if g, does := grows(&m.growing.Tenants[i], floodSteps); does && g.rate > newUsual && (most == nil || g.rate > most.rate) {
			most = &g
		}
	}
	return most
}

// mostNew is the tenant that has most new series, with those that have no place; nil if none
// has any.
func (m *moment) mostNew() (most *record.GrowingTenant) {
	highest := 0.0
	for i := range m.growing.Tenants {
		t := &m.growing.Tenants[i]
		if n := mean(recent(t.New, floodSteps)) + mean(recent(t.Refused, floodSteps)); n > highest {
			most, highest = t, n
		}
	}
	return most
}

// newest is whose series are new: of which metric, by which label, from whom.
func (m *moment) newest(t *record.GrowingTenant) string {
	g := grown{GrowingTenant: t, steps: ownSteps}
	all := mean(recent(t.New, floodSteps)) + mean(recent(t.Refused, floodSteps))
	if of := busiest(t, floodSteps); of != nil && mean(recent(of.New, floodSteps))+mean(recent(of.Refused, floodSteps)) >= oneMetricShare*all {
		g.metric = of
	}
	g.names = g.metric == nil && float64(t.Names) >= oneMetricShare*all*floodSteps
	return m.culprit(&g)
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
