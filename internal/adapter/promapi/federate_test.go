package promapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
	"google.golang.org/protobuf/encoding/protojson"
)

func (s *server) federate(accept string, match ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, federatePath+"?"+url.Values{"match[]": match}.Encode(), nil)
	r.Header.Set("Accept", accept)
	return s.ask(r)
}

// Answers equal those of web/federate.go in Prometheus 3.15.
func TestFederate(t *testing.T) {
	db := database(t)
	app := db.Appender(t.Context())
	custom := &histogram.FloatHistogram{Schema: histogram.CustomBucketsSchema, Count: 6, Sum: 9,
		CustomValues:  []float64{1, 2, 5},
		PositiveSpans: []histogram.Span{{Offset: 0, Length: 1}, {Offset: 1, Length: 2}}, PositiveBuckets: []float64{1, 2, 3}}
	add := func(name string, at int64, v float64) {
		if _, err := app.Append(0, labels.FromStrings("__name__", name), at*1000, v); err != nil {
			t.Fatal(err)
		}
	}
	add("ended", base+290, 1)
	add("ended", base+300, math.Float64frombits(value.StaleNaN))
	add("ahead", base+300, 1)
	add("ahead", base+330, 2)
	_, err := app.AppendHistogram(0, labels.FromStrings("__name__", "classic", "instance", "i"), (base+300)*1000, nil,
		custom)
	if err == nil {
		err = app.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(db)
	for _, c := range []struct {
		why   string
		match []string
		want  string
	}{
		{"newest of each, sorted by name", []string{`requests_total`, `{code="500"}`, "ended", "ahead"}, `# TYPE ahead untyped
ahead{instance=""} 1 1700000300000
# TYPE requests_total untyped
requests_total{code="200",instance=""} 300 1700000300000
requests_total{code="500",instance=""} 30 1700000300000
`},
		{"text has no native histograms, and names are escaped unless the client asks for UTF-8",
			[]string{`{__name__=~"latency|http.duration"}`}, `# TYPE http_duration untyped
http_duration{service_name="a/b",instance=""} 1 1700000300000
`},
		{"custom buckets are classic ones", []string{`classic`}, `# TYPE classic histogram
classic_bucket{instance="i",le="1"} 1 1700000300000
classic_bucket{instance="i",le="2"} 1 1700000300000
classic_bucket{instance="i",le="5"} 3 1700000300000
classic_bucket{instance="i",le="+Inf"} 6 1700000300000
classic_sum{instance="i"} 9 1700000300000
classic_count{instance="i"} 6 1700000300000
`},
		{"nothing asked", nil, ""},
	} {
		if w := s.federate("text/plain;version=0.0.4", c.match...); w.Code != 200 || w.Body.String() != c.want {
			t.Errorf("%s: %d\n%s\nwant\n%s", c.why, w.Code, w.Body, c.want)
		}
	}
	if w := s.federate("", "{"); w.Code != 400 {
		t.Errorf("a malformed match[] got status %d, want 400", w.Code)
	}
	later := newServer(db, func(_ *Config, o *Options) { o.Now = func() time.Time { return time.Unix(base+700, 0) } })
	if w := later.federate("", `requests_total`); w.Code != 200 || w.Body.Len() != 0 {
		t.Errorf("after the look-back: got %d %q, want 200 and no series", w.Code, w.Body)
	}
}

// lacking is a storage in which one store cannot be read.
type lacking struct {
	storage.SampleAndChunkQueryable
}

type lackingQuerier struct{ storage.Querier }

type lackingSet struct{ storage.SeriesSet }

func (l lacking) Querier(mint, maxt int64) (storage.Querier, error) {
	q, err := l.SampleAndChunkQueryable.Querier(mint, maxt)
	return lackingQuerier{q}, err
}

func (q lackingQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints,
	m ...*labels.Matcher) storage.SeriesSet {
	return lackingSet{q.Querier.Select(ctx, sorted, hints, m...)}
}

func (lackingSet) Warnings() annotations.Annotations {
	return annotations.New().Add(errors.New("store raw cannot be opened"))
}

// The scraper treats a missing series as ended, so an answer with missing data has a
// warning.
func TestFederateWarns(t *testing.T) {
	w := newServer(lacking{database(t)}).federate("", "requests_total")
	if got, want := w.Header().Get("Warning"), `199 freshet "store raw cannot be opened"`; w.Code != 200 ||
		w.Body.Len() == 0 || got != want {
		t.Errorf("got status %d and the header Warning: %s, want 200 and %s", w.Code, got, want)
	}
	if got := newServer(database(t)).federate("", "requests_total").Header()["Warning"]; got != nil {
		t.Errorf("got the header Warning: %s although no data is missing", got)
	}
}

// A Prometheus that scrapes native histograms asks for protobuf. The answer then has native histograms.
func TestFederateNativeHistograms(t *testing.T) {
	s := newServer(database(t))
	w := s.federate("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;"+
		"encoding=delimited;q=0.7,text/plain;q=0.3", "latency")
	var got dto.MetricFamily
	if err := expfmt.NewDecoder(bytes.NewReader(w.Body.Bytes()), expfmt.ResponseFormat(w.Header())).Decode(&got); err !=
		nil {
		t.Fatalf("an answer with status %d and type %q cannot be decoded: %v",
			w.Code, w.Header().Get("Content-Type"), err)
	}
	text, err := protojson.Marshal(&got)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"name":"latency","type":"HISTOGRAM","metric":[{"label":[{"name":"instance","value":""}],` +
		`"histogram":{"sampleCountFloat":120,"sampleSum":300,"schema":0,` +
		`"zeroThreshold":0,"zeroCountFloat":0,"positiveSpan":[{"offset":1,"length":2}],"positiveCount":[90,30]},` +
		`"timestampMs":"1700000300000"}]}`
	if strings.ReplaceAll(string(text), " ", "") != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	if got := fmt.Sprint(w.Header()["Content-Type"]); !strings.Contains(got, "delimited") {
		t.Error(got)
	}
}

// A request for more series than fit into memory gets an error that says so.
func TestFederateTooMany(t *testing.T) {
	s := newServer(fakeSeries(40_000, 0), func(cfg *Config, _ *Options) { cfg.MaxMemory = 64 << 20 })
	if w := s.federate("", "x"); w.Code != http.StatusUnprocessableEntity ||
		!strings.Contains(w.Body.String(), "query.max_memory") {
		t.Errorf("status %d %.300s", w.Code, w.Body)
	}
	s.nothingHeld(t)
}
