// Package otlp converts metrics in OpenTelemetry's protocol into remote-write requests. Names,
// labels and values come from Prometheus' own converter, so that a series has the same name here as
// in Prometheus. Points that the converter cannot convert are removed beforehand, one by one, so
// that no other points are lost. Package adapter/receive reads requests and answers them.
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

// Settings are the operator's choices of how OTLP becomes series.
type Settings struct {
	Strategy      otlptranslator.TranslationStrategyOption // how names are translated
	Promote       []string                                 // resource attributes that become labels; All means all
	PromoteScope  bool                                     // the scope's name, version and attributes become labels
	CustomBuckets bool                                     // histograms with explicit buckets become native ones
	Lookback      time.Duration                            // lookback of queries; target_info repeats twice in this time
}

// All, as an element of Settings.Promote, stands for all resource attributes.
const All = "*"

// Converted says what became of the data points of a request.
type Converted struct {
	Points  int // points that were converted
	Samples int // samples of these points, without target_info, which belongs to no point
	Refused outcome.Outcome
}

// Convert adds the series of m to two requests that the caller has begun, and finishes both.
// Cumulative values go into the request `to`. Values of delta temporality, which are increments since
// the previous point, go into the request `deltas`. A series in `deltas` has the type counter if it
// only grows, or gauge if it may fall. It has the type histogram if it is a native histogram or
// part of a classic one. Many deltas are cut into parts by their points as received, so other
// settings make the same parts: see remotewrite.Request.Cuts.
//
// Convert changes m. It calls `room` with the size of both requests, in bytes, before they grow. If
// `room` returns an error, Convert ends and returns it. After an error neither request may be used.
//
// Each refused data point counts as one sample.
func Convert(m pmetric.Metrics, s Settings, to, deltas *remotewrite.Builder,
	room func(bytes int) error) (Converted, error) {
	var c Converted
	parts := cutDeltas(m)
	check := newCheck(s, &c)
	check.request(m)
	for _, part := range parts {
		check.request(part)
		c.Refused.NotKept += toTotals(part)
	}

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
	a.to, a.families = deltas, map[string]struct{}{}
	s.CustomBuckets = false // a tile cannot merge custom buckets
	for i, part := range parts {
		if a.err != nil {
			break
		}
		if i > 0 {
			deltas.Cut()
		}
		p.Reset(a)
		_, deltaErr := p.FromMetrics(ctx, part, s.prometheus())
		err = errors.Join(err, deltaErr)
	}
	if a.err != nil {
		return c, a.err
	}
	// The check should have removed all that the converter refuses. If it missed a point, the
	// converter drops the rest of the metric and does not say how many points it dropped. So count
	// each missing sample as a point.
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

// appender receives the converter's output. It implements Prometheus' storage.AppenderV2.
type appender struct {
	to       *remotewrite.Builder // the request being built: totals or deltas
	totals   *remotewrite.Builder
	deltas   *remotewrite.Builder
	room     func(bytes int) error
	cancel   context.CancelFunc // cancels the conversion
	err      error              // why the conversion ended
	label    func(labels.Label)
	full     bool // the request had no room for a label
	families map[string]struct{}
	samples  int // number of samples, not counting target_info
	targets  int // consecutive samples of target_info

	described map[uint64]struct{} // series of target_info in totals, by hash

	positive, negative []remotewrite.Span
}

const (
	targetInfo = "target_info"

	// maxTargets is how many samples of target_info one resource gets. The samples are half a
	// lookback apart, from the first point to the last. Without the limit, one point with a time in
	// 1970 would make 12 million samples. If the points of a resource span more than 41 hours, the
	// last hours have no target_info.
	maxTargets = 1000
)

var errTargets = errors.New("the points of the resource are too far apart in time for target_info")

// Append is part of storage.AppenderV2.
func (a *appender) Append(_ storage.SeriesRef, ls labels.Labels, start, t int64, v float64, h *histogram.Histogram,
	fh *histogram.FloatHistogram, o storage.AOptions) (storage.SeriesRef, error) {
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

// target takes a sample of target_info, which is never a delta.
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
		return 1, nil // already written with the cumulative points
	}
	a.to = a.totals
	defer func() { a.to = a.deltas }()
	return a.series(ls, start, t, v, nil, o)
}

func (a *appender) series(ls labels.Labels, start, t int64, v float64, h *histogram.Histogram,
	o storage.AOptions) (storage.SeriesRef, error) {
	a.family(&o)
	a.to.Series()
	ls.Range(a.label)
	if a.to == a.deltas {
		a.to.Type(types[o.Metadata.Type])
		start = 0 // the start of a delta is the end of the previous interval
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

// counts(ls, o) reports whether the series was zero at its start. A series that may fall can start with
// any value, so it gets no zero sample at its start.
func counts(ls labels.Labels, o *storage.AOptions) bool {
	switch o.Metadata.Type {
	case model.MetricTypeCounter, model.MetricTypeHistogram:
		return true
	case model.MetricTypeSummary: // only the count and sum, not the quantiles
		return ls.Get(model.MetricNameLabel) != o.MetricFamilyName
	}
	return false
}

var types = map[model.MetricType]remotewrite.MetricType{
	model.MetricTypeCounter: remotewrite.CounterType, model.MetricTypeGauge: remotewrite.GaugeType,
	model.MetricTypeHistogram: remotewrite.HistogramType, model.MetricTypeSummary: remotewrite.SummaryType,
}

// family adds the metadata of a metric once to each request.
func (a *appender) family(o *storage.AOptions) {
	if _, said := a.families[o.MetricFamilyName]; said {
		return
	}
	a.families[o.MetricFamilyName] = struct{}{}
	a.full = a.full || !a.to.Family(o.MetricFamilyName, o.Metadata.Help, o.Metadata.Unit, types[o.Metadata.Type])
}

func (a *appender) histogram(h *histogram.Histogram, start, t int64) {
	if value.IsStaleNaN(h.Sum) { // the counts of a stale histogram mean nothing
		a.to.Histogram(remotewrite.Histogram{Count: integer(0), ZeroCount: integer(0), Sum: h.Sum, Time: t})
		return
	}
	a.positive = spans(a.positive[:0], h.PositiveSpans)
	a.negative = spans(a.negative[:0], h.NegativeSpans)
	a.to.Histogram(remotewrite.Histogram{
		Count: integer(h.Count), ZeroCount: integer(h.ZeroCount), Sum: h.Sum, Schema: h.Schema,
		ZeroThreshold: h.ZeroThreshold,
		PositiveSpans: a.positive, PositiveDeltas: h.PositiveBuckets, NegativeSpans: a.negative,
		NegativeDeltas: h.NegativeBuckets,
		ResetHint:      remotewrite.ResetHint(h.CounterResetHint), CustomValues: h.CustomValues, Time: t, Start: start,
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

// Commit and Rollback are part of storage.AppenderV2; the converter does not call them.
func (*appender) Commit() error   { return nil }
func (*appender) Rollback() error { return nil }
