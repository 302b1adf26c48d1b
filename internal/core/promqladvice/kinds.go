package promqladvice

import (
	"fmt"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// maxMetrics bounds the metrics of a query whose types are asked for.
const maxMetrics = 8

// ofGauges are the functions for gauges beside those for counters.
var ofGauges = map[string]string{"rate": "deriv", "increase": "delta", "irate": "idelta"}

// Kinds returns what speaks against a query that has an answer: a function for counters that reads a gauge, and a
// drawn counter, which only grows.
func Kinds(e parser.Expr, drawn bool, server Server) (advice []string) {
	types := map[string]string{}
	typeOf := func(metric string) string {
		if _, known := types[metric]; !known && len(types) < maxMetrics {
			types[metric] = server.Type(metric)
		}
		return types[metric]
	}
	parser.Inspect(e, func(n parser.Node, path []parser.Node) error {
		v, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		name, _ := split(v.LabelMatchers)
		if name == "" {
			return nil
		}
		function, window := reader(path)
		other, counts := ofGauges[function]
		switch {
		case counts && window != nil && typeOf(name) == string(model.MetricTypeGauge):
			advice = append(advice, fmt.Sprintf("%s is a gauge: %s is for counters, and takes each fall for a restart; "+
				"use %s(%s)", cut(name), function, other, short(window)))
		case drawn && function == "" && summed(path) && typeOf(name) == string(model.MetricTypeCounter):
			advice = append(advice, fmt.Sprintf("%s is a counter, which only grows; rate(%s[5m]) is its growth a second",
				cut(name), short(v)))
		}
		return nil
	})
	return advice
}

// reader returns the function that reads the range of a selector, and this range, by the path to the selector.
func reader(path []parser.Node) (function string, window parser.Expr) {
	for i := len(path) - 1; i >= 0; i-- {
		switch n := path[i].(type) {
		case *parser.Call:
			return n.Func.Name, window
		case *parser.MatrixSelector:
			window = n
		}
	}
	return "", window
}

// summed reports whether a query shows the values of a selector, or a sum or a choice of them.
func summed(path []parser.Node) bool {
	for _, n := range path {
		switch n := n.(type) {
		case *parser.ParenExpr:
		case *parser.AggregateExpr:
			if n.Op == parser.COUNT || n.Op == parser.COUNT_VALUES || n.Op == parser.GROUP {
				return false
			}
		default:
			return false
		}
	}
	return true
}
