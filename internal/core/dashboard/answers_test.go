package dashboard_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/parser/posrange"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/teststorage"

	"github.com/freshet-io/freshet/internal/core/dashboard"
)

// The traffic of the test: for 70 minutes, two hosts have a timer, a counter and a gauge. Meanwhile the values of the
// timer change.
const (
	trafficEnd = 70 * time.Minute
	trafficNow = 65 * time.Minute
	newValues  = 27 * time.Minute
	summaryAge = 5 * time.Minute
	scrapes    = 15 * time.Second // of the old Prometheus
	tiles      = 10 * time.Second
	schema     = 3
	bucketsOf  = 64 // of the classic histogram; the native one has the same bounds
	firstLe    = -16
)

// timed returns what a host's timer measured per second: how many values are in each bucket.
func timed(host string, at time.Duration) *histogram.FloatHistogram {
	first := map[string]int{"a": 0, "b": 8}[host]
	if at >= newValues {
		first = map[string]int{"a": 16, "b": -8}[host]
	}
	counts := make([]float64, 25) // from half of a value to four times this value
	counts[0], counts[8], counts[13], counts[16], counts[21], counts[24] = 9, 2, 6, 2, 0.7, 0.3
	h := &histogram.FloatHistogram{Schema: schema, PositiveBuckets: counts,
		PositiveSpans: []histogram.Span{{Offset: int32(first) - 8, Length: uint32(len(counts))}}}
	for i, n := range counts {
		h.Count += n
		h.Sum += n * math.Exp2(float64(first-8+i)/8)
	}
	return h
}

