package columns

import (
	"context"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/prometheus/prometheus/util/stats"
)

// plan is what of one statement is evaluated here.
type plan struct {
	mint, maxt                     int64 // what the whole statement reads, ms
	start, end, interval, lookback int64 // of the statement, ms
	step                           int64 // for hints: the interval, or 0 for one time
	steps                          int
	maxSamples                     int
	samples                        *stats.QuerySamples
	metered                        int64                     // bytes that a Meter has counted for groups
	leaves                         map[*labels.Matcher]*leaf // by the first matcher of the selector in their place
	originals                      []original

	refused Reason // the first part that is no leaf

	notes  annotations.Annotations
	failed error // the first error of a leaf, which the engine would return as it is
}

// original is an expression in whose place a selector stands.
type original struct {
	at *parser.Expr
	is parser.Expr
}

// newPlan finds the leaves of a statement that the engine has prepared, and puts selectors in their
// places, until undo.
func newPlan(s *parser.EvalStmt, samples *stats.QuerySamples, maxSamples int) *plan {
	p := &plan{start: s.Start.UnixNano() / 1e6, end: s.End.UnixNano() / 1e6, interval: s.Interval.Milliseconds(),
		lookback: s.LookbackDelta.Milliseconds(), maxSamples: maxSamples, samples: samples,
		leaves: map[*labels.Matcher]*leaf{}, step: s.Interval.Milliseconds()}
	if s.Start.Equal(s.End) && s.Interval == 0 {
		p.interval = 1 // as the engine does
	}
	if p.interval <= 0 || p.end < p.start {
		return p
	}
	p.steps = int((p.end-p.start)/p.interval) + 1
	p.mint, p.maxt = promql.FindMinMaxTime(s)
	p.walk(&s.Expr, held{}, true)
	return p
}

// undo restores the statement.
func (p *plan) undo() {
	for _, o := range p.originals {
		*o.at = o.is
	}
}

// held is how many samples the engine holds for evaluated parts of a statement while it evaluates
// another part: MaxSamples and the peak count them.
type held struct {
	samples int
	results []*leaf
	floats  bool // the count is right only if the results have no histograms
	unknown bool
}

func (h held) and(other held) held {
	return held{samples: h.samples + other.samples, results: append(h.results[:len(h.results):len(h.results)],
		other.results...), floats: h.floats || other.floats, unknown: h.unknown || other.unknown}
}

// count returns the number of samples, when all results exist. It is not ok if the number is unknown.
func (h held) count() (samples int, ok bool) {
	samples = h.samples
	for _, l := range h.results {
		samples += l.held
		if h.floats && l.histograms {
			return 0, false
		}
	}
	return samples, true
}

// walk finds the leaves at and below an expression, in the order in which the engine evaluates
// them. `before` is what the engine then holds. A plain selector in an argument of some functions
// is no leaf, since the functions read it in their own way. walk returns what the engine holds for
// the expression's result.
func (p *plan) walk(at *parser.Expr, before held, selectors bool) held {
	if l := p.leafAt(*at, before, selectors); l != nil {
		p.replace(at, l)
		return held{results: []*leaf{l}}
	}
	result := held{unknown: true}
	if (*at).Type() == parser.ValueTypeScalar {
		result = held{samples: p.steps}
	}
	switch n := (*at).(type) {
	case *parser.ParenExpr:
		return p.walk(&n.Expr, before, selectors)
	case *parser.UnaryExpr:
		return p.walk(&n.Expr, before, selectors)
	case *parser.StringLiteral:
		return held{}
	case *parser.AggregateExpr:
		if n.Param != nil && n.Op != parser.COUNT_VALUES {
			before = before.and(held{samples: p.steps})
		}
		p.walk(&n.Expr, before, selectors)
	case *parser.Call:
		p.walkCall(n, before)
	case *parser.BinaryExpr:
		left := p.walk(&n.LHS, before, true)
		right := p.walk(&n.RHS, before.and(left), true)
		if n.Op.IsComparisonOperator() || n.Op.IsSetOperator() {
			break
		}
		left.floats, right.floats = true, true // an operator may drop or shorten histograms
		switch {
		case n.LHS.Type() == parser.ValueTypeScalar && n.RHS.Type() == parser.ValueTypeVector:
			return right
		case n.LHS.Type() == parser.ValueTypeVector && n.RHS.Type() == parser.ValueTypeScalar:
			return left
		}
	}
	return result
}

// ownSelectors are the functions that read a selector in their own way.
var ownSelectors = map[string]bool{"absent": true, "timestamp": true, "start_timestamp": true}

