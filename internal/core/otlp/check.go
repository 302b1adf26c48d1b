package otlp

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/otlptranslator"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/storage/remote/otlptranslator/prometheusremotewrite"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/freshet-io/freshet/internal/core/outcome"
)

// maxAttributes is how many attributes a point or a resource may have. The converter compares each
// attribute with all earlier ones, so 100,000 attributes would take a minute.
const maxAttributes = 1000

// check removes from a request the points that the converter would refuse. At a bad point the
// converter would drop the rest of the metric, and would not say how many points it dropped.
type check struct {
	Settings
	metrics otlptranslator.MetricNamer
	labels  otlptranslator.LabelNamer
	names   map[string]error // by attribute name: why the attribute cannot be a label, or nil if it can
	out     *Converted
}

func newCheck(s Settings, out *Converted) *check {
	return &check{
		Settings: s, out: out, names: map[string]error{},
		metrics: otlptranslator.NewMetricNamer("", s.Strategy),
		labels:  otlptranslator.LabelNamer{UTF8Allowed: !s.Strategy.ShouldEscape()},
	}
}

func (c *check) request(m pmetric.Metrics) {
	m.ResourceMetrics().RemoveIf(func(r pmetric.ResourceMetrics) bool {
		refused := tooMany(r.Resource().Attributes(), "resource")
		// A resource attribute that cannot be a label is left out. The points are kept.
		r.Resource().Attributes().RemoveIf(func(name string, _ pcommon.Value) bool { return c.name(name) != nil })
		r.ScopeMetrics().RemoveIf(func(s pmetric.ScopeMetrics) bool {
			refused := refused
			if refused == nil && c.PromoteScope {
				refused = tooMany(s.Scope().Attributes(), "scope")
			}
			s.Metrics().RemoveIf(func(m pmetric.Metric) bool { return c.metric(m, refused) })
			return false
		})
		return false
	})
}

func tooMany(attributes pcommon.Map, what string) *outcome.Refusal {
	if n := attributes.Len(); n > maxAttributes {
		return &outcome.Refusal{
			Reason: outcome.TooManyLabels,
			Cause:  fmt.Errorf("the %s has %d attributes, and the limit is %d", what, n, maxAttributes),
		}
	}
	return nil
}

// name returns an error if an attribute's name cannot be a label.
func (c *check) name(of string) error {
	err, known := c.names[of]
	if !known {
		_, err = c.labels.Build(of)
		c.names[of] = err
	}
	return err
}

// metric checks the points of a metric, and reports whether it has removed all of them. If refused
// is set, it removes all points.
func (c *check) metric(m pmetric.Metric, refused *outcome.Refusal) bool {
	if refused == nil {
		name, err := c.metrics.Build(prometheusremotewrite.TranslatorMetricFromOtelMetric(m))
		if err == nil && name == "" {
			err = errors.New("the metric has no name")
		}
		if err != nil {
			refused = &outcome.Refusal{Reason: outcome.BadLabels, Cause: err}
		}
	}
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		c.numbers(m, m.Gauge().DataPoints(), refused)
	case pmetric.MetricTypeSum:
		c.sum(m, or(refused, temporality(m)))
	case pmetric.MetricTypeHistogram:
		refused = or(refused, temporality(m))
		m.Histogram().DataPoints().RemoveIf(func(p pmetric.HistogramDataPoint) bool {
			refused := refused
			if refused == nil && isDelta(m) {
				refused = increment(p.Flags(), p.Sum(), true)
			}
			c.exemplars(m, p.Attributes(), p.Exemplars())
			samples := 2 + min(p.ExplicitBounds().Len(), p.BucketCounts().Len()) // the count, and the bucket of +Inf
			if p.HasSum() {
				samples++
			}
			if c.CustomBuckets && !isDelta(m) {
				samples = 1
			}
			return c.point(m, p.Attributes(), p.Timestamp(), samples, refused)
		})
	case pmetric.MetricTypeExponentialHistogram:
		refused = or(refused, temporality(m))
		m.ExponentialHistogram().DataPoints().RemoveIf(func(p pmetric.ExponentialHistogramDataPoint) bool {
			refused := refused
			if refused == nil && isDelta(m) {
				refused = increment(p.Flags(), p.Sum(), false)
			}
			if refused == nil && p.Scale() < histogram.ExponentialSchemaMin {
				refused = &outcome.Refusal{Reason: outcome.BadHistogram,
					Cause: fmt.Errorf("the histogram's scale is %d, and Prometheus supports none below %d",
						p.Scale(), histogram.ExponentialSchemaMin)}
			}
			c.exemplars(m, p.Attributes(), p.Exemplars())
			return c.point(m, p.Attributes(), p.Timestamp(), 1, refused)
		})
	case pmetric.MetricTypeSummary:
		m.Summary().DataPoints().RemoveIf(func(p pmetric.SummaryDataPoint) bool {
			return c.point(m, p.Attributes(), p.Timestamp(), 2+p.QuantileValues().Len(), refused)
		})
	default: // a metric without a kind, or of a newer kind whose points this program cannot read
		return true
	}
	return false
}

func (c *check) numbers(m pmetric.Metric, points pmetric.NumberDataPointSlice, refused *outcome.Refusal) {
	points.RemoveIf(func(p pmetric.NumberDataPoint) bool {
		c.exemplars(m, p.Attributes(), p.Exemplars())
		return c.point(m, p.Attributes(), p.Timestamp(), 1, refused)
	})
}

