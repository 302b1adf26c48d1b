package collector

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/prometheus/common/model"

	"github.com/freshet-io/freshet/internal/adapter/process"
	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/top"
)

// Top counts the busiest metrics and senders, for the time of the lease unless a longer one is running,
// and returns the metrics and senders of one tenant, with at most `limit` rows in each list. The first
// call waits up to 2.5 s for a window that is counted whole. Top fails only if ctx ends.
func (c *Collector) Top(ctx context.Context, tenant string, limit int, lease time.Duration) (*top.View, error) {
	first := c.top.look(c.Now(), lease)
	// A clock that is set back meanwhile must not extend the wait.
	wait := min(time.Unix(first+1, 0).Add(topSlack).Sub(c.Now()), 2*time.Second+topSlack)
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	now := c.Now()
	v := topView{collector: c, tenant: tenant, limit: min(limit, top.MaxRows), processes: map[int32]process.Process{}}
	v.end = now.Add(-topSlack).Unix()
	v.from = max(v.end-top.Span, min(first, v.end-1))
	t := &top.View{
		Tenant: tenant, End: v.end, Seconds: int(v.end - v.from), Metrics: []top.ViewMetric{}, Senders: []top.ViewTraffic{},
		Malformed: []top.ViewMalformed{}, Listeners: []top.ViewListener{},
		Newest: []top.ViewSeries{}, Labels: []top.ViewLabel{}, Over: []top.ViewOver{},
	}
	v.metrics(t)
	v.senders(t)
	v.listeners(t, now)
	v.newest(t)
	v.over(t, now)
	return t, nil
}

// Senders counts the senders of DogStatsD for a while, as Top does, and returns those of one tenant without waiting.
// Seconds is 0 in the answer until a second is counted whole; then the answer has Senders and Malformed.
func (c *Collector) Senders(tenant string, limit int) *top.View {
	first := c.top.look(c.Now(), TopLease)
	v := topView{collector: c, tenant: tenant, limit: limit, processes: map[int32]process.Process{}}
	v.end = c.Now().Add(-topSlack).Unix()
	v.from = max(v.end-top.Span, first)
	t := &top.View{Tenant: tenant, End: v.end, Senders: []top.ViewTraffic{}, Malformed: []top.ViewMalformed{}}
	if v.from < v.end {
		t.Seconds = int(v.end - v.from)
		v.senders(t)
	}
	return t
}

// topView composes one answer.
type topView struct {
	collector *Collector
	tenant    string
	limit     int
	from, end int64 // Unix seconds
	processes map[int32]process.Process
}

func (v *topView) rate(n uint64) float64 { return float64(n) / float64(v.end-v.from) }

// share returns n as a fraction of the total, rounded to four digits.
func share(n, all uint64) float64 {
	if all == 0 {
		return 0
	}
	return math.Round(1e4*float64(n)/float64(all)) / 1e4
}

func (v *topView) metrics(t *top.View) {
	table := &v.collector.top.metrics
	var rows []top.Metric
	var rest top.Rest
	if m := table.lock(v.tenant, top.NewMetrics); m != nil {
		rows, rest = m.Busiest(v.from, v.end, v.limit)
	}
	table.mu.Unlock()
	all := rest.Count
	for _, r := range rows {
		all += r.Samples
	}
	limits := v.collector.Limiter.Find(v.tenant)
	for _, r := range rows {
		t.Metrics = append(t.Metrics, top.ViewMetric{
			Name: r.Name, Kind: r.Kind.String(), Series: limits.MetricSeries(r.Name), Samples: v.rate(r.Samples),
			Share: share(r.Samples, all),
		})
	}
	if rest.Count > 0 {
		t.Metrics = append(t.Metrics,
			top.ViewMetric{Samples: v.rate(rest.Count), Share: share(rest.Count, all), Others: max(1, rest.Rows)})
	}
	t.Samples = v.rate(all)
}

func (v *topView) senders(t *top.View) {
	table := &v.collector.top.senders
	var rows []top.SenderRow
	var bad []top.MalformedRow
	var rest top.Rest
	if s := table.lock(v.tenant, top.NewSenders); s != nil {
		rows, rest = s.Busiest(v.from, v.end, v.limit)
		bad = s.Malformed(v.from, v.end, v.limit)
	}
	table.mu.Unlock()
	for i := range bad {
		r := &bad[i]
		t.Malformed = append(t.Malformed, top.ViewMalformed{
			ViewSender: v.sender(r.Sender, ""), Lines: v.rate(r.Lines), Malformed: v.rate(r.Malformed),
			Share: share(r.Malformed, r.Lines), Reason: r.Reason, Example: r.Example,
		})
	}
	all := rest.Amount
	for _, r := range rows {
		all.Count += r.Count
		all.Bytes += r.Bytes
	}
	for _, r := range rows {
		t.Senders = append(t.Senders, top.ViewTraffic{
			ViewSender: v.sender(r.Sender, ""),
			Datagrams:  v.rate(r.Count), Bytes: v.rate(r.Bytes), Share: share(r.Count, all.Count), Lines: v.rate(r.Lines),
			Malformed: r.Reasons,
		})
	}
	if rest.Count > 0 {
		t.Senders = append(t.Senders, top.ViewTraffic{
			Datagrams: v.rate(rest.Count), Bytes: v.rate(rest.Bytes), Share: share(rest.Count, all.Count),
			Lines: v.rate(rest.Lines), Others: max(1, rest.Rows),
		})
	}
	t.Datagrams, t.Bytes = v.rate(all.Count), v.rate(all.Bytes)
}

