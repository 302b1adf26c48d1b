package otlp

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/freshet-io/freshet/internal/core/remotewrite"
)

func setDelta(m pmetric.Metric) {
	const delta = pmetric.AggregationTemporalityDelta
	switch m.Type() {
	case pmetric.MetricTypeSum:
		m.Sum().SetAggregationTemporality(delta)
	case pmetric.MetricTypeHistogram:
		m.Histogram().SetAggregationTemporality(delta)
	case pmetric.MetricTypeExponentialHistogram:
		m.ExponentialHistogram().SetAggregationTemporality(delta)
	}
}

// Cumulative and delta values go to different requests, with the same names.
func TestDeltasAreApart(t *testing.T) {
	of := func(change func(pmetric.Metric)) (totals, increments *remotewrite.Request, c Converted) {
		m := one(func(m pmetric.Metric) { counter(m, 1) })
		m.ResourceMetrics().At(0).Resource().Attributes().PutStr("os.type", "linux")
		metrics := m.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics()
		addExplicit(metrics.AppendEmpty())
		addExponential(metrics.AppendEmpty())
		open := metrics.AppendEmpty()
		open.SetName("open")
		open.SetEmptySum().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		setNumber(open.Sum().DataPoints().AppendEmpty(), -3)
		for _, m := range metrics.All() {
			change(m)
		}
		setNumber(metrics.AppendEmpty().SetEmptyGauge().DataPoints().AppendEmpty(), 7)
		metrics.At(metrics.Len() - 1).SetName("temperature")
		totals, increments, c, err := convertBoth(m, escaping)
		if err != nil || c.Refused.AnyRefused() {
			t.Fatal(err, c.Refused.Text())
		}
		return totals, increments, c
	}
	all, none, cumulative := of(func(pmetric.Metric) {})
	totals, increments, delta := of(setDelta)
	if len(none.Series) > 0 || cumulative.Points != delta.Points || cumulative.Samples != delta.Samples ||
		delta.Refused.NotKept != 1 {
		t.Errorf("a request without deltas gave %d series of deltas, want none; as cumulative values it gave %+v, and as "+
			"deltas %+v, want the same points and samples, and one value that is not kept", len(none.Series), cumulative, delta)
	}
	series := func(r *remotewrite.Request) (names map[string]int) {
		names = map[string]int{}
		for i := range r.Series {
			text := ""
			pairs, err := r.Labels(nil, &r.Series[i])
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range pairs {
				text += fmt.Sprintf("%s=%s ", l.Name, l.Value)
			}
			names[text]++
		}
		return names
	}
	both := series(totals)
	if len(both) != 2 { // the gauge and target_info
		t.Errorf("the totals are %v", both)
	}
	for name, n := range series(increments) {
		both[name] += n
	}
	if fmt.Sprint(both) != fmt.Sprint(series(all)) {
		t.Errorf("the two requests together are\n%v, want\n%v", both, series(all))
	}
	types := map[remotewrite.MetricType]int{}
	for i := range increments.Series {
		s := &increments.Series[i]
		types[s.Metadata.Type]++
		for _, x := range increments.Samples(s) {
			if x.Start != 0 || x.Time != now {
				t.Errorf("a sample of a delta begins at %d, want 0, and has the time %d, want %d", x.Start, x.Time, now)
			}
		}
		if len(increments.Exemplars(s)) > 0 {
			t.Error("an exemplar was kept")
		}
	}
	// The histogram with explicit buckets becomes five series: three buckets, sum and count.
	if want := (map[remotewrite.MetricType]int{remotewrite.CounterType: 1, remotewrite.GaugeType: 1,
		remotewrite.HistogramType: 6}); fmt.Sprint(types) != fmt.Sprint(want) {
		t.Errorf("types: %v, want %v", types, want)
	}
}

// Explicit buckets of a delta become classic series, since a tile cannot merge native custom
// buckets.
func TestDeltasHaveNoCustomBuckets(t *testing.T) {
	settings := escaping
	settings.CustomBuckets = true
	_, increments, c, err := convertBoth(one(func(m pmetric.Metric) { addExplicit(m); setDelta(m) }), settings)
	if err != nil || c.Samples != 5 || increments.Counts().Samples != 5 || increments.Counts().Histograms != 0 {
		t.Errorf("converted %+v into %+v, want 5 samples and no histogram; error %v", c, increments.Counts(), err)
	}
}

