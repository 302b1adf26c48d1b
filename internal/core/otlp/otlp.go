// Package otlp makes requests of remote write out of metrics in OpenTelemetry's protocol.
// Names, labels and values come from Prometheus' own converter, so that a series is called
// here what it is called there. What that cannot convert is taken out beforehand, point by
// point, so that it costs none of its neighbours. How requests come in and are answered is
// adapter/receive's business.
package otlp

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/otlptranslator"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote/otlptranslator/prometheusremotewrite"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
)

// Settings are what operators choose of how OTLP becomes series.
type Settings struct {
	Strategy      otlptranslator.TranslationStrategyOption // of names
	Promote       []string                                 // resource attributes that become labels; All for all of them
	PromoteScope  bool                                     // the scope's name, version and attributes become labels
	CustomBuckets bool                                     // histograms with explicit buckets become native ones
	Lookback      time.Duration                            // of queries: target_info is repeated twice in it
}

// All in Settings.Promote stands for all resource attributes.
const All = "*"

// Converted is what became of the data points of a request.
type Converted struct {
	Points  int // that are in the requests now
	Samples int // that they became there, without target_info, which belongs to no point
	Refused outcome.Outcome
}

// Convert adds the series of m to requests that were begun, and finishes them: values that
// count from a start to one, and to the other those that say how much was added since the
// point before, whose temporality is delta. There a series has the type of a counter if it
// only grows, of a gauge if it also falls, or of a histogram, native or a part of a classic
// one, which grows. m is used up. room is asked, with the bytes that both requests take in
// all, before they grow further; its error ends the conversion, and is returned. After an
// error nothing of the requests is to be used.
//
// Each data point that is refused counts as one sample.
func Convert(m pmetric.Metrics, s Settings, to, deltas *remotewrite.Builder, room func(bytes int) error) (Converted, error) {
	var c Converted
	check := newCheck(s, &c)
	check.request(m)
	increments := cutDeltas(m, &c)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	a := &appender{
		to: to, totals: to, deltas: deltas, room: room, cancel: cancel,
		families: map[string]struct{}{}, described: map[uint64]struct{}{},
	}
	a.label = a.addLabel
	p := converters.Get().(*prometheusremotewrite.PrometheusConverter)
	defer converters.Put(p)
	p.Reset(a)
	defer p.Reset(nil)
	_, err := p.FromMetrics(ctx, m, s.prometheus())
	if increments.ResourceMetrics().Len() > 0 && a.err == nil {
		a.to, a.families = deltas, map[string]struct{}{}
		p.Reset(a)
		s.CustomBuckets = false // a tile has no histogram with such
		_, deltaErr := p.FromMetrics(ctx, increments, s.prometheus())
		err = errors.Join(err, deltaErr)
	}
	if a.err != nil {
		return c, a.err
	}
	// The check has left nothing that the converter refuses. Should it have overlooked
	// something, the rest of the metric is lost there, of which nobody knows how many
	// points it had: they are taken to be of one sample each.
	if missing := c.Samples - a.samples; err != nil && missing > 0 {
		c.Points = max(0, c.Points-missing)
		c.Samples = a.samples
		if c.Refused.Refuse(outcome.BadLabels, outcome.Counts{Samples: missing}) {
			c.Refused.Tell("a metric", err)
		}
	}
	to.Finish()
	deltas.Finish()
	return c, nil
}

// cutDeltas takes the metrics whose temporality is delta out of m. They are cumulative then
// to the converter, so that it calls them what it calls those. An exemplar of theirs is not
// kept: it would have to come when its series is stored, which is later.
func cutDeltas(m pmetric.Metrics, c *Converted) pmetric.Metrics {
	deltas := pmetric.NewMetrics()
	for _, r := range m.ResourceMetrics().All() {
		var toResource pmetric.ResourceMetrics
		ofResource := false
		for _, s := range r.ScopeMetrics().All() {
			var toScope pmetric.ScopeMetrics
			ofScope := false
			s.Metrics().RemoveIf(func(m pmetric.Metric) bool {
				if !isDelta(m) {
					return false
				}
				if !ofResource {
					toResource, ofResource = deltas.ResourceMetrics().AppendEmpty(), true
					r.Resource().CopyTo(toResource.Resource())
					toResource.SetSchemaUrl(r.SchemaUrl())
				}
				if !ofScope {
					toScope, ofScope = toResource.ScopeMetrics().AppendEmpty(), true
					s.Scope().CopyTo(toScope.Scope())
					toScope.SetSchemaUrl(s.SchemaUrl())
				}
				c.Refused.NotKept += withoutExemplars(m)
				to := toScope.Metrics().AppendEmpty()
				m.MoveTo(to)
				setCumulative(to)
				return true
			})
		}
	}
	return deltas
}

