package limit

import "github.com/freshet-io/freshet/internal/core/series"

// Prospect is the answer that Admit would give, with the tenant's use of its limits. The use includes
// the series in other processes of the cluster. A limit of 0 means no limit.
type Prospect struct {
	Known  bool // the series has a place
	Fate   Fate
	Reason Reason // why the series would not be admitted

	Series, MaxSeries             int // number and limit of the tenant's series
	MetricSeries, MaxMetricSeries int // number and limit of the metric's series
	New, MaxNew                   int // new series that may come now, and within a minute
}

// Peek returns what Admit would answer, and changes nothing. `now` is in Unix nanoseconds. `length` is
// the number of bytes of name and tags, as in a Claim.
func (l *Limiter) Peek(now int64, tenant string, key []byte, source uint64, length int) Prospect {
	l.mu.Lock()
	t, b := l.tenants[tenant], l.config.of(tenant)
	l.mu.Unlock()
	p := Prospect{MaxSeries: b.series, MaxMetricSeries: b.metricSeries, New: b.newSeries, MaxNew: b.newSeries}
	if t == nil { // the tenant has had no samples yet
		if b.long(length, key) {
			p.Reason, p.Fate = SeriesBytes, fateOf(series.Kind(key[0]), nil)
		}
		return p
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.places.metric(series.Name(key))
	reason := t.overWhich(now, m)
	if b.long(length, key) {
		reason = SeriesBytes
	}
	p.MaxSeries, p.MaxMetricSeries, p.MaxNew = t.bounds.series, t.bounds.metricSeries, t.bounds.newSeries
	p.Series, p.New = t.places.taken+t.others.Series, max(0, int(t.tokens))
	if m != nil {
		p.MetricSeries = m.series + t.others.Metrics[m.name]
	}
	if p.Known = t.places.find(t.places.hash(key, source), key, source) != 0; !p.Known && reason != 0 {
		p.Reason, p.Fate = reason, fateOf(series.Kind(key[0]), m)
	}
	return p
}
