// Package explain says what a datagram would become, field by field, either on a running server or
// under a configuration alone. It changes nothing.
package explain

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/window"
	"github.com/freshet-io/freshet/internal/settings"
)

// MaxBytes bounds the input; no datagram is longer.
const MaxBytes = 1 << 20

// Explainer explains datagrams. New returns an Explainer for a configuration alone. A running server
// then replaces the fields that depend on its state.
type Explainer struct {
	config settings.Config
	mapper *mapping.Mapper
	// Peek returns the name that a claim would get, without claiming it.
	Peek func(*catalogue.Claim) (name string, known bool, report catalogue.Report)

	// Admit returns what the limits would do with a series. It is nil without a server.
	Admit func(tenant string, key []byte, source uint64, length int) limit.Prospect

	// Arrives lists the DogStatsD sockets of a tenant. It is nil without a server.
	Arrives func(tenant string) []string
	now     time.Time
}

// New returns an Explainer that knows only a configuration: each name belongs to the first line
// that claims it.
func New(c settings.Config, now time.Time) (*Explainer, error) {
	constant, err := c.ConstantLabels()
	if err != nil {
		return nil, err
	}
	mapper, err := mapping.New(c.Mapping, constant)
	if err != nil {
		return nil, err
	}
	names := catalogue.New(catalogue.DefaultMaxNames)
	return &Explainer{config: c, mapper: mapper, now: now,
		Peek: func(claim *catalogue.Claim) (string, bool, catalogue.Report) {
			name, known, report := names.Peek(claim)
			names.Resolve(now.UnixMilli(), claim) // later lines of the datagram must see this name
			return name, known, report
		}}, nil
}

// Explain explains a datagram that arrives for a tenant.
func (x *Explainer) Explain(tenant string, packet []byte) answer.Explained {
	e := answer.Explained{Tenant: tenant, Arrives: []string{}, Lines: []answer.ExplainedLine{}}
	if x.Arrives != nil {
		e.Arrives = append(e.Arrives, x.Arrives(tenant)...)
	}
	if x.Arrives != nil && len(e.Arrives) == 0 {
		e.Warnings = append(e.Warnings,
			fmt.Sprintf("the tenant %s has no DogStatsD socket: nothing can arrive for it", tenant))
	}
	if limit := int(x.config.DogStatsD.MaxPacket); len(packet) > limit {
		e.Warnings = append(e.Warnings,
			fmt.Sprintf("%d bytes are more than dogstatsd.max_packet (%d): the datagram would be dropped", len(packet), limit))
	}
	for line := range dogstatsd.Lines(packet) {
		e.Lines = append(e.Lines, x.line(tenant, line))
	}
	if !x.config.Roles().Has(settings.RoleAggregator) && len(x.config.Cluster.Nodes) == 0 {
		e.Warnings = append(e.Warnings, "nothing is stored: "+settings.NothingStored)
	}
	if len(e.Lines) == 0 {
		e.Warnings = append(e.Warnings, "the datagram has no line")
	}
	return e
}

func (x *Explainer) line(tenant string, line []byte) answer.ExplainedLine {
	e := dogstatsd.Explain(line)
	l := answer.ExplainedLine{
		Line: string(line), WellFormed: e.WellFormed(), Fields: e.Fields,
		Type: map[dogstatsd.Line]string{dogstatsd.MetricLine: "metric", dogstatsd.EventLine: "event",
			dogstatsd.CheckLine: "check"}[e.Line],
	}
	if !l.WellFormed {
		l.Fault = &answer.ExplainedFault{Reason: e.Reason.String(), At: e.Fault, Expected: e.Expected}
		return l
	}
	for _, f := range e.Fields {
		if f.Ignored && f.Name != "tags" {
			warn(&l, "%s %q: %s", f.Name, line[f.From:f.To], f.Meaning)
		}
	}
	switch e.Line {
	case dogstatsd.EventLine:
		l.Becomes = x.event(&e.Event, &l)
	case dogstatsd.CheckLine:
		c := &e.Check
		l.Becomes = x.series(tenant, &mapping.Input{Check: true, Name: c.Name, Tags: c.Tags, Host: c.Host, Origin: c.Origin},
			&l, nil)
		x.timed(series.Check, c.Time, &l)
	default:
		m := &e.Metric
		l.Becomes = x.series(tenant, &mapping.Input{Type: m.Type, Name: m.Name, Tags: m.Tags, Origin: m.Origin}, &l, m)
		if m.Type == dogstatsd.Count || m.Type == dogstatsd.Gauge {
			x.timed(map[dogstatsd.Type]series.Kind{dogstatsd.Count: series.Counter, dogstatsd.Gauge: series.Gauge}[m.Type],
				m.Time, &l)
		}
	}
	return l
}