// The target_info of a resource is written once. If there are cumulative points, it is written with
// these.
func TestTargetInfoBesideDeltas(t *testing.T) {
	for why, c := range map[string]struct {
		fill func(m pmetric.MetricSlice)
		want int // samples of target_info
	}{
		"both": {func(m pmetric.MetricSlice) {
			counter(m.AppendEmpty(), 1)
			counter(m.AppendEmpty(), 2)
			setDelta(m.At(1))
		}, 1},
		"deltas": {func(m pmetric.MetricSlice) { counter(m.AppendEmpty(), 1); setDelta(m.At(0)) }, 1},
		"totals": {func(m pmetric.MetricSlice) { counter(m.AppendEmpty(), 1) }, 1},
	} {
		m := pmetric.NewMetrics()
		r := m.ResourceMetrics().AppendEmpty()
		r.Resource().Attributes().PutStr("service.name", "shop")
		r.Resource().Attributes().PutStr("os.type", "linux")
		c.fill(r.ScopeMetrics().AppendEmpty().Metrics())
		totals, increments, _, err := convertBoth(m, escaping)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(lines(totals), "__name__=target_info"); n != c.want ||
			strings.Contains(lines(increments), "target_info") {
			t.Errorf("%s: %d samples of target_info, want %d\n%s\n%s", why, n, c.want, lines(totals), lines(increments))
		}
	}
}

// Only points whose values cannot be added to a total are refused.
func TestDeltasThatCannotBeAdded(t *testing.T) {
	point := func(m pmetric.Metric) pmetric.NumberDataPoint { return m.Sum().DataPoints().At(0) }
	none := pmetric.DefaultDataPointFlags.WithNoRecordedValue(true)
	for _, c := range []struct {
		why  string
		fill func(m pmetric.Metric)
		text string
	}{
		{"below zero", func(m pmetric.Metric) { counter(m, -1) },
			"(1 delta), everything else was written; the first is http.requests{http.method=\"M0\"}: " +
				"the point's value or sum is -1"},
		{"a whole number below zero", func(m pmetric.Metric) { counter(m, 1); point(m).SetIntValue(-2) }, "sum is -2"},
		{"no number", func(m pmetric.Metric) { counter(m, math.NaN()) }, "sum is NaN"},
		{"an infinite value", func(m pmetric.Metric) { counter(m, math.Inf(1)) }, "sum is +Inf"},
		{"no value", func(m pmetric.Metric) { counter(m, 1); point(m).SetFlags(none) }, "no recorded value"},
		{"a histogram with a negative sum", func(m pmetric.Metric) { addExplicit(m).SetSum(-1) }, "sum is -1"},
		{"a histogram without a value", func(m pmetric.Metric) { addExplicit(m).SetFlags(none) }, "no recorded value"},
		{"a native histogram whose sum is no number", func(m pmetric.Metric) { addExponential(m).SetSum(math.NaN()) },
			"sum is NaN"},
	} {
		_, increments, converted, err := convertBoth(one(func(m pmetric.Metric) { c.fill(m); setDelta(m) }), escaping)
		if text := converted.Refused.Text(); err != nil || converted.Points != 0 || len(increments.Series) > 0 ||
			!strings.Contains(text, c.text) {
			t.Errorf("%s: %d points converted, want 0; refused %q, want %q; error %v",
				c.why, converted.Points, text, c.text, err)
		}
		// The same value is accepted as a cumulative value. Even a negative counter is accepted,
		// since nothing checks for it.
		if _, converted, err := convert(one(c.fill), escaping); err != nil || converted.Refused.AnyRefused() {
			t.Errorf("%s, cumulative: error %v, refused %s", c.why, err, converted.Refused.Text())
		}
	}
	falling := one(func(m pmetric.Metric) { counter(m, -1); m.Sum().SetIsMonotonic(false); setDelta(m) })
	if _, increments, _, err := convertBoth(falling, escaping); err != nil || increments.Counts().Samples != 1 {
		t.Errorf("a sum that may fall: got %+v, want 1 sample; error %v", increments.Counts(), err)
	}
}
