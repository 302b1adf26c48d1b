package otlp

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/otlptranslator"
	"github.com/prometheus/prometheus/model/value"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"

	"github.com/freshet-io/freshet/internal/core/remotewrite"
)

// The times of the examples, in Unix milliseconds: when a process begins, and when it sends its
// values.
const begin, now = 1_790_000_000_000, 1_790_000_060_000

func stamp(ms int64) pcommon.Timestamp { return pcommon.Timestamp(ms * 1e6) }

var escaping = Settings{Strategy: otlptranslator.UnderscoreEscapingWithSuffixes, Lookback: 5 * time.Minute}

// one returns metrics with a single metric of one service, as filled by `fill`.
func one(fill func(m pmetric.Metric)) pmetric.Metrics {
	all := pmetric.NewMetrics()
	r := all.ResourceMetrics().AppendEmpty()
	r.Resource().Attributes().PutStr("service.name", "shop")
	s := r.ScopeMetrics().AppendEmpty()
	s.Scope().SetName("net/http")
	fill(s.Metrics().AppendEmpty())
	return all
}

func setNumber(p pmetric.NumberDataPoint, v float64) pmetric.NumberDataPoint {
	p.SetDoubleValue(v)
	p.SetTimestamp(stamp(now))
	p.SetStartTimestamp(stamp(begin))
	return p
}

func counter(m pmetric.Metric, values ...float64) {
	m.SetName("http.requests")
	m.SetDescription("Requests.")
	m.SetEmptySum().SetIsMonotonic(true)
	m.Sum().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	for i, v := range values {
		setNumber(m.Sum().DataPoints().AppendEmpty(), v).Attributes().PutStr("http.method", fmt.Sprintf("M%d", i))
	}
}

func addExplicit(m pmetric.Metric) pmetric.HistogramDataPoint {
	m.SetName("latency")
	m.SetUnit("s")
	m.SetEmptyHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	p := m.Histogram().DataPoints().AppendEmpty()
	p.SetTimestamp(stamp(now))
	p.SetStartTimestamp(stamp(begin))
	p.SetCount(6)
	p.SetSum(2.5)
	p.ExplicitBounds().FromRaw([]float64{0.1, 1})
	p.BucketCounts().FromRaw([]uint64{3, 2, 1})
	e := p.Exemplars().AppendEmpty()
	e.SetDoubleValue(0.5)
	e.SetTimestamp(stamp(now - 1))
	e.SetTraceID(pcommon.TraceID{1})
	return p
}

func addExponential(m pmetric.Metric) pmetric.ExponentialHistogramDataPoint {
	m.SetName("size")
	m.SetEmptyExponentialHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	p := m.ExponentialHistogram().DataPoints().AppendEmpty()
	p.SetTimestamp(stamp(now))
	p.SetStartTimestamp(stamp(begin))
	p.SetScale(2)
	p.SetCount(7)
	p.SetSum(9.5)
	p.SetZeroCount(1)
	p.Positive().SetOffset(3)
	p.Positive().BucketCounts().FromRaw([]uint64{4, 2})
	return p
}

// convert converts metrics without a limit on memory.
func convert(m pmetric.Metrics, s Settings) (*remotewrite.Request, Converted, error) {
	r, _, c, err := convertBoth(m, s)
	return r, c, err
}

func convertBoth(m pmetric.Metrics, s Settings) (totals, increments *remotewrite.Request, c Converted, err error) {
	totals, increments = new(remotewrite.Request), new(remotewrite.Request)
	var to, deltas remotewrite.Builder
	to.Begin(totals, nil)
	deltas.Begin(increments, nil)
	c, err = Convert(m, s, &to, &deltas, func(int) error { return nil })
	return totals, increments, c, err
}

