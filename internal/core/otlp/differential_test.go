package otlp

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"

	"github.com/freshet-io/freshet/internal/core/remotewrite"
)

// Prometheus' own receiver stores the series, times and values that Convert puts into a request,
// for any metrics that both accept.
func TestPrometheusStoresTheSame(t *testing.T) {
	for seed := range uint64(8) {
		for name, settings := range map[string]func(*Settings){
			"plain":  func(*Settings) {},
			"native": func(s *Settings) { s.CustomBuckets = true; s.PromoteScope = true; s.Promote = []string{All} },
			"UTF-8":  func(s *Settings) { s.Strategy = "NoUTF8EscapingWithSuffixes"; s.Promote = []string{"a.b"} },
		} {
			s := escaping
			settings(&s)
			t.Run(fmt.Sprint(name, seed), func(t *testing.T) {
				m := random(rand.New(rand.NewPCG(seed, 1)))
				want := prometheusStores(t, m, s)
				r, c, err := convert(m, s)
				if err != nil || c.Refused.AnyRefused() {
					t.Fatal(err, c.Refused.Text())
				}
				got := plain(t, r)
				if len(want) < 30 {
					t.Fatalf("only %d lines to compare: %q", len(want), want)
				}
				if !slices.Equal(got, want) {
					t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			})
		}
	}
}

// prometheusStores returns the values that Prometheus stores from a request, one per line.
func prometheusStores(t *testing.T, m pmetric.Metrics, s Settings) (all []string) {
	t.Helper()
	options := tsdb.DefaultOptions()
	options.OutOfOrderTimeWindow = 1 << 40
	db, err := tsdb.Open(t.TempDir(), slog.New(slog.DiscardHandler), nil, options, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c := config.Config{OTLPConfig: config.OTLPConfig{
		TranslationStrategy: s.Strategy, PromoteScopeMetadata: s.PromoteScope, ConvertHistogramsToNHCB: s.CustomBuckets,
		PromoteResourceAttributes: s.Promote,
	}}
	if slices.Contains(s.Promote, All) {
		c.OTLPConfig.PromoteResourceAttributes, c.OTLPConfig.PromoteAllResourceAttributes = nil, true
	}
	handler := remote.NewOTLPWriteHandler(slog.New(slog.DiscardHandler), prometheus.NewRegistry(), db,
		func() config.Config { return c }, remote.OTLPOptions{LookbackDelta: s.Lookback})
	body, err := pmetricotlp.NewExportRequestFromMetrics(m).MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequest(http.MethodPost, "/api/v1/otlp/v1/metrics", bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/x-protobuf")
	w := httptest.NewRecorder()
	if handler.ServeHTTP(w, request); w.Code != http.StatusOK {
		t.Fatalf("Prometheus answers %d %s", w.Code, w.Body)
	}
	q, err := db.Querier(0, 1<<50)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	found := q.Select(t.Context(), false, nil, labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+"))
	for found.Next() {
		name := found.At().Labels().String()
		it := found.At().Iterator(nil)
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			if kind == chunkenc.ValFloat {
				at, v := it.At()
				all = append(all, fmt.Sprintf("%s %d %v", name, at, v))
				continue
			}
			at, h := it.AtFloatHistogram(nil)
			all = append(all, fmt.Sprintf("%s %d %s", name, at, h))
		}
	}
	if found.Err() != nil {
		t.Fatal(found.Err())
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// plain returns a request as text in the form that prometheusStores returns.
func plain(t *testing.T, r *remotewrite.Request) (all []string) {
	t.Helper()
	for i := range r.Series {
		s := &r.Series[i]
		sent, err := r.Labels(nil, s)
		if err != nil {
			t.Fatal(err)
		}
		b := labels.NewScratchBuilder(len(sent))
		for _, l := range sent {
			b.Add(string(l.Name), string(l.Value))
		}
		name := b.Labels().String()
		for _, x := range r.Samples(s) {
			all = append(all, fmt.Sprintf("%s %d %v", name, x.Time, x.Value))
		}
		for _, x := range r.Histograms(s) {
			h := histogram.Histogram{
				Schema: x.Schema, ZeroThreshold: x.ZeroThreshold, ZeroCount: x.ZeroCount.Integer, Count: x.Count.Integer,
				Sum:             x.Sum,
				PositiveBuckets: x.PositiveDeltas, NegativeBuckets: x.NegativeDeltas, CustomValues: x.CustomValues,
			}
			for _, s := range x.PositiveSpans {
				h.PositiveSpans = append(h.PositiveSpans, histogram.Span{Offset: s.Offset, Length: s.Length})
			}
			for _, s := range x.NegativeSpans {
				h.NegativeSpans = append(h.NegativeSpans, histogram.Span{Offset: s.Offset, Length: s.Length})
			}
			if err := h.Validate(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			all = append(all, fmt.Sprintf("%s %d %s", name, x.Time, h.ToFloat(nil)))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// random returns metrics of all kinds, from a few resources. Prometheus accepts all of them.
func random(r *rand.Rand) pmetric.Metrics {
	words := []string{"a.b", "a_b", "http.route", "0digit", "ünï", "x y", "le", "job"}
	word := func() string { return words[r.IntN(len(words))] }
	attributes := func(a pcommon.Map) {
		for range r.IntN(4) {
			switch r.IntN(4) {
			case 0:
				a.PutInt(word(), int64(r.IntN(3)))
			case 1:
				a.PutEmptySlice(word()).AppendEmpty().SetStr("in a list")
			default:
				a.PutStr(word(), word())
			}
		}
	}
	all := pmetric.NewMetrics()
	times := 0
	at := func() pcommon.Timestamp { times++; return stamp(now + int64(times)) } // two values of a series differ in time
	for i := range 3 {
		resource := all.ResourceMetrics().AppendEmpty()
		attributes(resource.Resource().Attributes())
		resource.Resource().Attributes().PutStr("service.name", fmt.Sprint("s", i))
		scope := resource.ScopeMetrics().AppendEmpty()
		scope.Scope().SetName(word())
		attributes(scope.Scope().Attributes())
		for j := range 12 {
			m := scope.Metrics().AppendEmpty()
			m.SetName(fmt.Sprintf("%s.%d", word(), j))
			m.SetUnit([]string{"", "s", "By", "1", "{thing}/min"}[r.IntN(5)])
			for range 1 + r.IntN(3) {
				switch j % 5 {
				case 0:
					if m.Type() == pmetric.MetricTypeEmpty {
						m.SetEmptyGauge()
					}
					p := m.Gauge().DataPoints().AppendEmpty()
					p.SetIntValue(int64(r.IntN(100)))
					p.SetTimestamp(at())
					attributes(p.Attributes())
				case 1:
					if m.Type() == pmetric.MetricTypeEmpty {
						m.SetEmptySum().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
						m.Sum().SetIsMonotonic(r.IntN(2) == 0)
					}
					p := m.Sum().DataPoints().AppendEmpty()
					p.SetDoubleValue(r.Float64())
					p.SetTimestamp(at())
					p.SetStartTimestamp(stamp(begin))
					attributes(p.Attributes())
				case 2:
					if m.Type() == pmetric.MetricTypeEmpty {
						m.SetEmptyHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
					}
					p := m.Histogram().DataPoints().AppendEmpty()
					p.SetTimestamp(at())
					attributes(p.Attributes())
					p.ExplicitBounds().FromRaw([]float64{0.005, 1, 2.5, 10})
					for range 5 {
						n := uint64(r.IntN(4))
						p.BucketCounts().Append(n)
						p.SetCount(p.Count() + n)
					}
					if r.IntN(3) > 0 {
						p.SetSum(r.Float64())
					}
				case 3:
					if m.Type() == pmetric.MetricTypeEmpty {
						m.SetEmptyExponentialHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
					}
					p := m.ExponentialHistogram().DataPoints().AppendEmpty()
					p.SetTimestamp(at())
					attributes(p.Attributes())
					p.SetScale(int32(r.IntN(15) - 4))
					p.SetZeroCount(uint64(r.IntN(3)))
					p.SetCount(p.ZeroCount())
					for _, b := range []pmetric.ExponentialHistogramDataPointBuckets{p.Positive(), p.Negative()} {
						b.SetOffset(int32(r.IntN(40) - 20))
						for range r.IntN(12) {
							n := uint64(max(0, r.IntN(8)-4))
							b.BucketCounts().Append(n)
							p.SetCount(p.Count() + n)
						}
					}
					p.SetSum(r.Float64())
				case 4:
					if m.Type() == pmetric.MetricTypeEmpty {
						m.SetEmptySummary()
					}
					p := m.Summary().DataPoints().AppendEmpty()
					p.SetTimestamp(at())
					attributes(p.Attributes())
					p.SetCount(uint64(r.IntN(9)))
					q := p.QuantileValues().AppendEmpty()
					q.SetQuantile(0.99)
					q.SetValue(r.Float64())
				}
			}
		}
	}
	return all
}
