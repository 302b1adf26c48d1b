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
	builder *labels.Builder
	buffer  []byte
}

// group has a cell for each step.
type group struct {
	labels     labels.Labels
	cells      []cell
	histograms []*histogramCell // nil until the group has a histogram
}

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
		found = &group{labels: g.labels(series), cells: make([]cell, g.plan.steps)}
		g.index[key] = found
		g.all = append(g.all, found)
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
	step, at := 0, g.plan.start
	for _, p := range r.floats {
		for ; at < p.T; at += g.plan.interval {
			step++
		}
		c := &to.cells[step]
		if to.histograms != nil {
			if h := to.histograms[step]; h != nil && h.incompatible {
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
		g.addHistogram(to, int((p.T-g.plan.start)/g.plan.interval), series, p.H)
	}
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

func (g *groups) addHistogram(to *group, step int, series labels.Labels, h *histogram.FloatHistogram) {
	c := &to.cells[step]
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
			to.histograms = make([]*histogramCell, g.plan.steps)
		}
		had := to.histograms[step]
		switch {
		case !c.seen:
			c.seen, c.count = true, 1
			to.histograms[step] = &histogramCell{value: h.Copy(), reset: h.CounterResetHint == histogram.CounterReset,
				noReset: h.CounterResetHint == histogram.NotCounterReset}
		case had == nil: // the group has floats, and so has no result
			c.count++
			to.histograms[step] = &histogramCell{}
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
	for step := range of.cells {
		c := &of.cells[step]
		if !c.seen {
			continue
		}
		ts := g.plan.start + int64(step)*g.plan.interval
		var had *histogramCell
		if of.histograms != nil {
			had = of.histograms[step]
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
