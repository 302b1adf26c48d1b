package collector

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/adapter/process"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/series"
)

const (
	// lookTime is the interval at which `limits` checks for metrics over a limit.
	lookTime = time.Second

	// firstTold is how long the log waits for the sender of a metric that is over a limit.
	// After that it names the metric without a sender. Sockets report senders only after a
	// metric went over a limit.
	firstTold = 3 * time.Second

	// toldAgain is the interval at which the log repeats that a metric is over a limit.
	toldAgain = time.Minute

	// maxTold is how many metrics of a tenant the log names in the time `toldAgain`. All other
	// metrics share a line.
	maxTold = 3

	// overFor is how long a metric still counts as over a limit after its last sample over a limit.
	overFor = 5 * time.Second

	// forgetTold is how long `limits` remembers which metrics the log has named. That is
	// longer than the limiter remembers offenders, so that the log reports no metric twice.
	forgetTold = 11 * time.Minute

	// watchFor is how long sockets report senders after the last sample over a limit.
	watchFor = time.Minute
)

// limits is the part that reports metrics over a limit, outside the reading threads.
type limits struct {
	*Options
	watch      func(on bool) // turns the report of senders on or off
	listensFor func(tenant string) bool
	watching   bool
	told       map[offence]*telling // metrics reported in the last forgetTold
	others     map[string]int64     // when the unnamed metrics were reported, by tenant; Unix nanoseconds

	mu      sync.Mutex
	reports []LimitReport // result of the last look
}

// offence identifies a metric of a tenant that is over a limit.
type offence struct {
	tenant, metric string
	kind           series.Kind
}

// telling is the log's last report about a metric.
type telling struct {
	at      int64  // Unix nanoseconds
	since   int64  // limit.Offender.Since: samples are counted since then
	samples uint64 // samples over a limit until the report
	named   bool   // whether the log named the metric; otherwise it only counted the metric
	over    bool   // whether the metric was named and has been over a limit ever since
}

// LimitReport is the state of a tenant's limits, for the API.
type LimitReport struct {
	Tenant string
	limit.Report
}

// Limits returns the state of each tenant's limits at the last look, at most a second ago.
func (c *Collector) Limits() []LimitReport { return c.limits.last() }

func (l *limits) last() []LimitReport {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.reports)
}

// run calls the method look every lookTime until ctx is done.
func (l *limits) run(ctx context.Context) {
	tick := time.NewTicker(lookTime)
	defer tick.Stop()
	for {
		l.look(l.Now().UnixNano())
		select {
		case <-tick.C:
		case <-ctx.Done():
			if l.watching {
				l.watch(false)
			}
			return
		}
	}
}

// look updates the reports, logs changes, and turns the report of senders on while a
// metric is over a limit.
func (l *limits) look(now int64) {
	var reports []LimitReport
	wanted := false
	tenants := l.Limiter.Tenants(now, l.listensFor)
	for _, name := range slices.Sorted(maps.Keys(tenants)) {
		report := tenants[name].Report(now)
		if over := tenants[name].Over(); over != 0 && now-over < int64(watchFor) {
			wanted = true
		}
		l.tell(now, name, report.Offenders)
		reports = append(reports, LimitReport{name, report})
	}
	l.forget(now, tenants)
	if wanted != l.watching {
		l.watching = wanted
		l.watch(wanted)
	}
	l.mu.Lock()
	l.reports = reports
	l.mu.Unlock()
}