// listeners returns the tenant's listeners that received malformed lines lately. The list includes
// malformed lines of senders that have been silent since the counting began.
func (v *topView) listeners(t *top.View, now time.Time) {
	type sum struct {
		received  uint64
		malformed [dogstatsd.NumReasons]uint64
	}
	all := map[string]*sum{} // by address, which several readers may share
	for _, l := range v.collector.listeners() {
		if l.next.Load().tenant != v.tenant {
			continue
		}
		name := l.name()
		if all[name] == nil {
			all[name] = new(sum)
		}
		l.mu.Lock()
		received, malformed := l.lately.since(now.Unix() - latelySeconds)
		l.mu.Unlock()
		all[name].received += received
		for reason, n := range malformed {
			all[name].malformed[reason] += n
		}
	}
	for name, s := range all {
		var lines uint64
		worst := 0
		for reason, n := range s.malformed {
			lines += n
			if n > s.malformed[worst] {
				worst = reason
			}
		}
		if lines > 0 {
			rate := func(n uint64) float64 { return float64(n) / latelySeconds }
			t.Listeners = append(t.Listeners, top.ViewListener{
				Listener: name, Lines: rate(lines + s.received), Malformed: rate(lines),
				Share: share(lines, lines+s.received), Reason: dogstatsd.Reason(worst).String(),
			})
		}
	}
	slices.SortFunc(t.Listeners, func(a, b top.ViewListener) int {
		return cmp.Or(cmp.Compare(b.Malformed, a.Malformed), cmp.Compare(a.Listener, b.Listener))
	})
	t.Listeners = t.Listeners[:min(v.limit, len(t.Listeners))]
}

// sender describes a sender. `container` is the container that its lines name, if any.
func (v *topView) sender(s sender.Sender, container string) top.ViewSender {
	known := top.ViewSender{Address: s.Address(), Container: container}
	if s.PID == 0 {
		return known
	}
	p, ok := v.processes[s.PID]
	if !ok {
		p = process.Find(s.PID)
		v.processes[s.PID] = p
	}
	known.Process = &top.ViewProcess{PID: s.PID, UID: s.UID, Command: p.Command}
	if known.Container == "" {
		known.Container = p.Container
	}
	return known
}

func (v *topView) newest(t *top.View) {
	limits := v.collector.Limiter.Find(v.tenant)
	t.Series = limits.Series()
	newest := limits.Newest()
	for _, n := range newest[:min(v.limit, len(newest))] {
		_, ls, err := series.ParseKey(n.Key)
		if err != nil {
			continue // cannot happen, since the resolver made this key
		}
		t.Newest = append(t.Newest, top.ViewSeries{
			At: float64(n.At/1e6) / 1e3, Metric: ls.Get(model.MetricNameLabel),
			Labels: ls.MatchLabels(false, model.MetricNameLabel), Sender: v.sender(n.Sender, n.Container),
		})
	}
}

// TopLabels returns the labels of a tenant with the most values, at most `limit`. It visits every series, so
// a record, which is made when the process is behind, leaves it out. An answer may be labelsAge old.
func (c *Collector) TopLabels(tenant string, limit int) []top.ViewLabel {
	all := c.top.labels.of(tenant, c.Limiter.Find(tenant), c.Now())
	rows := []top.ViewLabel{}
	for _, l := range all[:min(limit, len(all))] {
		rows = append(rows, top.ViewLabel{Metric: l.Metric, Label: l.Name, Values: l.Values, Examples: l.Examples})
	}
	return rows
}

// of is a method that returns the labels of a tenant with the most values. It counts the values anew if
// the last count is too old.
func (s *labelScans) of(tenant string, series *limit.Tenant, now time.Time) []top.Label {
	s.mu.Lock()
	defer s.mu.Unlock()
	scan := s.scans[tenant]
	if age := now.Sub(scan.at); age < 0 || age >= labelsAge {
		if s.scans == nil {
			s.scans = map[string]labelScan{}
		}
		scan = labelScan{now, top.Labels(series.Keys(), top.MaxRows)}
		s.scans[tenant] = scan
	}
	return scan.labels
}

func (v *topView) over(t *top.View, now time.Time) {
	for _, r := range v.collector.Limits() {
		if r.Tenant != v.tenant {
			continue
		}
		for i := range r.Offenders {
			o := &r.Offenders[i]
			if now.UnixNano()-o.Last >= int64(overFor) || len(t.Over) == v.limit {
				continue
			}
			t.Over = append(t.Over, top.ViewOver{
				Metric: o.Metric, Kind: o.Kind.String(), Limit: setting(o), Fate: o.Fate.String(), Samples: samplesOver(o),
				Label: culprit(o), Values: values(o), Sender: loudest(o),
			})
		}
	}
}
