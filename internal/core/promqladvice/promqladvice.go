// Package promqladvice says what is wrong with a query, and what to do about it: why its answer is empty, which of
// its functions are not for the kind of a metric, and what an error of the parser asks for. It asks a server about
// parts of the query. The page has its own in ui/src/why.ts, since a browser has no Go.
package promqladvice

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// Server answers questions about its series.
type Server interface {
	// Ask returns the answer to an expression at a time.
	Ask(expr string, at time.Time) (model.Vector, error)
	// AskRange returns the answer to an expression over a range of time.
	AskRange(expr string, start, end time.Time, step time.Duration) (model.Matrix, error)
	// Values returns the values of a label in the series of a selector. An empty selector is for all series.
	Values(label, selector string) ([]string, error)
	// Type returns the type of a metric, as Prometheus names it, or "" if it is not known.
	Type(metric string) string
}

// Query is a query with the time that it asks for.
type Query struct {
	Expr       parser.Expr
	Start, End time.Time // the same for an instant
	Now        time.Time
}

// maxParts bounds the parts of a query that are asked alone, so that advice about a long query does not take long.
const maxParts = 40

var errLong = errors.New("the query has too many parts")

// WhyEmpty returns why the answer to a query is empty. It asks each part of the query alone, at the end of the query's
// time, until it finds a part without an answer whose own parts have one.
func WhyEmpty(q Query, server Server) (string, error) {
	if q.Start.After(q.Now) {
		return fmt.Sprintf("%s is in the future; it is %s now", moment(q.Start), moment(q.Now)), nil
	}
	s := search{Query: q, server: server, left: maxParts}
	return s.reason(q.Expr)
}

// search looks for the reason of one empty answer.
type search struct {
	Query
	server Server
	left   int // of maxParts
}

// part is a part of an expression, with its answer.
type part struct {
	expr   parser.Expr
	series model.Vector // of a range, the number of samples of each series
}

// reason returns why an expression has no answer.
func (s *search) reason(e parser.Expr) (string, error) {
	var inner []part
	for _, of := range parts(e) {
		p, err := s.ask(of)
		if err != nil {
			return "", err
		}
		if len(p.series) == 0 {
			return s.reason(of)
		}
		inner = append(inner, p)
	}
	switch e := e.(type) {
	case *parser.VectorSelector:
		return s.selector(e, e, 0)
	case *parser.MatrixSelector:
		return s.selector(e.VectorSelector.(*parser.VectorSelector), e, e.Range)
	case *parser.BinaryExpr:
		return binaryReason(e, inner), nil
	case *parser.Call:
		return callReason(e, inner), nil
	}
	if len(inner) == 0 {
		return "", nil
	}
	return fmt.Sprintf("%s has data, but %s has none", short(inner[0].expr), short(e)), nil
}

// parts returns the expressions inside of an expression that have series of their own.
func parts(e parser.Expr) (inner []parser.Expr) {
	switch e := e.(type) {
	case *parser.BinaryExpr:
		inner = []parser.Expr{e.LHS, e.RHS}
	case *parser.Call:
		inner = slices.Clone(e.Args)
	case *parser.AggregateExpr:
		inner = []parser.Expr{e.Expr}
	case *parser.SubqueryExpr:
		inner = []parser.Expr{e.Expr}
	case *parser.ParenExpr:
		inner = []parser.Expr{e.Expr}
	case *parser.UnaryExpr:
		inner = []parser.Expr{e.Expr}
	}
	return slices.DeleteFunc(inner, func(e parser.Expr) bool {
		return e.Type() != parser.ValueTypeVector && e.Type() != parser.ValueTypeMatrix
	})
}

// ask asks a part alone.
func (s *search) ask(e parser.Expr) (part, error) {
	if s.left--; s.left < 0 {
		return part{}, errLong
	}
	text := e.String()
	if e.Type() == parser.ValueTypeMatrix {
		text = "count_over_time(" + plain(e).String() + ")"
	}
	series, err := s.server.Ask(text, s.End)
	return part{e, series}, err
}

// plain returns a range without anchored and smoothed, which count_over_time does not take.
func plain(e parser.Expr) parser.Expr {
	m, ok := e.(*parser.MatrixSelector)
	if !ok {
		return e
	}
	own, selector := *m, *m.VectorSelector.(*parser.VectorSelector)
	selector.Anchored, selector.Smoothed = false, false
	own.VectorSelector = &selector
	return &own
}

