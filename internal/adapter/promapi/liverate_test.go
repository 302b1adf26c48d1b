package promapi

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// liveAt is a set in which the newest sample of each series is live.
type liveAt struct {
	storage.SeriesSet
	at, width int64
}

func (l liveAt) LiveSample(_ labels.Labels, at int64) (width int64) {
	if at != l.at || at%l.width == 0 {
		return 0
	}
	return l.width
}

func (l liveAt) LiveAt(labels.Labels) (at int64, ok bool) { return l.at, l.at%l.width != 0 }

// Only a live sample is moved. The original samples in the engine's memory stay unchanged.
func TestLiveSampleAtARegularDistance(t *testing.T) {
	const width = 10_000
	for _, c := range []struct {
		why     string
		gauge   bool
		how     func(*parser.VectorSelector)
		live    int64  // time of the live sample in s; 0: none is live
		samples string // the range's samples, each as second=value
		ts      float64
		want    string // "" if the samples stay the same
	}{
		{why: "stored samples stay unchanged", samples: "20=1 30=2 40=3 43=4", ts: 43},
		{why: "a stored sample stays unchanged although other series have a live sample",
			live: 46, samples: "20=1 30=2 40=3 43=4", ts: 43},
		{why: "the end of a tile is not live", live: 40, samples: "20=1 30=2 40=3", ts: 43},
		{why: "the sample at the end of the last tile is left out",
			live: 43, samples: "20=1 30=2 40=3 43=4", ts: 43.25, want: "20=1 30=2 43=4"},
		{why: "it is also left out at a step after the live sample",
			live: 43, samples: "30=2 40=3 43=4", ts: 44, want: "30=2 43=4"},
		{why: "a live sample that is a tile away already has a regular distance",
			live: 43, samples: "20=1 30=2 43=4", ts: 43},
		{why: "a reset that only the sample at the end of the last tile shows",
			live: 43, samples: "20=9 30=10 40=0 43=4", ts: 43},
		{why: "a reset after the end of the last tile", live: 43, samples: "20=8 30=9 40=10 43=1", ts: 43},
		{why: "gauges fall without a reset", gauge: true, live: 43, samples: "20=9 30=8 40=7 43=5", ts: 43,
			want: "20=9 30=8 43=5"},
		{why: "of two samples, the live one is moved to the end of the range", live: 39, samples: "30=10 39=19", ts: 40,
			want: "30=10 40=20"},
		{why: "it is not moved if the series began after the start of the range", live: 49, samples: "45=0 49=4", ts: 50},
		{why: "it is not moved if the counter was reset", live: 39, samples: "30=10 39=1", ts: 40},
		{why: "or ended", live: 39, samples: "30=10 39=19", ts: 49.5},
		{why: "an anchored selector gets the samples unchanged", live: 43, samples: "20=1 30=2 40=3 43=4", ts: 43,
			how: func(vs *parser.VectorSelector) { vs.Anchored = true }},
		{why: "a smoothed selector gets the samples unchanged", live: 43, samples: "20=1 30=2 40=3 43=4", ts: 43,
			how: func(vs *parser.VectorSelector) { vs.Smoothed = true }},
		{why: "an offset moves the range", live: 39, samples: "30=10 39=19", ts: 50,
			how: func(vs *parser.VectorSelector) { vs.Offset = 10 * time.Second }, want: "30=10 40=20"},
	} {
		want := c.want
		if want == "" {
			want = c.samples
		}
		vs := &parser.VectorSelector{}
		if c.live > 0 {
			vs.UnexpandedSeriesSet = liveAt{at: c.live * 1000, width: width}
		}
		if c.how != nil {
			c.how(vs)
		}
		args := parser.Expressions{&parser.MatrixSelector{VectorSelector: vs, Range: 20 * time.Second}}
		enh := &promql.EvalNodeHelper{Ts: int64(c.ts * 1000)}
		for _, native := range []bool{false, true} {
			matrix := promql.Matrix{points(t, c.samples, native)}
			got := ""
			withLiveSample(func(_ []promql.Vector, m promql.Matrix, _ parser.Expressions,
				_ *promql.EvalNodeHelper) (promql.Vector, annotations.Annotations) {
				got = pointsText(m[0])
				return nil, nil
			}, !c.gauge)(nil, matrix, args, enh)
			if got != want {
				t.Errorf("%s (native %t): the function sees %s; want %s", c.why, native, got, want)
			}
			if after := pointsText(matrix[0]); after != c.samples {
				t.Errorf("%s (native %t): the engine's own samples changed to %s", c.why, native, after)
			}
		}
	}
}

