package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/core/limit"
	"github.com/freshet-io/freshet/internal/core/mapping"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/window"
	"github.com/freshet-io/freshet/internal/role/collector"
	"github.com/freshet-io/freshet/internal/settings"
)

// explainer says what a datagram would become: on a running server, or by a
// configuration file. It changes nothing.
type explainer struct {
	config    settings.Config
	mapper    *mapping.Mapper
	peek      func(*catalogue.Claim) (name string, known bool, report catalogue.Report)
	admit     func(tenant string, key []byte, source uint64, length int) limit.Prospect // nil without a server
	listening []collector.Listening
	now       time.Time
}

// newExplainer returns one that knows no server, only a configuration: each name
// belongs to the first line that claims it.
func newExplainer(c settings.Config, now time.Time) (*explainer, error) {
	constant, err := c.ConstantLabels()
	if err != nil {
		return nil, err
	}
	mapper, err := mapping.New(c.Mapping, constant)
	if err != nil {
		return nil, err
	}
	names := catalogue.New(catalogue.DefaultMaxNames)
	return &explainer{config: c, mapper: mapper, now: now, peek: func(claim *catalogue.Claim) (string, bool, catalogue.Report) {
		name, known, report := names.Peek(claim)
		names.Resolve(now.UnixMilli(), claim) // so that the lines of a datagram meet each other
		return name, known, report
	}}, nil
}

// explained is what becomes of a datagram.
type explained struct {
	Tenant   string          `json:"tenant"`
	Arrives  []string        `json:"arrives"` // the sockets of the tenant; empty without a server
	Lines    []explainedLine `json:"lines"`
	Warnings []string        `json:"warnings,omitempty"`
}

// explainedLine is what becomes of one line.
type explainedLine struct {
	Line       string            `json:"line"`
	WellFormed bool              `json:"well_formed"`
	Type       string            `json:"type"` // metric, event or check
	Fields     []dogstatsd.Field `json:"fields"`
	Fault      *fault            `json:"fault,omitempty"`
	Becomes    *becomes          `json:"becomes,omitempty"` // of what is well-formed
	Warnings   []string          `json:"warnings,omitempty"`
}

// fault is what is wrong with a malformed line.
type fault struct {
	Reason   string `json:"reason"` // as metrics spell it
	At       int    `json:"at"`     // the byte, from 0
	Expected string `json:"expected"`
}

