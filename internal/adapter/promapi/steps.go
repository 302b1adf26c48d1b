package promapi

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/annotations"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/freshet-io/freshet/internal/core/columns"
	"github.com/freshet-io/freshet/internal/core/stepcache"
	"github.com/freshet-io/freshet/internal/core/tenant"
)

// keptSteps keeps steps of range queries, and counts what came of it.
type keptSteps struct {
	cache   *stepcache.Cache // nil to keep none
	answers *prometheus.CounterVec
	steps   *prometheus.CounterVec
	n       atomic.Int64 // how many answers had kept steps
}

// What came of a range query, and of its steps: see the help of the metrics.
const (
	keptUsed    = "used"
	keptNone    = "none"
	keptNever   = "never"
	keptChanged = "changed"
	keptRaced   = "raced"
	keptOdd     = "odd"
	keptMixed   = "mixed"

	fromKept    = "kept"
	fromSamples = "samples"
)

func newKeptSteps(most int64, reg prometheus.Registerer) *keptSteps {
	k := &keptSteps{
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "freshet", Subsystem: "query",
			Name: "kept_total",
			Help: "Range queries by what came of steps that earlier queries have kept (query.step_cache). used: only the " +
				"other steps were evaluated; none: no step was kept; never: the expression allows none, or the request wants " +
				"none; changed: late samples, a compaction or the end of the retention may have changed all of them; raced: " +
				"the same during the evaluation, which began again; odd: the other steps have an error, a warning, histograms " +
				"or too many samples, so all were evaluated; mixed: all were evaluated and none is kept, since the query reads " +
				"tiles of several widths, a series from several stores, or a range of series with the labels __type__ or __unit__.",
		}, []string{"result"}),
		steps: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "freshet", Subsystem: "query",
			Name: "steps_total",
			Help: "Steps of range queries that were answered, except those of kept_total{result=\"never\"}. kept: from an " +
				"earlier query; samples: evaluated.",
		}, []string{"from"}),
	}
	for _, result := range []string{keptUsed, keptNone, keptNever, keptChanged, keptRaced, keptOdd, keptMixed} {
		k.answers.WithLabelValues(result)
	}
	for _, from := range []string{fromKept, fromSamples} {
		k.steps.WithLabelValues(from)
	}
	if most > 0 {
		k.cache = stepcache.New(most)
	}
	of := func(figure func(stepcache.Stats) float64) func() float64 {
		return func() float64 {
			if k.cache == nil {
				return 0
			}
			return figure(k.cache.Stats())
		}
	}
	reg.MustRegister(k.answers, k.steps,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "freshet", Subsystem: "query", Name: "kept_bytes",
			Help: "Memory of kept results of range queries, at most query.step_cache."},
			of(func(s stepcache.Stats) float64 { return float64(s.Bytes) })),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "freshet", Subsystem: "query",
			Name: "kept_evictions_total",
			Help: "Queries whose kept steps made room for others. Rising steadily: query.step_cache is too small for the " +
				"dashboards that are open."},
			of(func(s stepcache.Stats) float64 { return float64(s.Evicted) })),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "freshet", Subsystem: "query",
			Name: "kept_too_large_total",
			Help: "Results of range queries that were not kept, since each would take more than a quarter of query.step_cache."},
			of(func(s stepcache.Stats) float64 { return float64(s.Refused) })))
	return k
}

// span is the time of a query, or of a part of it.
type span struct{ start, end time.Time }

// evaluation is one evaluation of a query.
type evaluation struct {
	*keptSteps
	source     stepcache.Source // may be nil
	columns    *columnCounts
	whole      *columns.Query
	all        span
	maxSamples int
	prepare    func(part span) (*columns.Query, error)
	tidy       func(annotations.Annotations) // drops notes that nobody wants
	costing    *costing

	part *columns.Query // evaluated in place of the whole; nil if none is
}

// run evaluates the query, or only the steps that are not kept. The result is the same, with all its notes.
func (e *evaluation) run(ctx context.Context) *promql.Result {
	s, ok := e.whole.Statement().(*parser.EvalStmt)
	if !ok || s.Interval == 0 {
		return e.evaluate(ctx, e.whole, e.all)
	}
	asked, ok := e.asked(ctx, s)
	if !ok {
		e.answers.WithLabelValues(keptNever).Inc()
		return e.evaluate(ctx, e.whole, e.all)
	}
	result, came := e.join(ctx, asked)
	if result == nil {
		e.instead(nil)
		var mixed bool
		if result, mixed = e.keep(ctx, asked); mixed {
			came = keptMixed
		}
	}
	e.answers.WithLabelValues(came).Inc()
	return result
}

// asked returns the query if its steps may be kept, and may come from an earlier query.
func (e *evaluation) asked(ctx context.Context, s *parser.EvalStmt) (asked stepcache.Query, ok bool) {
	name, known := tenant.FromContext(ctx)
	if !known || e.source == nil || e.cache == nil || answerOf(ctx).fresh() {
		return asked, false
	}
	return stepcache.Of(name, e.whole.String(), s)
}

