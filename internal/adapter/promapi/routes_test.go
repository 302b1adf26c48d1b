package promapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
	v1 "github.com/prometheus/prometheus/web/api/v1"
	"go.yaml.in/yaml/v3"

	"github.com/freshet-io/freshet/internal/core/partial"
)

// routes has every route of Prometheus' API, with the statuses of our answers to GET and POST
// without parameters.
var routes = map[string]struct{ get, post int }{
	"/query":               {400, 400},
	"/query_range":         {400, 400},
	"/query_exemplars":     {400, 400},
	"/format_query":        {400, 400},
	"/parse_query":         {400, 400},
	"/labels":              {200, 200},
	"/series":              {400, 400},
	"/label/{name}/values": {200, 405},
	"/metadata":            {200, 405},

	"/rules":            {200, 405},
	"/alerts":           {200, 405},
	"/alertmanagers":    {200, 405},
	"/targets":          {200, 405},
	"/targets/metadata": {200, 405},
	"/scrape_pools":     {200, 405},

	"/status/config":      {200, 405},
	"/status/runtimeinfo": {200, 405},
	"/status/buildinfo":   {200, 405},
	"/status/flags":       {200, 405},
	"/status/tsdb":        {200, 405},
	"/status/cardinality": {200, 405},
	"/status/walreplay":   {200, 405},

	"/features":      {200, 405},
	"/notifications": {200, 405},

	"/read": {405, 400},

	"/targets/relabel_steps":       {404, 404},
	"/scrape_pools/config":         {404, 404},
	"/status/tsdb/blocks":          {404, 404},
	"/status/self_metrics":         {404, 404},
	"/notifications/live":          {404, 404},
	"/write":                       {404, 404},
	"/otlp/v1/metrics":             {404, 404},
	"/search/metric_names":         {404, 404},
	"/search/label_names":          {404, 404},
	"/search/label_values":         {404, 404},
	"/admin/tsdb/delete_series":    {404, 404},
	"/admin/tsdb/clean_tombstones": {404, 404},
	"/admin/tsdb/snapshot":         {404, 404},
	"/openapi.yaml":                {404, 404},

	"":          {404, 404},
	"/nothing":  {404, 404},
	"/query/":   {404, 404},
	"/label/":   {404, 404},
	"/query/1":  {404, 404},
	"/labels/x": {404, 404},
}

func TestRoutes(t *testing.T) {
	s := newServer(database(t))
	for path, want := range routes {
		path = strings.ReplaceAll(path, "{name}", "code")
		for method, status := range map[string]int{http.MethodGet: want.get, http.MethodPost: want.post, http.MethodDelete: 0,
			http.MethodPut: 0} {
			if status == 0 {
				status = map[bool]int{true: 404, false: 405}[want.get == 404]
			}
			w := s.ask(httptest.NewRequest(method, prefix+path, nil))
			if w.Code != status {
				t.Errorf("%s %s: status %d, want %d", method, path, w.Code, status)
			}
			if path == "/read" && status == 400 {
				continue // remote read reports errors as text
			}
			e := decode(t, w)
			if (e.Status == "success") != (status == 200) || (e.Error == "") != (status == 200) ||
				w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("%s %s: %+v", method, path, e)
			}
			if status == 405 && !slices.Contains([]string{"GET", "GET, POST", "POST"}, w.Header().Get("Allow")) {
				t.Errorf("%s %s: status 405 with Allow %q, want GET, POST or both",
					method, path, w.Header().Get("Allow"))
			}
		}
	}
	if got := s.failures(t, failedPanic); got != 0 {
		t.Errorf("%v panics", got)
	}
}

// TestRoutesAreAllOfPrometheus fails when a new version of Prometheus has a route that we have
// not decided about.
func TestRoutesAreAllOfPrometheus(t *testing.T) {
	w := httptest.NewRecorder()
	v1.NewOpenAPIBuilder(v1.OpenAPIOptions{}, newServer(nil).options.Logger).ServeOpenAPI(w,
		httptest.NewRequest(http.MethodGet, "/openapi.yaml?openapi_version=3.2", nil))
	var described struct {
		Paths map[string]any `yaml:"paths"`
	}
	if err := yaml.Unmarshal(w.Body.Bytes(), &described); err != nil || len(described.Paths) < 30 {
		t.Fatalf("%d routes are described, want at least 30; error %v", len(described.Paths), err)
	}
	for path := range described.Paths {
		if _, decided := routes[path]; !decided {
			t.Errorf("Prometheus has %s", path)
		}
	}
}