func warn(l *answer.ExplainedLine, text string, args ...any) {
	l.Warnings = append(l.Warnings, fmt.Sprintf(text, args...))
}

// event returns what an event becomes.
func (x *Explainer) event(e *dogstatsd.Event, l *answer.ExplainedLine) *answer.Becomes {
	kept := x.config.Events.Retention
	if at := time.Unix(e.Time, 0); e.Time > 0 && at.Before(x.now.Add(-kept)) {
		warn(l, "its time, %s, is older than events.retention (%v): it is not kept", at.UTC().Format(time.RFC3339),
			model.Duration(kept))
	} else if at.After(x.now.Add(10 * time.Minute)) {
		warn(l, "its time, %s, is more than 10 minutes ahead: the time of arrival is used", at.UTC().Format(time.RFC3339))
	}
	return &answer.Becomes{
		Kind: "event", Combine: "kept as it is; see freshet events",
		Stores: []string{"events for " + model.Duration(kept).String()},
	}
}

// series returns the series of a context, and what happens to the values of m. m is nil for a
// check.
func (x *Explainer) series(tenant string, in *mapping.Input, l *answer.ExplainedLine,
	m *dogstatsd.Metric) *answer.Becomes {
	out := x.mapper.Map(in)
	b := &answer.Becomes{Kind: out.Kind.String(), Dropped: out.Drop}
	if out.Rule >= 0 {
		b.Rule, b.Match = &out.Rule, x.config.Mapping.Rules[out.Rule].Match
	}
	if out.Drop {
		b.Combine = "dropped by the rule"
		return b
	}
	claim := catalogue.Claim{
		Tenant: tenant, Name: out.Name, Raw: in.Name, Named: out.Named, Kind: out.Kind, Buckets: out.Buckets, Unit: out.Unit,
		Help: out.Help,
	}
	name, _, report := x.Peek(&claim)
	reportTo(l, &claim, name, report)
	out.Name = name
	ls, key := out.Labels(), out.AppendKey(nil)
	shard := series.Shard(tenant, key)
	b.Name, b.Shard, b.Labels = name, &shard, ls.Map()
	b.Query = selector(ls, out.Buckets != "")
	b.Combine = x.combine(&out, m)
	if x.Admit != nil {
		limits(b, x.Admit(tenant, key, out.Source, len(in.Name)+len(in.Tags)), l)
	}
	for _, s := range []struct {
		width tile.Width
		kept  time.Duration
	}{{tile.Width10s, x.config.Store.Retention.Tile10s}, {tile.Width1m, x.config.Store.Retention.Tile1m}} {
		b.Stores = append(b.Stores, fmt.Sprintf("%v tiles for %s", s.width, model.Duration(s.kept)))
	}
	if out.Kind == series.Counter {
		for _, v := range m.Values {
			if v < 0 {
				warn(l, "a counter only grows, so %v is refused; a rule with updown: true turns %s into a gauge that adds up", v,
					in.Name)
			}
		}
	}
	return b
}

// limits lists how much of each limit is in use, and adds a warning if there is no room for the
// series.
func limits(b *answer.Becomes, p limit.Prospect, l *answer.ExplainedLine) {
	row := func(what string, n, most int) {
		if most > 0 {
			b.Limits = append(b.Limits, fmt.Sprintf("%s: %d of %d", what, n, most))
		}
	}
	row("series of the metric", p.MetricSeries, p.MaxMetricSeries)
	row("series of the tenant", p.Series, p.MaxSeries)
	row("new series left this minute", p.New, p.MaxNew)
	switch p.Fate {
	case limit.FoldedMetric:
		warn(l, "there is no room for the series (%s): its values are counted under %s{freshet_overflow=\"true\"}", p.Reason,
			b.Name)
	case limit.FoldedKind:
		warn(l, "there is no room for the series (%s): its values are counted under freshet_overflow_%s", p.Reason, b.Kind)
	case limit.Refused:
		warn(l, "there is no room for the series (%s): its values are refused, since the values of a %s cannot be added up",
			p.Reason, b.Kind)
	}
}