// lines returns a request as text: a line for each family, sample, histogram and exemplar.
func lines(r *remotewrite.Request) string {
	var b strings.Builder
	pairs := func(all []remotewrite.Label, err error) string {
		var text []string
		for _, l := range all {
			text = append(text, fmt.Sprintf("%s=%s", l.Name, l.Value))
		}
		if err != nil {
			return err.Error()
		}
		return strings.Join(text, " ")
	}
	started := func(start int64) string {
		if start == 0 {
			return ""
		}
		return fmt.Sprintf(" since %d", start-now)
	}
	for _, f := range r.Families {
		fmt.Fprintf(&b, "# %s %d %q %q\n", f.Name, f.Type, f.Help, f.Unit)
	}
	for i := range r.Series {
		s := &r.Series[i]
		name := pairs(r.Labels(nil, s))
		for _, x := range r.Samples(s) {
			v := fmt.Sprint(x.Value)
			if value.IsStaleNaN(x.Value) {
				v = "stale"
			}
			fmt.Fprintf(&b, "%s: %s at %d%s\n", name, v, x.Time-now, started(x.Start))
		}
		for _, h := range r.Histograms(s) {
			if value.IsStaleNaN(h.Sum) {
				fmt.Fprintf(&b, "%s: stale at %d%s\n", name, h.Time-now, started(h.Start))
				continue
			}
			fmt.Fprintf(&b, "%s: schema %d count %d zero %d sum %v %v %v %v at %d%s\n", name, h.Schema, h.Count.Integer,
				h.ZeroCount.Integer, h.Sum,
				h.PositiveSpans, h.PositiveDeltas, h.CustomValues, h.Time-now, started(h.Start))
		}
		for _, e := range r.Exemplars(s) {
			fmt.Fprintf(&b, "%s: exemplar %v at %d of %s\n", name, e.Value, e.Time-now, pairs(r.ExemplarLabels(nil, &e)))
		}
	}
	return b.String()
}