// tell logs which metrics of a tenant are over a limit, and when they are within limits again.
// At most maxTold metrics are named in a minute: the metrics with the most unreported samples.
func (l *limits) tell(now int64, tenant string, offenders []limit.Offender) {
	named := 0
	for key, t := range l.told {
		if key.tenant == tenant && t.named && now-t.at < int64(toldAgain) {
			named++
		}
	}
	var due []*limit.Offender
	unsteady := 0
	for i := range offenders {
		o := &offenders[i]
		t := l.told[offence{tenant, o.Metric, o.Kind}]
		recent := now-o.Last < int64(overFor)
		known := len(o.Senders) > 0 || now-o.Since >= int64(firstTold)
		switch {
		case !o.Steady:
			if o.Last > l.others[tenant] {
				unsteady++
			}
		case l.untold(tenant, o) > 0 && (t == nil || now-t.at >= int64(toldAgain)) && (known || !recent):
			due = append(due, o)
		case t != nil && t.over && !recent:
			l.logger(tenant, o).Info("no new series are over a limit any more", o.Fate.String()+"_samples", samplesOver(o))
			// All samples so far are reported now, so that only new samples make another report.
			*t = telling{at: t.at, since: o.Since, samples: samplesOver(o), named: t.named}
		}
	}
	slices.SortStableFunc(due, func(a, b *limit.Offender) int {
		return cmp.Compare(l.untold(tenant, b), l.untold(tenant, a))
	})
	for ; len(due) > 0 && named < maxTold; named++ {
		o := due[0]
		due = due[1:]
		l.logger(tenant, o).Warn("new series are over a limit and have no place; docs/limits.md says what to do",
			"limit", setting(o),
			o.Fate.String()+"_samples", l.untold(tenant, o), "label", culprit(o), "values", values(o), "sender", loudest(o),
			"example", o.Example)
		l.told[offence{tenant, o.Metric, o.Kind}] = &telling{
			at: now, since: o.Since, samples: samplesOver(o), named: true, over: true,
		}
	}
	l.tellOthers(now, tenant, due, unsteady)
}

// tellOthers logs, once a minute, how many more metrics are over a limit. Unsteady metrics
// displace each other in the limiter's list, so tellOthers only counts them.
func (l *limits) tellOthers(now int64, tenant string, due []*limit.Offender, unsteady int) {
	if len(due)+unsteady == 0 || now-l.others[tenant] < int64(toldAgain) {
		return
	}
	attrs := []any{"tenant", tenant, "metrics", len(due) + unsteady}
	if unsteady > 0 {
		attrs[2] = "at_least_metrics"
	}
	if len(due) > 0 {
		attrs = append(attrs, "most", due[0].Metric)
	}
	l.Logger.Warn("further metrics are over a limit: their new series have no place either", attrs...)
	l.others[tenant] = now
	for _, o := range due {
		l.told[offence{tenant, o.Metric, o.Kind}] = &telling{at: now, since: o.Since, samples: samplesOver(o)}
	}
}

func (l *limits) logger(tenant string, o *limit.Offender) *slog.Logger {
	return l.Logger.With("tenant", tenant, "metric", o.Metric, "kind", o.Kind.String())
}

// untold returns how many samples of an offender the log has not reported yet.
func (l *limits) untold(tenant string, o *limit.Offender) uint64 {
	if t := l.told[offence{tenant, o.Metric, o.Kind}]; t != nil && t.since == o.Since {
		return samplesOver(o) - t.samples
	}
	return samplesOver(o)
}

// forget deletes old reports from l.told, and removed tenants from l.others. This bounds l.told:
// for each tenant, a minute adds at most 3 metrics that the log names, and at most 16 that the log
// only counts.
func (l *limits) forget(now int64, tenants map[string]*limit.Tenant) {
	maps.DeleteFunc(l.told, func(_ offence, t *telling) bool { return now-t.at > int64(forgetTold) })
	maps.DeleteFunc(l.others, func(tenant string, _ int64) bool { return tenants[tenant] == nil })
}

func samplesOver(o *limit.Offender) (n uint64) {
	for _, samples := range o.Samples {
		n += samples
	}
	return n
}

// reason returns the limit that most of an offender's samples exceeded.
func reason(o *limit.Offender) limit.Reason {
	most := limit.MetricSeries
	for r := most; r < limit.NumReasons; r++ {
		if o.Samples[r] > o.Samples[most] {
			most = r
		}
	}
	return most
}

// setting returns the configuration key of an offender's limit.
func setting(o *limit.Offender) string {
	return "limits." + map[limit.Reason]string{
		limit.MetricSeries: "max_series_per_metric", limit.TenantSeries: "max_series",
		limit.NewSeries:   "max_new_series_per_minute",
		limit.SeriesBytes: "max_series_bytes",
	}[reason(o)]
}

// culprit returns the label with the most values.
func culprit(o *limit.Offender) string {
	if len(o.Labels) == 0 {
		return ""
	}
	return o.Labels[0].Name
}

