package collector

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/adapter/process"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/core/series"
)

const (
	// lookTime is between two looks at who is over a limit.
	lookTime = time.Second

	// firstTold is how long a metric has been over a limit when the log says so, if its
	// sender is still unknown: sockets are watched only since it began.
	firstTold = 3 * time.Second

	// toldAgain is when the log says so again.
	toldAgain = time.Minute

	// overFor is without samples over a limit when a metric is within limits again.
	overFor = 5 * time.Second

	// watchFor is how long senders are watched after the last sample over a limit.
	watchFor = time.Minute
)

// limits tells people who is over a limit, off the reading threads.
type limits struct {
	collector *Collector
	watching  bool
	told      map[offence]*telling

	mu      sync.Mutex
	reports []LimitReport // of the last look
}

// offence is a metric of a tenant.
type offence struct {
	tenant, metric string
	kind           series.Kind
}

// telling is what the log said of a metric.
type telling struct {
	at      int64  // Unix nanoseconds
	samples uint64 // over a limit by then
	over    bool   // and it has not been within limits since
}

// LimitReport is the state of a tenant's limits for people.
type LimitReport struct {
	Tenant string
	limit.Report
}

// Limits returns the state of each tenant's limits at the last look, a second ago at
// most.
func (c *Collector) Limits() []LimitReport {
	c.limits.mu.Lock()
	defer c.limits.mu.Unlock()
	return slices.Clone(c.limits.reports)
}

// run looks until ctx is done.
func (l *limits) run(ctx context.Context) {
	tick := time.NewTicker(lookTime)
	defer tick.Stop()
	for {
		l.look(l.collector.Now().UnixNano())
		select {
		case <-tick.C:
		case <-ctx.Done():
			if l.watching {
				l.collector.watchSenders(false)
			}
			return
		}
	}
}

// look brings the reports up to date, tells what is new, and watches senders while
// somebody wants to know them.
func (l *limits) look(now int64) {
	var reports []LimitReport
	wanted := false
	for _, name := range l.collector.tenants() {
		tenant := l.collector.Limiter.Tenant(name)
		report := tenant.Report(now)
		if over := tenant.Over(); over != 0 && now-over < int64(watchFor) {
			wanted = true
		}
		for i := range report.Offenders {
			l.tell(now, name, &report.Offenders[i])
		}
		reports = append(reports, LimitReport{name, report})
	}
	l.forget(reports)
	if wanted != l.watching {
		l.watching = wanted
		l.collector.watchSenders(wanted)
	}
	l.mu.Lock()
	l.reports = reports
	l.mu.Unlock()
}

