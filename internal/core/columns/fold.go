package columns

import (
	"errors"
	"math"
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/prometheus/prometheus/util/kahansum"
)

// folds are the aggregations that are evaluated here. For others, the engine aggregates.
var folds = map[parser.ItemType]bool{parser.SUM: true, parser.AVG: true, parser.MIN: true, parser.MAX: true,
	parser.COUNT: true, parser.GROUP: true}

// groups aggregate series, one after the other. Each cell sees its values in the order of the series,
// as in the engine, since sums depend on it.
type groups struct {
	plan    *plan
	agg     *parser.AggregateExpr
	names   []string // sorted, as the engine's functions expect them
	index   map[uint64]*group
	all     []*group // in the order of their first series
	bytes   int64    // their memory
	builder *labels.Builder
	buffer  []byte
}

// group has a cell for each step from its first result to its last, and possibly for some steps around them.
type group struct {
	labels     labels.Labels
	first      int // the step of the first cell
	cells      []cell
	histograms []*histogramCell // one for each cell; nil until the group has a histogram
}

// Memory in bytes, which TestMemoryOfGroups measures.
const (
	groupBytes     = 160 // a group without labels and cells, with its places in the index and the list
	cellBytes      = 24
	pointerBytes   = 8
	histogramBytes = 48 // a histogramCell without histograms
)

// cell is one group at one step.
type cell struct {
	value      float64 // the sum, the mean, or the result
	correction float64 // Kahan's
	count      uint32
	seen       bool
	floats     bool // whether sum and avg have seen a float
	byMean     bool // whether avg, after an overflow, calculates means
}

// histogramCell is a cell's part for histograms.
type histogramCell struct {
	value, mean, correction *histogram.FloatHistogram
	byMean                  bool
	incompatible            bool
	reset, noReset          bool // hints that were seen
}

func newGroups(p *plan, agg *parser.AggregateExpr) *groups {
	names := slices.Clone(agg.Grouping)
	slices.Sort(names)
	return &groups{plan: p, agg: agg, names: names, index: map[uint64]*group{},
		builder: labels.NewBuilder(labels.EmptyLabels())}
}

// of returns the group of a series. Like the engine, it takes hashes for the groups' labels.
func (g *groups) of(series labels.Labels) *group {
	var key uint64
	switch {
	case g.agg.Without:
		key, g.buffer = series.HashWithoutLabels(g.buffer, g.names...)
	case len(g.names) > 0:
		key, g.buffer = series.HashForLabels(g.buffer, g.names...)
	}
	found := g.index[key]
	if found == nil {
		found = &group{labels: g.labels(series)}
		g.index[key] = found
		g.all = append(g.all, found)
		g.bytes += groupBytes + int64(found.labels.ByteSize())
	}
	return found
}

func (g *groups) labels(series labels.Labels) labels.Labels {
	g.builder.Reset(series)
	switch {
	case g.agg.Without:
		g.builder.Del(g.names...)
		g.builder.Del(model.MetricNameLabel)
	case len(g.names) > 0:
		g.builder.Keep(g.names...)
	default:
		return labels.EmptyLabels()
	}
	return g.builder.Labels()
}

// add adds the results of a series to its group.
func (g *groups) add(series labels.Labels, r *row) {
	if len(r.floats)+len(r.histograms) == 0 {
		return
	}
	to := g.of(series)
	g.cover(to, r)
	i, at := -to.first, g.plan.start
	for _, p := range r.floats {
		for ; at < p.T; at += g.plan.interval {
			i++
		}
		c := &to.cells[i]
		if to.histograms != nil {
			if h := to.histograms[i]; h != nil && h.incompatible {
				continue
			}
		}
		if c.seen {
			c.add(g.agg.Op, p.F)
		} else {
			*c = cell{value: p.F, count: 1, seen: true, floats: true}
			if g.agg.Op == parser.GROUP {
				c.value = 1
			}
		}
	}
	for _, p := range r.histograms {
		g.addHistogram(to, g.step(p.T)-to.first, series, p.H)
	}
}

// step returns the step at a time.
func (g *groups) step(t int64) int { return int((t - g.plan.start) / g.plan.interval) }

