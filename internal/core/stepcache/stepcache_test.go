package stepcache_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/freshet-io/freshet/internal/core/stepcache"
)

// Steps are kept only if each depends on samples at or before it alone.
func TestFinal(t *testing.T) {
	p := parser.NewParser(parser.Options{EnableExtendedRangeSelectors: true, EnableExperimentalFunctions: true,
		ExperimentalDurationExpr: true})
	for text, want := range map[string]bool{
		`sum by (job) (rate(x_total[5m]))`:                          true,
		`sum by (job) ({job="a"})`:                                  true,
		`increase(x[5m] offset 1h)`:                                 true,
		`increase(x[5m] anchored)`:                                  true,
		`histogram_quantile(0.9, sum by (le) (rate(x_bucket[5m])))`: true,
		`topk(3, x) / on (job) group_left sum by (job) (y)`:         true,
		`time() - max(x) > bool -1`:                                 true,
		`absent(x{a="b"}) or vector(0)`:                             true,
		`quantile_over_time(scalar(y), x[5m])`:                      true,

		`time()`:                      false, // reads no sample
		`rate({job="a"}[5m])`:         false, // series of several names may become one
		`rate({__name__=~"a|b"}[5m])`: false,
		`-x`:                          false,
		`label_replace(x, "a", "$1", "b", "(.*)")`:        false,
		`count_values("v", x)`:                            false,
		`x offset -1m`:                                    false,
		`rate(x[5m] offset -1m)`:                          false,
		`x @ end()`:                                       false,
		`sum(x @ 1)`:                                      false,
		`rate(x[5m] @ start())`:                           false,
		`rate(x[5m] smoothed)`:                            false,
		`max_over_time(rate(x[1m])[5m:1m])`:               false,
		`rate(x[step()])`:                                 false,
		`sum(x offset step())`:                            false,
		`absent_over_time(x[5m])`:                         false,
		`limitk(2, x)`:                                    false,
		`sum(x) + sum(y @ end())`:                         false,
		`topk(scalar(x @ end()), y)`:                      false,
		`info(x)`:                                         false,
		`clamp_max(x, scalar(min_over_time(y[5m:1m])))`:   false,
		`timestamp(x)`:                                    false,
		`sum(label_join(x, "a", "-", "b", "c")) + sum(y)`: false,
	} {
		e, err := p.ParseExpr(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got := stepcache.Final(e); got != want {
			t.Errorf("%s: steps may be kept is %v, want %v", text, got, want)
		}
	}
}

// Prometheus' engine has the results of functions and operators in no order, and some aggregations depend on it.
func TestRepeats(t *testing.T) {
	p := parser.NewParser(parser.Options{})
	for text, want := range map[string]bool{
		`sum by (job) (rate(x[5m]))`: true,
		`topk(1, sum by (job) (x))`:  true,
		`sum(x) / sum(y)`:            true,
		`ceil(x)`:                    true,
		`max(ceil(x))`:               true,
		`histogram_quantile(0.9, sum by (le) (rate(x_b[5m])))`: true,

		`topk(1, ceil(x))`:              false,
		`sum(x / y)`:                    false,
		`sum((x) * 2)`:                  false,
		`1 - avg(sum by (job) (x * 2))`: false,
		`sum(topk(3, x))`:               false,
	} {
		e, err := p.ParseExpr(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got := stepcache.Repeats(e); got != want {
			t.Errorf("%s: repeats is %v, want %v", text, got, want)
		}
	}
}

func query(text string, start, last int64) stepcache.Query {
	return stepcache.Query{Key: stepcache.Key{Text: text, Step: 10}, Start: start, Last: last}
}

// result has the series of the names that have a value at each step.
func result(start, last int64, names ...string) (m promql.Matrix) {
	for _, name := range names {
		s := promql.Series{Metric: labels.FromStrings("of", name)}
		for at := start; at <= last; at += 10 {
			s.Floats = append(s.Floats, promql.FPoint{T: at, F: float64(at)})
		}
		m = append(m, s)
	}
	return m
}

// Kept steps and evaluated ones become one result. Series that begin or end in between are in it, too.
func TestJoin(t *testing.T) {
	first, _ := stepcache.Whole(query("q", 100, 200), result(100, 200, "a", "c"), stepcache.State{}, 1)
	next := query("q", 120, 220)
	last, ok := first.Last(next, 175)
	if last != 170 || !ok {
		t.Fatalf("the last step that need not be evaluated is %d, %v, want 170", last, ok)
	}
	joined, ok := first.Join(next, last, result(180, 220, "b", "c"), stepcache.State{}, 1)
	if !ok {
		t.Fatal("the steps cannot be joined")
	}
	got, samples := joined.Answer(next)
	want := append(result(120, 170, "a"), append(result(180, 220, "b"), result(120, 220, "c")...)...)
	if fmt.Sprint(got) != fmt.Sprint(want) || samples != 6+5+11 {
		t.Errorf("%d samples:\n%v, want\n%v", samples, got, want)
	}
	if _, ok := first.Join(next, last, promql.Matrix{{Histograms: []promql.HPoint{{}}}}, stepcache.State{}, 1); ok {
		t.Error("a result with histograms is kept")
	}
}

// Last is a step of the query before the time up to which samples are the same, and never the last step.
func TestLast(t *testing.T) {
	kept, _ := stepcache.Whole(query("q", 100, 200), result(100, 200, "a"), stepcache.State{}, 1)
	for _, c := range []struct {
		why         string
		start, last int64
		same        int64
		want        int64 // 0 if no step is kept
	}{
		{"all the same", 100, 250, 1000, 200},
		{"the same query again", 100, 200, 1000, 190},
		{"an earlier end", 110, 150, 1000, 140},
		{"the sample of a step has changed", 100, 250, 200, 190},
		{"a sample after a step", 100, 250, 191, 190},
		{"nothing is the same", 100, 250, -1 << 63, 0},
		{"the first step is not", 110, 250, 110, 0},
		{"the first step is", 110, 250, 111, 110},
		{"steps before the kept ones", 90, 250, 1000, 0},
		{"long after the kept ones", 210, 300, 1000, 0},
	} {
		last, ok := kept.Last(query("q", c.start, c.last), c.same)
		if !ok {
			last = 0
		}
		if last != c.want {
			t.Errorf("%s: %d, want %d", c.why, last, c.want)
		}
	}
}

// The steps before a query stay as long as the longest query needs them.
func TestLongerQueryKeepsItsSteps(t *testing.T) {
	steps, _ := stepcache.Whole(query("q", 100, 300), result(100, 300, "a"), stepcache.State{}, 1)
	short := query("q", 280, 310)
	steps, _ = steps.Join(short, 300, result(310, 310, "a"), stepcache.State{}, 1)
	if got, _ := steps.Answer(short); fmt.Sprint(got) != fmt.Sprint(result(280, 310, "a")) {
		t.Errorf("the short query has %v", got)
	}
	if _, ok := steps.Last(query("q", 100, 320), 1000); ok {
		t.Error("a step stays that no query has asked for again")
	}
	if _, ok := steps.Last(query("q", 110, 320), 1000); !ok {
		t.Error("the steps of the long query are gone")
	}
}

// A cache keeps within its bound, and drops what was not asked for longest.
func TestBound(t *testing.T) {
	c := stepcache.New(100_000)
	put := func(text string, points int64) {
		q := query(text, 0, 10*points)
		s, _ := stepcache.Whole(q, result(0, 10*points, "a"), stepcache.State{}, 1)
		c.Put(q.Key, s)
	}
	has := func(text string) bool { return c.Get(query(text, 0, 0).Key) != nil }
	for i := range 6 {
		put(fmt.Sprint(i), 1010)
		has("0")
	}
	if !has("0") || has("1") || !has("5") {
		t.Error("not the oldest is gone")
	}
	if s := c.Stats(); s.Bytes > 100_000 || s.Bytes < 80_000 || s.Evicted != 1 {
		t.Errorf("%+v", s)
	}
	if !c.Takes(1010) || c.Takes(5000) {
		t.Error("the cache does not say which results are too large")
	}
	put("large", 5000)
	put("5", 5000)
	if s := c.Stats(); has("large") || has("5") || s.Refused != 3 || s.Evicted != 1 {
		t.Errorf("%+v", s)
	}
}

// A query is described by its steps: the end may lie after the last one.
func TestOf(t *testing.T) {
	e, err := parser.NewParser(parser.Options{}).ParseExpr("x")
	if err != nil {
		t.Fatal(err)
	}
	s := &parser.EvalStmt{Expr: e, Start: time.UnixMilli(1_007), End: time.UnixMilli(1_046),
		Interval: 10 * time.Millisecond}
	q, ok := stepcache.Of("t", "x", s)
	want := stepcache.Query{Key: stepcache.Key{Tenant: "t", Text: "x", Step: 10, Phase: 7}, Start: 1007, Last: 1037}
	if !ok || q != want || q.Steps() != 4 {
		t.Errorf("%+v, %v", q, ok)
	}
	s.End = s.Start
	if _, ok := stepcache.Of("t", "x", s); ok {
		t.Error("a query with one step is kept")
	}
}

// No step may be kept if a query has read tiles of several widths, samples of several stores, or a range of series with
// a type or a unit.
func TestReading(t *testing.T) {
	for what, c := range map[string]struct {
		read func(*stepcache.Reading)
		want bool
	}{
		"one width":      {func(r *stepcache.Reading) { r.Read(1); r.Read(1) }, true},
		"a range":        {func(r *stepcache.Reading) { r.Read(1); r.Ranged(labels.FromStrings("__name__", "x")) }, true},
		"nothing":        {func(*stepcache.Reading) {}, false},
		"several widths": {func(r *stepcache.Reading) { r.Read(1); r.Read(2) }, false},
		"several stores": {func(r *stepcache.Reading) { r.Read(1); r.Merge() }, false},
		"a series' type": {func(r *stepcache.Reading) { r.Read(1); r.Ranged(labels.FromStrings("__type__", "g")) }, false},
		"a series' unit": {func(r *stepcache.Reading) { r.Read(1); r.Ranged(labels.FromStrings("__unit__", "s")) }, false},
	} {
		var r stepcache.Reading
		c.read(&r)
		if _, ok := r.Width(); ok != c.want {
			t.Errorf("%s: steps may be kept is %v, want %v", what, ok, c.want)
		}
	}
}
