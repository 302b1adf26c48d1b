package promqladvice

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
)

// prometheus answers as Prometheus' own engine does, so that the advice is about what a server really says.
type prometheus struct {
	engine *promql.Engine
	store  storage.Queryable
	types  map[string]string
}

func (p prometheus) Ask(expr string, at time.Time) (model.Vector, error) {
	q, err := p.engine.NewInstantQuery(context.Background(), p.store, nil, expr, at)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	found, err := q.Exec(context.Background()).Vector()
	if err != nil {
		return nil, err
	}
	var all model.Vector
	for _, s := range found {
		all = append(all, &model.Sample{Metric: metricOf(s.Metric), Value: model.SampleValue(s.F)})
	}
	return all, nil
}

func (p prometheus) AskRange(expr string, start, end time.Time, step time.Duration) (model.Matrix, error) {
	q, err := p.engine.NewRangeQuery(context.Background(), p.store, nil, expr, start, end, step)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	found, err := q.Exec(context.Background()).Matrix()
	if err != nil {
		return nil, err
	}
	var all model.Matrix
	for _, s := range found {
		stream := &model.SampleStream{Metric: metricOf(s.Metric)}
		for _, f := range s.Floats {
			stream.Values = append(stream.Values, model.SamplePair{Timestamp: model.Time(f.T), Value: model.SampleValue(f.F)})
		}
		all = append(all, stream)
	}
	return all, nil
}

func (p prometheus) Values(label, selector string) ([]string, error) {
	var matchers []*labels.Matcher
	if selector != "" {
		var err error
		if matchers, err = parserOf().ParseMetricSelector(selector); err != nil {
			return nil, err
		}
	}
	q, err := p.store.Querier(0, time.Now().UnixMilli())
	if err != nil {
		return nil, err
	}
	defer q.Close()
	values, _, err := q.LabelValues(context.Background(), label, nil, matchers...)
	return values, err
}

func (p prometheus) Type(metric string) string { return p.types[metric] }

func metricOf(l labels.Labels) model.Metric {
	m := model.Metric{}
	l.Range(func(l labels.Label) { m[model.LabelName(l.Name)] = model.LabelValue(l.Value) })
	return m
}

func parserOf() parser.Parser {
	return parser.NewParser(parser.Options{EnableExtendedRangeSelectors: true})
}

// now is an hour after the first sample of the test's series; gone_views ended after ten minutes.
var now = time.Unix(3600, 0).UTC()

func server(t *testing.T) prometheus {
	t.Helper()
	store := promqltest.LoadedStorage(t, `load 10s
		page_views{page="home", region="eu"}  0+1x360
		page_views{page="about", region="us"} 0+2x360
		queue_depth{queue="mail", zone="a"}   5+0x360
		latency{page="home"}                  {{schema:0 sum:5 count:4 buckets:[1 2 1]}}x360
		gone_views{page="home"}               0+1x60`)
	t.Cleanup(func() { store.Close() })
	engine := promqltest.NewTestEngineWithOpts(t, promql.EngineOpts{MaxSamples: 10_000, Timeout: time.Minute,
		EnableAtModifier: true, EnableNegativeOffset: true, Parser: parserOf()})
	return prometheus{engine, store, map[string]string{"page_views": "counter", "queue_depth": "gauge",
		"latency": "histogram"}}
}