// evaluate evaluates a part of the query, or the whole.
func (e *evaluation) evaluate(ctx context.Context, q *columns.Query, of span) *promql.Result {
	result := q.Exec(ctx)
	if result.Err == nil {
		e.columns.evaluated(ctx, q, result, func() (promql.Query, error) { return e.prepare(of) })
	}
	e.tidy(result.Warnings)
	return result
}

// keep evaluates the whole query, and keeps its steps. If it cannot keep them, it drops the earlier ones: the next
// query would evaluate the steps after these in vain, and then all. `mixed` says that the reason is what the query has
// read.
func (e *evaluation) keep(ctx context.Context, asked stepcache.Query) (result *promql.Result, mixed bool) {
	var reading stepcache.Reading
	state := e.source.State(asked.Tenant)
	result = e.evaluate(stepcache.NewContext(ctx, &reading), e.whole, e.all)
	if result.Err != nil {
		return result, false
	}
	e.steps.WithLabelValues(fromSamples).Add(float64(asked.Steps()))
	width, one := reading.Width()
	if !one || len(result.Warnings) > 0 || !e.cache.Takes(result.Value.(promql.Matrix).TotalSamples()) {
		e.cache.Drop(asked.Key)
		return result, !one
	}
	if steps, ok := stepcache.Whole(asked, result.Value.(promql.Matrix), state, width); ok {
		e.cache.Put(asked.Key, steps)
	} else {
		e.cache.Drop(asked.Key)
	}
	return result, false
}

// join evaluates the steps that are not kept, and joins them with those that are. It returns no result if all steps
// must be evaluated, and says why.
//
// It asks twice whether the kept steps are still right. The second time is after the evaluation, which may have read a
// late sample that the kept steps lack. In a cluster, the evaluation has also waited for all samples that any node has
// acknowledged.
func (e *evaluation) join(ctx context.Context, asked stepcache.Query) (_ *promql.Result, came string) {
	kept := e.cache.Get(asked.Key)
	if kept == nil {
		return nil, keptNone
	}
	last, ok := kept.Last(asked, e.source.Same(asked.Tenant, kept.State))
	if !ok {
		return nil, keptChanged
	}
	part := span{time.UnixMilli(last + asked.Step), e.all.end}
	q, err := e.prepare(part)
	if err != nil {
		return nil, keptOdd
	}
	e.instead(q)
	state := e.source.State(asked.Tenant)
	reading := stepcache.Reading{Skipped: last + asked.Step - asked.Start}
	result := e.evaluate(stepcache.NewContext(ctx, &reading), q, part)
	if result.Err != nil || len(result.Warnings) > 0 {
		return nil, keptOdd
	}
	width, one := reading.Width()
	if !one {
		return nil, keptMixed
	}
	if width != kept.Width || e.source.Same(asked.Tenant, kept.State) <= last {
		return nil, keptRaced
	}
	joined, ok := kept.Join(asked, last, result.Value.(promql.Matrix), state, width)
	if !ok {
		return nil, keptOdd
	}
	answer, samples := joined.Answer(asked)
	if samples > e.maxSamples {
		return nil, keptOdd
	}
	if !kept.Longer(asked) {
		e.cache.Put(asked.Key, joined)
	}
	result.Value = answer
	served := asked.Until(last)
	e.steps.WithLabelValues(fromKept).Add(float64(served.Steps()))
	e.steps.WithLabelValues(fromSamples).Add(float64(asked.Steps() - served.Steps()))
	trace.SpanFromContext(ctx).SetAttributes(attribute.Int64("freshet.kept_steps", served.Steps()))
	e.verify(ctx, served, kept, joined)
	return result, keptUsed
}

// instead sets the part that is evaluated in place of the whole, and closes the one before, which has cost something.
func (e *evaluation) instead(part *columns.Query) {
	if e.part != nil {
		e.costing.samples(e.part)
		e.part.Close()
	}
	e.part = part
}

// verify compares steps that were kept with Prometheus' engine, if it is the query's turn. A difference counts only if
// they are still right afterwards, and if the engine gives the same result each time.
func (e *evaluation) verify(ctx context.Context, served stepcache.Query, kept, joined *stepcache.Steps) {
	c := e.columns
	if c.every == 0 || e.n.Add(1)%c.every != 0 {
		return
	}
	is := resultUnknown
	engine, ok := fingerprint(ctx, func() (promql.Query, error) {
		q, err := e.prepare(span{e.all.start, time.UnixMilli(served.Last)})
		if err != nil {
			return nil, err
		}
		defer q.Close()
		return q.Plain()
	})
	answer, _ := joined.Answer(served)
	switch {
	case !ok:
	case engine == columns.Fingerprint(answer):
		is = resultEqual
	case repeats(e.whole) && e.source.Same(served.Tenant, kept.State) > served.Last:
		is = resultDifferent
		c.logger.Error("a query has other steps in Prometheus' engine than those that were kept; this is a bug",
			"query", e.whole.String())
	}
	c.compared.WithLabelValues(is).Inc()
}