// cover makes cells for the steps of a row. The first row of a group gets no more than that: many short-lived series
// may each have a group. If further rows reach beyond the cells, their number at least doubles, so that each is copied
// a few times at most.
func (g *groups) cover(to *group, r *row) {
	first, last := g.plan.steps, 0
	if n := len(r.floats); n > 0 {
		first, last = g.step(r.floats[0].T), g.step(r.floats[n-1].T)
	}
	if n := len(r.histograms); n > 0 {
		first, last = min(first, g.step(r.histograms[0].T)), max(last, g.step(r.histograms[n-1].T))
	}
	had := len(to.cells)
	if had == 0 {
		to.first = first
	}
	end := to.first + had
	if to.first <= first && last < end {
		return
	}
	if first < to.first {
		first = max(0, min(first, to.first-had))
	} else {
		first = to.first
	}
	if last >= end {
		end = min(g.plan.steps, max(last+1, end+had))
	}
	cells := make([]cell, end-first)
	copy(cells[to.first-first:], to.cells)
	g.bytes += cellBytes * int64(len(cells)-had)
	if to.histograms != nil {
		histograms := make([]*histogramCell, len(cells))
		copy(histograms[to.first-first:], to.histograms)
		to.histograms = histograms
		g.bytes += pointerBytes * int64(len(cells)-had)
	}
	to.first, to.cells = first, cells
}

// add adds a float to a cell that is not empty.
func (c *cell) add(op parser.ItemType, f float64) {
	switch op {
	case parser.SUM:
		c.floats = true
		c.value, c.correction = kahansum.Inc(f, c.value, c.correction)
	case parser.AVG:
		c.average(f)
	case parser.MIN:
		if c.value > f || math.IsNaN(c.value) {
			c.value = f
		}
	case parser.MAX:
		if c.value < f || math.IsNaN(c.value) {
			c.value = f
		}
	case parser.COUNT:
		c.count++
	}
}

// average is the engine's: it sums, and calculates with means only after an overflow.
func (c *cell) average(f float64) {
	c.count++
	c.floats = true
	count := float64(c.count)
	if !c.byMean {
		sum, correction := kahansum.Inc(f, c.value, c.correction)
		if !math.IsInf(sum, 0) {
			c.value, c.correction = sum, correction
			return
		}
		c.byMean = true
		c.value /= count - 1
		c.correction /= count - 1
	}
	q := (count - 1) / count
	c.value, c.correction = kahansum.Inc(f/count, q*c.value, q*c.correction)
}

// addHistogram adds a histogram to the cell with index i.
func (g *groups) addHistogram(to *group, i int, series labels.Labels, h *histogram.FloatHistogram) {
	c := &to.cells[i]
	switch g.agg.Op {
	case parser.MIN:
		g.plan.notes.Add(annotations.NewHistogramIgnoredInAggregationInfo("min", g.agg.Expr.PositionRange()))
	case parser.MAX:
		g.plan.notes.Add(annotations.NewHistogramIgnoredInAggregationInfo("max", g.agg.Expr.PositionRange()))
	case parser.GROUP:
		*c = cell{value: 1, seen: true}
	case parser.COUNT:
		c.count++
		c.seen = true
	default:
		if to.histograms == nil {
			to.histograms = make([]*histogramCell, len(to.cells))
			g.bytes += pointerBytes * int64(len(to.cells))
		}
		had := to.histograms[i]
		switch {
		case !c.seen:
			c.seen, c.count = true, 1
			to.histograms[i] = &histogramCell{value: h.Copy(), reset: h.CounterResetHint == histogram.CounterReset,
				noReset: h.CounterResetHint == histogram.NotCounterReset}
			g.bytes += histogramBytes + int64(h.Size())
		case had == nil: // the group has floats, and so has no result
			c.count++
			to.histograms[i] = &histogramCell{}
			g.bytes += histogramBytes
		case had.incompatible:
		default:
			c.count++
			g.join(had, c, series, h)
		}
	}
}