func points(t *testing.T, text string, native bool) (s promql.Series) {
	t.Helper()
	for _, word := range strings.Fields(text) {
		var second int64
		var v float64
		if _, err := fmt.Sscanf(word, "%d=%g", &second, &v); err != nil {
			t.Fatal(err)
		}
		if native {
			h := &histogram.FloatHistogram{
				Count: v, Sum: v, PositiveSpans: []histogram.Span{{Length: 1}}, PositiveBuckets: []float64{v},
			}
			s.Histograms = append(s.Histograms, promql.HPoint{T: second * 1000, H: h})
		} else {
			s.Floats = append(s.Floats, promql.FPoint{T: second * 1000, F: v})
		}
	}
	return s
}

func pointsText(s promql.Series) string {
	var words []string
	for _, p := range s.Floats {
		words = append(words, fmt.Sprintf("%d=%g", p.T/1000, p.F))
	}
	for _, p := range s.Histograms {
		if !slices.Equal(p.H.PositiveBuckets, []float64{p.H.Count}) || p.H.Sum != p.H.Count {
			return p.H.String()
		}
		words = append(words, fmt.Sprintf("%d=%g", p.T/1000, p.H.Count))
	}
	return strings.Join(words, " ")
}

// liveQueryable makes the newest sample of each series live.
type liveQueryable struct {
	storage.SampleAndChunkQueryable
	at int64 // ms
}

func (q liveQueryable) Querier(mint, maxt int64) (storage.Querier, error) {
	of, err := q.SampleAndChunkQueryable.Querier(mint, maxt)
	return liveQuerier{of, q.at}, err
}

type liveQuerier struct {
	storage.Querier
	at int64
}

func (q liveQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints,
	matchers ...*labels.Matcher) storage.SeriesSet {
	return liveAt{q.Querier.Select(ctx, sorted, hints, matchers...), q.at, 10_000}
}

// The API's wrappers of series sets do not hide the live sample. The set, not each series, must report
// the live sample: if the engine needs only the counts of histograms, it wraps each series, and that
// wrapper would hide the live sample.
func TestLiveSampleThroughTheAPI(t *testing.T) {
	db := database(t)
	app := db.Appender(t.Context())
	_, err1 := app.Append(0, labels.FromStrings("__name__", "requests_total", "code", "500"), (base+303)*1000, 30.3)
	_, err2 := app.AppendHistogram(0, labels.FromStrings("__name__", "latency"), (base+303)*1000, nil,
		&histogram.FloatHistogram{
			Count: 4 * 30.3, Sum: 10 * 30.3, PositiveSpans: []histogram.Span{{Offset: 1, Length: 2}},
			PositiveBuckets: []float64{3 * 30.3, 30.3},
		})
	if err := errors.Join(err1, err2, app.Commit()); err != nil {
		t.Fatal(err)
	}
	s := newServer(liveQueryable{db, (base + 303) * 1000})
	for expr, want := range map[string]string{
		`round(rate(requests_total{code="500"}[20s]), 0.001)`: `"0.1"`,
		`round(histogram_count(rate(latency[20s])), 0.001)`:   `"0.4"`,
	} {
		e := decode(t, s.ask(get("/api/v1/query", url.Values{"query": {expr}, "time": {fmt.Sprint(base+303) + ".25"}})))
		if !strings.Contains(string(e.Data), want) {
			t.Errorf("%s: %s; want %s", expr, e.Data, want)
		}
	}
}
