package otlp

import (
	"iter"

	"go.opentelemetry.io/collector/pdata/pmetric"
)

const (
	// partBytes is the size, in bytes as received, of a part of the deltas of a request. A part becomes one
	// entry of a group's log. Conversion and rules usually make it a few times as large, and an entry has room
	// for 16 MiB.
	partBytes = 512 << 10

	// maxHead bounds the attributes of a resource and a scope, in bytes, that each part repeats. Otherwise, a
	// request of 30 MiB could have one list of many values, repeated in each part. The points of a scope with
	// more than that stay in one part.
	maxHead = 16 << 10
)

// cutter moves metrics into parts of about partBytes. Only the request as received decides where a part
// ends, so a request that comes again has the same parts, whatever the settings and rules are by then.
type cutter struct {
	parts []pmetric.Metrics
	bytes int // of the last part
	sizer pmetric.ProtoMarshaler

	resource pmetric.ResourceMetrics
	scope    pmetric.ScopeMetrics

	to     pmetric.ResourceMetrics // the resource in the last part, if inResource is set
	metric pmetric.MetricSlice     // of the scope in the last part, if inScope is set
	head   int                     // bytes of resource and scope without their metrics

	inResource, inScope bool
}

// cutDeltas moves the metrics with delta temporality out of a request as received, into parts.
func cutDeltas(m pmetric.Metrics) []pmetric.Metrics {
	var c cutter
	for _, r := range m.ResourceMetrics().All() {
		c.resource, c.inResource = r, false
		for _, s := range r.ScopeMetrics().All() {
			c.scope, c.inScope = s, false
			s.Metrics().RemoveIf(func(m pmetric.Metric) bool {
				if !isDelta(m) {
					return false
				}
				c.add(m)
				return true
			})
		}
	}
	return c.parts
}

// add moves a metric. A metric that does not fit into the part is cut between its points.
func (c *cutter) add(m pmetric.Metric) {
	c.enter()
	size := c.sizer.MetricSize(m)
	if c.bytes+size <= partBytes || c.head > maxHead {
		m.MoveTo(c.metric.AppendEmpty())
		c.bytes += size
		return
	}
	switch m.Type() {
	case pmetric.MetricTypeSum:
		cutPoints(c, m, m.Sum().DataPoints().All(), c.sizer.NumberDataPointSize,
			func(p pmetric.NumberDataPoint, to pmetric.Metric) { p.MoveTo(to.Sum().DataPoints().AppendEmpty()) })
	case pmetric.MetricTypeHistogram:
		cutPoints(c, m, m.Histogram().DataPoints().All(), c.sizer.HistogramDataPointSize,
			func(p pmetric.HistogramDataPoint, to pmetric.Metric) {
				p.MoveTo(to.Histogram().DataPoints().AppendEmpty())
			})
	case pmetric.MetricTypeExponentialHistogram:
		cutPoints(c, m, m.ExponentialHistogram().DataPoints().All(), c.sizer.ExponentialHistogramDataPointSize,
			func(p pmetric.ExponentialHistogramDataPoint, to pmetric.Metric) {
				p.MoveTo(to.ExponentialHistogram().DataPoints().AppendEmpty())
			})
	}
}

// cutPoints moves the points of a metric, and begins a part where one is full.
func cutPoints[P any](
	c *cutter, m pmetric.Metric, points iter.Seq2[int, P], size func(P) int, move func(P, pmetric.Metric),
) {
	to := c.begin(m)
	for _, p := range points {
		n := size(p)
		if c.bytes > 0 && c.bytes+n > partBytes {
			c.parts = append(c.parts, pmetric.NewMetrics())
			c.bytes, c.inResource, c.inScope = 0, false, false
			c.enter()
			to = c.begin(m)
		}
		move(p, to)
		c.bytes += n
	}
}

// enter copies resource and scope, without their metrics, into the last part, unless it has them.
func (c *cutter) enter() {
	if len(c.parts) == 0 {
		c.parts = append(c.parts, pmetric.NewMetrics())
	}
	if !c.inResource {
		c.to, c.inResource = c.parts[len(c.parts)-1].ResourceMetrics().AppendEmpty(), true
		c.resource.Resource().CopyTo(c.to.Resource())
		c.to.SetSchemaUrl(c.resource.SchemaUrl())
		c.head = c.sizer.ResourceMetricsSize(c.to)
	}
	if !c.inScope {
		to := c.to.ScopeMetrics().AppendEmpty()
		c.scope.Scope().CopyTo(to.Scope())
		to.SetSchemaUrl(c.scope.SchemaUrl())
		c.head += c.sizer.ScopeMetricsSize(to)
		c.metric, c.inScope = to.Metrics(), true
	}
}

// begin adds a metric without points to the last part.
func (c *cutter) begin(m pmetric.Metric) pmetric.Metric {
	to := c.metric.AppendEmpty()
	to.SetName(m.Name())
	to.SetDescription(m.Description())
	to.SetUnit(m.Unit())
	const delta = pmetric.AggregationTemporalityDelta
	switch m.Type() {
	case pmetric.MetricTypeSum:
		sum := to.SetEmptySum()
		sum.SetAggregationTemporality(delta)
		sum.SetIsMonotonic(m.Sum().IsMonotonic())
	case pmetric.MetricTypeHistogram:
		to.SetEmptyHistogram().SetAggregationTemporality(delta)
	case pmetric.MetricTypeExponentialHistogram:
		to.SetEmptyExponentialHistogram().SetAggregationTemporality(delta)
	}
	return to
}

// toTotals marks metrics with delta temporality as cumulative, so that the converter gives them the
// names of cumulative metrics. It removes and counts the exemplars, because an exemplar would have to wait
// until its series is stored.
func toTotals(m pmetric.Metrics) (exemplars int) {
	for _, r := range m.ResourceMetrics().All() {
		for _, s := range r.ScopeMetrics().All() {
			for _, m := range s.Metrics().All() {
				exemplars += withoutExemplars(m)
				setCumulative(m)
			}
		}
	}
	return exemplars
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

// withoutExemplars removes the exemplars of a metric, and counts them.
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
