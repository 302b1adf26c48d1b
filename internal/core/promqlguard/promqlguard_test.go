package promqlguard

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

var limits = Limits{Bytes: 256 << 10, Depth: 500, SubquerySteps: 1_000_000, WindowSamples: 1_000_000_000}

func TestDepth(t *testing.T) {
	for _, c := range []struct {
		why, query string
		want       int
	}{
		{"nothing", "", 1},
		{"a leaf", "x", 1},
		{"parentheses", "((x))", 3},
		{"each operator of a chain is a level", "a+b+c", 3},
		{"unary operators are a chain, too", "- - -x", 4},
		{"operators that are words", "a or b unless c and d", 4},
		{"comparison is one operator, whatever its length", "a >= bool b", 2},
		{"the chain goes on after a bracket", "(a+b)+c+d", 5},
		{"brackets side by side are as deep as the deepest", "f(a+b+c, g(d), e)", 4},
		{"a comma begins a new branch", "f(a+b, c+d)", 3},
		{"matchers are one branch each", `x{a!="1",b!~"2"}`, 3},
		{"a range", "rate(x[5m])", 4},
		{"subqueries on a subquery deepen the tree without nesting", "x[5m:1m][5m:1m][5m:1m]", 5},
		{"arithmetic in a range", "x[((5m))+1m]", 6},
		{"a string hides brackets", `f("((((", '[[[[', ` + "`{{{{`)", 2},
		{"an escaped quote does not end a string", `f("\"((((")`, 2},
		{"a backslash before a quote may be an escaped backslash", `f("\\", ((x)))`, 4},
		{"nothing is escaped in a raw string", "f(`\\`, ((x)))", 4},
		{"a comment hides brackets", "x # ((((\n+y", 2},
		{"a quote in a comment begins no string", "x # \"\n+((y))", 4},
		{"unclosed brackets count", "(((x", 4},
		{"more closed than opened ends the parser", "x)))", 1},
		{"brackets after the parser's first error do not count", "$((((((", 1},
	} {
		if got := Depth(c.query); got != c.want {
			t.Errorf("%s: Depth(%s) = %d, want %d", c.why, c.query, got, c.want)
		}
	}
}

func TestParser(t *testing.T) {
	const n = 100_000
	p := NewParser(parser.Options{}, limits, func() {})
	for _, c := range []struct{ why, query, want string }{
		{"a usual query", `sum by (job) (rate(http_requests_total{code=~"5.."}[5m])) / 2`, ""},
		{"a selection of 3000 instances in a dashboard", `x{i=~"` + strings.Repeat("10.0.0.123:8080|", 3000) + `"}`, ""},
		{"a flat query of many branches", `{` + strings.Repeat(`a="b",`, n/10) + `}`, ""},
		{"as deep as allowed", strings.Repeat("(", 499) + "1" + strings.Repeat(")", 499), ""},
		{"one level more", strings.Repeat("(", 500) + "1" + strings.Repeat(")", 500),
			"501 levels deep; the limit is 500 (query.max_query_depth)"},
		{"parsed in 16 s, printed in far more than a minute by Prometheus",
			strings.Repeat("(", n) + "1" + strings.Repeat(")", n),
			"100001 levels deep; the limit is 500 (query.max_query_depth)"},
		{"never closed", strings.Repeat("(", n), "100001 levels deep"},
		{"signs", strings.Repeat("-", n) + "1", "100001 levels deep"},
		{"a chain: parsed in 30 s by Prometheus", strings.Repeat("1+", n) + "1", "100001 levels deep"},
		{"set operators", strings.Repeat("x or ", n/3) + "x", "33334 levels deep"},
		{"subqueries of subqueries", "x" + strings.Repeat("[1m:1m]", n/3), "levels deep"},
		{"flat and short, but more than a thousand searches",
			strings.Repeat("(x"+strings.Repeat("+x", 99)+")+", 10) + "x", "1001 selectors; at most 1000"},
		{"not a query", "sum(", "unclosed left parenthesis"},
		{"flat, but too long", `"` + strings.Repeat("x", 256<<10) + `"`,
			"262146 bytes long; the limit is 262144 (query.max_query_bytes)"},
	} {
		_, err := p.ParseExpr(c.query)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.why, err, c.want)
		}
	}
}

func TestParserSelectors(t *testing.T) {
	refused := 0
	p := NewParser(parser.Options{}, limits, func() { refused++ })
	deep := strings.Repeat("(", 1000)
	if _, err := p.ParseMetricSelector(deep); err == nil || !strings.Contains(err.Error(), "1001 levels deep") {
		t.Errorf("one selector: %v", err)
	}
	for _, c := range []struct {
		why       string
		selectors []string
		want      string
	}{
		{"what Grafana sends", []string{"up", `{__name__=~"a.*"}`}, ""},
		{"the last is deep", []string{"up", deep}, "1001 levels deep"},
		{"each is short, together they are too long", []string{strings.Repeat("x", 200<<10), strings.Repeat("y", 100<<10)},
			"307200 bytes long"},
		{"each is a separate search", strings.Split(strings.Repeat("x,", 1000)+"x", ","), "1001 match[]"},
	} {
		_, err := p.ParseMetricSelectors(c.selectors)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.why, err, c.want)
		}
	}
	if refused != 4 {
		t.Errorf("%d texts were refused, want 4", refused)
	}
}

