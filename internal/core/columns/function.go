package columns

import (
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
)

// function is a range function on the window of a column. For floats, frequent functions have an
// implementation here; otherwise the engine's function gets the window.
type function struct {
	leaf   *leaf
	column *column

	// floats is nil for a function without an implementation here. The time is that of the step.
	floats func(f *function, w floatWindow, ts int64) (v float64, ok bool)

	counter bool // whether the engine notes that the series may be no counter
	rate    bool // whether the result is divided by the range
	rises   bool // whether the function corrects for resets
	shape   shape

	engine promql.FunctionCall
	matrix promql.Matrix
	help   *promql.EvalNodeHelper

	liveAt int64 // time of the series' live sample
	live   bool  // whether it has one
}

// floatWindow is a window that has floats only, at least one.
type floatWindow struct {
	all    []promql.FPoint
	first  int   // position of the first sample, counted from the first sample of the series
	resets []int // positions of resets in the window, counted likewise
}

func newFunction(l *leaf) *function {
	name := l.call.Func.Name
	f := &function{leaf: l, engine: promql.FunctionCalls[name], matrix: make(promql.Matrix, 1),
		help: &promql.EvalNodeHelper{Out: make(promql.Vector, 0, 1)}}
	switch name {
	case "rate", "increase", "delta":
		f.floats = (*function).extrapolated
		f.rate = name == "rate"
		f.counter = name != "delta"
		f.rises = f.counter
	case "count_over_time":
		f.floats = func(_ *function, w floatWindow, _ int64) (float64, bool) { return float64(len(w.all)), true }
	case "last_over_time":
		f.floats = func(_ *function, w floatWindow, _ int64) (float64, bool) { return w.all[len(w.all)-1].F, true }
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
	if f.floats != nil && f.column.size == 0 && !(f.live && floats[n-1].T == f.liveAt) {
		v, ok = f.floats(f, f.column.floatWindow(), ts)
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
func (f *function) extrapolated(w floatWindow, ts int64) (v float64, ok bool) {
	n := len(w.all) - 1
	if n == 0 {
		return 0, false
	}
	first, last := w.all[0], w.all[n]
	v = last.F - first.F
	if f.rises {
		for _, at := range w.resets {
			v += w.all[at-w.first-1].F
		}
	}
	end := ts - f.leaf.offset
	s := &f.shape
	if before, after := first.T-(end-f.leaf.span), end-last.T; before != s.before || after != s.after || n != s.n {
		*s = f.newShape(before, after, n)
	}
	// The counter is not extrapolated below zero. Where it was at least what it has risen since, that is so anyway.
	if f.rises && v > 0 && first.F >= 0 && !(first.F >= v && s.sampled >= s.toStart) {
		if toZero := s.sampled * (first.F / v); toZero < s.toStart {
			return v * f.factor(s.sampled, toZero, s.toEnd), true
		}
	}
	return v * s.factor, true
}

// shape has what extrapolatedRate derives from the times of a window. With regular samples it is the same at many
// steps, which saves most divisions.
type shape struct {
	before, after           int64 // ms from the window's begin to the first sample, and from the last to the end
	n                       int   // samples but one; 0 for no shape
	sampled, toStart, toEnd float64
	factor                  float64 // unless the counter would have been below zero
}

func (f *function) newShape(before, after int64, n int) shape {
	s := shape{before: before, after: after, n: n, sampled: float64(f.leaf.span-before-after) / 1000,
		toStart: float64(before) / 1000, toEnd: float64(after) / 1000}
	spacing := s.sampled / float64(n)
	threshold := spacing * 1.1
	if s.toStart >= threshold {
		s.toStart = spacing / 2
	}
	if s.toEnd >= threshold {
		s.toEnd = spacing / 2
	}
	s.factor = f.factor(s.sampled, s.toStart, s.toEnd)
	return s
}

func (f *function) factor(sampled, toStart, toEnd float64) float64 {
	factor := 1.0
	if sampled != 0 {
		factor = (sampled + toStart + toEnd) / sampled
	}
	if f.rate {
		factor /= f.leaf.seconds
	}
	return factor
}
