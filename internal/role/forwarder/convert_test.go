package forwarder

import (
	"net/http"
	"strings"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"

	"github.com/freshet-io/freshet/internal/settings"
)

// fullV2 has everything that a request of remote write 2.0 can have.
func fullV2(t *testing.T) Request {
	t.Helper()
	table := writev2.NewSymbolTable()
	m := &writev2.Request{Timeseries: []writev2.TimeSeries{{
		LabelsRefs: []uint32{
			table.Symbolize("__name__"), table.Symbolize("requests_total"), table.Symbolize("job"), table.Symbolize("shop"),
		},
		Samples: []writev2.Sample{{Value: 4.5, Timestamp: 1000, StartTimestamp: 10}, {Value: 5.5, Timestamp: 2000}},
		Exemplars: []writev2.Exemplar{{
			LabelsRefs: []uint32{table.Symbolize("trace"), table.Symbolize("abc")}, Value: 1, Timestamp: 1500,
		}},
		Metadata: writev2.Metadata{Type: writev2.Metadata_METRIC_TYPE_COUNTER, HelpRef: table.Symbolize("Requests.")},
	}, {
		LabelsRefs: []uint32{1, table.Symbolize("seconds")},
		Histograms: []writev2.Histogram{
			writev2.FromIntHistogram(10, 3000, &testInt), writev2.FromFloatHistogram(0, 4000, testFloat),
		},
	}}}
	m.Symbols = table.Symbols()
	raw, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return Request{Tenant: "default", Version: 2, Samples: 2, Histograms: 2, Body: snappy.Encode(nil, raw)}
}

var (
	testInt = histogram.Histogram{
		Schema: 3, Count: 7, Sum: 21.5, ZeroCount: 2, ZeroThreshold: 0.001, CounterResetHint: histogram.NotCounterReset,
		PositiveSpans: []histogram.Span{{Offset: 1, Length: 2}}, PositiveBuckets: []int64{2, 1},
		NegativeSpans: []histogram.Span{}, CustomValues: nil,
	}
	testFloat = &histogram.FloatHistogram{
		Schema: histogram.CustomBucketsSchema, Count: 2.5, Sum: 1, PositiveSpans: []histogram.Span{{Length: 2}},
		PositiveBuckets: []float64{1, 1.5}, NegativeSpans: []histogram.Span{}, CustomValues: []float64{0.1, 1},
	}
)

// checkV1 checks that `body` is fullV2 in version 1.0.
func checkV1(t *testing.T, body string) {
	t.Helper()
	raw, err := snappy.Decode(nil, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	var got prompb.WriteRequest
	if err := got.Unmarshal(raw); err != nil {
		t.Fatal(err)
	}
	want := prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
		Labels:    []prompb.Label{{Name: "__name__", Value: "requests_total"}, {Name: "job", Value: "shop"}},
		Samples:   []prompb.Sample{{Value: 4.5, Timestamp: 1000}, {Value: 5.5, Timestamp: 2000}},
		Exemplars: []prompb.Exemplar{{Labels: []prompb.Label{{Name: "trace", Value: "abc"}}, Value: 1, Timestamp: 1500}},
	}, {
		Labels:     []prompb.Label{{Name: "__name__", Value: "seconds"}},
		Histograms: []prompb.Histogram{prompb.FromIntHistogram(3000, &testInt), prompb.FromFloatHistogram(4000, testFloat)},
	}}}
	if got.String() != want.String() {
		t.Errorf("converted into\n%v\nwant\n%v", &got, &want)
	}
}

// A backend that knows only 1.0 gets 1.0. It answers a request in 2.0 with status 415, or with a success
// that does not say how much was written. The forwarder tries 2.0 only for the first request.
func TestFallsBack(t *testing.T) {
	for name, refusal := range map[string]int{"415": http.StatusUnsupportedMediaType,
		"a success that writes nothing": http.StatusOK} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			var got []string
			b := newBackend(t, func(w http.ResponseWriter, r *http.Request, body string) {
				if strings.Contains(r.Header.Get("Content-Type"), "v2") {
					asked++
					w.WriteHeader(refusal)
					return
				}
				got = append(got, body)
				w.WriteHeader(http.StatusNoContent) // without the headers that say how much was written
			})
			b.Start()
			x := newForwarder(t, t.TempDir(), settings.Backend{URL: b.URL})
			x.push(fullV2(t), fullV2(t))
			x.runUntilEmpty()
			if asked != 1 || len(got) != 2 {
				t.Fatalf("the backend got %d requests in 2.0 and %d in 1.0, want 1, 2", asked, len(got))
			}
			checkV1(t, got[0])
			checkV1(t, got[1])
			x.expect("samples_total", map[string]float64{"acknowledged_samples_total": 8})
		})
	}
}

// With a fixed version there is no fallback.
func TestFixedProtocol(t *testing.T) {
	t.Run("2.0", func(t *testing.T) {
		answers := []func(w http.ResponseWriter){
			func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnsupportedMediaType) },
			func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) },
		}
		b := newBackend(t, func(w http.ResponseWriter, _ *http.Request, _ string) {
			answers[0](w)
			answers = answers[1:]
		})
		b.Start()
		x := newForwarder(t, t.TempDir(), settings.Backend{URL: b.URL, Protocol: settings.ProtocolV2})
		x.push(fullV2(t), fullV2(t))
		x.runUntilEmpty()
		x.expect("samples_total", map[string]float64{"refused_samples_total 415": 4, "refused_samples_total not_written": 4})
	})
	t.Run("1.0", func(t *testing.T) {
		b := newBackend(t, nil)
		b.Start()
		x := newForwarder(t, t.TempDir(), settings.Backend{URL: b.URL, Protocol: settings.ProtocolV1})
		x.push(fullV2(t), newRequest(2)) // the body of the second request is not compressed with snappy
		x.runUntilEmpty()
		if got := b.all(); len(got) != 1 {
			t.Fatalf("taken were %d", len(got))
		} else {
			checkV1(t, got[0])
		}
		x.expect("samples_total", map[string]float64{"acknowledged_samples_total": 4, "refused_samples_total conversion": 4})
	})
}

// A body with references out of range is an error, not a panic.
func TestConversionOfNonsense(t *testing.T) {
	for name, series := range map[string]writev2.TimeSeries{
		"label":    {LabelsRefs: []uint32{0, 9}},
		"odd":      {LabelsRefs: []uint32{0}},
		"exemplar": {Exemplars: []writev2.Exemplar{{LabelsRefs: []uint32{9, 0}}}},
	} {
		raw, err := (&writev2.Request{Symbols: []string{""}, Timeseries: []writev2.TimeSeries{series}}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := toV1(snappy.Encode(nil, raw)); err == nil || !strings.HasPrefix(err.Error(), "time series 1: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
