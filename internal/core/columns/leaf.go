package columns

import (
	"context"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/schema"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"
)

// leaf is a part of a statement that is evaluated here: agg(f(selector[span])), f(selector[span]), or
// agg(selector).
type leaf struct {
	plan     *plan
	before   held
	expr     parser.Expr
	agg      *parser.AggregateExpr // nil if the leaf has no aggregation
	call     *parser.Call          // nil if the leaf has no function
	selector *parser.VectorSelector
	span     int64   // the range, ms
	seconds  float64 // the range in seconds
	offset   int64   // ms
	hints    storage.SelectHints

	held       int  // samples of the results so far, as the engine counts them
	histograms bool // whether a result has histograms
}

// evaluation evaluates the series of a leaf, one after the other.
type evaluation struct {
	*leaf
	ctx    context.Context
	base   int // samples that the engine holds besides the present window
	column column
	inner  chunkenc.Iterator

	function *function
	seen     map[uint64]struct{} // hashes of labels without a name, of series with results
	twice    bool                // whether two series have the same; an error, but only after the last series
	noted    string              // the name that has its note
	live     liveSet             // nil if no sample is live

	row row // results of the present series
}

// liveSet is a series set in which the newest sample of a series may be live. The engine's functions
// for rates are replaced by functions that move a live sample, so this package calls them then.
type liveSet interface {
	// LiveAt returns the time of a series' live sample, in Unix ms; not ok if it has none.
	LiveAt(labels.Labels) (at int64, ok bool)
}

// row has results of one series, in order of time.
type row struct {
	floats     []promql.FPoint
	histograms []promql.HPoint
}

func (r *row) reset() { r.floats, r.histograms = r.floats[:0], r.histograms[:0] }

// size is the number of samples for which the engine counts the row.
func (r *row) size() int { return len(r.floats) + sizeOf(r.histograms) }

// sizeOf counts a histogram as the engine does: its bytes and its time, in samples of 16 bytes.
func sizeOf(points []promql.HPoint) (samples int) {
	for _, p := range points {
		samples += histogramSize(p.H)
	}
	return samples
}

func histogramSize(h *histogram.FloatHistogram) int { return (h.Size() + 8) / 16 }

// begin makes an evaluation. It fails if the engine's count of samples is unknown.
func (l *leaf) begin(ctx context.Context) (*evaluation, error) {
	base, ok := l.before.count()
	if !ok {
		return nil, errDecline
	}
	e := &evaluation{leaf: l, ctx: ctx, base: base}
	if l.call != nil {
		e.function = newFunction(l)
		if l.call.Func.Name != "last_over_time" && l.call.Func.Name != "first_over_time" {
			e.seen = map[uint64]struct{}{}
		}
	}
	e.live, _ = l.selector.UnexpandedSeriesSet.(liveSet)
	return e, nil
}

// labels returns the labels of a series' results.
func (l *leaf) labels(of labels.Labels) labels.Labels {
	if l.call == nil || l.call.Func.Name == "last_over_time" || l.call.Func.Name == "first_over_time" {
		return of
	}
	return of.DropReserved(schema.IsMetadataLabel)
}

// evaluate fills the row with the results of a series.
func (e *evaluation) evaluate(s storage.Series) error {
	if err := contextDone(e.ctx); err != nil {
		return err
	}
	e.inner = s.Iterator(e.inner)
	if e.call == nil {
		return e.instants(newInstant(e.inner, e.plan.lookback))
	}
	e.column.begin(e.inner, e.function.rises)
	return e.ranges(s.Labels())
}

// evaluateChunks is evaluate for a series in chunks.
func (e *evaluation) evaluateChunks(s ChunkSeries) error {
	if err := contextDone(e.ctx); err != nil {
		return err
	}
	if e.call == nil {
		e.column.beginChunks(s, false, true)
		return e.instantsInChunks()
	}
	e.column.beginChunks(s, e.function.rises, false)
	return e.ranges(s.Labels)
}

// ranges fills the row with the results of a range function. The column has begun.
func (e *evaluation) ranges(of labels.Labels) error {
	err := e.windows(of)
	if err != nil || e.seen == nil || len(e.row.floats)+len(e.row.histograms) == 0 {
		return err
	}
	hash := e.labels(of).Hash()
	_, had := e.seen[hash]
	e.twice = e.twice || had
	e.seen[hash] = struct{}{}
	return nil
}

// end returns the error that the engine has after the last series.
func (e *evaluation) end() error {
	if e.twice {
		return errSameLabels
	}
	return nil
}

// windows evaluates a range function at all steps.
func (e *evaluation) windows(of labels.Labels) error {
	p := e.plan
	e.row.reset()
	e.function.begin(e, of)
	run := stepRun{evaluation: e, ts: p.start, last: p.start + int64(p.steps-1)*p.interval}
	for run.ts <= run.last {
		var err error
		if fn := e.function; fn.floats != nil && e.column.chunked.is && !(fn.live && run.ts-e.offset >= fn.liveAt) {
			err = run.floats()
		} else {
			err = run.step()
		}
		if err != nil {
			return err
		}
		if e.base+run.most > p.maxSamples {
			return tooMany
		}
	}
	p.samples.UpdatePeak(e.base + run.most)
	p.samples.TotalSamples += int64(run.total)
	p.samples.SamplesRead += int64(run.fresh)
	size := e.row.size()
	if e.base+run.window+size > p.maxSamples && size > 0 {
		return tooMany
	}
	p.samples.UpdatePeak(e.base + run.window + size)
	e.base += size
	e.noteCounter(of)
	return nil
}