func setCumulative(m pmetric.Metric) {
	const cumulative = pmetric.AggregationTemporalityCumulative
	switch m.Type() {
	case pmetric.MetricTypeSum:
		m.Sum().SetAggregationTemporality(cumulative)
	case pmetric.MetricTypeHistogram:
		m.Histogram().SetAggregationTemporality(cumulative)
	case pmetric.MetricTypeExponentialHistogram:
		m.ExponentialHistogram().SetAggregationTemporality(cumulative)
	}
}

// withoutExemplars takes the exemplars out of a metric, and counts them.
func withoutExemplars(m pmetric.Metric) (n int) {
	remove := func(all pmetric.ExemplarSlice) {
		n += all.Len()
		all.RemoveIf(func(pmetric.Exemplar) bool { return true })
	}
	switch m.Type() {
	case pmetric.MetricTypeSum:
		for _, p := range m.Sum().DataPoints().All() {
			remove(p.Exemplars())
		}
	case pmetric.MetricTypeHistogram:
		for _, p := range m.Histogram().DataPoints().All() {
			remove(p.Exemplars())
		}
	case pmetric.MetricTypeExponentialHistogram:
		for _, p := range m.ExponentialHistogram().DataPoints().All() {
			remove(p.Exemplars())
		}
	}
	return n
}

var converters = sync.Pool{New: func() any { return prometheusremotewrite.NewPrometheusConverter(nil) }}

func (s Settings) prometheus() prometheusremotewrite.Settings {
	promote := config.OTLPConfig{PromoteResourceAttributes: s.Promote}
	for _, name := range s.Promote {
		if name == All {
			promote = config.OTLPConfig{PromoteAllResourceAttributes: true}
		}
	}
	return prometheusremotewrite.Settings{
		AddMetricSuffixes:         s.Strategy.ShouldAddSuffixes(),
		AllowUTF8:                 !s.Strategy.ShouldEscape(),
		PromoteResourceAttributes: prometheusremotewrite.NewPromoteResourceAttributes(promote),
		PromoteScopeMetadata:      s.PromoteScope,
		ConvertHistogramsToNHCB:   s.CustomBuckets,
		LookbackDelta:             s.Lookback,
	}
}

// appender takes what the converter makes. It is Prometheus' storage.AppenderV2.
type appender struct {
	to       *remotewrite.Builder // of what is converted now, one of the next two
	totals   *remotewrite.Builder
	deltas   *remotewrite.Builder
	room     func(bytes int) error
	cancel   context.CancelFunc // of the conversion
	err      error              // that ended it
	label    func(labels.Label)
	full     bool // there was no room for a label
	families map[string]struct{}
	samples  int // without target_info
	targets  int // samples of target_info that came in a row

	described map[uint64]struct{} // series of target_info that the totals have, by hash

	positive, negative []remotewrite.Span
}

const (
	targetInfo = "target_info"

	// maxTargets is how many samples of target_info one resource gets. They lie half a
	// lookback apart, from its first point to its last: one point with a time in 1970
	// would make 12 million of them. A resource whose points are 41 hours apart gets none
	// of the last hours.
	maxTargets = 1000
)

var errTargets = errors.New("the points of the resource are too far apart for target_info")

// Append is part of storage.AppenderV2.
func (a *appender) Append(_ storage.SeriesRef, ls labels.Labels, start, t int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram, o storage.AOptions) (storage.SeriesRef, error) {
	if fh != nil {
		panic("BUG: a histogram of floats came from OTLP, which has none")
	}
	if a.err != nil {
		return 0, a.err
	}
	if o.MetricFamilyName == targetInfo && o.Metadata.Type == model.MetricTypeGauge {
		return a.target(ls, start, t, v, o)
	}
	a.targets = 0
	a.samples++
	return a.series(ls, start, t, v, h, o)
}

