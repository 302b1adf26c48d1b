package promapi

import (
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// LiveSet is a series set in which the newest sample of a series may be live. A live sample lies
// inside an open tile; all other samples lie at the ends of tiles.
type LiveSet interface {
	storage.SeriesSet
	// LiveSample looks up the sample of a series at a time. If the sample is live, it returns the
	// width of the tiles before the sample, otherwise 0. Width and time are in milliseconds.
	LiveSample(of labels.Labels, at int64) (width int64)
	// LiveAt returns the time of a series' live sample, in Unix milliseconds. It is not ok if the
	// series has none.
	LiveAt(of labels.Labels) (at int64, ok bool)
}

// rate, increase and delta extrapolate to the edges of their range only if the edges are not much
// further away than the mean spacing of the samples. A live sample makes that mean smaller,
// because it comes between 1 s and a whole tile after the end of the last tile. Here the three
// functions wrap Prometheus' own, and first move the live sample to a regular distance. All other
// samples and the results of Prometheus' functions stay unchanged. docs/decisions/live-rate.md
// gives the reasons.
//
// The engine finds functions in a global map, so init changes the map before any engine runs.
func init() {
	for name, counts := range map[string]bool{"rate": true, "increase": true, "delta": false} {
		promql.FunctionCalls[name] = withLiveSample(promql.FunctionCalls[name], counts)
	}
}

// withLiveSample moves the live sample of a range to a regular distance before it calls f. For a
// counter it compares values, so that no reset is lost.
func withLiveSample(f promql.FunctionCall, counter bool) promql.FunctionCall {
	return func(vectors []promql.Vector, matrix promql.Matrix, args parser.Expressions,
		enh *promql.EvalNodeHelper) (promql.Vector, annotations.Annotations) {
		of := &matrix[0]
		floats, histograms := of.Floats, of.Histograms
		nf, nh := len(floats), len(histograms)
		switch { // most ranges end with a tile, for which this check is cheap
		case nf >= 2 && nh == 0 && inTile(floats[nf-1].T):
			e := edge{enh: enh, counter: counter}
			if !e.find(args, of.Metric, floats[nf-1].T) {
				break
			}
			last, before := floats[nf-1], floats[nf-2]
			of.Floats = e.floats(floats)
			defer func() { of.Floats, floats[nf-1], floats[nf-2] = floats, last, before }()
		case nh >= 2 && nf == 0 && inTile(histograms[nh-1].T):
			e := edge{enh: enh, counter: counter}
			if !e.find(args, of.Metric, histograms[nh-1].T) {
				break
			}
			last, before := histograms[nh-1], histograms[nh-2]
			of.Histograms = e.histograms(histograms)
			defer func() { of.Histograms, histograms[nh-1], histograms[nh-2] = histograms, last, before }()
		}
		return f(vectors, matrix, args, enh)
	}
}

// inTile reports whether a sample at time t could be live: a window ends at t, and t is not a multiple
// of every tile width. Only LiveSample knows the tile width of the series.
func inTile(t int64) bool { return t%1000 == 0 && t%60_000 != 0 }

// edge is the end of a range whose last sample is live.
type edge struct {
	enh        *promql.EvalNodeHelper
	counter    bool
	width      int64 // width of a tile, ms
	start, end int64 // the range, ms
}

// find fills the edge. `t` is the time of the last sample in a series' range. find returns false if
// that sample is not live, or if the selector does not extrapolate.
func (e *edge) find(args parser.Expressions, metric labels.Labels, t int64) bool {
	ms, ok := args[0].(*parser.MatrixSelector)
	if !ok {
		return false
	}
	vs, ok := ms.VectorSelector.(*parser.VectorSelector)
	if !ok || vs.Anchored || vs.Smoothed {
		return false
	}
	live, ok := vs.UnexpandedSeriesSet.(LiveSet) // set by the engine; nil for a subquery
	if !ok {
		return false
	}
	e.width, e.end = live.LiveSample(metric, t), e.enh.Ts-vs.Offset.Milliseconds()
	e.start = e.end - ms.Range.Milliseconds()
	return e.width > 0
}

// floats puts the live sample at a regular distance from the others, in the same memory, and returns the
// samples of the range. If the end of the last tile is less than a tile away from the live sample,
// floats drops the sample at that end. The rise between the neighbours of that sample stays the same,
// and no two samples are closer than a tile.
func (e *edge) floats(f []promql.FPoint) []promql.FPoint {
	n := len(f)
	last, before := f[n-1], f[n-2]
	switch {
	case last.T-before.T >= e.width || e.counter && last.F < before.F:
	case n > 2:
		if e.counter && before.F < f[n-3].F {
			break // without this sample, the reset would be lost
		}
		f[n-2] = last
		return f[:n-1]
	case e.short(before.T, last.T):
		f[n-1] = promql.FPoint{T: e.end, F: last.F + (last.F-before.F)*e.ahead(before.T, last.T)}
	}
	return f
}

// histograms does the same as floats, for native histograms.
func (e *edge) histograms(h []promql.HPoint) []promql.HPoint {
	n := len(h)
	last, before := h[n-1], h[n-2]
	switch {
	case last.T-before.T >= e.width || e.counter && last.H.DetectReset(before.H):
	case n > 2:
		if e.counter && before.H.DetectReset(h[n-3].H) {
			break
		}
		h[n-2] = last
		return h[:n-1]
	case e.short(before.T, last.T):
		if carried := carry(before.H, last.H, e.ahead(before.T, last.T)); carried != nil {
			h[n-1] = promql.HPoint{T: e.end, H: carried}
		}
	}
	return h
}

// short is true if the range has only two samples, one at the end of a tile and one live, and they are
// so close together that Prometheus would not extrapolate to the start of the range. In that case the
// caller moves the live sample to the end of the range, which makes the spacing long enough. Prometheus
// extrapolates the result to the end of the range anyway.
func (e *edge) short(first, last int64) bool {
	toStart, toEnd := first-e.start, e.end-last
	return 10*toStart >= 11*(last-first) && toStart <= e.width && toEnd > 0 && toEnd < e.width
}

// ahead is the distance from the live sample to the end of the range, in units of the spacing.
func (e *edge) ahead(first, last int64) float64 { return float64(e.end-last) / float64(last-first) }

// carry extrapolates from two histograms: to `last` it adds `ahead` times the growth from `before`
// to `last`. It returns nil if the two cannot be compared.
func carry(before, last *histogram.FloatHistogram, ahead float64) *histogram.FloatHistogram {
	carried := last.Copy()
	if _, _, _, err := carried.Sub(before); err != nil {
		return nil
	}
	if _, _, _, err := carried.Mul(ahead).Add(last); err != nil {
		return nil
	}
	carried.CounterResetHint = last.CounterResetHint
	return carried
}