func values(o *limit.Offender) uint64 {
	if len(o.Labels) == 0 {
		return 0
	}
	return o.Labels[0].Values
}

// loudest describes the sender that sent most of an offender's samples.
func loudest(o *limit.Offender) string {
	if len(o.Senders) == 0 {
		return "unknown"
	}
	return describeSender(o.Senders[0].Sender, o.Senders[0].Container)
}

// describeSender describes a sender for people: by its address, or by the number, user and command of
// its process, and by its container.
func describeSender(s sender.Sender, container string) string {
	var parts []string
	if address := s.Address(); address != "" {
		parts = append(parts, address)
	}
	if s.PID != 0 {
		p := process.Find(s.PID)
		container = cmp.Or(container, p.Container)
		parts = append(parts, fmt.Sprintf("pid %d", s.PID), fmt.Sprintf("uid %d", s.UID))
		if p.Command != "" {
			parts = append(parts, "command "+p.Command)
		}
	}
	if container != "" {
		parts = append(parts, "container "+container)
	}
	// Text from a client or a process may have any bytes, but the value of a label must
	// be valid UTF-8.
	return cut(strings.ToValidUTF8(strings.Join(parts, ", "), "_"))
}

// maxText bounds the text of a sender, in bytes. Container ids have 64 digits.
const maxText = 200

func cut(text string) string {
	if len(text) > maxText {
		return strings.ToValidUTF8(text[:maxText], "") + "..."
	}
	return text
}

var (
	descLimitSamples = prometheus.NewDesc("freshet_limit_samples_total",
		"Values of new series for which a limit left no place, by limit. Folded values count in an overflow series, "+
			"refused values nowhere. Rising: freshet_limit_offender names the metric and the label.",
		[]string{"tenant", "reason", "fate"}, nil)
	descLimitSeries = prometheus.NewDesc("freshet_limit_series",
		"Series of the tenant that have a place. At limits.max_series new series get no place.", []string{"tenant"}, nil)
	descLimitOffender = prometheus.NewDesc("freshet_limit_offender",
		"Values of new series of a metric that was over a limit in the last ten minutes, "+
			"with the label that has the most values and the sender of the most samples. At most 16 metrics a tenant, "+
			"without metrics that displace each other.",
		[]string{"tenant", "metric", "kind", "reason", "fate", "label", "sender"}, nil)
)

// Describe is part of prometheus.Collector. It declares nothing beforehand.
func (l *limits) Describe(chan<- *prometheus.Desc) {}

// Collect is part of prometheus.Collector.
func (l *limits) Collect(out chan<- prometheus.Metric) {
	for _, r := range l.last() {
		out <- prometheus.MustNewConstMetric(descLimitSeries, prometheus.GaugeValue, float64(r.Series), r.Tenant)
		for reason := limit.MetricSeries; reason < limit.NumReasons; reason++ {
			out <- prometheus.MustNewConstMetric(descLimitSamples, prometheus.CounterValue, float64(r.Folded[reason]), r.Tenant,
				reason.String(), "folded")
			out <- prometheus.MustNewConstMetric(descLimitSamples, prometheus.CounterValue, float64(r.Refused[reason]), r.Tenant,
				reason.String(), "refused")
		}
		for i := range r.Offenders {
			o := &r.Offenders[i]
			if !o.Steady { // another metric may have its place at the next scrape
				continue
			}
			out <- prometheus.MustNewConstMetric(descLimitOffender, prometheus.GaugeValue, float64(samplesOver(o)),
				r.Tenant, o.Metric, o.Kind.String(), reason(o).String(), o.Fate.String(), strings.ToValidUTF8(culprit(o), "_"),
				loudest(o))
		}
	}
}

// Restored reserves the place of a series that was live before a restart, so that limits do not
// turn the series away. Overflow series take no place. The caller passes series in the order of
// `seen`, the time of their last sample.
func (c *Collector) Restored(tenant string, key []byte, source uint64, seen time.Time) {
	for name := range series.KeyLabels(key) {
		if string(name) == mapping.OverflowLabel {
			return
		}
	}
	c.Limiter.Tenant(tenant).Load(c.Now().UnixNano(), seen.UnixNano(), key, source)
}