// TestConvert shows what each kind of metric becomes.
func TestConvert(t *testing.T) {
	with := func(change func(*Settings)) Settings {
		s := escaping
		change(&s)
		return s
	}
	for _, c := range []struct {
		why      string
		settings Settings
		metrics  pmetric.Metrics
		want     string
	}{
		{"a counter began at zero", escaping, one(func(m pmetric.Metric) { counter(m, 5) }), `
# http_requests_total 1 "Requests." ""
__name__=http_requests_total http_method=M0 job=shop: 5 at 0 since -60000
`},
		{"a gauge may begin at any value", escaping, one(func(m pmetric.Metric) {
			m.SetName("temp")
			m.SetUnit("Cel")
			setNumber(m.SetEmptyGauge().DataPoints().AppendEmpty(), 21)
		}), `
# temp_celsius 2 "" "celsius"
__name__=temp_celsius job=shop: 21 at 0
`},
		{"a sum that may fall may begin at any value", escaping,
			one(func(m pmetric.Metric) { counter(m, 5); m.Sum().SetIsMonotonic(false) }),
			`
# http_requests 2 "Requests." ""
__name__=http_requests http_method=M0 job=shop: 5 at 0
`},
		{"a histogram is classic", escaping, one(func(m pmetric.Metric) { addExplicit(m) }), `
# latency_seconds 3 "" "seconds"
__name__=latency_seconds_sum job=shop: 2.5 at 0 since -60000
__name__=latency_seconds_count job=shop: 6 at 0 since -60000
__name__=latency_seconds_bucket job=shop le=0.1: 3 at 0 since -60000
__name__=latency_seconds_bucket job=shop le=1: 5 at 0 since -60000
__name__=latency_seconds_bucket job=shop le=1: exemplar 0.5 at -1 of trace_id=01000000000000000000000000000000
__name__=latency_seconds_bucket job=shop le=+Inf: 6 at 0 since -60000
`},
		{"a histogram is native, if configured", with(func(s *Settings) { s.CustomBuckets = true }),
			one(func(m pmetric.Metric) { addExplicit(m) }), `
# latency_seconds 3 "" "seconds"
__name__=latency_seconds job=shop: schema -53 count 6 zero 0 sum 2.5 [{0 3}] [3 -1 -1] [0.1 1] at 0 since -60000
__name__=latency_seconds job=shop: exemplar 0.5 at -1 of trace_id=01000000000000000000000000000000
`},
		{"exponential buckets have other numbers in Prometheus",
			escaping, one(func(m pmetric.Metric) { addExponential(m) }), `
# size 3 "" ""
__name__=size job=shop: schema 2 count 7 zero 1 sum 9.5 [{4 2}] [4 -2] [] at 0 since -60000
`},
		{"a summary's quantiles do not count", escaping, one(func(m pmetric.Metric) {
			m.SetName("rpc")
			p := m.SetEmptySummary().DataPoints().AppendEmpty()
			p.SetTimestamp(stamp(now))
			p.SetStartTimestamp(stamp(begin))
			p.SetCount(4)
			p.SetSum(8)
			q := p.QuantileValues().AppendEmpty()
			q.SetQuantile(0.5)
			q.SetValue(2)
		}), `
# rpc 5 "" ""
__name__=rpc_sum job=shop: 8 at 0 since -60000
__name__=rpc_count job=shop: 4 at 0 since -60000
__name__=rpc job=shop quantile=0.5: 2 at 0
`},
		{"a point without a recorded value is stale", escaping, one(func(m pmetric.Metric) {
			counter(m, 5)
			m.Sum().DataPoints().At(0).SetFlags(pmetric.DefaultDataPointFlags.WithNoRecordedValue(true))
		}), `
# http_requests_total 1 "Requests." ""
__name__=http_requests_total http_method=M0 job=shop: stale at 0
`},
		{"a native histogram without a recorded value is stale", escaping, one(func(m pmetric.Metric) {
			addExponential(m).SetFlags(pmetric.DefaultDataPointFlags.WithNoRecordedValue(true))
		}), `
# size 3 "" ""
__name__=size job=shop: stale at 0
`},
		{"names as they are", with(func(s *Settings) { s.Strategy = otlptranslator.NoTranslation }),
			one(func(m pmetric.Metric) { counter(m, 5) }), `
# http.requests 1 "Requests." ""
__name__=http.requests http.method=M0 job=shop: 5 at 0 since -60000
`},
		{"resource attributes are in target_info, and labels if promoted",
			with(func(s *Settings) { s.Promote = []string{"k8s.pod"} }), func() pmetric.Metrics {
				m := one(func(m pmetric.Metric) { counter(m, 5) })
				a := m.ResourceMetrics().At(0).Resource().Attributes()
				a.PutStr("k8s.pod", "shop-1")
				a.PutStr("os", "linux")
				a.PutStr("___", "no label")
				return m
			}(), `
# http_requests_total 1 "Requests." ""
# target_info 2 "Target metadata" ""
__name__=http_requests_total http_method=M0 job=shop k8s_pod=shop-1: 5 at 0 since -60000
__name__=target_info job=shop k8s_pod=shop-1 os=linux: 1 at 0
`},
		{"all attributes promoted, and the scope",
			with(func(s *Settings) { s.Promote, s.PromoteScope = []string{All}, true }),
			one(func(m pmetric.Metric) { counter(m, 5) }), `
# http_requests_total 1 "Requests." ""
__name__=http_requests_total http_method=M0 job=shop otel_scope_name=net/http service_name=shop: 5 at 0 since -60000
`},
		{"an unknown kind has no points", escaping, one(func(m pmetric.Metric) { m.SetName("x") }), "\n"},
	} {
		r, converted, err := convert(c.metrics, c.settings)
		if got := "\n" + lines(r); got != c.want || err != nil || converted.Refused.AnyRefused() {
			t.Errorf("%s: error %v, refused %s\ngot %swant %s", c.why, err, converted.Refused.Text(), got, c.want)
		}
	}
}