// tenants are those of all listeners, each once.
func (c *Collector) tenants() (all []string) {
	for _, l := range c.listeners() {
		all = append(all, l.next.Load().tenant)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// tell logs that a metric is over a limit, once a minute, and that it no longer is.
func (l *limits) tell(now int64, tenant string, o *limit.Offender) {
	key := offence{tenant, o.Metric, o.Kind}
	t := l.told[key]
	if t == nil {
		t = &telling{at: now - int64(toldAgain)}
		l.told[key] = t
	}
	total := samplesOver(o)
	recent := now-o.Last < int64(overFor)
	known := len(o.Senders) > 0 || now-o.Since >= int64(firstTold)
	logger := l.collector.Logger.With("tenant", tenant, "metric", o.Metric, "kind", o.Kind.String())
	switch {
	case total > t.samples && now-t.at >= int64(toldAgain) && (known || !recent):
		logger.Warn("new series are over a limit and have no place; docs/limits.md says what to do", "limit", setting(o),
			o.Fate.String()+"_samples", total-t.samples, "label", culprit(o), "values", values(o), "sender", sender(o), "example", example(o))
		t.at, t.samples, t.over = now, total, true
	case t.over && !recent:
		logger.Info("no new series are over a limit any more", o.Fate.String()+"_samples", total)
		t.samples, t.over = total, false // all of it is told: only what comes again is news
	}
}

// forget forgets what was told of metrics that are not remembered any more.
func (l *limits) forget(reports []LimitReport) {
	remembered := map[offence]bool{}
	for _, r := range reports {
		for _, o := range r.Offenders {
			remembered[offence{r.Tenant, o.Metric, o.Kind}] = true
		}
	}
	for key := range l.told {
		if !remembered[key] {
			delete(l.told, key)
		}
	}
}

func samplesOver(o *limit.Offender) (n uint64) {
	for _, samples := range o.Samples {
		n += samples
	}
	return n
}

// reason is the limit that most samples of an offender were over.
func reason(o *limit.Offender) limit.Reason {
	most := limit.MetricSeries
	for r := most; r < limit.NumReasons; r++ {
		if o.Samples[r] > o.Samples[most] {
			most = r
		}
	}
	return most
}

// setting is the key of that limit.
func setting(o *limit.Offender) string {
	return "limits." + map[limit.Reason]string{
		limit.MetricSeries: "max_series_per_metric", limit.TenantSeries: "max_series", limit.NewSeries: "max_new_series_per_minute",
		limit.SeriesBytes: "max_series_bytes",
	}[reason(o)]
}

// culprit is the label with most values.
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

func example(o *limit.Offender) string {
	_, ls, err := series.ParseKey(o.Example)
	if err != nil {
		return ""
	}
	return cut(ls.String())
}

// sender describes who sent most samples.
func sender(o *limit.Offender) string {
	if len(o.Senders) == 0 {
		return "unknown"
	}
	return DescribeSender(o.Senders[0].Sender)
}

// DescribeSender is a sender as people know it: an address, or a process by its
// number, user and command, and the container.
func DescribeSender(s limit.Sender) string {
	var parts []string
	container := s.Container
	if s.Addr.IsValid() {
		parts = append(parts, s.Addr.String())
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
	// What a client or a process says of itself may be anything, and becomes the
	// value of a label.
	return cut(strings.ToValidUTF8(strings.Join(parts, ", "), "_"))
}

// maxText bounds what others say of themselves: container ids have 64 digits.
const maxText = 200

func cut(text string) string {
	if len(text) > maxText {
		return strings.ToValidUTF8(text[:maxText], "") + "..."
	}
	return text
}

var (
	descLimitSamples = prometheus.NewDesc("freshet_limit_samples_total",
		"Values of new series that a limit left no place for, by limit. Folded ones count in an overflow series, refused ones nowhere. Rising: freshet_limit_offender names the metric and the label.",
		[]string{"tenant", "reason", "fate"}, nil)
	descLimitSeries = prometheus.NewDesc("freshet_limit_series",
		"Series of the tenant that have a place. At limits.max_series new ones have none.", []string{"tenant"}, nil)
	descLimitOffender = prometheus.NewDesc("freshet_limit_offender",
		"Values of new series of a metric that has been over a limit in the last ten minutes, with the label that has most values and the sender of most: at most 16 metrics a tenant.",
		[]string{"tenant", "metric", "kind", "reason", "fate", "label", "sender"}, nil)
)

// Describe is part of prometheus.Collector: nothing declares them beforehand.
func (l *limits) Describe(chan<- *prometheus.Desc) {}

// Collect is part of prometheus.Collector.
func (l *limits) Collect(out chan<- prometheus.Metric) {
	for _, r := range l.collector.Limits() {
		out <- prometheus.MustNewConstMetric(descLimitSeries, prometheus.GaugeValue, float64(r.Series), r.Tenant)
		for reason := limit.MetricSeries; reason < limit.NumReasons; reason++ {
			out <- prometheus.MustNewConstMetric(descLimitSamples, prometheus.CounterValue, float64(r.Folded[reason]), r.Tenant, reason.String(), "folded")
			out <- prometheus.MustNewConstMetric(descLimitSamples, prometheus.CounterValue, float64(r.Refused[reason]), r.Tenant, reason.String(), "refused")
		}
		for i := range r.Offenders {
			o := &r.Offenders[i]
			out <- prometheus.MustNewConstMetric(descLimitOffender, prometheus.GaugeValue, float64(samplesOver(o)),
				r.Tenant, o.Metric, o.Kind.String(), reason(o).String(), o.Fate.String(), strings.ToValidUTF8(culprit(o), "_"), sender(o))
		}
	}
}

// Restored makes a series known that was live before a restart: the limits do not
// turn it away. Overflow series take no place.
func (c *Collector) Restored(tenant string, key []byte, source uint64) {
	for name := range series.KeyLabels(key) {
		if string(name) == mapping.OverflowLabel {
			return
		}
	}
	c.Limiter.Tenant(tenant).Load(c.Now().UnixNano(), key, source)
}
