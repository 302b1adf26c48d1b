package limit

import (
	"cmp"
	"maps"
	"slices"

	"github.com/freshet-io/freshet/internal/core/usage"
)

// reported decides which metrics are in a report: those with at least 1/256 of max_series_per_metric.
// Many processes with fewer series of a metric can together exceed max_series_per_metric, but not
// max_series.
const reported = 256

// Use returns what each tenant uses of its limits. Call it once for each report to the leader of a
// cluster: the field New counts the series since the previous call.
func (l *Limiter) Use() map[string]usage.Use {
	l.mu.Lock()
	tenants := maps.Clone(l.tenants)
	l.mu.Unlock()
	all := make(map[string]usage.Use, len(tenants))
	for name, t := range tenants {
		all[name] = t.use()
	}
	return all
}

func (t *Tenant) use() usage.Use {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := usage.Use{Series: t.places.taken, New: t.isNew}
	t.isNew = 0
	if t.bounds.metricSeries == 0 {
		return u
	}
	var large []*metric
	for _, number := range t.places.numbers {
		if m := t.places.metrics.at(number); m.series >= max(1, t.bounds.metricSeries/reported) {
			large = append(large, m)
		}
	}
	if len(large) > usage.MaxMetrics {
		slices.SortFunc(large, func(a, b *metric) int { return cmp.Compare(b.series, a.series) })
		large = large[:usage.MaxMetrics]
	}
	u.Metrics = make(map[string]int, len(large))
	for _, m := range large {
		u.Metrics[m.name] = m.series
	}
	return u
}

// Share sets what other processes of the cluster use, and the leader's limits. Of its own limits and the
// leader's, a process obeys the tighter ones.
func (l *Limiter) Share(a usage.Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !a.Whole { // only the previous sums cover all processes
		for name, before := range l.shared.Others {
			u := a.Others[name]
			u.Series, u.Metrics = before.Series, before.Metrics
			a.Others[name] = u
		}
	}
	l.shared = a
	for name, t := range l.tenants {
		t.share(a.Others[name], a.Bounds[name])
	}
}

// share sets what other processes use of a tenant's limits.
func (t *Tenant) share(others usage.Use, leaders usage.Bounds) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.others, t.leaders = others, leaders
	t.tokens = max(0, t.tokens-float64(others.New))
	t.tighten()
}

// tighten sets the limits that are in force.
func (t *Tenant) tighten() {
	b := t.own
	b.series = tighter(b.series, t.leaders.Series)
	b.metricSeries = tighter(b.metricSeries, t.leaders.MetricSeries)
	if b.newSeries = tighter(b.newSeries, t.leaders.NewSeries); b.newSeries != t.bounds.newSeries {
		t.tokens = float64(b.newSeries)
	}
	t.bounds = b
}

// tighter returns the smaller of two limits. 0 is no limit.
func tighter(a, b int) int {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
