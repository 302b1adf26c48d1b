package server

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
)

// A GET of an address for senders, by a browser or a probe, shows that the address is right. A 404
// would suggest that nothing accepts OTLP here.
func TestSendersPost(t *testing.T) {
	s := withoutSockets(t)
	for path, protocol := range map[string]string{
		"/api/v1/write": "remote write", "/v1/metrics": "OTLP", "/api/v1/otlp/v1/metrics": "OTLP",
	} {
		for _, method := range []string{
			http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions,
		} {
			resp, text := s.answer(t, method, path, "", "", false)
			want := protocol + " takes POST, not " + method + "\n"
			if method == http.MethodHead {
				want = ""
			}
			if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != http.MethodPost || text != want {
				t.Errorf("%s %s: status %s, Allow %q, body %q",
					method, path, resp.Status, resp.Header.Get("Allow"), text)
			}
		}
	}
}

// An empty series in version 2 violates the specification, and Prometheus refuses it. So the answer is
// 400, the series is counted as refused, and the rest of the request is written. A series with only
// exemplars violates the specification, too, but Freshet accepts it, since Prometheus sends such
// series.
func TestASeriesWithoutSamples(t *testing.T) {
	s := withoutSockets(t)
	now := time.Now().UnixMilli()
	symbols := writev2.NewSymbolTable()
	series := func(name string) writev2.TimeSeries {
		return writev2.TimeSeries{LabelsRefs: []uint32{symbols.Symbolize("__name__"), symbols.Symbolize(name)}}
	}
	full, empty, beside := series("full"), series("empty"), series("full")
	full.Samples = []writev2.Sample{{Timestamp: now, Value: 1}}
	empty.Metadata = writev2.Metadata{
		Type: writev2.Metadata_METRIC_TYPE_GAUGE, HelpRef: symbols.Symbolize("what nobody sent"),
	}
	beside.Exemplars = []writev2.Exemplar{{
		LabelsRefs: []uint32{symbols.Symbolize("trace_id"), symbols.Symbolize("7")}, Timestamp: now, Value: 1,
	}}

	for _, c := range []struct {
		why       string
		series    []writev2.TimeSeries
		status    int
		text      string
		exemplars string // expected value of the header for written exemplars
		refused   float64
	}{
		{"samples, and exemplars in a separate series", []writev2.TimeSeries{full, beside}, http.StatusNoContent, "", "1", 0},
		{"an empty series beside it", []writev2.TimeSeries{empty, full}, http.StatusBadRequest,
			`1 of 2 were refused (1 no_samples), everything else was written; the first is {__name__="empty"}: ` +
				"it has no sample, no histogram and no exemplar", "0", 1},
		{"two empty series alone", []writev2.TimeSeries{empty, empty}, http.StatusBadRequest,
			"2 of 2 were refused (2 no_samples)", "0", 3},
	} {
		resp, text := s.writeV2(t, symbols.Symbols(), c.series...)
		if exemplars := resp.Header.Get("X-Prometheus-Remote-Write-Exemplars-Written"); resp.StatusCode != c.status ||
			!strings.Contains(text, c.text) || exemplars != c.exemplars {
			t.Errorf("%s: got the status %s, the exemplars header %s and the body %s",
				c.why, resp.Status, exemplars, text)
		}
		if n, err := s.refusedOf("no_samples"); err != nil || n != c.refused {
			t.Errorf("%s: %v samples are counted as no_samples, want %v; error %v", c.why, n, c.refused, err)
		}
	}
	for expr, found := range map[string]bool{"full": true, "empty": false} {
		_, text := s.answer(t, http.MethodGet, "/api/v1/query?query="+expr, "", "", false)
		if strings.Contains(text, "__name__") != found {
			t.Errorf("%s: %s", expr, text)
		}
	}
	_, text := s.answer(t, http.MethodGet, "/api/v1/metadata", "", "", false)
	if strings.Contains(text, "what nobody sent") {
		t.Errorf("the answer names the refused samples: %s", text)
	}
}

// writeV2 sends a request of remote write 2.0.
func (s *server) writeV2(t *testing.T, symbols []string, series ...writev2.TimeSeries) (*http.Response, string) {
	t.Helper()
	body, err := (&writev2.Request{Symbols: symbols, Timeseries: series}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post("http://"+s.http[0].addr()+"/api/v1/write",
		"application/x-protobuf;proto=io.prometheus.write.v2.Request", bytes.NewReader(snappy.Encode(nil, body)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// refusedOf returns how many samples of requests were refused for a reason.
func (s *server) refusedOf(reason string) (float64, error) {
	families, err := s.registry.Gather()
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "freshet_distributor_refused_total" && m.GetLabel()[0].GetValue() == reason {
				return m.GetCounter().GetValue(), err
			}
		}
	}
	return -1, err
}
