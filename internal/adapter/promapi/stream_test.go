package promapi

import (
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	v1 "github.com/prometheus/prometheus/web/api/v1"

	"github.com/freshet-io/freshet/internal/core/querycost"
)

// matrixOf returns a matrix of at least one series. Each has some floats, some histograms, or both.
func matrixOf(r *rand.Rand, series int) (m promql.Matrix) {
	special := []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), 1e300, 5e-324, 1 << 53}
	for i := range series {
		s := promql.Series{Metric: labels.FromStrings("__name__", "x_total", "text", `<"`+string(rune('a'+i%900))+`"> `)}
		for n := range r.Int64N(1000) {
			f := r.NormFloat64()
			if r.IntN(9) == 0 {
				f = special[r.IntN(len(special))]
			}
			s.Floats = append(s.Floats, promql.FPoint{T: 1_700_000_000_000 + n*r.Int64N(2000), F: f})
		}
		for n := range r.Int64N(3) {
			h := &histogram.FloatHistogram{Schema: 3, Count: 3, Sum: r.Float64(), PositiveBuckets: []float64{1, 2},
				PositiveSpans: []histogram.Span{{Offset: int32(n), Length: 2}}}
			s.Histograms = append(s.Histograms, promql.HPoint{T: 1_800_000_000_000 + n, H: h})
		}
		m = append(m, s)
	}
	return m
}

func responseOf(m promql.Matrix) *v1.Response {
	return &v1.Response{Status: "success", Data: &v1.QueryData{ResultType: m.Type(), Result: m},
		Warnings: []string{`"result":[]`}, Infos: []string{"one", "two"}}
}

// A result that is written series by series has the bytes of Prometheus' own codec, also if the API has cut it to its
// first series.
func TestStreamedAnswersAreThoseOfPrometheus(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 7))
	for _, series := range []int{1, 2, 300} {
		s, to := &streams{}, httptest.NewRecorder()
		m := matrixOf(r, series)
		s.open(&promql.Result{Value: m}, newAnswer(to, querycost.Asker{}))
		m = m[:1+series/2]
		want, err := v1.JSONCodec{}.Encode(responseOf(m))
		if err != nil {
			t.Fatal(err)
		}
		rest, err := s.Encode(responseOf(m))
		if err != nil || len(rest) > 0 {
			t.Fatalf("%d bytes and %v are left, want none", len(rest), err)
		}
		if got := to.Body.String(); got != string(want) {
			t.Errorf("%d series are\n%.2000s\nwant\n%.2000s", len(m), got, want)
		}
		if is := to.Header().Get("Content-Type"); is != "application/json" {
			t.Errorf("the content type is %q", is)
		}
	}
}

// A result that is closed, or that nobody waits for, is encoded as a whole.
func TestOtherAnswersAreEncodedAsAWhole(t *testing.T) {
	s, to := &streams{}, httptest.NewRecorder()
	m := matrixOf(rand.New(rand.NewPCG(1, 8)), 3)
	s.open(&promql.Result{Value: m}, newAnswer(to, querycost.Asker{}))
	s.close(&promql.Result{Value: m})
	s.open(&promql.Result{Value: m}, nil)
	s.open(&promql.Result{Value: promql.Matrix{}}, newAnswer(to, querycost.Asker{}))
	for _, r := range []*v1.Response{responseOf(m), responseOf(promql.Matrix{}), {Status: "error", Error: "no"}} {
		want, err := v1.JSONCodec{}.Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.Encode(r); err != nil || string(got) != string(want) {
			t.Errorf("encoded as %.2000s, %v; want %.2000s", got, err, want)
		}
	}
	if to.Body.Len() > 0 {
		t.Errorf("%.2000s was written", to.Body)
	}
}

// leaving is a client that goes away after some writes.
type leaving struct {
	http.ResponseWriter
	writes, after int
}

func (l *leaving) Write(b []byte) (int, error) {
	if l.writes++; l.writes > l.after {
		return 0, errors.New("broken pipe")
	}
	return len(b), nil
}

// Once the client has gone, no more of the result is encoded.
func TestNothingIsEncodedForAClientThatHasGone(t *testing.T) {
	s, to := &streams{}, &leaving{ResponseWriter: httptest.NewRecorder(), after: 3}
	m := matrixOf(rand.New(rand.NewPCG(1, 9)), 300)
	s.open(&promql.Result{Value: m}, newAnswer(to, querycost.Asker{}))
	if rest, err := s.Encode(responseOf(m)); err != nil || len(rest) > 0 {
		t.Errorf("%d bytes and %v are left, want none", len(rest), err)
	}
	if to.writes != to.after+1 {
		t.Errorf("%d writes, want %d", to.writes, to.after+1)
	}
}

// A client that takes compressed answers gets one compressed body with the same text, and nothing behind it.
func TestStreamedAnswersAreCompressed(t *testing.T) {
	s := newServer(database(t))
	ask := func(encoding string) *httptest.ResponseRecorder {
		r := get(prefix+"/query_range", url.Values{"query": {"requests_total"}, "start": {"1700000000"},
			"end": {"1700000300"}, "step": {"10"}})
		r.Header.Set("Accept-Encoding", encoding)
		return s.ask(r)
	}
	want := ask("").Body.String()
	if !strings.Contains(want, `"values":[[`) {
		t.Fatalf("the answer is %s", want)
	}
	for encoding, open := range map[string]func(io.Reader) (io.Reader, error){
		"gzip": func(r io.Reader) (io.Reader, error) {
			z, err := gzip.NewReader(r)
			if err == nil {
				z.Multistream(false)
			}
			return z, err
		},
		"deflate": func(r io.Reader) (io.Reader, error) { return zlib.NewReader(r) },
	} {
		answer := ask(encoding)
		body, err := open(answer.Body)
		if err != nil {
			t.Errorf("%s: %v", encoding, err)
			continue
		}
		got, err := io.ReadAll(body)
		if err != nil || string(got) != want || answer.Body.Len() > 0 || answer.Header().Get("Content-Encoding") != encoding {
			t.Errorf("%s: %v, %d bytes behind it, header %v\n got %s\nwant %s", encoding, err, answer.Body.Len(),
				answer.Header(), got, want)
		}
	}
}