// traffic is what the old Prometheus has of the traffic, and what Freshet has.
func traffic(t *testing.T) (old, here storage.Storage) {
	t.Helper()
	old, here = teststorage.New(t), teststorage.New(t)
	was, is := old.Appender(t.Context()), here.Appender(t.Context())
	add := func(to storage.Appender, at time.Duration, v float64, names ...string) {
		if _, err := to.Append(0, labels.FromStrings(names...), at.Milliseconds(), v); err != nil {
			t.Fatal(err)
		}
	}
	for _, host := range []string{"a", "b"} {
		all := &histogram.FloatHistogram{Schema: schema}    // since the beginning
		recent := &histogram.FloatHistogram{Schema: schema} // of the last summaryAge, which is what a summary shows
		for at := time.Duration(0); at <= trafficEnd; at += 5 * time.Second {
			all, recent = sum(t, all, timed(host, at), 5), sum(t, recent, timed(host, at), 5)
			if at >= summaryAge {
				recent = sum(t, recent, timed(host, at-summaryAge), -5)
			}
			both := func(to storage.Appender) {
				add(to, at, 2*at.Seconds(), "__name__", "hits", "host", host)
				add(to, at, 100+at.Minutes(), "__name__", "queue", "host", host)
			}
			if at%tiles == 0 {
				both(is)
				if _, err := is.AppendHistogram(0, labels.FromStrings("__name__", "lat", "host", host), at.Milliseconds(), nil,
					all.Copy()); err != nil {
					t.Fatal(err)
				}
			}
			if at%scrapes != 0 {
				continue
			}
			both(was)
			add(was, at, all.Count, "__name__", "lat_count", "host", host)
			add(was, at, all.Sum, "__name__", "lat_sum", "host", host)
			for le := firstLe; le < firstLe+bucketsOf; le++ {
				bound := math.Exp2(float64(le) / 8)
				add(was, at, countBelow(all, bound), "__name__", "lat_bucket", "host", host,
					"le", strconv.FormatFloat(bound, 'g', -1, 64))
			}
			add(was, at, all.Count, "__name__", "lat_bucket", "host", host, "le", "+Inf")
			for _, q := range dashboard.DefaultQuantiles {
				f, _ := strconv.ParseFloat(q, 64)
				v, _ := promql.HistogramQuantile(f, recent, "", posrange.PositionRange{})
				add(was, at, v, "__name__", "lat", "host", host, "quantile", q)
			}
		}
	}
	for _, one := range []storage.Appender{was, is} {
		if err := one.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	return old, here
}

// sum adds the values of some seconds to a histogram.
func sum(t *testing.T, to, second *histogram.FloatHistogram, seconds float64) *histogram.FloatHistogram {
	t.Helper()
	to, _, _, err := to.Add(second.Mul(seconds))
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// countBelow returns how many values of a histogram are in buckets up to a bound.
func countBelow(h *histogram.FloatHistogram, bound float64) (n float64) {
	for it := h.PositiveBucketIterator(); it.Next(); {
		if b := it.At(); b.Upper <= bound*(1+1e-9) {
			n += b.Count
		}
	}
	return n
}

// answer asks a query, and returns values by the labels of their series.
func answer(t *testing.T, e *promql.Engine, s storage.Storage, query string) map[string]float64 {
	t.Helper()
	q, err := e.NewInstantQuery(t.Context(), s, nil, query, time.UnixMilli(trafficNow.Milliseconds()))
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer q.Close()
	r := q.Exec(t.Context())
	if r.Err != nil {
		return map[string]float64{"an error": 0}
	}
	all := map[string]float64{}
	switch v := r.Value.(type) {
	case promql.Scalar:
		all["scalar"] = v.V
	case promql.Vector:
		for _, one := range v {
			if one.H != nil {
				all[one.Metric.String()+" is a histogram"] = one.H.Count
				continue
			}
			all[labels.NewBuilder(one.Metric).Del(model.MetricNameLabel).Labels().String()] = one.F
		}
	case promql.Matrix:
		for _, one := range v {
			key := labels.NewBuilder(one.Metric).Del(model.MetricNameLabel).Labels().String()
			all[key] = one.Floats[len(one.Floats)-1].F // the last value; their number is another
		}
	}
	return all
}

// same compares answers. Values may differ by a twentieth: a range has other samples.
func same(was, is map[string]float64) bool {
	return maps.EqualFunc(was, is, func(a, b float64) bool {
		return a == b || math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 1e-6+0.05*max(math.Abs(a), math.Abs(b))
	})
}

// selectors are one of each kind. The first is a summary's.
var selectors = []string{`lat{quantile="0.9"}`, `lat{quantile=~"0.5|0.9"}`, `lat{quantile!~"0.9+"}`, `lat`, `lat_count`,
	`lat_sum`, `lat_bucket`, `hits`, `queue`}

// forms returns queries with each function, aggregation and operator of PromQL over a selector of each kind.
func forms() (all []string) {
	add := func(form string) {
		for _, s := range selectors {
			all = append(all, strings.ReplaceAll(form, "X", s))
		}
	}
	for _, form := range []string{"X", "(X)", "-X", "X offset 40m", "X @ 900", "X @ end()", "X offset -1m",
		"X[5m]", "X[1h:1m]", "X > 1", "X > bool 1", "2 ^ X", "X atan2 2", "X == X", "time() - X",
		"vector(2) * on () group_right () X",
		"X or vector(0)", "vector(0) or X", "X and on (host) hits", "hits and on (host) X", "hits unless on (host) X",
		"X unless on (host) queue > 1e9", "X and ignoring (quantile, le) hits", "hits and ignoring (quantile) X",
		"X and hits",
		"hits unless X", "X / ignoring (quantile) hits", "X / on (host) hits", "X / hits", "X * on (host) group_left () hits",
		"hits * on (host) group_right () X", "X * ignoring (quantile) group_left () hits", "X - X offset 40m",
		`X / on (host, quantile) X`, `X / ignoring (quantile) group_left () lat{quantile="0.5"}`,
		`X / ignoring (quantile) lat{quantile="0.5"}`, `X or lat{quantile="0.5"}`, `lat{quantile="0.5"} or X`,
		`lat_sum / lat_count + on (host) X`, `X * on (host) group_left (quantile) lat{quantile="0.5"}`,
		"quantile_over_time(scalar(max(X)) / 1e9, queue[10m])", "topk(scalar(count(X)), hits)",
		"max_over_time(X[1h] offset 10m)", "max_over_time(X[30m] @ 1500)", "max_over_time(X[30m] @ end() offset 30m)",
		"max_over_time(X[1h:1m] @ 1500)", "max_over_time(max(X)[1h:1m])", "avg_over_time((X)[1h:1m] offset 1m)",
		"max_over_time(max_over_time(X[5m])[1h:1m])", "max_over_time(rate(X[1m])[1h:1m])", "rate(X[5m:30s])",
		"rate(X[5m] offset 40m)", "rate(X[1m] @ 1500)", "increase(X[1m] offset 40m)", "deriv(X[1m])",
		"max_over_time(sum without (quantile) (rate(X[5m] offset 1m))[1h:5m] offset 1m)",
		"histogram_quantile(0.9, rate(X[5m]))", "histogram_quantile(0.9, sum by (le) (rate(X[5m])))",
		"histogram_quantile(0.9, sum without (host) (rate(X[5m])))",
		"histogram_quantile(0.9, avg by (host, le) (increase(X[5m])))",
		"histogram_quantile(0.9, max by (le) (rate(X[5m])))", "histogram_quantile(0.9, X)",
		"absent(X) or absent_over_time(X[5m])", "sum by (quantile, host) (X) / on (host) group_left () hits"} {
		add(form)
	}
	for _, name := range slices.Sorted(maps.Keys(parser.Functions)) {
		for _, form := range formsOf(parser.Functions[name]) {
			add(form)
		}
	}
	for item := parser.ItemType(0); item < 1e5; item++ {
		if item.IsAggregator() {
			param := map[bool]string{true: "1, "}[item.IsAggregatorWithParam()]
			if item == parser.COUNT_VALUES {
				param = `"value", `
			}
			for _, grouping := range []string{"", "by (host)", "by (quantile)", "without (host)", "without (quantile, le)"} {
				add(fmt.Sprintf("%s %s (%sX)", item, grouping, param))
			}
		}
	}
	return all
}

// formsOf returns calls of a function with an operand X.
func formsOf(f *parser.Function) []string {
	if !slices.ContainsFunc(f.ArgTypes, func(v parser.ValueType) bool {
		return v == parser.ValueTypeVector || v == parser.ValueTypeMatrix
	}) {
		return []string{f.Name + "(" + strings.TrimPrefix(strings.Repeat(", 2", len(f.ArgTypes)), ", ") + ")"}
	}
	switch f.Name {
	case "label_replace":
		return []string{`label_replace(X, "p", "p$1", "quantile", "0.(.*)")`, `label_replace(X, "p", "$1", "host", "(.*)")`}
	case "label_join":
		return []string{`label_join(X, "p", "-", "host", "quantile")`}
	case "sort_by_label", "sort_by_label_desc":
		return []string{f.Name + `(X, "quantile")`}
	case "predict_linear":
		return []string{"predict_linear(X[1h], 600)", "predict_linear(X[1m], 600)"}
	case "info":
		return []string{"info(X)"}
	}
	text := func(window string) string {
		var args []string
		for _, arg := range f.ArgTypes {
			args = append(args, map[parser.ValueType]string{parser.ValueTypeVector: "X",
				parser.ValueTypeMatrix: "X[" + window + "]", parser.ValueTypeScalar: "0.5", parser.ValueTypeString: `"p"`}[arg])
		}
		return f.Name + "(" + strings.Join(args, ", ") + ")"
	}
	if !slices.Contains(f.ArgTypes, parser.ValueTypeMatrix) {
		return []string{text("")}
	}
	return []string{text("1h"), text("1m")}
}

// TestAnswers asks each query that PromQL allows, with each function, aggregation and operator over each kind of
// selector, at the old Prometheus, and the converted query here. Either the answers are the same, with the same labels
// but the name, or a note says why not.
func TestAnswers(t *testing.T) {
	t.Parallel()
	old, here := traffic(t)
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 50e6, Timeout: time.Minute, EnableAtModifier: true,
		EnableNegativeOffset: true, NoStepSubqueryIntervalFn: func(int64) int64 { return tiles.Milliseconds() },
		Parser: parser.NewParser(parser.Options{EnableExtendedRangeSelectors: true, EnableExperimentalFunctions: true})})
	t.Cleanup(func() { _ = engine.Close() })
	kinds := map[string]dashboard.Kind{"lat": dashboard.Native, "hits": dashboard.Plain, "queue": dashboard.Plain}
	counts := map[string]int{}
	for _, query := range forms() {
		text, err := json.Marshal(query)
		if err != nil {
			t.Fatal(err)
		}
		c, err := dashboard.Convert(fmt.Appendf(nil, `{"panels":[{"title":"P","type":"table","targets":[{"refId":"A",
			"format":"table","expr":%s}]}]}`, text), dashboard.Options{From: dashboard.StatsDExporter, SummaryAge: "5m",
			Kind: func(name string) dashboard.Kind { return max(kinds[name], dashboard.Absent) }})
		if err != nil {
			t.Fatal(err)
		}
		is := c.Queries[0].Is
		stays := slices.ContainsFunc(c.Notes, func(n dashboard.Note) bool { return !strings.Contains(n.Why, "experimental") })
		was := answer(t, engine, old, query)
		switch now := answer(t, engine, here, strings.ReplaceAll(is, "$__rate_interval", "40s")); {
		case stays && is == query:
			counts["listed"]++
		case is == query && strings.Contains(query, "histogram_"):
			counts["of histograms"]++ // for which Freshet, and nothing else, has an answer
		case same(was, now):
			counts["same"]++
		default:
			t.Errorf("%s\n was %v\nbecame %s\n  is %v\nnotes %v", query, was, is, now, c.Notes)
		}
	}
	t.Logf("%v", counts)
}