// sum checks the points of a sum. With delta temporality, a value is the increment since the
// previous point.
func (c *check) sum(m pmetric.Metric, refused *outcome.Refusal) {
	m.Sum().DataPoints().RemoveIf(func(p pmetric.NumberDataPoint) bool {
		refused := refused
		if refused == nil && isDelta(m) {
			refused = increment(p.Flags(), valueOf(p), m.Sum().IsMonotonic())
		}
		c.exemplars(m, p.Attributes(), p.Exemplars())
		return c.point(m, p.Attributes(), p.Timestamp(), 1, refused)
	})
}

func valueOf(p pmetric.NumberDataPoint) float64 {
	if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
		return float64(p.IntValue())
	}
	return p.DoubleValue()
}

// increment returns a refusal if a value cannot be added to a total.
func increment(flags pmetric.DataPointFlags, v float64, monotonic bool) *outcome.Refusal {
	switch {
	case flags.NoRecordedValue():
		return &outcome.Refusal{
			Reason: outcome.Delta,
			Cause:  errors.New("the point has no recorded value, and its temporality is delta: there is nothing to add"),
		}
	case math.IsNaN(v) || math.IsInf(v, 0):
		return &outcome.Refusal{
			Reason: outcome.Delta,
			Cause:  fmt.Errorf("the point's value or sum is %v, and its temporality is delta: the total would stay %v", v, v),
		}
	case monotonic && v < 0:
		return &outcome.Refusal{
			Reason: outcome.Delta,
			Cause: fmt.Errorf("the point's value or sum is %v, and its temporality is delta: a monotonic total cannot fall; "+
				"send a sum that is not monotonic", v),
		}
	}
	return nil
}

func isDelta(m pmetric.Metric) bool { return temporalityOf(m) == pmetric.AggregationTemporalityDelta }

func temporalityOf(m pmetric.Metric) pmetric.AggregationTemporality {
	switch m.Type() {
	case pmetric.MetricTypeSum:
		return m.Sum().AggregationTemporality()
	case pmetric.MetricTypeHistogram:
		return m.Histogram().AggregationTemporality()
	case pmetric.MetricTypeExponentialHistogram:
		return m.ExponentialHistogram().AggregationTemporality()
	}
	return pmetric.AggregationTemporalityUnspecified
}

// temporality returns a refusal if a sum or a histogram has no temporality.
func temporality(m pmetric.Metric) *outcome.Refusal {
	switch temporalityOf(m) {
	case pmetric.AggregationTemporalityCumulative, pmetric.AggregationTemporalityDelta:
		return nil
	}
	return &outcome.Refusal{
		Reason: outcome.Delta,
		Cause: errors.New("the metric does not say whether its temporality is cumulative or delta, " +
			"as sums and histograms must"),
	}
}

func or(first, second *outcome.Refusal) *outcome.Refusal {
	if first != nil {
		return first
	}
	return second
}

// point counts one data point, which becomes `samples` samples, and reports whether the point is
// refused.
func (c *check) point(m pmetric.Metric, attributes pcommon.Map, t pcommon.Timestamp, samples int,
	refused *outcome.Refusal) bool {
	if refused == nil {
		refused = c.valid(attributes, t)
	}
	if refused == nil {
		c.out.Points++
		c.out.Samples += samples
		return false
	}
	if c.out.Refused.Refuse(refused.Reason, outcome.Counts{Samples: 1}) {
		c.out.Refused.Tell(pointText(m, attributes), refused.Cause)
	}
	return true
}

// valid returns a refusal if a single point is not valid, or nil.
func (c *check) valid(attributes pcommon.Map, t pcommon.Timestamp) *outcome.Refusal {
	switch {
	case t == 0:
		return &outcome.Refusal{Reason: outcome.TooOld, Cause: errors.New("the point has no time (time_unix_nano)")}
	case t > math.MaxInt64:
		return &outcome.Refusal{Reason: outcome.TooFarAhead, Cause: errors.New("the point's time is after the year 2262")}
	}
	if refused := tooMany(attributes, "point"); refused != nil {
		return refused
	}
	for name := range attributes.All() {
		if name == model.MetricNameLabel {
			continue // the converter leaves out the attribute
		}
		if err := c.name(name); err != nil {
			return &outcome.Refusal{Reason: outcome.BadLabels, Cause: err}
		}
	}
	return nil
}

// exemplars removes the exemplars that have no value.
func (c *check) exemplars(m pmetric.Metric, attributes pcommon.Map, all pmetric.ExemplarSlice) {
	all.RemoveIf(func(e pmetric.Exemplar) bool {
		if e.ValueType() != pmetric.ExemplarValueTypeEmpty {
			return false
		}
		if c.out.Refused.Refuse(outcome.BadExemplar, outcome.Counts{Exemplars: 1}) {
			c.out.Refused.Tell(pointText(m, attributes), errors.New("the exemplar has no value"))
		}
		return true
	})
}

// pointText returns a point as sent, for people.
func pointText(m pmetric.Metric, attributes pcommon.Map) string {
	var b strings.Builder
	b.WriteString(m.Name())
	b.WriteByte('{')
	separator := ""
	for name, v := range attributes.All() {
		if b.Len() > 1<<10 {
			break // the rest of the text would be cut off
		}
		fmt.Fprintf(&b, "%s%s=%q", separator, name, v.AsString())
		separator = ", "
	}
	b.WriteByte('}')
	return b.String()
}