func TestRemoteRead(t *testing.T) {
	s := newServer(database(t))
	request := prompb.ReadRequest{Queries: []*prompb.Query{{
		StartTimestampMs: base * 1000, EndTimestampMs: (base + 20) * 1000,
		Matchers: []*prompb.LabelMatcher{{Name: "code", Value: "500"}},
	}}}
	body, err := request.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	w := s.ask(httptest.NewRequest(http.MethodPost, prefix+"/read", strings.NewReader(string(snappy.Encode(nil, body)))))
	raw, err := snappy.Decode(nil, w.Body.Bytes())
	if err != nil {
		t.Fatalf("status %d: %v: %.200q", w.Code, err, w.Body)
	}
	var answer prompb.ReadResponse
	if err := answer.Unmarshal(raw); err != nil {
		t.Fatal(err)
	}
	if series := answer.Results[0].Timeseries; len(series) != 1 || len(series[0].Samples) != 3 ||
		series[0].Samples[2].Value != 2 {
		t.Errorf("got %v", series)
	}
}

func TestRemoteReadInChunks(t *testing.T) {
	live := httptest.NewServer(newServer(database(t)))
	defer live.Close()
	request := prompb.ReadRequest{
		AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{prompb.ReadRequest_STREAMED_XOR_CHUNKS},
		Queries: []*prompb.Query{{StartTimestampMs: base * 1000, EndTimestampMs: (base + 20) * 1000,
			Matchers: []*prompb.LabelMatcher{{Name: "code", Value: "500"}}}},
	}
	body, err := request.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, live.URL+prefix+"/read",
		strings.NewReader(string(snappy.Encode(nil, body))))
	if err != nil {
		t.Fatal(err)
	}
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil || !strings.HasPrefix(got.Header.Get("Content-Type"), "application/x-streamed-protobuf") ||
		!strings.Contains(string(text), "requests_total") {
		t.Errorf("got status %d, headers %v, body %q, error %v", got.StatusCode, got.Header, text, err)
	}
}

// A node that lacks samples answers 503, so that a gateway asks another node. Prometheus' handler alone would answer
// 500, as for any other error.
func TestRemoteReadAtANodeThatLacksSamples(t *testing.T) {
	request := prompb.ReadRequest{
		AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{prompb.ReadRequest_STREAMED_XOR_CHUNKS},
		Queries:               []*prompb.Query{{Matchers: []*prompb.LabelMatcher{{Name: "code", Value: "500"}}}},
	}
	body, err := request.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for err, want := range map[error]int{
		fmt.Errorf("a block is missing: %w", partial.ErrElsewhere): http.StatusServiceUnavailable,
		errors.New("the disk is broken"):                           http.StatusInternalServerError,
	} {
		s := newServer(chunksFail{err})
		w := s.ask(httptest.NewRequest(http.MethodPost, prefix+"/read", bytes.NewReader(snappy.Encode(nil, body))))
		if w.Code != want || !strings.Contains(w.Body.String(), err.Error()) {
			t.Errorf("%v: status %d, want %d; %s", err, w.Code, want, w.Body)
		}
	}
}

// chunksFail is a storage of which no chunks can be read.
type chunksFail struct{ err error }

func (f chunksFail) Querier(int64, int64) (storage.Querier, error) { return storage.NoopQuerier(), nil }

func (f chunksFail) ChunkQuerier(int64, int64) (storage.ChunkQuerier, error) {
	return failingChunks{storage.NoopChunkedQuerier(), f.err}, nil
}

type failingChunks struct {
	storage.ChunkQuerier
	err error
}

func (f failingChunks) Select(context.Context, bool, *storage.SelectHints, ...*labels.Matcher) storage.ChunkSeriesSet {
	return storage.ErrChunkSeriesSet(f.err)
}

// unzip returns the text of an answer, which may be compressed.
func unzip(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	var body io.Reader = w.Body
	if w.Header().Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatalf("status %d: %v", w.Code, err)
		}
		body = z
	}
	text, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