// A refused point does not affect the rest of the request. Each refused point is counted.
func TestRefusedPointsSpareTheirNeighbours(t *testing.T) {
	attributes := func(n int) func(pcommon.Map) {
		return func(a pcommon.Map) {
			for i := range n {
				a.PutStr(fmt.Sprint("a", i), "v")
			}
		}
	}
	point := func(m pmetric.Metric) pmetric.NumberDataPoint { return m.Sum().DataPoints().At(1) }
	for _, c := range []struct {
		why    string
		change func(m pmetric.Metric) // changes a counter with three points
		left   int
		text   string
	}{
		{"no temporality", func(m pmetric.Metric) {
			m.Sum().SetAggregationTemporality(pmetric.AggregationTemporalityUnspecified)
		}, 0, "(3 delta), everything else was written; the first is http.requests{http.method=\"M0\"}: " +
			"the metric does not say"},
		{"no name", func(m pmetric.Metric) { m.SetName(""); m.Sum().SetIsMonotonic(false) }, 0, "(3 bad_labels)"},
		{"a name that becomes empty", func(m pmetric.Metric) { m.SetName("___"); m.Sum().SetIsMonotonic(false) }, 0,
			"(3 bad_labels)"},
		{"no time", func(m pmetric.Metric) { point(m).SetTimestamp(0) }, 2,
			"(1 too_old), everything else was written; the first is http.requests{http.method=\"M1\"}: the point has no time"},
		{"an impossible time", func(m pmetric.Metric) { point(m).SetTimestamp(math.MaxUint64) }, 2, "(1 too_far_ahead)"},
		{"an attribute without a name", func(m pmetric.Metric) { point(m).Attributes().PutStr("", "v") }, 2,
			"(1 bad_labels)"},
		{"an attribute whose name becomes empty", func(m pmetric.Metric) { point(m).Attributes().PutStr("__", "v") }, 2,
			"(1 bad_labels)"},
		{"too many attributes", func(m pmetric.Metric) { attributes(1001)(point(m).Attributes()) }, 2, "(1 too_many_labels)"},
		{"an exemplar without a value",
			func(m pmetric.Metric) { point(m).Exemplars().AppendEmpty().SetTimestamp(stamp(now)) }, 3, "(1 bad_exemplar)"},
		{"an attribute with a reserved name is left out",
			func(m pmetric.Metric) { point(m).Attributes().PutStr("__name__", "v") }, 3, ""},
	} {
		m := one(func(m pmetric.Metric) { counter(m, 1, 2, 3) })
		metrics := m.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics()
		c.change(metrics.At(0))
		addExplicit(metrics.AppendEmpty())
		r, converted, err := convert(m, escaping)
		if err != nil || converted.Points != c.left+1 || converted.Samples != c.left+5 || r.Counts().Samples != c.left+5 ||
			!strings.Contains(converted.Refused.Text(), c.text) || (c.text == "") != (converted.Refused.Text() == "") {
			t.Errorf("%s: error %v; %d points, want %d; %d samples converted and %d in the request, want %d; refused "+
				"%s", c.why, err,
				converted.Points, c.left+1, converted.Samples, r.Counts().Samples, c.left+5, converted.Refused.Text())
		}
		if refused := converted.Refused.AllRefused(); refused.Samples+c.left != 3 {
			t.Errorf("%s: %+v refused", c.why, refused)
		}
	}
}

