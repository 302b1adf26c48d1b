package promapi

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	v1 "github.com/prometheus/prometheus/web/api/v1"

	"github.com/freshet-io/freshet/internal/core/catalogue"
	"github.com/freshet-io/freshet/internal/core/sender"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tenant"
)

// base is the time of the first sample of all series, in Unix seconds.
const base = 1_700_000_000

// database is a TSDB with 31 samples, 10 s apart, of
//
//	requests_total{code="200"}   0, 10, ... 300    requests_total{code="500"}   0, 1, ... 30
//	latency                      a native histogram of 0, 4, ... 120 observations
//	http.duration{service.name="a/b"}   1, and an exemplar of requests_total{code="500"}
func database(t testing.TB) *tsdb.DB {
	options := tsdb.DefaultOptions()
	options.EnableExemplarStorage, options.MaxExemplars, options.StripeSize = true, 10, 16
	db, err := tsdb.Open(t.TempDir(), nil, nil, options, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	app := db.Appender(context.Background())
	add := func(ls labels.Labels, at int64, v float64, h *histogram.FloatHistogram) {
		var err error
		if h != nil {
			_, err = app.AppendHistogram(0, ls, at*1000, nil, h)
		} else {
			_, err = app.Append(0, ls, at*1000, v)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	failures := labels.FromStrings("__name__", "requests_total", "code", "500")
	for i := range int64(31) {
		at, n := base+10*i, float64(i)
		add(labels.FromStrings("__name__", "requests_total", "code", "200"), at, 10*n, nil)
		add(failures, at, n, nil)
		add(labels.FromStrings("__name__", "http.duration", "service.name", "a/b"), at, 1, nil)
		add(labels.FromStrings("__name__", "latency"), at, 0, &histogram.FloatHistogram{
			Schema: 0, Count: 4 * n, Sum: 10 * n,
			PositiveSpans: []histogram.Span{{Offset: 1, Length: 2}}, PositiveBuckets: []float64{3 * n, n},
		})
	}
	if _, err := app.AppendExemplar(0, failures, exemplar.Exemplar{
		Labels: labels.FromStrings("trace_id", "t1"), Value: 1, Ts: (base + 100) * 1000, HasTs: true,
	}); err != nil {
		t.Fatal(err)
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	return db
}

// families is a FamilySource of the tenant "default".
type families map[string]metadata.Metadata

func (f families) All(name string, yield func(string, metadata.Metadata) bool) {
	for _, metric := range slices.Sorted(maps.Keys(f)) {
		if name == "default" && !yield(metric, f[metric]) {
			return
		}
	}
}

// catalogued is a MetadataSource of the tenant "default".
type catalogued []catalogue.Metric

func (c catalogued) Metadata(name string) []catalogue.Metric {
	if name != tenant.Default {
		return nil
	}
	return c
}

// statsOf gives the figures of several databases.
type statsOf []*tsdb.DB

func (s statsOf) Stats(_ string, limit int) ([]*tsdb.Stats, error) {
	var all []*tsdb.Stats
	for _, db := range s {
		all = append(all, db.Head().Stats(model.MetricNameLabel, limit))
	}
	return all, nil
}

type noExemplars struct{}

func (n noExemplars) ExemplarQuerier(context.Context) (storage.ExemplarQuerier, error) { return n, nil }

func (noExemplars) Select(int64, int64, ...[]*labels.Matcher) ([]exemplar.QueryResult, error) {
	return nil, nil
}

// server is the API that a test queries.
type server struct {
	http.Handler
	options Options
	reg     *prometheus.Registry
}

// newServer returns an API over `q`. Each `change` may alter the usual options.
func newServer(q storage.SampleAndChunkQueryable, change ...func(*Config, *Options)) *server {
	cfg := DefaultConfig()
	reg := prometheus.NewRegistry()
	logger := slog.New(slog.DiscardHandler)
	o := Options{
		Queryable:  q,
		Exemplars:  noExemplars{},
		Metadata:   catalogued{{Name: "requests_total", Kind: series.Counter}},
		Families:   families{},
		Stats:      statsOf{},
		Rules:      NoRules,
		Tenant:     func(*http.Request) string { return tenant.Default },
		Sender:     func(r *http.Request) sender.Sender { return sender.Of(r.RemoteAddr, r.UserAgent()) },
		Ready:      func() error { return nil },
		Now:        func() time.Time { return time.Unix(base+310, 0) },
		Build:      v1.PrometheusVersion{Version: "1.2.3", GoVersion: "go1.26"},
		Runtime:    func() (v1.RuntimeInfo, error) { return v1.RuntimeInfo{StorageRetention: "40d"}, nil },
		Config:     func() string { return "data_dir: data\n" },
		Flags:      map[string]string{"data-dir": "data"},
		Logger:     logger,
		Registerer: reg,
	}
	for _, f := range change {
		f(&cfg, &o)
	}
	o.Engine = NewEngine(cfg, Memory{Bytes: 2 << 30, Of: "a quarter of this test"}, logger, reg)
	return &server{New(o), o, reg}
}

// get and post make requests. They put the parameters where Grafana puts them: get in the URL, and post
// in the body as a form.
func get(path string, form url.Values) *http.Request {
	return httptest.NewRequest(http.MethodGet, path+"?"+form.Encode(), nil)
}

func post(path string, form url.Values) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r
}

func (s *server) ask(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// failures returns the count of failed queries.
func (s *server) failures(t *testing.T, reason string) float64 {
	t.Helper()
	families, err := s.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "freshet_query_failures_total" && m.GetLabel()[0].GetValue() == reason {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("no counter of failures with reason %s", reason)
	return 0
}

// envelope is the form of all answers.
type envelope struct {
	Status    string          `json:"status"`
	Data      json.RawMessage `json:"data"`
	ErrorType string          `json:"errorType"`
	Error     string          `json:"error"`
}

func decode(t *testing.T, w *httptest.ResponseRecorder) envelope {
	t.Helper()
	var e envelope
	if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil {
		t.Fatalf("status %d: %v: %.200q", w.Code, err, w.Body)
	}
	return e
}

func TestQueries(t *testing.T) {
	db := database(t)
	s := newServer(db, func(_ *Config, o *Options) { o.Exemplars = db })
	at := func(query, time string) url.Values { return url.Values{"query": {query}, "time": {time}} }
	const end = "1700000300"
	for _, c := range []struct {
		why, path string
		form      url.Values
		want      string
	}{
		{"the health check of Grafana asks at the beginning of time", "query", at("1+1", "4"),
			`{"resultType":"scalar","result":[4,"2"]}`},
		{"an instant", "query", at("sum(requests_total)", end),
			`{"resultType":"vector","result":[{"metric":{},"value":[1700000300,"330"]}]}`},
		{"a plain increase extrapolates", "query", at(`increase(requests_total{code="500"}[45s])`, end),
			`{"resultType":"vector","result":[{"metric":{"code":"500"},"value":[1700000300,"4.5"]}]}`},
		{"an anchored increase does not extrapolate", "query", at(`increase(requests_total{code="500"}[45s] anchored)`, end),
			`{"resultType":"vector","result":[{"metric":{"code":"500"},"value":[1700000300,"5"]}]}`},
		{"a smoothed increase interpolates", "query", at(`increase(requests_total{code="500"}[45s] smoothed)`, "1700000200"),
			`{"resultType":"vector","result":[{"metric":{"code":"500"},"value":[1700000200,"4.5"]}]}`},
		{"a native histogram", "query", at("latency", "1700000010"),
			`{"resultType":"vector","result":[{"metric":{"__name__":"latency"},"histogram":[1700000010,{"count":"4",` +
				`"sum":"10","buckets":[[0,"1","2","3"],[0,"2","4","1"]]}]}]}`},
		{"a native histogram over time", "query_range",
			url.Values{"query": {"latency"}, "start": {"1700000010"}, "end": {"1700000010"}, "step": {"1"}},
			`{"resultType":"matrix","result":[{"metric":{"__name__":"latency"},"histograms":[[1700000010,{"count":"4",` +
				`"sum":"10","buckets":[[0,"1","2","3"],[0,"2","4","1"]]}]]}]}`},
		{"a quantile of a native histogram", "query", at("histogram_quantile(0.75, latency)", end),
			`{"resultType":"vector","result":[{"metric":{},"value":[1700000300,"2"]}]}`},
		{"names with any characters", "query", at(`{"http.duration", "service.name"="a/b"}`, end),
			`{"resultType":"vector","result":[{"metric":{"__name__":"http.duration","service.name":"a/b"},` +
				`"value":[1700000300,"1"]}]}`},
		{"a range, whose times may have fractions", "query_range",
			url.Values{
				"query": {`requests_total{code="500"}`}, "start": {"1700000000.000"}, "end": {"1700000020"}, "step": {"10.0"},
				"timeout": {"30s"},
			},
			`{"resultType":"matrix","result":[{"metric":{"__name__":"requests_total","code":"500"},"values":[[1700000000,` +
				`"0"],[1700000010,"1"],[1700000020,"2"]]}]}`},
		{"a subquery without a step", "query", at(`max_over_time(requests_total{code="500"}[2m:])`, end),
			`{"resultType":"vector","result":[{"metric":{"code":"500"},"value":[1700000300,"28"]}]}`},
		{"exemplars", "query_exemplars", url.Values{"query": {"requests_total"}, "start": {"1700000000"}, "end": {end}},
			`[{"seriesLabels":{"__name__":"requests_total","code":"500"},"exemplars":[{"labels":{"trace_id":"t1"},` +
				`"value":"1","timestamp":1700000100}]}]`},
		{"no exemplars", "query_exemplars", url.Values{"query": {"latency"}, "start": {"1700000000"}, "end": {end}}, `[]`},
		{"label names", "labels", url.Values{"start": {"1700000000"}, "end": {end}}, `["__name__","code","service.name"]`},
		{"of some series", "labels", url.Values{"match[]": {"requests_total", "latency"}}, `["__name__","code"]`},
		{"at most one label name", "labels", url.Values{"limit": {"1"}}, `["__name__"]`},
		{"series", "series", url.Values{"match[]": {`requests_total{code="500"}`, "latency"}},
			`[{"__name__":"latency"},{"__name__":"requests_total","code":"500"}]`},
		{"format", "format_query", url.Values{"query": {"sum(x)by(a)"}}, `"sum by (a) (x)"`},
		{"parse", "parse_query", url.Values{"query": {"1"}}, `{"type":"numberLiteral","val":"1"}`},
	} {
		for _, r := range []*http.Request{get(prefix+"/"+c.path, c.form), post(prefix+"/"+c.path, c.form)} {
			w := s.ask(r)
			if e := decode(t, w); w.Code != http.StatusOK || e.Status != "success" || string(e.Data) != c.want {
				t.Errorf("%s: %s %s %v: status %d %s\n got %s\nwant %s",
					c.why, r.Method, c.path, c.form, w.Code, e.Error, e.Data, c.want)
			}
		}
	}
}

func TestNoExemplarsAreAList(t *testing.T) {
	e := decode(t, newServer(database(t)).ask(get(prefix+"/query_exemplars", url.Values{"query": {"x"}})))
	if string(e.Data) != "[]" {
		t.Errorf("got %s", e.Data)
	}
}

func TestLabelValues(t *testing.T) {
	s := newServer(database(t))
	for _, c := range []struct{ why, path, want string }{
		{"names of metrics", "__name__/values", `["http.duration","latency","requests_total"]`},
		{"of some series", "code/values?match[]=requests_total&start=1700000000&end=1700000300", `["200","500"]`},
		{"a name that is escaped, as Grafana does", "U__service_2e_name/values", `["a/b"]`},
		{"a name that is not escaped", "service.name/values", `["a/b"]`},
		{"no such label", "nothing/values", `[]`},
		{"a slash in a name does not split the path", "service%2Fname/values", `[]`},
		{"a few", "__name__/values?limit=1", `["http.duration"]`},
	} {
		w := s.ask(httptest.NewRequest(http.MethodGet, prefix+"/label/"+c.path, nil))
		if e := decode(t, w); w.Code != http.StatusOK || string(e.Data) != c.want {
			t.Errorf("%s: %s: status %d %s: got %s, want %s", c.why, c.path, w.Code, e.Error, e.Data, c.want)
		}
	}
}

func TestMetadata(t *testing.T) {
	s := newServer(database(t), func(_ *Config, o *Options) {
		o.Metadata = catalogued{
			{Name: "checks", Kind: series.Check, Help: "0 is well"},
			{Name: "latency", Kind: series.Timer, Unit: "seconds", Help: "of <requests>"},
			{Name: "requests", Kind: series.Counter},
			{Name: "requests", Kind: series.Counter},
			{Name: "requests", Kind: series.Gauge},
			{Name: "visitors", Kind: series.Set},
		}
		o.Families = families{
			"checks": {Type: "gauge", Help: "0 is well"}, "latency": {Type: "counter"}, "up": {Type: "gauge", Help: "sent"},
		}
		o.Tenant = func(r *http.Request) string { return r.Header.Get("Tenant-Of-This-Test") }
	})
	const (
		checks  = `"checks":[{"type":"gauge","unit":"","help":"0 is well"}]`
		latency = `"latency":[{"type":"histogram","unit":"seconds","help":"of \u003crequests\u003e"},{"type":"counter",` +
			`"unit":"","help":""}]`
		up       = `"up":[{"type":"gauge","unit":"","help":"sent"}]`
		requests = `"requests":[{"type":"counter","unit":"","help":""},{"type":"gauge","unit":"","help":""}]`
		visitors = `"visitors":[{"type":"gauge","unit":"","help":""}]`
	)
	for _, c := range []struct {
		why, query, want string
		status           int
	}{
		{"all, each kind with Prometheus' word for it, nothing twice",
			"", "{" + checks + "," + latency + "," + requests + "," + up + "," + visitors + "}", 200},
		{"one metric", "metric=latency", "{" + latency + "}", 200},
		{"a metric whose metadata the sender gave", "metric=up", "{" + up + "}", 200},
		{"an unknown metric", "metric=nothing", "{}", 200},
		{"a limit of names", "limit=2", "{" + checks + "," + latency + "}", 200},
		{"the limit counts names, not metrics", "limit=3", "{" + checks + "," + latency + "," + requests + "}", 200},
		{"no names at all", "limit=0", "{}", 200},
		{"a negative limit means no limit", "limit=-1&metric=latency", "{" + latency + "}", 200},
		{"a limit of metrics for each name",
			"limit_per_metric=1&metric=requests", `{"requests":[{"type":"counter","unit":"","help":""}]}`,
			200},
		{"limit_per_metric=0 means all", "limit_per_metric=0&metric=requests", "{" + requests + "}", 200},
		{"not a number", "limit=x", "limit must be a number", 400},
		{"limit_per_metric is not a whole number", "limit_per_metric=1.5", "limit_per_metric must be a number", 400},
	} {
		r := httptest.NewRequest(http.MethodGet, prefix+"/metadata?"+c.query, nil)
		r.Header.Set("Tenant-Of-This-Test", tenant.Default)
		w := s.ask(r)
		e := decode(t, w)
		if got := string(e.Data) + e.Error; w.Code != c.status || got != c.want {
			t.Errorf("%s: status %d\n got %s\nwant %s", c.why, w.Code, got, c.want)
		}
	}
	r := httptest.NewRequest(http.MethodGet, prefix+"/metadata", nil)
	r.Header.Set("Tenant-Of-This-Test", "another")
	if e := decode(t, s.ask(r)); string(e.Data) != "{}" {
		t.Errorf("another tenant sees %s, want {}", e.Data)
	}
}

func TestStatus(t *testing.T) {
	s := newServer(database(t), func(_ *Config, o *Options) { o.Stats = statsOf{database(t), database(t)} })
	for _, c := range []struct{ why, path, want string }{
		{"buildinfo has no features, by which Grafana recognises Mimir", "status/buildinfo",
			`{"version":"1.2.3","revision":"","branch":"","buildUser":"","buildDate":"","goVersion":"go1.26"}`},
		{"configuration", "status/config", `{"yaml":"data_dir: data\n"}`},
		{"flags", "status/flags", `{"data-dir":"data"}`},
		{"no replay is running when the API answers", "status/walreplay", `{"current":0,"max":0,"min":0}`},
		{"figures of two stores are added up", "status/tsdb?limit=2",
			`{"headStats":{"numSeries":8,"numLabelPairs":12,"minTime":1700000000000,"maxTime":1700000300000},` +
				`"seriesCountByMetricName":[{"name":"requests_total","value":4},{"name":"http.duration","value":2}],` +
				`"labelValueCountByLabelName":[{"name":"__name__","value":6},{"name":"code","value":4}],` +
				`"memoryInBytesByLabelName":[{"name":"__name__","value":176},{"name":"code","value":36}],` +
				`"seriesCountByLabelValuePair":[{"name":"__name__=requests_total","value":4},` +
				`{"name":"__name__=http.duration","value":2}]}`},
		{"no targets", "targets", `{"activeTargets":[],"droppedTargets":[],"droppedTargetCounts":{}}`},
		{"there are no targets", "targets/metadata", `[]`},
		{"no pools", "scrape_pools", `{"scrapePools":[]}`},
		{"no Alertmanagers", "alertmanagers", `{"activeAlertmanagers":[],"droppedAlertmanagers":[]}`},
		{"no rules", "rules?type=alert", `{"groups":[]}`},
		{"no alerts", "alerts", `{"alerts":[]}`},
	} {
		w := s.ask(httptest.NewRequest(http.MethodGet, prefix+"/"+c.path, nil))
		if e := decode(t, w); w.Code != http.StatusOK || string(e.Data) != c.want {
			t.Errorf("%s: %s: status %d %s\n got %s\nwant %s", c.why, c.path, w.Code, e.Error, e.Data, c.want)
		}
	}
	w := s.ask(httptest.NewRequest(http.MethodGet, prefix+"/notifications", nil))
	if e := decode(t, w); string(e.Data) != "[]" {
		t.Errorf("notifications: %s", w.Body)
	}
	var features map[string]map[string]bool
	if e := decode(t, s.ask(httptest.NewRequest(http.MethodGet, prefix+"/features", nil))); json.Unmarshal(e.Data,
		&features) != nil ||
		!features["promql"]["anchored"] || !features["promql_functions"]["rate"] ||
		features["promql_functions"]["double_exponential_smoothing"] || !features["api"]["remote_write_receiver"] {
		t.Errorf("features: %s", e.Data)
	}
	var info v1.RuntimeInfo
	e := decode(t, s.ask(httptest.NewRequest(http.MethodGet, prefix+"/status/runtimeinfo", nil)))
	if err := json.Unmarshal(e.Data, &info); err != nil || info.StorageRetention != "40d" {
		t.Errorf("runtimeinfo: %s: %v", e.Data, err)
	}
	for _, limit := range []string{"0", "10001", "x"} {
		if w := s.ask(httptest.NewRequest(http.MethodGet, prefix+"/status/tsdb?limit="+limit, nil)); w.Code !=
			http.StatusBadRequest {
			t.Errorf("status/tsdb with limit %s: status %d", limit, w.Code)
		}
	}
}

// The API itself never allows another origin to read its answers. The handler in front of the API
// decides about origins.
func TestCompressionAndOrigin(t *testing.T) {
	s := newServer(database(t))
	for _, path := range []string{"/query?query=1", "/metadata", "/nothing"} {
		r := httptest.NewRequest(http.MethodGet, prefix+path, nil)
		r.Header.Set("Accept-Encoding", "gzip")
		r.Header.Set("Origin", "http://example.com")
		w := s.ask(r)
		if got := w.Header().Get("Access-Control-Allow-Origin"); got != "" {
			t.Errorf("%s: pages of origin %q may read the answer", path, got)
		}
		if path == "/nothing" {
			continue
		}
		z, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if text, err := io.ReadAll(z); err != nil || !strings.HasPrefix(string(text), `{"status":"success"`) {
			t.Errorf("%s: %s: %v", path, text, err)
		}
	}
	r := httptest.NewRequest(http.MethodOptions, prefix+"/query", nil)
	r.Header.Set("Origin", "http://example.com")
	if w := s.ask(r); w.Code != http.StatusNoContent || w.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("preflight: got status %d, headers %v", w.Code, w.Header())
	}
}

func TestNotReady(t *testing.T) {
	s := newServer(database(t), func(_ *Config, o *Options) {
		o.Ready = func() error { return errors.New("replaying the journal") }
	})
	for _, path := range []string{"/query?query=1", "/metadata", "/status/buildinfo"} {
		w := s.ask(httptest.NewRequest(http.MethodGet, prefix+path, nil))
		if e := decode(t, w); w.Code != http.StatusServiceUnavailable || e.ErrorType != "unavailable" ||
			e.Error != "replaying the journal" {
			t.Errorf("%s: status %d, %+v", path, w.Code, e)
		}
	}
}

// selects is a storage whose Select calls the function.
type selects func(ctx context.Context) storage.SeriesSet

func (f selects) Querier(int64, int64) (storage.Querier, error) {
	return selector{storage.NoopQuerier(), f}, nil
}

func (f selects) ChunkQuerier(int64, int64) (storage.ChunkQuerier, error) {
	return storage.NoopChunkedQuerier(), nil
}

type selector struct {
	storage.Querier
	f selects
}

func (s selector) Select(ctx context.Context, _ bool, _ *storage.SelectHints, _ ...*labels.Matcher) storage.SeriesSet {
	return s.f(ctx)
}

func TestTenantReachesTheStorage(t *testing.T) {
	var asked []string
	s := newServer(selects(func(ctx context.Context) storage.SeriesSet {
		name, _ := tenant.FromContext(ctx)
		asked = append(asked, name)
		return storage.EmptySeriesSet()
	}), func(_ *Config, o *Options) { o.Tenant = func(*http.Request) string { return "acme" } })
	s.ask(get(prefix+"/query", url.Values{"query": {"x"}}))
	s.ask(get(prefix+"/series", url.Values{"match[]": {"x"}}))
	if len(asked) != 2 || asked[0] != "acme" || asked[1] != "acme" {
		t.Errorf("the storage was asked for the tenants %q, want acme twice", asked)
	}
}

func TestConcurrentQueries(t *testing.T) {
	db := database(t)
	s := newServer(db, func(cfg *Config, o *Options) { cfg.MaxConcurrency, o.Exemplars = 2, db })
	live := httptest.NewServer(s)
	defer live.Close()
	queries := []string{"sum(rate(requests_total[1m] anchored))", "latency", "max_over_time(requests_total[5m:1s])",
		strings.Repeat("(", 1000), "count_over_time(vector(1)[1000d:1ms])"}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 20 {
				query := queries[(i+j)%len(queries)]
				answer, err := http.PostForm(live.URL+prefix+"/query", url.Values{"query": {query}, "time": {"1700000300"}})
				if err != nil {
					t.Errorf("%.40s: %v", query, err)
					continue
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
				want := http.StatusOK
				if (i+j)%len(queries) >= 3 {
					want = http.StatusBadRequest
				}
				if answer.StatusCode != want {
					t.Errorf("%.40s: status %d, want %d", query, answer.StatusCode, want)
				}
			}
		})
	}
	wg.Wait()
}

// Earlier, the API read nonsensical numbers as an arbitrary time, and answered with
// 200.
func TestSenselessParameters(t *testing.T) {
	s := newServer(database(t))
	for _, c := range []struct {
		ask    string
		status int
		kind   string
		text   string
	}{
		{"/query?query=1&time=NaN", 400, "bad_data", `invalid parameter "time": "NaN" is not a time`},
		{"/query?query=1&time=1e300", 400, "bad_data", `"1e300" is not a time`},
		{"/query?query=1&time=1e999", 400, "bad_data", `"1e999" is not a time`},
		{"/query?query=1&time=-Inf", 400, "bad_data", `"-Inf" is not a time`},
		{"/query_range?query=1&start=NaN&end=10&step=1", 400, "bad_data", `invalid parameter "start"`},
		{"/query_range?query=1&start=0&end=1e17&step=1", 400, "bad_data", `invalid parameter "end"`},
		{"/query_range?query=1&start=0&end=10&step=NaN", 400, "bad_data", `invalid parameter "step"`},
		{"/query?query=1&timeout=NaN", 400, "bad_data", `invalid parameter "timeout"`},
		{"/labels?start=NaN", 400, "bad_data", `invalid parameter "start"`},
		{"/series?match[]=up&end=1e300", 400, "bad_data", `invalid parameter "end"`},
		{"/label/code/values?start=Inf", 400, "bad_data", `invalid parameter "start"`},
		{"/query_exemplars?query=up&start=1e300", 400, "bad_data", `invalid parameter "start"`},

		// Prometheus 3.15 always gives these same answers.
		{"/query?query=1&timeout=0", 422, "execution", "context deadline exceeded"},
		{"/query?query=1&timeout=0s", 422, "execution", "context deadline exceeded"},
		{"/query_range?query=1&start=0&end=10&step=1&timeout=0", 422, "execution", "context deadline exceeded"},
		{"/query?query=1&timeout=-1", 400, "bad_data", "context deadline exceeded"},

		{"/query?query=1&time=9e9", 200, "", ""},
		{"/query?query=1&time=2026-11-22T10:00:00Z&timeout=10", 200, "", ""},
		{"/query?query=1&time=never", 400, "bad_data", `invalid parameter "time"`},
	} {
		w := s.ask(httptest.NewRequest(http.MethodGet, prefix+c.ask, nil))
		e := decode(t, w)
		if w.Code != c.status || e.ErrorType != c.kind || !strings.Contains(e.Error, c.text) {
			t.Errorf("%s: %d %+v", c.ask, w.Code, e)
		}
	}
}

// Experimental functions work only if the configuration turns them on.
func TestExperimentalFunctions(t *testing.T) {
	db := database(t)
	for on, want := range map[bool]int{false: 400, true: 200} {
		s := newServer(db, func(c *Config, _ *Options) { c.Experimental = on })
		for query, refusal := range map[string]string{
			"1 + mad_over_time(requests_total[5m])": `1:5: parse error: function "mad_over_time" is not enabled: ` +
				`it is experimental and must be enabled with query.experimental: true in the configuration`,
			"1 + limitk(1, requests_total)": `1:5: parse error: limitk() is experimental and must be enabled with ` +
				`query.experimental: true in the configuration`,
		} {
			w := s.ask(get(prefix+"/query", url.Values{"query": {query}, "time": {"1700000300"}}))
			if w.Code != want {
				t.Errorf("experimental %v: %s: %d %s", on, query, w.Code, w.Body)
			}
			if e := decode(t, w); !on && !strings.HasSuffix(e.Error, refusal) {
				t.Errorf("%s: %s; want %s", query, e.Error, refusal)
			}
		}
		var features map[string]map[string]bool
		e := decode(t, s.ask(get(prefix+"/features", nil)))
		if err := json.Unmarshal(e.Data, &features); err != nil || features["promql_functions"]["mad_over_time"] != on {
			t.Errorf("experimental %v: the list of features has mad_over_time as %v; error %v", on,
				features["promql_functions"]["mad_over_time"], err)
		}
	}
}
