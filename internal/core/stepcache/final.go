package stepcache

import (
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// ofRange are the functions of a range selector whose value at a step depends on the samples of the range alone.
var ofRange = set("rate", "increase", "delta", "irate", "idelta", "deriv", "predict_linear", "changes", "resets",
	"avg_over_time", "min_over_time", "max_over_time", "sum_over_time", "count_over_time", "last_over_time",
	"present_over_time", "stddev_over_time", "stdvar_over_time", "quantile_over_time")

// ofStep are the functions that the engine evaluates for each step by itself. label_replace and label_join are not
// among them: they fail if two series get the same labels at different steps.
var ofStep = set("abs", "ceil", "floor", "round", "exp", "sqrt", "ln", "log2", "log10", "sgn", "clamp", "clamp_min",
	"clamp_max", "sort", "sort_desc", "absent", "scalar", "vector", "time", "pi", "hour", "minute", "month", "year",
	"day_of_month", "day_of_week", "day_of_year", "days_in_month", "histogram_quantile", "histogram_count",
	"histogram_sum", "histogram_avg", "histogram_fraction", "histogram_stddev", "histogram_stdvar")

// aggregations are those that the engine evaluates for each step by itself.
var aggregations = map[parser.ItemType]bool{parser.SUM: true, parser.AVG: true, parser.MIN: true, parser.MAX: true,
	parser.COUNT: true, parser.GROUP: true, parser.STDDEV: true, parser.STDVAR: true, parser.TOPK: true,
	parser.BOTTOMK: true, parser.QUANTILE: true}

func set(names ...string) map[string]bool {
	s := map[string]bool{}
	for _, n := range names {
		s[n] = true
	}
	return s
}

// Final reports whether the steps of an expression may be kept: it reads samples, and its value at each step depends
// on samples at or before the step alone, not on the other steps nor on the range of the query. It is an allow-list.
func Final(e parser.Expr) bool {
	f := finder{final: true}
	f.walk(e)
	return f.final && f.selectors > 0
}

type finder struct {
	final     bool
	selectors int
}

func (f *finder) walk(e parser.Expr) {
	switch n := e.(type) {
	case *parser.NumberLiteral, *parser.StringLiteral:
	case *parser.ParenExpr:
		f.walk(n.Expr)
	case *parser.StepInvariantExpr:
		f.walk(n.Expr)
	case *parser.VectorSelector:
		f.selector(n)
	case *parser.AggregateExpr:
		f.final = f.final && aggregations[n.Op]
		if n.Param != nil {
			f.walk(n.Param)
		}
		f.walk(n.Expr)
	case *parser.BinaryExpr:
		f.walk(n.LHS)
		f.walk(n.RHS)
	case *parser.UnaryExpr: // of a vector, it fails if two series get the same labels at different steps
		f.final = f.final && n.Expr.Type() == parser.ValueTypeScalar
		f.walk(n.Expr)
	case *parser.Call:
		f.call(n)
	default: // a subquery reads other steps
		f.final = false
	}
}

// call looks at a function. A range function drops the name, and fails if two series then have the same labels, even at
// different steps. So its selector must name the metric. It also drops a type and a unit, which only the series show:
// see Reading.
func (f *finder) call(n *parser.Call) {
	f.final = f.final && (ofRange[n.Func.Name] || ofStep[n.Func.Name])
	for _, arg := range n.Args {
		ms, ok := arg.(*parser.MatrixSelector)
		if !ok {
			f.walk(arg)
			continue
		}
		vs, ok := ms.VectorSelector.(*parser.VectorSelector)
		if !ok || ms.RangeExpr != nil || !named(vs) {
			f.final = false
			continue
		}
		f.selector(vs)
	}
}

// selector looks at a selector. A smoothed one reads the sample after its range.
func (f *finder) selector(n *parser.VectorSelector) {
	f.selectors++
	if n.OriginalOffset < 0 || n.OriginalOffsetExpr != nil || n.Timestamp != nil || n.StartOrEnd != 0 || n.Smoothed {
		f.final = false
	}
}

// named reports whether a selector selects series of one name.
func named(n *parser.VectorSelector) bool {
	for _, m := range n.LabelMatchers {
		if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual && m.Value != "" {
			return true
		}
	}
	return false
}

// Repeats reports whether evaluating an expression twice gives the same result, bit by bit. If not, an aggregation
// depends on the order of the series below, which the engine has in a map: sums are rounded in that order, and topk
// takes the first of equal values.
func Repeats(e parser.Expr) bool {
	repeats := true
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if a, ok := n.(*parser.AggregateExpr); ok && ordered[a.Op] && !inOrder(a.Expr) {
			repeats = false
		}
		return nil
	})
	return repeats
}

// ordered are the aggregations that depend on the order of series.
var ordered = map[parser.ItemType]bool{parser.SUM: true, parser.AVG: true, parser.STDDEV: true, parser.STDVAR: true,
	parser.TOPK: true, parser.BOTTOMK: true, parser.LIMITK: true}

// inOrder reports whether the engine has the series of an expression in the same order each time.
func inOrder(e parser.Expr) bool {
	switch n := e.(type) {
	case *parser.ParenExpr:
		return inOrder(n.Expr)
	case *parser.StepInvariantExpr:
		return inOrder(n.Expr)
	case *parser.UnaryExpr:
		return inOrder(n.Expr)
	case *parser.VectorSelector:
		return true
	case *parser.AggregateExpr:
		return inOrder(n.Expr) && n.Op != parser.TOPK && n.Op != parser.BOTTOMK && n.Op != parser.LIMITK &&
			n.Op != parser.LIMIT_RATIO && n.Op != parser.COUNT_VALUES
	case *parser.Call:
		for _, arg := range n.Args {
			if ms, ok := arg.(*parser.MatrixSelector); ok {
				return inOrder(ms.VectorSelector)
			}
		}
	}
	return false
}
