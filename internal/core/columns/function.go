package columns

import (
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
)

// function is a range function on the window of a column. For floats, frequent functions have an
// implementation here; otherwise the engine's function gets the window.
type function struct {
	leaf    *leaf
	column  *column
	fast    func(f *function, ts int64) (v float64, ok bool)
	counter bool // whether the engine notes that the series may be no counter
	rate    bool // whether the result is divided by the range
	rises   bool // whether the function corrects for resets

	engine promql.FunctionCall
	matrix promql.Matrix
	help   *promql.EvalNodeHelper

	liveAt int64 // time of the series' live sample
	live   bool  // whether it has one
}

func newFunction(l *leaf) *function {
	name := l.call.Func.Name
	f := &function{leaf: l, engine: promql.FunctionCalls[name], matrix: make(promql.Matrix, 1),
		help: &promql.EvalNodeHelper{Out: make(promql.Vector, 0, 1)}}
	switch name {
	case "rate", "increase", "delta":
		f.fast = (*function).extrapolated
		f.rate = name == "rate"
		f.counter = name != "delta"
		f.rises = f.counter
	case "count_over_time":
		f.fast = func(f *function, _ int64) (float64, bool) { return float64(len(f.column.floats.window())), true }
	case "last_over_time":
		f.fast = func(f *function, _ int64) (float64, bool) {
			w := f.column.floats.window()
			return w[len(w)-1].F, true
		}
	}
	return f
}

// begin begins with a series. Its column has begun.
func (f *function) begin(e *evaluation, of labels.Labels) {
	f.column = &e.column
	f.matrix[0].Metric = of
	f.live = false
	if e.live != nil {
		f.liveAt, f.live = e.live.LiveAt(of)
	}
}

// at returns the function's result for the present window, which is not empty.
func (f *function) at(ts int64) (v float64, h *histogram.FloatHistogram, ok bool) {
	floats := f.column.floats.window()
	n := len(floats)
	if f.fast != nil && f.column.size == 0 && !(f.live && floats[n-1].T == f.liveAt) {
		v, ok = f.fast(f, ts)
		return v, nil, ok
	}
	f.matrix[0].Floats, f.matrix[0].Histograms = floats, f.column.histograms.window()
	f.help.Ts = ts
	out, notes := f.engine(nil, f.matrix, f.leaf.call.Args, f.help)
	f.help.Out = out[:0]
	merge(&f.leaf.plan.notes, notes)
	if len(out) == 0 {
		return 0, nil, false
	}
	return out[0].F, out[0].H, true
}

// extrapolated is the engine's extrapolatedRate for floats. Instead of looking for resets, it reads
// them from the column's table, in the same order.
func (f *function) extrapolated(ts int64) (v float64, ok bool) {
	floats := f.column.floats.window()
	n := len(floats) - 1
	if n == 0 {
		return 0, false
	}
	first, last := floats[0], floats[n]
	v = last.F - first.F
	if f.rises {
		before := f.column.floats.dropped + 1
		for _, at := range f.column.resets.window() {
			v += f.column.floats.all[at-before].F
		}
	}
	end := ts - f.leaf.offset
	toStart := float64(first.T-(end-f.leaf.span)) / 1000
	toEnd := float64(end-last.T) / 1000
	sampled := float64(last.T-first.T) / 1000
	spacing := sampled / float64(n)
	threshold := spacing * 1.1
	if toStart >= threshold {
		toStart = spacing / 2
	}
	if f.rises && v > 0 && first.F >= 0 {
		if toZero := sampled * (first.F / v); toZero < toStart {
			toStart = toZero
		}
	}
	if toEnd >= threshold {
		toEnd = spacing / 2
	}
	factor := 1.0
	if sampled != 0 {
		factor = (sampled + toStart + toEnd) / sampled
	}
	if f.rate {
		factor /= f.leaf.seconds
	}
	return v * factor, true
}