// join adds a histogram to a cell that has seen one.
func (g *groups) join(to *histogramCell, c *cell, series labels.Labels, h *histogram.FloatHistogram) {
	if to.value == nil {
		return // the first value of the cell was a float
	}
	switch h.CounterResetHint {
	case histogram.CounterReset:
		to.reset = true
	case histogram.NotCounterReset:
		to.noReset = true
	}
	if to.correction == nil {
		g.bytes += int64(h.Size())
	}
	var reconciled bool
	var err error
	if g.agg.Op == parser.SUM {
		to.correction, _, reconciled, err = to.value.KahanAdd(h, to.correction)
	} else {
		reconciled, err = to.average(h, float64(c.count))
	}
	if err != nil {
		to.incompatible = true
		if errors.Is(err, histogram.ErrHistogramsIncompatibleSchema) {
			g.plan.notes.Add(annotations.NewMixedExponentialCustomHistogramsWarning(
				series.Get(model.MetricNameLabel), g.agg.Expr.PositionRange()))
		}
	}
	if reconciled {
		g.plan.notes.Add(annotations.NewMismatchedCustomBucketsHistogramsInfo(
			g.agg.Expr.PositionRange(), annotations.HistogramAgg))
	}
}

// average is the engine's, for histograms.
func (to *histogramCell) average(h *histogram.FloatHistogram, count float64) (reconciled bool, err error) {
	var first bool
	if !to.byMean {
		v := to.value.Copy()
		var c *histogram.FloatHistogram
		if to.correction != nil {
			c = to.correction.Copy()
		}
		if c, _, first, err = v.KahanAdd(h, c); err != nil {
			return false, err
		}
		if !v.HasOverflow() {
			to.value, to.correction = v, c
			return first, nil
		}
		to.byMean = true
		to.mean = to.value.Copy().Div(count - 1)
		if to.correction != nil {
			to.correction.Div(count - 1)
		}
	}
	q := (count - 1) / count
	if to.correction != nil {
		to.correction.Mul(q)
	}
	to.correction, _, reconciled, err = to.mean.Mul(q).KahanAdd(h.Copy().Div(count), to.correction)
	return reconciled || first, err
}

// results fills a row with the results of a group.
func (g *groups) results(of *group, r *row) {
	r.reset()
	for i := range of.cells {
		c := &of.cells[i]
		if !c.seen {
			continue
		}
		ts := g.plan.start + int64(of.first+i)*g.plan.interval
		var had *histogramCell
		if of.histograms != nil {
			had = of.histograms[i]
		}
		if had == nil {
			r.floats = append(r.floats, promql.FPoint{T: ts, F: g.result(c)})
		} else if h := g.histogramResult(c, had); h != nil {
			r.histograms = append(r.histograms, promql.HPoint{T: ts, H: h})
		}
	}
}

// result is the result of a cell that has floats only, or whose aggregation ignores the difference.
func (g *groups) result(c *cell) float64 {
	switch g.agg.Op {
	case parser.SUM:
		return c.value + c.correction
	case parser.COUNT:
		return float64(c.count)
	case parser.AVG:
		if c.byMean {
			return c.value + c.correction
		}
		return c.value/float64(c.count) + c.correction/float64(c.count)
	default:
		return c.value
	}
}

// histogramResult returns nil if the values of the cell do not fit together.
func (g *groups) histogramResult(c *cell, had *histogramCell) (h *histogram.FloatHistogram) {
	at := g.agg.Expr.PositionRange()
	if c.floats {
		g.plan.notes.Add(annotations.NewMixedFloatsHistogramsAggWarning(at))
		return nil
	}
	switch {
	case had.incompatible:
		return nil
	case had.byMean:
		if h = had.mean; had.correction != nil {
			h, _, _, _ = h.Add(had.correction) // fits, as the values did
		}
	case g.agg.Op == parser.AVG:
		h = had.value.Div(float64(c.count))
		if had.correction != nil {
			h, _, _, _ = h.Add(had.correction.Div(float64(c.count)))
		}
	default:
		if h = had.value; had.correction != nil {
			h, _, _, _ = h.Add(had.correction)
		}
	}
	if had.reset && had.noReset {
		g.plan.notes.Add(annotations.NewHistogramCounterResetCollisionWarning(at, annotations.HistogramAgg))
	}
	return h.Compact(0)
}