func TestCheckStatement(t *testing.T) {
	const instant = 0
	for _, c := range []struct {
		why, query string
		span, step time.Duration
		want       string
	}{
		{"no subquery", "rate(x[5m])", 24 * time.Hour, time.Minute, ""},
		{"a month of minutes, as service levels need", "max_over_time(rate(x[5m])[30d:1m])", instant, 0, ""},
		{"the same in a panel over a month", "max_over_time(rate(x[5m])[30d:1m])", 720 * time.Hour, time.Hour, ""},
		{"asks Prometheus for 691 GB", "count_over_time(vector(1)[1000d:1ms])", instant, 0,
			"with [1000d:1ms] the query's subqueries take 86400000001 steps; the limit is 1000000 (query.max_subquery_steps)"},
		{"the default step is a minute", "count_over_time(vector(1)[1000d:])", instant, 0, "1440001 steps"},
		{"the query's own range counts, since it is evaluated at once",
			"max_over_time(x[1h:1s])", 300 * time.Hour, time.Hour, "1083601 steps"},
		{"a subquery's range adds to those within it", "max_over_time(max_over_time(x[1d:1s])[11d:1h])", instant, 0,
			"1037066 steps"},
		{"subqueries side by side add up", "max_over_time(x[4d:1s]) + max_over_time(y[4d:1s]) + max_over_time(z[4d:1s])",
			instant, 0, "1036803 steps"},
		{"at a fixed time the query's own range does not count",
			"max_over_time(x[1h:1s] @ end())", 300 * time.Hour, time.Hour, ""},
		{"a fixed time outside does not shrink what is inside",
			"max_over_time(rate(x[1m])[1000d:1s] @ 0)", 300 * time.Hour, time.Hour, "86400001 steps"},
		{"an offset changes nothing", "max_over_time(x[1000d:1s] offset 1y)", instant, 0, "86400001 steps"},
		{"hidden in a grouping, a call and parentheses",
			"sum by (a) (abs((max_over_time(x[1000d:1s]))))", instant, 0, "86400001 steps"},
		{"in the parameter of an aggregation", "topk(scalar(max_over_time(x[1000d:1s])), y)", instant, 0, "86400001 steps"},
		{"in a range that is a result itself", "rate(x[1m])[1000d:1s]", instant, 0, "86400001 steps"},
		{"few steps, but a product of windows that no deadline can stop: ran for more than a minute",
			"max_over_time(quantile_over_time(0.9, vector(1)[5d:1s])[2d:1s])", instant, 0, "max_window_samples"},
		{"the same for a selector", "max_over_time(max_over_time(x[40d])[10d:1m])", instant, 0,
			"about 4977014402 samples a series"},
		{"a month of tiles in a panel of 1500 points", "max_over_time(x[30d])", 1500 * time.Hour, time.Hour, ""},
		{"the longest possible ranges do not overflow",
			strings.Repeat("max_over_time(", 20) + "x" + strings.Repeat("[290y:1ms])", 20), instant, 0, "max_subquery_steps"},
		{"a step that the engine would divide by", "max_over_time(x[1d:0.0001])", instant, 0, "below 1ms"},
		{"the query's own step", "x", time.Second, time.Microsecond, "step is 1µs"},
	} {
		p := NewParser(parser.Options{}, limits, func() {})
		expr, err := p.ParseExpr(c.query)
		if err != nil {
			t.Fatalf("%s: %v", c.why, err)
		}
		s := &parser.EvalStmt{Start: time.Unix(0, 0), End: time.Unix(0, 0).Add(c.span), Interval: c.step}
		if s.Expr, err = promql.PreprocessExpr(expr, s.Start, s.End, s.Interval); err != nil {
			t.Fatalf("%s: %v", c.why, err)
		}
		err = limits.CheckStatement(s)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %s: got %v, want %q", c.why, c.query, err, c.want)
		}
	}
}

// FuzzDepth checks the law that protects the parser: the parser's tree of a text is never deeper
// than Depth says.
func FuzzDepth(f *testing.F) {
	for _, seed := range []string{
		`sum by (a) (rate(x{a="b",c!~"d"}[5m:1m] offset -1m)) / -2 ^ 3 @ 4`,
		"((1)) + 2 * 3 - f(4, 5) # (\n or `(` == bool '\\'('",
		"x[5m:1m][5m:1m]", "max_over_time(x[((1m))+2m:step()])[", "{{a:b}}", "a - - -b",
	} {
		f.Add(seed)
	}
	p := parser.NewParser(parser.Options{EnableExperimentalFunctions: true, ExperimentalDurationExpr: true,
		EnableExtendedRangeSelectors: true, EnableBinopFillModifiers: true})
	f.Fuzz(func(t *testing.T, query string) {
		bound := Depth(query)
		if len(query) > 10_000 || bound > 1000 {
			return
		}
		expr, err := p.ParseExpr(query)
		if err != nil {
			return
		}
		if d := treeDepth(expr); d > bound {
			t.Errorf("Depth(%q) = %d, but the tree has %d levels", query, bound, d)
		}
	})
}

func treeDepth(n parser.Node) int {
	deepest := 0
	for child := range parser.ChildrenIter(n) {
		deepest = max(deepest, treeDepth(child))
	}
	return 1 + deepest
}

// Bound: 30 ms for any text of maximal length, so refusing the text costs less than receiving it.
func BenchmarkCheckText(b *testing.B) {
	query := strings.Repeat("(", limits.Bytes)
	for b.Loop() {
		_ = limits.checkText(query)
	}
}