func parse(t *testing.T, text string) parser.Expr {
	t.Helper()
	e, err := parserOf().ParseExpr(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return e
}

func TestWhyEmpty(t *testing.T) {
	s := server(t)
	for _, tt := range []struct{ name, query, want string }{
		{"a typo in a metric", "page_veiws", "no metric is named page_veiws; did you mean page_views?"},
		{"a typo deep inside", "sum by (page) (rate(page_view[5m]))",
			"no metric is named page_view; did you mean page_views?"},
		{"a name like no other", "checkout", "no metric is named checkout"},
		{"a name as the client writes it", "queue-depth",
			"no metric is named queue, and - subtracts; did you mean queue_depth?"},
		{"the count of a native histogram", "rate(latency_count[5m])",
			"no metric is named latency_count; latency is a native histogram: write histogram_count(latency)"},
		{"the buckets of a native histogram", "latency_bucket", "no metric is named latency_bucket; " +
			"latency is a native histogram: write histogram_quantile(0.99, rate(latency[5m]))"},
		{"the buckets of a counter", "page_views_bucket", "no metric is named page_views_bucket"},
		{"a typo in a value", `page_views{page="hme"}`,
			`no series of page_views has page="hme"; did you mean "home"?`},
		{"another value", `page_views{page="checkout"}`,
			`no series of page_views has page="checkout"; page is "about", "home"`},
		{"a pattern that fits nothing", `page_views{page=~"x.*"}`,
			`no series of page_views has page=~"x.*"; page is "about", "home"`},
		{"a label that the metric does not have", `page_views{host="a"}`,
			`no series of page_views has host="a"; it has no label host`},
		{"a label that nothing has", `{host="a"}`, `no series has host="a"; there is no label host`},
		{"values that do not go together", `page_views{page="home", region="us"}`,
			`each matcher of page_views{page="home",region="us"} fits some series, but no series fits all of them`},
		{"a window without a sample", "rate(page_views[1s] offset -5s)",
			"page_views[1s] offset -5s has no data: offset and @ say when; " +
				"page_views last had some at about 1970-01-01T01:00:00Z"},
		{"a window with one sample", "rate(page_views[5s])",
			"page_views[5s] has 2 samples in 2 series, and rate needs two samples of a series; " +
				"use a longer window, such as [1m]"},
		{"a window after the end", "rate(gone_views[5m])",
			"gone_views[5m] has no samples; gone_views last had some at about 1970-01-01T00:10:00Z; use a longer window, " +
				"such as [1h], or ask for an earlier time"},
		{"a metric that ended", "gone_views", "gone_views last had some at about 1970-01-01T00:10:00Z; ask for that time"},
		{"a comparison that nothing passes", "page_views > 1000",
			"no value of page_views passes the comparison >: the smallest is 360, the largest 720"},
		{"a comparison with nothing", "page_views > limit", "no metric is named limit"},
		{"sides with different labels", "page_views + queue_depth",
			"page_views and queue_depth have data, but no two series have the same labels: only the left side has page; " +
				"only the right side has queue; only the left side has region; only the right side has zone; " +
				"say which labels to compare by on (...) or ignoring (...)"},
		{"a label with other values", `sum by (page) (page_views) / on (page) label_replace(queue_depth, "page", "x", "", "")`,
			`sum by (page) (page_views) and label_replace(queue_depth, "page", "x", "", "") have data, but no two series have ` +
				`the same labels: page is "about" on the left and "x" on the right; ` +
				"say which labels to compare by on (...) or ignoring (...)"},
		{"a comparison of two metrics", "page_views > page_views",
			"page_views and page_views have data, but no value passes the comparison >"},
		{"all are left out", "page_views unless page_views",
			"each series of page_views has one of page_views with the same labels"},
		{"absence", "absent(page_views)", "page_views has data, and absent is empty as long as it has"},
		{"no histogram", "histogram_quantile(0.9, page_views)",
			"page_views has data, but no histograms: histogram_quantile needs native ones, or buckets with the label le"},
		{"extended ranges are asked for without", "rate(gone_views[5m] anchored)",
			"gone_views[5m] anchored has no samples; gone_views last had some at about 1970-01-01T00:10:00Z; " +
				"use a longer window, such as [1h], or ask for an earlier time"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := WhyEmpty(Query{Expr: parse(t, tt.query), Start: now, End: now, Now: now}, s)
			if err != nil || got != tt.want {
				t.Errorf("%s\n%s (%v), want\n%s", tt.query, got, err, tt.want)
			}
		})
	}
}