// becomes is what a well-formed line becomes.
type becomes struct {
	Rule    *int              `json:"rule,omitempty"` // index in mapping.rules
	Match   string            `json:"match,omitempty"`
	Dropped bool              `json:"dropped,omitempty"` // by the rule
	Kind    string            `json:"kind"`
	Name    string            `json:"name,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Query   string            `json:"query,omitempty"` // the series, to paste into a query
	Combine string            `json:"combine"`         // how values become one
	Shard   *uint16           `json:"shard,omitempty"`
	Stores  []string          `json:"stores,omitempty"`
	Limits  []string          `json:"limits,omitempty"`
}

func (x *explainer) explain(tenant string, packet []byte) explained {
	e := explained{Tenant: tenant, Arrives: []string{}, Lines: []explainedLine{}}
	for _, l := range x.listening {
		if l.Tenant == tenant {
			e.Arrives = append(e.Arrives, l.Network+" "+l.Address)
		}
	}
	if x.listening != nil && len(e.Arrives) == 0 {
		e.Warnings = append(e.Warnings, fmt.Sprintf("no DogStatsD socket belongs to the tenant %s: nothing can arrive for it", tenant))
	}
	if limit := int(x.config.DogStatsD.MaxPacket); len(packet) > limit {
		e.Warnings = append(e.Warnings, fmt.Sprintf("%d bytes are more than dogstatsd.max_packet (%d): the datagram would be dropped", len(packet), limit))
	}
	for line := range dogstatsd.Lines(packet) {
		e.Lines = append(e.Lines, x.line(tenant, line))
	}
	if !x.config.Stores() {
		e.Warnings = append(e.Warnings, "nothing is stored: "+settings.NothingStored)
	}
	if len(e.Lines) == 0 {
		e.Warnings = append(e.Warnings, "there is no line in it")
	}
	return e
}

func (x *explainer) line(tenant string, line []byte) explainedLine {
	e := dogstatsd.Explain(line)
	l := explainedLine{
		Line: string(line), WellFormed: e.WellFormed(), Fields: e.Fields,
		Type: map[dogstatsd.Line]string{dogstatsd.MetricLine: "metric", dogstatsd.EventLine: "event", dogstatsd.CheckLine: "check"}[e.Line],
	}
	if !l.WellFormed {
		l.Fault = &fault{e.Reason.String(), e.Fault, e.Expected}
		return l
	}
	for _, f := range e.Fields {
		if f.Ignored && f.Name != "tags" {
			l.warn("%s %q: %s", f.Name, line[f.From:f.To], f.Meaning)
		}
	}
	switch e.Line {
	case dogstatsd.EventLine:
		l.Becomes = x.event(&e.Event, &l)
	case dogstatsd.CheckLine:
		c := &e.Check
		l.Becomes = x.series(tenant, &mapping.Input{Check: true, Name: c.Name, Tags: c.Tags, Host: c.Host, Origin: c.Origin}, &l, nil)
		x.timed(series.Check, c.Time, &l)
	default:
		m := &e.Metric
		l.Becomes = x.series(tenant, &mapping.Input{Type: m.Type, Name: m.Name, Tags: m.Tags, Origin: m.Origin}, &l, m)
		if m.Type == dogstatsd.Count || m.Type == dogstatsd.Gauge {
			x.timed(map[dogstatsd.Type]series.Kind{dogstatsd.Count: series.Counter, dogstatsd.Gauge: series.Gauge}[m.Type], m.Time, &l)
		}
	}
	return l
}

func (l *explainedLine) warn(text string, args ...any) {
	l.Warnings = append(l.Warnings, fmt.Sprintf(text, args...))
}

// event is what an event becomes.
func (x *explainer) event(e *dogstatsd.Event, l *explainedLine) *becomes {
	kept := x.config.Events.Retention
	if at := time.Unix(e.Time, 0); e.Time > 0 && at.Before(x.now.Add(-kept)) {
		l.warn("its time, %s, is older than events.retention (%v): it is not kept", at.UTC().Format(time.RFC3339), model.Duration(kept))
	} else if at.After(x.now.Add(10 * time.Minute)) {
		l.warn("its time, %s, is more than 10 minutes ahead: the time of arrival is taken", at.UTC().Format(time.RFC3339))
	}
	return &becomes{Kind: "event", Combine: "kept as it is; see freshet events", Stores: []string{"events for " + model.Duration(kept).String()}}
}

// series is the series that a context belongs to, and what becomes of the values
// of m, which is nil for a check.
func (x *explainer) series(tenant string, in *mapping.Input, l *explainedLine, m *dogstatsd.Metric) *becomes {
	out := x.mapper.Map(in)
	b := &becomes{Kind: out.Kind.String(), Dropped: out.Drop}
	if out.Rule >= 0 {
		b.Rule, b.Match = &out.Rule, x.config.Mapping.Rules[out.Rule].Match
	}
	if out.Drop {
		b.Combine = "dropped by the rule"
		return b
	}
	claim := catalogue.Claim{
		Tenant: tenant, Name: out.Name, Raw: in.Name, Named: out.Named, Kind: out.Kind, Buckets: out.Buckets, Unit: out.Unit, Help: out.Help,
	}
	name, _, report := x.peek(&claim)
	l.report(&claim, name, report)
	out.Name = name
	ls, key := out.Labels(), out.AppendKey(nil)
	shard := series.Shard(tenant, key)
	b.Name, b.Shard, b.Labels = name, &shard, ls.Map()
	b.Query = selector(ls, out.Buckets != "")
	b.Combine = x.combine(&out, m)
	if x.admit != nil {
		b.limits(x.admit(tenant, key, out.Source, len(in.Name)+len(in.Tags)), l)
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
				l.warn("a counter only grows: %v is refused; a rule with updown: true makes of %s a gauge that adds up", v, in.Name)
			}
		}
	}
	return b
}

// limits says how much room there is, and what becomes of a series without.
func (b *becomes) limits(p limit.Prospect, l *explainedLine) {
	row := func(what string, n, most int) {
		if most > 0 {
			b.Limits = append(b.Limits, fmt.Sprintf("%s %d of %d", what, n, most))
		}
	}
	row("series of the metric", p.MetricSeries, p.MaxMetricSeries)
	row("of the tenant", p.Series, p.MaxSeries)
	row("may begin now", p.New, p.MaxNew)
	switch p.Fate {
	case limit.FoldedMetric:
		l.warn("there is no room for the series (%s): its values are counted under %s{freshet_overflow=\"true\"}", p.Reason, b.Name)
	case limit.FoldedKind:
		l.warn("there is no room for the series (%s): its values are counted under freshet_overflow_%s", p.Reason, b.Kind)
	case limit.Refused:
		l.warn("there is no room for the series (%s): its values are refused, since those of a %s do not add up", p.Reason, b.Kind)
	}
}

// report warns of what the catalogue says of a claim.
func (l *explainedLine) report(c *catalogue.Claim, name string, r catalogue.Report) {
	switch r.Event {
	case catalogue.KindConflict:
		l.warn("the name %s belongs to the %s %s, so this %s is stored as %s", r.Owner.Name, r.Owner.Kind, r.Owner.Raw, c.Kind, name)
	case catalogue.FormConflict:
		l.warn("the name %s belongs to timers with other buckets, of %s, so this one is stored as %s; give both one rule to join them", r.Owner.Name, r.Owner.Raw, name)
	case catalogue.NameCollision:
		l.warn("the metric %s has become %s too: both are one series where their labels agree", r.Owner.Raw, name)
	case catalogue.Full:
		l.warn("the tenant has all the names that it may: this one is stored under a name with a hash")
	}
}

// selector is a series as PromQL writes it.
func selector(ls labels.Labels, classic bool) string {
	m := model.Metric{}
	ls.Range(func(l labels.Label) { m[model.LabelName(l.Name)] = model.LabelValue(l.Value) })
	if classic {
		m[model.MetricNameLabel] += "_bucket"
	}
	return m.String()
}

// combine says how the values of a line and those of others become one.
func (x *explainer) combine(out *mapping.Output, m *dogstatsd.Metric) string {
	var b strings.Builder
	switch out.Kind {
	case series.Counter:
		fmt.Fprintf(&b, "adds %v to a counter", sum(m.Values)/m.Rate*out.Scale)
	case series.UpDown:
		fmt.Fprintf(&b, "adds %v to a total that goes up and down, which is kept for %v after the last sample and stored as a gauge",
			sum(m.Values)/m.Rate*out.Scale, model.Duration(x.config.Aggregator.UpDownTTL))
	case series.Gauge:
		last := m.Values[len(m.Values)-1] * out.Scale
		if m.Relative && x.config.DogStatsD.RelativeGauges {
			fmt.Fprintf(&b, "changes the gauge by %v (dogstatsd.relative_gauges)", sum(m.Values)*out.Scale)
		} else {
			fmt.Fprintf(&b, "sets the gauge to %v", last)
		}
		fmt.Fprintf(&b, "; of several senders of one series %s", [...]string{
			series.MergeLast: "the last value holds", series.MergeSum: "the values are added",
			series.MergeMin: "the smallest value holds", series.MergeMax: "the largest value holds",
		}[out.Policy.Merge])
	case series.Timer:
		fmt.Fprintf(&b, "counts as %v in ", m.Measurements())
		if p := out.Policy; p.Bounds != nil {
			fmt.Fprintf(&b, "classic buckets up to %s and +Inf (%s_bucket, _sum, _count)", strings.ReplaceAll(out.Buckets, ",", ", "), out.Name)
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

// timed warns of a time that cannot be taken as it is. seconds is 0 if there is none.
func (x *explainer) timed(kind series.Kind, seconds int64, l *explainedLine) {
	if seconds == 0 {
		return
	}
	at, a := time.Unix(seconds, 0), x.config.Aggregator
	said := at.UTC().Format(time.RFC3339)
	closed := x.now.Add(-a.Lateness).Truncate(10 * time.Second)
	switch {
	case kind != series.Counter && seconds > x.now.Unix()+window.MaxAhead:
		l.warn("its time, %s, is more than %d s ahead of the clock here: it is refused, as too_far_ahead", said, window.MaxAhead)
	case kind == series.Counter && at.After(closed.Add(tile.MaxAhead*10*time.Second)):
		l.warn("its time, %s, is too far ahead: it is counted in the last tile that is open, a minute ahead at most", said)
	case kind == series.Counter && at.Before(closed):
		l.warn("its time, %s, lies in a tile that is closed: it is counted in the oldest one that is open, and as late", said)
	case kind != series.Counter && at.Before(closed.Add(-a.TimedWindow)):
		l.warn("its time, %s, is older than aggregator.timed_window (%v): it is dropped, and counted as late", said, a.TimedWindow)
	}
}

// explainer is what this server is at the moment.
func (s *server) explainer() (*explainer, error) {
	x, err := newExplainer(s.inForce(), time.Now())
	if err != nil {
		return nil, err
	}
	x.peek, x.listening = s.catalogue.Peek, s.collector.Listening()
	x.admit = func(tenant string, key []byte, source uint64, length int) limit.Prospect {
		return s.limiter.Peek(x.now.UnixNano(), tenant, key, source, length)
	}
	return x, nil
}

// maxExplained bounds the body of a request; no datagram is longer.
const maxExplained = 1 << 20

// serveExplain answers GET with the parameter line and POST with a raw datagram.
func (s *server) serveExplain(w http.ResponseWriter, r *http.Request) {
	respond := func(status int, body map[string]any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body) // fails if the client went away
	}
	refuse := func(status int, kind string, err error) {
		respond(status, map[string]any{"status": "error", "errorType": kind, "error": err.Error()})
	}
	packet := []byte(r.URL.Query().Get("line"))
	if r.Method == http.MethodPost {
		var err error
		if packet, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxExplained)); err != nil {
			refuse(http.StatusBadRequest, "bad_data", fmt.Errorf("read the datagram: %w", err))
			return
		}
	}
	name := tenantOf(r)
	if asked := r.URL.Query().Get("tenant"); asked != "" && asked != name {
		if err := tenant.Check(asked); err != nil {
			refuse(http.StatusBadRequest, "bad_data", err)
			return
		}
		// Names are a tenant's own: another one, or another address' users, are not
		// told of them.
		err := s.notOperator(r)
		if s.access.Load() != nil && !s.vouched(r, claimOf(r)) {
			err = fmt.Errorf("ask as %s, by its token or header", asked)
		}
		if err != nil {
			refuse(http.StatusForbidden, "forbidden", fmt.Errorf("another tenant is not explained: %w", err))
			return
		}
		name = asked
	}
	x, err := s.explainer()
	if err != nil {
		refuse(http.StatusInternalServerError, "internal", err)
		return
	}
	respond(http.StatusOK, map[string]any{"status": "success", "data": x.explain(name, packet)})
}