func (p *plan) walkCall(n *parser.Call, before held) {
	if n.Func.Name == "info" {
		return
	}
	for _, arg := range n.Args {
		if arg.Type() == parser.ValueTypeMatrix {
			return
		}
	}
	for i := range n.Args {
		before = before.and(p.walk(&n.Args[i], before, !ownSelectors[n.Func.Name]))
	}
}

// leafAt returns the leaf that an expression is, or nil.
func (p *plan) leafAt(e parser.Expr, before held, selectors bool) *leaf {
	l := &leaf{plan: p, before: before, expr: e}
	inner := e
	if agg, ok := e.(*parser.AggregateExpr); ok {
		if !folds[agg.Op] {
			if _, plain := agg.Expr.(*parser.VectorSelector); plain {
				p.refuse(ReasonAggregation)
			}
			return nil
		}
		l.agg, inner = agg, agg.Expr
	}
	switch n := inner.(type) {
	case *parser.Call:
		ms, ok := p.matrixOf(n)
		if !ok {
			return nil
		}
		l.call, l.selector = n, ms.VectorSelector.(*parser.VectorSelector)
		l.span, l.seconds = ms.Range.Milliseconds(), ms.Range.Seconds()
		l.hints.Func = n.Func.Name
	case *parser.VectorSelector:
		if l.agg == nil || !selectors {
			return nil // as fast in the engine, which would read our result as a selector, too
		}
		l.selector = n
		l.hints.Func, l.hints.By, l.hints.Grouping = l.agg.Op.String(), !l.agg.Without, l.agg.Grouping
	case *parser.StepInvariantExpr:
		if len(parser.ExtractSelectors(n)) > 0 {
			p.refuse(ReasonModifier)
		}
		return nil
	default:
		return nil
	}
	vs := l.selector
	switch {
	case vs.Timestamp != nil, vs.StartOrEnd != 0, vs.Anchored, vs.Smoothed:
		p.refuse(ReasonModifier)
		return nil
	case vs.SkipHistogramBuckets, len(vs.LabelMatchers) == 0:
		p.refuse(ReasonFunction)
		return nil
	case before.unknown:
		p.refuse(ReasonAfter)
		return nil
	}
	vs.Offset = vs.OriginalOffset
	l.offset = vs.Offset.Milliseconds()
	reach := l.span
	if l.call == nil {
		reach = p.lookback
	}
	l.hints.Start, l.hints.End = p.start-reach+1-l.offset, p.end-l.offset
	l.hints.Step, l.hints.Range = p.step, l.span
	return l
}

// refuse records why a part of the statement is no leaf, unless another part was none before.
func (p *plan) refuse(why Reason) {
	if p.refused == "" {
		p.refused = why
	}
}

// matrixOf returns the range selector of a call that is evaluated here.
func (p *plan) matrixOf(call *parser.Call) (*parser.MatrixSelector, bool) {
	i := slices.IndexFunc(call.Args, func(e parser.Expr) bool { return e.Type() == parser.ValueTypeMatrix })
	if i < 0 {
		return nil, false
	}
	ms, ok := call.Args[i].(*parser.MatrixSelector)
	_, subquery := call.Args[i].(*parser.SubqueryExpr)
	switch {
	case subquery:
		p.refuse(ReasonSubquery)
		return nil, false
	case !ok, len(call.Args) != 1, call.Func.Name == "absent_over_time", promql.FunctionCalls[call.Func.Name] == nil,
		ms.Range <= 0:
		p.refuse(ReasonFunction)
		return nil, false
	}
	return ms, true
}

// replace puts a selector in the place of a leaf. The parentheses hide it from functions that read
// a selector in their own way.
func (p *plan) replace(at *parser.Expr, l *leaf) {
	p.originals = append(p.originals, original{at, *at})
	matchers := append([]*labels.Matcher(nil), l.selector.LabelMatchers...)
	first := *matchers[0]
	matchers[0] = &first
	p.leaves[&first] = l
	pos := (*at).PositionRange()
	*at = &parser.ParenExpr{PosRange: pos,
		Expr: &parser.VectorSelector{Name: l.selector.Name, LabelMatchers: matchers, PosRange: pos}}
}

// fail records an error that the engine would return as it is.
func (p *plan) fail(err error) error {
	if p.failed == nil {
		p.failed = err
	}
	return err
}

// querier answers the selectors of a plan.
type querier struct {
	storage.Querier
	plan *plan
}

// Select is part of storage.Querier.
func (q querier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints,
	matchers ...*labels.Matcher) storage.SeriesSet {
	if len(matchers) > 0 {
		if l := q.plan.leaves[matchers[0]]; l != nil {
			return newResults(ctx, l, q.Querier, sorted)
		}
	}
	return q.Querier.Select(ctx, sorted, hints, matchers...)
}