func TestWhyEmptyInTheFuture(t *testing.T) {
	later := now.Add(time.Hour)
	got, err := WhyEmpty(Query{Expr: parse(t, "page_views"), Start: later, End: later, Now: now}, server(t))
	if want := "1970-01-01T02:00:00Z is in the future; it is 1970-01-01T01:00:00Z now"; err != nil || got != want {
		t.Errorf("%s (%v), want %s", got, err, want)
	}
}

// A query with many parts would otherwise ask the server many times.
func TestWhyEmptyIsBounded(t *testing.T) {
	text := strings.Repeat("page_views * on () group_left () ", 2*maxParts) + "page_views"
	n := 0
	got, err := WhyEmpty(Query{Expr: parse(t, text), Start: now, End: now, Now: now}, counting{server(t), &n})
	if err == nil || n > maxParts {
		t.Errorf("after %d questions: %s (%v)", n, got, err)
	}
}

// counting counts the parts that are asked, and says that each has no answer but the metrics.
type counting struct {
	prometheus
	asked *int
}

func (c counting) Ask(string, time.Time) (model.Vector, error) {
	*c.asked++
	return nil, nil
}

func TestKinds(t *testing.T) {
	s := server(t)
	const drawn = "page_views is a counter, which only grows; rate(%s[5m]) is its growth a second"
	for _, tt := range []struct {
		name, query string
		drawn       bool
		want        string
	}{
		{"rate of a gauge", "sum(rate(queue_depth[5m]))", false,
			"queue_depth is a gauge: rate is for counters, and takes each fall for a restart; use deriv(queue_depth[5m])"},
		{"increase of a gauge", `increase(queue_depth{queue="mail"}[1h])`, true,
			`queue_depth is a gauge: increase is for counters, and takes each fall for a restart; ` +
				`use delta(queue_depth{queue="mail"}[1h])`},
		{"rate of a counter", "rate(page_views[5m])", true, ""},
		{"an unknown metric", "rate(other[5m])", true, ""},
		{"a counter now", "page_views", false, ""},
		{"a counter over time", "sum by (page) (page_views)", true, fmt.Sprintf(drawn, "page_views")},
		{"a part of a counter over time", `topk(3, (page_views{page="home"}))`, true,
			fmt.Sprintf(drawn, `page_views{page="home"}`)},
		{"how many series a counter has", "count(page_views)", true, ""},
		{"a counter in a calculation", "page_views / 2", true, ""},
		{"a gauge over time", "queue_depth", true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := strings.Join(Kinds(parse(t, tt.query), tt.drawn, s), "\n"); got != tt.want {
				t.Errorf("%s\n%s, want\n%s", tt.query, got, tt.want)
			}
		})
	}
}

// The errors are those of Prometheus' parser, which may change their words.
func TestFault(t *testing.T) {
	for _, tt := range []struct{ query, want string }{
		{"rat(page_views[5m])", "did you mean rate?"},
		{"summ(page_views)", "did you mean sum?"},
		{"checkout_frequency(page_views)", "Tab in freshet query -i completes functions"},
		{"rate(page_views[5min])", "a duration is a number with a unit of ms, s, m, h, d, w or y, such as 5m or 1h30m"},
		{"rate(page_views)", "rate reads a window of time: write its length behind the selector, such as page_views[5m]"},
		{"sum(page_views[5m])", "a window such as [5m] is for a function that reads one, such as rate(page_views[5m])"},
		{"sum(page_views)[5m]", "behind an expression, a window needs a colon and may have a step, such as [5m:10s]"},
		{"page_views{page=home}", `values are in quotes: "home"`},
		{"page.views", `a name with other characters is in quotes and braces: {"page.views"}; of DogStatsD's names, ` +
			"Freshet stores page.views as page_views by default"},
		{"sum(page_views", ""}, // it says that a parenthesis is open, at its place
	} {
		t.Run(tt.query, func(t *testing.T) {
			_, err := parserOf().ParseExpr(tt.query)
			if err == nil {
				t.Fatal("the parser takes it")
			}
			if got := Fault(err.Error()); got != tt.want {
				t.Errorf("%v\n%s, want\n%s", err, got, tt.want)
			}
		})
	}
}