// reportTo adds a warning for the catalogue's report about a claim.
func reportTo(l *answer.ExplainedLine, c *catalogue.Claim, name string, r catalogue.Report) {
	switch r.Finding {
	case catalogue.KindConflict:
		warn(l, "the name %s belongs to the %s %s, so this %s is stored as %s", r.Owner.Name, r.Owner.Kind, r.Owner.Raw,
			c.Kind, name)
	case catalogue.FormConflict:
		warn(l,
			"the name %s belongs to timers with other buckets, of %s, so this timer is stored as %s; "+
				"use one rule for both to join them", r.Owner.Name, r.Owner.Raw, name)
	case catalogue.NameCollision:
		warn(l, "the metric %s also becomes %s: both share a series if their labels agree", r.Owner.Raw, name)
	case catalogue.Full:
		warn(l, "the tenant has reached its limit of names: this metric is stored under a name with a hash")
	}
}

// selector writes a series as PromQL.
func selector(ls labels.Labels, classic bool) string {
	m := model.Metric{}
	ls.Range(func(l labels.Label) { m[model.LabelName(l.Name)] = model.LabelValue(l.Value) })
	if classic {
		m[model.MetricNameLabel] += "_bucket"
	}
	return m.String()
}

// combine says how the values of a line are combined with values of other lines.
func (x *Explainer) combine(out *mapping.Output, m *dogstatsd.Metric) string {
	var b strings.Builder
	switch out.Kind {
	case series.Counter:
		fmt.Fprintf(&b, "adds %v to a counter", sum(m.Values)/m.Rate*out.Scale)
	case series.UpDown:
		fmt.Fprintf(&b,
			"adds %v to a total that goes up and down, is kept for %v after the last sample, and is stored as a gauge",
			sum(m.Values)/m.Rate*out.Scale, model.Duration(x.config.Aggregator.UpDownTTL))
	case series.Gauge:
		last := m.Values[len(m.Values)-1] * out.Scale
		if m.Relative && x.config.DogStatsD.RelativeGauges {
			fmt.Fprintf(&b, "changes the gauge by %v (dogstatsd.relative_gauges)", sum(m.Values)*out.Scale)
		} else {
			fmt.Fprintf(&b, "sets the gauge to %v", last)
		}
		fmt.Fprintf(&b, "; if several senders write one series, %s", [...]string{
			series.MergeLast: "the last value holds", series.MergeSum: "the values are added",
			series.MergeMin: "the smallest value holds", series.MergeMax: "the largest value holds",
		}[out.Policy.Merge])
	case series.Timer:
		fmt.Fprintf(&b, "counts as %v in ", m.Measurements())
		if p := out.Policy; p.Bounds != nil {
			fmt.Fprintf(&b, "classic buckets up to %s and +Inf (%s_bucket, _sum, _count)",
				strings.ReplaceAll(out.Buckets, ",", ", "), out.Name)
		} else {
			fmt.Fprintf(&b, "a native histogram of schema %d (%.2g %% between bounds), at most %d buckets",
				p.Schema, (math.Exp2(math.Exp2(-float64(p.Schema)))-1)*100, p.MaxBuckets)
		}
	case series.Set:
		b.WriteString("a gauge of the number of distinct values in each tile")
	default:
		b.WriteString("a gauge of the last status: 0 OK, 1 warning, 2 critical, 3 unknown")
	}
	if out.Scale != 1 {
		fmt.Fprintf(&b, "; each value is multiplied by %v: %v is %v", out.Scale, m.Values[0], m.Values[0]*out.Scale)
	}
	if out.Unit != "" {
		fmt.Fprintf(&b, "; the unit is %s", out.Unit)
	}
	return b.String()
}

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}

// timed warns about a timestamp that is not used as it is. `seconds` is 0 if there is none.
func (x *Explainer) timed(kind series.Kind, seconds int64, l *answer.ExplainedLine) {
	if seconds == 0 {
		return
	}
	at, a := time.Unix(seconds, 0), x.config.Aggregator
	said := at.UTC().Format(time.RFC3339)
	closed := x.now.Add(-a.Lateness).Truncate(10 * time.Second)
	switch {
	case kind != series.Counter && seconds > x.now.Unix()+window.MaxAhead:
		warn(l, "its time, %s, is more than %d s ahead of our clock: the sample is refused with the reason too_far_ahead",
			said, window.MaxAhead)
	case kind == series.Counter && at.After(closed.Add(tile.MaxAhead*10*time.Second)):
		warn(l, "its time, %s, is too far ahead: the sample is counted in the last open tile, at most a minute ahead", said)
	case kind == series.Counter && at.Before(closed):
		warn(l, "its time, %s, lies in a closed tile: the sample is counted in the oldest open tile, and as late",
			said)
	case kind != series.Counter && at.Before(closed.Add(-a.TimedWindow)):
		warn(l, "its time, %s, is older than aggregator.timed_window (%v): the sample is dropped, and counted as late", said,
			a.TimedWindow)
	}
}
