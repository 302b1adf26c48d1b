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
	Points  int // that are in the request now
	Samples int // that they became there, without target_info, which belongs to no point
	Refused outcome.Outcome
}

// Convert adds the series of m to a request that was begun, and finishes it. m is used up.
// room is asked, with the bytes that the request takes in all, before it grows further; its
// error ends the conversion, and is returned. After an error nothing of the request is to
// be used.
//
// Each data point that is refused counts as one sample.
func Convert(m pmetric.Metrics, s Settings, to *remotewrite.Builder, room func(bytes int) error) (Converted, error) {
	var c Converted
	check := newCheck(s, &c)
	check.request(m)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	a := &appender{to: to, room: room, cancel: cancel, families: map[string]struct{}{}}
	a.label = a.addLabel
	p := converters.Get().(*prometheusremotewrite.PrometheusConverter)
	defer converters.Put(p)
	p.Reset(a)
	defer p.Reset(nil)
	_, err := p.FromMetrics(ctx, m, s.prometheus())
	if a.err != nil {
		return c, a.err
	}
	// The check has left nothing that the converter refuses. Should it have overlooked
	// something, the rest of the metric is lost there, of which nobody knows how many
	// points it had: they are taken to be of one sample each.
	if missing := c.Samples - a.samples; err != nil && missing > 0 {
		c.Points = max(0, c.Points-missing)
		c.Samples = a.samples
		c.Refused.Refuse(outcome.BadLabels, outcome.Counts{Samples: missing}, func() string { return "a metric" }, err)
	}
	to.Finish()
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

// appender takes what the converter makes. It is Prometheus' storage.AppenderV2.
type appender struct {
	to       *remotewrite.Builder
	room     func(bytes int) error
	cancel   context.CancelFunc // of the conversion
	err      error              // that ended it
	label    func(labels.Label)
	full     bool // there was no room for a label
	families map[string]struct{}
	samples  int // without target_info
	targets  int // samples of target_info that came in a row

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
	if o.MetricFamilyName != targetInfo || o.Metadata.Type != model.MetricTypeGauge {
		a.targets = 0
		a.samples++
	} else if a.targets++; a.targets > maxTargets {
		return 0, errTargets
	}
	a.family(&o)
	a.to.Series()
	ls.Range(a.label)
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
	if err := a.room(a.to.Bytes()); err != nil {
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