func TestWholeResourcesAndHistogramsAreRefused(t *testing.T) {
	m := one(func(m pmetric.Metric) { counter(m, 1, 2) })
	for i := range 1001 {
		m.ResourceMetrics().At(0).Resource().Attributes().PutStr(fmt.Sprint(i), "v")
	}
	if r, c, err := convert(m, escaping); err != nil || len(r.Series) != 0 ||
		!strings.Contains(c.Refused.Text(), "2 of 2 were refused (2 too_many_labels)") {
		t.Errorf("too many attributes: got %s, refused %s, error %v; want no series and 2 refused",
			lines(r), c.Refused.Text(), err)
	}
	for kind, m := range map[string]pmetric.Metrics{
		"explicit": one(func(m pmetric.Metric) {
			addExplicit(m)
			m.Histogram().SetAggregationTemporality(pmetric.AggregationTemporalityUnspecified)
		}),
		"exponential": one(func(m pmetric.Metric) {
			addExponential(m)
			m.ExponentialHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityUnspecified)
		}),
	} {
		if _, c, err := convert(m, escaping); err != nil || c.Points != 0 ||
			!strings.Contains(c.Refused.Text(), "(1 delta)") {
			t.Errorf("%s: converted %+v, refused %s, error %v; want no points and 1 delta refused",
				kind, c, c.Refused.Text(), err)
		}
	}
	coarse := one(func(m pmetric.Metric) { addExponential(m).SetScale(-5) })
	if _, c, err := convert(coarse, escaping); err != nil || c.Points != 0 ||
		!strings.Contains(c.Refused.Text(), "(1 bad_histogram)") {
		t.Errorf(
			"a scale that is too coarse: refused %q, error %v; want 1 bad_histogram refused", c.Refused.Text(), err)
	}
}

// target_info is repeated from the first point of a resource to the last. Two points half a
// century apart must not make millions of samples.
func TestTargetInfoIsBounded(t *testing.T) {
	m := one(func(m pmetric.Metric) {
		counter(m, 1, 2)
		m.Sum().DataPoints().At(0).SetTimestamp(1e9)
	})
	m.ResourceMetrics().At(0).Resource().Attributes().PutStr("os", "linux")
	r, c, err := convert(m, escaping)
	if n := r.Counts().Samples; err != nil || n != 2+maxTargets || c.Points != 2 || c.Samples != 2 ||
		c.Refused.AnyRefused() {
		t.Errorf("%d samples, want %d; converted %+v, want 2 points and 2 samples; error %v", n, 2+maxTargets, c, err)
	}
}

// A histogram of many buckets with long labels becomes many times as large in the conversion. The
// caller counts the memory and can end the conversion.
func TestConversionEndsWithTheMemory(t *testing.T) {
	m := one(func(m pmetric.Metric) {
		p := addExplicit(m)
		p.Attributes().PutStr("long", strings.Repeat("x", 10_000))
		p.ExplicitBounds().FromRaw(slices.Repeat([]float64{1}, 10_000))
		p.BucketCounts().FromRaw(make([]uint64, 10_001))
	})
	var r, none remotewrite.Request
	var b, deltas remotewrite.Builder
	b.Begin(&r, nil)
	deltas.Begin(&none, nil)
	full := errors.New("no more")
	asked := 0
	_, err := Convert(m, escaping, &b, &deltas, func(bytes int) error {
		if asked = bytes; bytes > 1<<20 {
			return full
		}
		return nil
	})
	if !errors.Is(err, full) || asked > 1<<20+11_000 {
		t.Errorf("the conversion ended with %v after %d bytes, want %v soon after 1 MiB", err, asked, full)
	}
}

// BenchmarkConvert measures the whole cost of a request before it is pushed: Size, Decode and
// Convert of counters, gauges, summaries and both kinds of histograms.
//
// Bound: at most 4 us for a sample on one core of the CI machine, or 250,000 samples a second.
// Nearly all of this time is spent in the third-party decoder and converter.
func BenchmarkConvert(b *testing.B) {
	wire, err := pmetricotlp.NewExportRequestFromMetrics(random(rand.New(rand.NewPCG(1, 1)))).MarshalProto()
	if err != nil {
		b.Fatal(err)
	}
	var r, none remotewrite.Request
	var builder, deltas remotewrite.Builder
	samples := 0
	b.ReportAllocs()
	for b.Loop() {
		_, sizeErr := Size(wire, Protobuf)
		m, err := Decode(wire, Protobuf)
		if sizeErr != nil || err != nil {
			b.Fatal(sizeErr, err)
		}
		builder.Begin(&r, builder.Body[:0])
		deltas.Begin(&none, nil)
		c, err := Convert(m, escaping, &builder, &deltas, func(int) error { return nil })
		if err != nil {
			b.Fatal(err)
		}
		samples += c.Samples
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(samples), "ns/sample")
}