// target takes a sample of target_info. It is no delta, whatever else its resource has.
func (a *appender) target(ls labels.Labels, start, t int64, v float64, o storage.AOptions) (storage.SeriesRef, error) {
	if a.targets++; a.targets > maxTargets {
		return 0, errTargets
	}
	hash := ls.Hash()
	if a.to == a.totals {
		a.described[hash] = struct{}{}
		return a.series(ls, start, t, v, nil, o)
	}
	if _, is := a.described[hash]; is {
		return 1, nil // the values of both come from the same time
	}
	a.to = a.totals
	defer func() { a.to = a.deltas }()
	return a.series(ls, start, t, v, nil, o)
}

func (a *appender) series(ls labels.Labels, start, t int64, v float64, h *histogram.Histogram, o storage.AOptions) (storage.SeriesRef, error) {
	a.family(&o)
	a.to.Series()
	ls.Range(a.label)
	if a.to == a.deltas {
		a.to.Type(types[o.Metadata.Type])
		start = 0 // it is the end of the interval before
	}
	stale := value.IsStaleNaN(v) || h != nil && value.IsStaleNaN(h.Sum)
	if stale || !counts(ls, &o) {
		start = 0
	}
	if h != nil {
		a.histogram(h, start, t)
	} else {
		a.to.Sample(remotewrite.Sample{Value: v, Time: t, Start: start})
	}
	for i := range o.Exemplars {
		e := &o.Exemplars[i]
		a.to.Exemplar(e.Value, e.Ts)
		e.Labels.Range(a.label)
	}
	if a.full {
		return 0, a.fail(remotewrite.ErrTooLargeToBuild)
	}
	if err := a.room(a.totals.Bytes() + a.deltas.Bytes()); err != nil {
		return 0, a.fail(err)
	}
	return 1, nil
}

func (a *appender) addLabel(l labels.Label) { a.full = a.full || !a.to.Label(l.Name, l.Value) }

// fail ends the conversion.
func (a *appender) fail(err error) error {
	a.err = err
	a.cancel()
	return err
}

// counts reports whether a series counts from its start on, so that it was zero then. What
// goes up and down began anywhere: a zero would be a value that nobody measured.
func counts(ls labels.Labels, o *storage.AOptions) bool {
	switch o.Metadata.Type {
	case model.MetricTypeCounter, model.MetricTypeHistogram:
		return true
	case model.MetricTypeSummary: // but not its quantiles
		return ls.Get(model.MetricNameLabel) != o.MetricFamilyName
	}
	return false
}

var types = map[model.MetricType]remotewrite.MetricType{
	model.MetricTypeCounter: remotewrite.CounterType, model.MetricTypeGauge: remotewrite.GaugeType,
	model.MetricTypeHistogram: remotewrite.HistogramType, model.MetricTypeSummary: remotewrite.SummaryType,
}

// family adds what is said of a metric, once in a request.
func (a *appender) family(o *storage.AOptions) {
	if _, said := a.families[o.MetricFamilyName]; said {
		return
	}
	a.families[o.MetricFamilyName] = struct{}{}
	a.full = a.full || !a.to.Family(o.MetricFamilyName, o.Metadata.Help, o.Metadata.Unit, types[o.Metadata.Type])
}

func (a *appender) histogram(h *histogram.Histogram, start, t int64) {
	if value.IsStaleNaN(h.Sum) { // its counts are no numbers then
		a.to.Histogram(remotewrite.Histogram{Count: integer(0), ZeroCount: integer(0), Sum: h.Sum, Time: t})
		return
	}
	a.positive = spans(a.positive[:0], h.PositiveSpans)
	a.negative = spans(a.negative[:0], h.NegativeSpans)
	a.to.Histogram(remotewrite.Histogram{
		Count: integer(h.Count), ZeroCount: integer(h.ZeroCount), Sum: h.Sum, Schema: h.Schema, ZeroThreshold: h.ZeroThreshold,
		PositiveSpans: a.positive, PositiveDeltas: h.PositiveBuckets, NegativeSpans: a.negative, NegativeDeltas: h.NegativeBuckets,
		ResetHint: remotewrite.ResetHint(h.CounterResetHint), CustomValues: h.CustomValues, Time: t, Start: start,
	})
}

func integer(n uint64) remotewrite.Count {
	return remotewrite.Count{Form: remotewrite.IntegerCount, Integer: n}
}

func spans(to []remotewrite.Span, all []histogram.Span) []remotewrite.Span {
	for _, s := range all {
		to = append(to, remotewrite.Span{Offset: s.Offset, Length: s.Length})
	}
	return to
}

// Commit and Rollback are part of storage.AppenderV2; the converter leaves them to others.
func (*appender) Commit() error   { return nil }
func (*appender) Rollback() error { return nil }