// callReason returns why a function makes nothing of arguments that have data.
func callReason(c *parser.Call, args []part) string {
	if len(args) == 0 {
		return ""
	}
	name, arg := c.Func.Name, args[0]
	switch {
	case name == "absent" || name == "absent_over_time":
		return fmt.Sprintf("%s has data, and %s is empty as long as it has", short(arg.expr), name)
	case strings.HasPrefix(name, "histogram_"):
		return fmt.Sprintf("%s has data, but no histograms: %s needs native ones, or buckets with the label le",
			short(arg.expr), name)
	case arg.expr.Type() == parser.ValueTypeMatrix:
		samples := 0.0
		for _, s := range arg.series {
			samples += float64(s.Value)
		}
		return fmt.Sprintf("%s has %s in %s, and %s needs two samples of a series; use a longer window%s", short(arg.expr),
			counted(int(samples), "sample"), counted(len(arg.series), "series"), name, longer(rangeOf(arg.expr)))
	}
	return fmt.Sprintf("%s has data, but %s makes nothing of it", short(arg.expr), name)
}

func rangeOf(e parser.Expr) time.Duration {
	if m, ok := e.(*parser.MatrixSelector); ok {
		return m.Range
	}
	return 0
}

// longer gives an example of a window that is longer than one that was too short.
func longer(than time.Duration) string {
	for _, d := range []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour} {
		if than > 0 && d > than {
			return ", such as [" + model.Duration(d).String() + "]"
		}
	}
	return ""
}

// binaryReason returns why an operator has no answer although its sides have data.
func binaryReason(b *parser.BinaryExpr, sides []part) string {
	if len(sides) < 2 {
		return comparisonReason(b, sides)
	}
	left, right := sides[0], sides[1]
	if b.Op == parser.LUNLESS {
		return fmt.Sprintf("each series of %s has one of %s with the same labels", short(left.expr), short(right.expr))
	}
	both := fmt.Sprintf("%s and %s have data, but ", short(left.expr), short(right.expr))
	if differ := differences(b, left.series, right.series); len(differ) > 0 {
		return both + "no two series have the same labels: " + strings.Join(differ, "; ") +
			"; say which labels to compare by on (...) or ignoring (...)"
	}
	if b.Op.IsComparisonOperator() {
		return both + "no value passes the comparison " + b.Op.String()
	}
	return both + "no two series have the same labels"
}

// comparisonReason returns why no series passes a comparison with a number.
func comparisonReason(b *parser.BinaryExpr, sides []part) string {
	if len(sides) == 0 || len(sides[0].series) == 0 {
		return ""
	}
	least := slices.MinFunc(sides[0].series, byValue)
	most := slices.MaxFunc(sides[0].series, byValue)
	return fmt.Sprintf("no value of %s passes the comparison %s: the smallest is %s, the largest %s", short(sides[0].expr),
		b.Op, least.Value, most.Value)
}

func byValue(a, b *model.Sample) int {
	switch {
	case a.Value < b.Value:
		return -1
	case a.Value > b.Value:
		return 1
	}
	return 0
}

// differences says which labels are never the same on both sides, of those that must be.
func differences(b *parser.BinaryExpr, left, right model.Vector) (differ []string) {
	m := b.VectorMatching
	compared := func(name string) bool {
		listed := m != nil && slices.Contains(m.MatchingLabels, name)
		return name != model.MetricNameLabel && listed == (m != nil && m.On)
	}
	a, c := valuesByLabel(left), valuesByLabel(right)
	var names []string
	for _, of := range []map[string][]string{a, c} {
		for name := range of {
			if compared(name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		switch l, r := a[name], c[name]; {
		case len(l) == 0:
			differ = append(differ, "only the right side has "+name)
		case len(r) == 0:
			differ = append(differ, "only the left side has "+name)
		case !slices.ContainsFunc(l, func(v string) bool { return slices.Contains(r, v) }):
			differ = append(differ, fmt.Sprintf("%s is %s on the left and %s on the right", name, quoted(l[0]), quoted(r[0])))
		}
	}
	return differ
}

// valuesByLabel returns the values of each label, sorted.
func valuesByLabel(series model.Vector) map[string][]string {
	all := map[string][]string{}
	for _, s := range series {
		for name, value := range s.Metric {
			all[string(name)] = append(all[string(name)], string(value))
		}
	}
	for name, values := range all {
		slices.Sort(values)
		all[name] = slices.Compact(values)
	}
	return all
}

// maxText bounds each piece of a query or a value in a reason, in characters.
const maxText = 120

func short(e parser.Expr) string { return cut(e.String()) }

func quoted(value string) string { return strconv.Quote(cut(value)) }

func cut(text string) string {
	if runes := []rune(text); len(runes) > maxText {
		return string(runes[:maxText]) + "…"
	}
	return text
}

func counted(n int, what string) string {
	if n != 1 && what != "series" {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func moment(t time.Time) string { return t.Format(time.RFC3339) }