// stepRun runs over the steps of a series. It counts samples as the engine does.
type stepRun struct {
	*evaluation
	ts, last int64 // the next step and the last one, ms
	window   int   // samples in the window of the step before
	most     int   // in the largest window so far
	total    int   // in all windows so far
	fresh    int   // those that no window before had
}

// step evaluates the next step.
func (r *stepRun) step() error {
	ts, maxt := r.ts, r.ts-r.offset
	r.ts += r.plan.interval
	fresh, err := r.column.advance(maxt-r.span, maxt)
	if err != nil {
		return err
	}
	r.window = r.column.held()
	if r.window == 0 {
		return nil
	}
	r.most = max(r.most, r.window)
	r.total += r.window
	r.fresh += fresh
	switch f, h, ok := r.function.at(ts); {
	case !ok:
	case h == nil:
		r.row.floats = append(r.row.floats, promql.FPoint{T: ts, F: f})
	default:
		r.row.histograms = append(r.row.histograms, promql.HPoint{T: ts, H: h})
	}
	return nil
}

// floats evaluates the next steps, at least one, for which the column has all samples. It does the same as step, but
// the samples come from chunks and the function is evaluated here, so what changes at each step is in registers.
func (r *stepRun) floats() error {
	c, fn := &r.column, r.function
	if err := c.fill(r.ts-r.offset-r.span, r.ts-r.offset); err != nil {
		return err
	}
	covered := c.covered()
	if fn.live {
		covered = min(covered, fn.liveAt-1)
	}
	all, resets, dropped := c.floats.all, c.resets.all, c.floats.dropped
	lo, hi, lowReset, highReset := c.floats.lo, c.floats.hi, c.resets.lo, c.resets.hi
	for ; r.ts <= r.last && r.ts-r.offset <= covered; r.ts += r.plan.interval {
		maxt, had := r.ts-r.offset, hi
		for hi < len(all) && all[hi].T <= maxt {
			hi++
		}
		for lo < hi && all[lo].T <= maxt-r.span {
			lo++
		}
		for highReset < len(resets) && resets[highReset] < dropped+hi {
			highReset++
		}
		for lowReset < highReset && resets[lowReset] <= dropped+lo { // the float before this reset is outside
			lowReset++
		}
		r.window = hi - lo
		if r.window == 0 {
			continue
		}
		r.most = max(r.most, r.window)
		r.total += r.window
		r.fresh += hi - max(had, lo)
		w := floatWindow{all: all[lo:hi], first: dropped + lo, resets: resets[lowReset:highReset]}
		if v, ok := fn.floats(fn, w, r.ts); ok {
			r.row.floats = append(r.row.floats, promql.FPoint{T: r.ts, F: v})
		}
	}
	c.floats.lo, c.floats.hi, c.resets.lo, c.resets.hi = lo, hi, lowReset, highReset
	c.trim()
	return nil
}

// noteCounter adds the engine's note about a counter whose name is not one of a counter.
func (e *evaluation) noteCounter(of labels.Labels) {
	if !e.function.counter || len(e.row.floats) == 0 {
		return
	}
	name := of.Get(model.MetricNameLabel)
	if name == "" || name == e.noted {
		return
	}
	e.noted = name
	for _, suffix := range []string{"_total", "_sum", "_count", "_bucket"} {
		if strings.HasSuffix(name, suffix) {
			return
		}
	}
	e.plan.notes.Add(annotations.NewPossibleNonCounterInfo(name, e.call.Args[0].PositionRange()))
}

// instants takes the newest sample at each step, if it is not older than the look-back delta.
func (e *evaluation) instants(in instant) error {
	p := e.plan
	e.row.reset()
	last := p.start + int64(p.steps-1)*p.interval
	for ts := p.start; ts <= last; ts += p.interval {
		f, h, ok, err := in.at(ts - e.offset)
		switch {
		case err != nil:
			return err
		case !ok:
		case h == nil:
			e.row.floats = append(e.row.floats, promql.FPoint{T: ts, F: f})
		default:
			e.row.histograms = append(e.row.histograms, promql.HPoint{T: ts, H: h})
		}
	}
	return e.countInstants()
}

// countInstants counts the row, which is in the engine's memory from now on.
func (e *evaluation) countInstants() error {
	size := e.row.size()
	if e.base += size; e.base > e.plan.maxSamples {
		return tooMany
	}
	e.plan.samples.TotalSamples += int64(size)
	e.plan.samples.SamplesRead += int64(size)
	return nil
}

// gave counts a row of results that the engine is about to read as samples of a selector. The
// engine counts these samples once more, which gave takes back.
func (l *leaf) gave(r *row) {
	size := r.size()
	l.held += size
	l.histograms = l.histograms || len(r.histograms) > 0
	l.plan.samples.TotalSamples -= int64(size)
	l.plan.samples.SamplesRead -= int64(size)
}
