package promapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/prometheus/prometheus/util/stats"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/freshet-io/freshet/internal/core/columns"
	"github.com/freshet-io/freshet/internal/core/promqlguard"
	"github.com/freshet-io/freshet/internal/core/querycost"
	"github.com/freshet-io/freshet/internal/core/stepcache"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/lib/pagefault"
	"github.com/freshet-io/freshet/internal/lib/turns"
	"github.com/freshet-io/freshet/internal/lib/untraced"
)

// Engine is Prometheus' query engine behind guards. It refuses queries that could take the process
// down, makes tenants take turns, and bounds the memory of all queries together. A panic fails only
// one query. The API and the rules share one Engine and its limits.
type Engine struct {
	lanes    *lanes
	parser   promqlguard.Parser
	limits   promqlguard.Limits
	timeout  time.Duration
	lookback time.Duration
	waiting  int // how many queries of a tenant may wait in a lane
	heap     *heapGuard
	streams  *streams
	costs    *querycost.Table
	columns  *columnCounts
	steps    *keptSteps
	logger   *slog.Logger
	failed   *prometheus.CounterVec

	// Damaged returns why the stores of a tenant must not answer, nil if they may. It is nil, or set before the first
	// query.
	Damaged func(tenant string) error

	// Source says which steps of earlier range queries are still right. It is nil, or set before the first query.
	Source stepcache.Source

	// Suspect gets the error of each query that failed, and returns the error to answer. It is nil, or set before the
	// first query.
	Suspect func(tenant string, err error) error
}

// NewEngine returns an engine with the limits of `cfg`. If `cfg` sets no limit for the memory
// of queries, `memory` is the limit.
//
// Anchored and smoothed selectors are on, because increase(x[5m] anchored) returns the exact
// number of events. Experimental functions are off unless `cfg` turns them on: Prometheus may
// change or remove them in any version, and a dashboard or rule that uses one would break when
// we update. PromQL's other experiments are off, too.
func NewEngine(cfg Config, memory Memory, logger *slog.Logger, reg prometheus.Registerer) *Engine {
	failed := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "freshet", Subsystem: "query",
		Name: "failures_total",
		Help: "Queries that failed though their data was readable, by reason. Rising: limit, " +
			"a dashboard asks for more than the max_* settings allow, and its panel says which; memory, " +
			"a query needs more than its part of query.max_memory, or was the largest when the memory of the process was " +
			"nearly full; queue, a tenant has query.max_waiting queries waiting; timeout, queries are slow or too many at " +
			"once; slow_client, a client read its answer too slowly and was cut off; panic, a bug, and the log has the stack.",
	}, []string{"reason"})
	waited := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "freshet", Subsystem: "query",
		Name: "wait_seconds",
		Help: "How long queries waited for their first turn, by lane. Rising in long: " +
			"dashboards ask for more than the processors can do; rising in short or own: other work takes the processors.",
		Buckets: []float64{.001, .01, .1, .5, 1, 2, 5, 10, 30, 60},
	}, []string{"lane"})
	reg.MustRegister(failed, waited)
	for _, reason := range []string{failedLimit, failedTimeout, failedPanic, failedMemory, failedQueue, failedSlow} {
		failed.WithLabelValues(reason)
	}
	e := &Engine{
		lanes:    newLanes(cfg, memory),
		parser:   NewParser(cfg, failed.WithLabelValues(failedLimit).Inc),
		limits:   cfg.limits(),
		timeout:  cfg.Timeout,
		lookback: cfg.LookbackDelta,
		waiting:  cfg.MaxWaiting,
		costs:    querycost.New(),
		columns:  newColumnCounts(cfg.Verify, logger, reg),
		steps:    newKeptSteps(int64(cfg.StepCache), reg),
		heap:     newHeapGuard(memory.Process, logger),
		streams:  &streams{},
		logger:   logger,
		failed:   failed,
	}
	reg.MustRegister(lanesCollector{e.lanes})
	for _, l := range e.lanes.all() {
		l.waited = waited.WithLabelValues(l.name)
	}
	for _, l := range []*lane{e.lanes.short, e.lanes.long, e.lanes.own} {
		l.bound(cfg.MaxSamples)
		l.engine = promql.NewEngine(promql.EngineOpts{
			Logger:                   logger,
			Reg:                      prometheus.WrapRegistererWith(prometheus.Labels{"lane": l.name}, reg),
			MaxSamples:               l.maxSamples,
			Timeout:                  cfg.Timeout,
			LookbackDelta:            cfg.LookbackDelta,
			NoStepSubqueryIntervalFn: func(int64) int64 { return promqlguard.DefaultStep.Milliseconds() },
			EnableAtModifier:         true,
			EnableNegativeOffset:     true,
			Parser:                   e.parser,
		})
	}
	return e
}

// NewParser returns the parser of the engine. It calls `refused` for each query that exceeds a limit.
func NewParser(cfg Config, refused func()) promqlguard.Parser {
	return promqlguard.NewParser(parser.Options{EnableExtendedRangeSelectors: true,
		EnableExperimentalFunctions: cfg.Experimental}, cfg.limits(), refused)
}

// Parser returns the parser of the engine's queries.
func (e *Engine) Parser() parser.Parser { return e.parser }

// NewInstantQuery prepares a query at one time.
func (e *Engine) NewInstantQuery(ctx context.Context, q storage.Queryable, opts promql.QueryOpts, text string,
	at time.Time) (promql.Query, error) {
	return e.newQuery(e.lanes.short, q, span{at, at}, atTime(ctx, opts, text))
}

// NewRangeQuery prepares a query over a range of time.
func (e *Engine) NewRangeQuery(ctx context.Context, q storage.Queryable, opts promql.QueryOpts, text string, start,
	end time.Time, step time.Duration) (promql.Query, error) {
	l := e.lanes.long
	if step > 0 && end.Sub(start)/step < shortSteps {
		l = e.lanes.short
	}
	return e.newQuery(l, q, span{start, end},
		func(in *promql.Engine, q storage.Queryable, of span) (promql.Query, error) {
			return in.NewRangeQuery(ctx, q, opts, text, of.start, of.end, step)
		})
}

// Own is the engine for Freshet's own queries: the probe, and rules. They have their own lane,
// so no dashboard makes them wait.
type Own struct{ *Engine }

// NewInstantQuery prepares a query at one time.
func (o Own) NewInstantQuery(ctx context.Context, q storage.Queryable, opts promql.QueryOpts, text string,
	at time.Time) (promql.Query, error) {
	return o.newQuery(o.lanes.own, q, span{at, at}, atTime(ctx, opts, text))
}

// prepareIn prepares a part of a query, or the whole, in an engine of Prometheus.
type prepareIn func(in *promql.Engine, from storage.Queryable, of span) (promql.Query, error)

func atTime(ctx context.Context, opts promql.QueryOpts, text string) prepareIn {
	return func(in *promql.Engine, from storage.Queryable, of span) (promql.Query, error) {
		return in.NewInstantQuery(ctx, from, opts, text, of.start)
	}
}

// newQuery prepares a query that begins in lane l and reads from a storage.
func (e *Engine) newQuery(l *lane, from storage.Queryable, all span,
	of prepareIn) (promql.Query, error) {
	prepare := func(l *lane, part span) (*columns.Query, error) {
		return columns.New(meter(from), l.maxSamples, func(from storage.Queryable) (promql.Query, error) {
			return of(l.engine, from, part)
		})
	}
	q, err := prepare(l, all)
	if err != nil {
		return nil, err
	}
	if s, ok := q.Statement().(*parser.EvalStmt); ok {
		if err := e.limits.CheckStatement(s); err != nil {
			e.failed.WithLabelValues(failedLimit).Inc()
			q.Close()
			return nil, err
		}
	}
	return &query{Query: q, engine: e, lane: l, all: all, prepare: prepare}, nil
}

// query is a query that passed the limits.
type query struct {
	*columns.Query
	engine  *Engine
	lane    *lane // where the query begins
	all     span
	prepare func(*lane, span) (*columns.Query, error)
	part    *columns.Query // evaluated in place of the query; nil if the query was
	turn    *turn          // nil before and after Exec
	result  *promql.Result // nil unless Exec succeeded
	costing *costing
}

// Exec waits for a turn and runs the query, both within the engine's timeout. The result is
// valid until Close.
func (q *query) Exec(ctx context.Context) (result *promql.Result) {
	e := q.engine
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	ctx, ended := q.traced(ctx)
	q.costing = e.costing(ctx, costOf(q.Query))
	defer func() {
		q.costing.samples(q)
		if result.Err != nil {
			q.costing.failed()
			q.release()
		}
		ended(result.Err)
	}()
	defer func() { e.count(result.Err) }()
	of, known := tenant.FromContext(ctx)
	if known && e.Damaged != nil {
		if err := e.Damaged(of); err != nil { // otherwise the query would wait for samples that the store does not take
			return &promql.Result{Err: err}
		}
	}
	result = q.run(ctx, q.lane)
	if larger := q.lane.larger; larger != nil &&
		(needsMore(result.Err) && !errors.Is(result.Err, errHeap) || errors.Is(result.Err, errAgain)) {
		q.release()
		again, err := q.prepare(larger, q.all)
		if err != nil {
			return &promql.Result{Err: err}
		}
		q.costing.samples(q)
		q.closeEvaluated()
		q.Query, q.part, q.lane = again, nil, larger
		result = q.run(ctx, larger)
	}
	if _, many := errors.AsType[promql.ErrTooManySamples](result.Err); many {
		result.Err = e.lanes.tooMany(q.lane)
	}
	if known && result.Err != nil {
		result.Err = e.suspect(of, result.Err)
	}
	return result
}

// suspect returns the error to answer for the error of a query.
func (e *Engine) suspect(tenant string, err error) error {
	if e.Suspect == nil {
		return err
	}
	return e.Suspect(tenant, err)
}

// errAgain ends a short query that must begin again as a long one.
var errAgain = errors.New("the query takes too long for a short one")

// run runs the query in lane l.
func (q *query) run(ctx context.Context, l *lane) (result *promql.Result) {
	e := q.engine
	_, waiting := otel.Tracer("").Start(ctx, "wait")
	came := time.Now()
	t, err := e.lanes.enter(ctx, l)
	waiting.End()
	if err != nil {
		q.costing.gaveUp(time.Since(came))
		return &promql.Result{Err: e.notEntered(err, l)}
	}
	q.turn = t
	q.costing.hasTurn()
	if a := answerOf(ctx); a != nil {
		a.turn = t // the answer gives the slot back when it begins
	} else {
		defer t.stop()
	}
	defer pagefault.On()()
	defer func() {
		if p := recover(); p != nil {
			result = &promql.Result{Err: e.panicked(p, q.String(), debug.Stack())}
		}
	}()
	w := e.heap.watch(ctx, q, t)
	defer w.end()
	ctx, cancel := context.WithCancelCause(withTurn(w.ctx, t))
	defer cancel(nil)
	if l.then != l {
		t.again = func() { cancel(errAgain) }
		defer time.AfterFunc(l.turn+passTime, func() { t.outstay(ctx, l) }).Stop()
	}
	result = q.evaluate(ctx, l)
	if result.Err != nil && context.Cause(ctx) == errAgain {
		return &promql.Result{Err: errAgain}
	}
	result.Err = w.cause(result.Err)
	// The engine itself recovers most panics, logs them, and makes them look like a mistake in
	// the query.
	if p, ok := errors.AsType[runtime.Error](result.Err); ok {
		result.Err = e.panicked(p, q.String(), nil)
	}
	if result.Err == nil {
		result.Err = t.settle(answerBytes(result.Value))
	}
	if result.Err == nil {
		e.streams.open(result, answerOf(ctx))
		q.result = result
	}
	return result
}

// evaluate evaluates the query in a turn of lane l.
func (q *query) evaluate(ctx context.Context, l *lane) *promql.Result {
	e := evaluation{keptSteps: q.engine.steps, source: q.engine.Source, columns: q.engine.columns, whole: q.Query,
		all: q.all, maxSamples: l.maxSamples, prepare: func(part span) (*columns.Query, error) { return q.prepare(l, part) },
		tidy: func(notes annotations.Annotations) {
			dropSuffixHints(notes)
			q.dropSparse(notes)
		}, costing: q.costing}
	defer func() { q.part = e.part }()
	return e.run(ctx)
}

// Stats returns what the evaluation cost. Steps that were kept cost nothing.
func (q *query) Stats() *stats.Statistics {
	if q.part != nil {
		return q.part.Stats()
	}
	return q.Query.Stats()
}

// Close releases the memory of the query and of its result.
func (q *query) Close() {
	if q.result != nil {
		q.engine.streams.close(q.result)
	}
	q.closeEvaluated()
	q.release()
	q.costing.end()
}

func (q *query) closeEvaluated() {
	q.Query.Close()
	if q.part != nil {
		q.part.Close()
	}
}

func (q *query) release() {
	if q.turn != nil {
		q.turn.close()
		q.costing.add(q.turn)
		q.turn = nil
	}
}

// count counts a query that failed.
func (e *Engine) count(err error) {
	_, late := errors.AsType[promql.ErrQueryTimeout](err)
	switch {
	case late:
		e.failed.WithLabelValues(failedTimeout).Inc()
	case needsMore(err):
		e.failed.WithLabelValues(failedMemory).Inc()
	case errors.Is(err, turns.ErrFull):
		e.failed.WithLabelValues(failedQueue).Inc()
	}
}

// ownTraced is the shortest time of one of Freshet's own queries that is traced.
const ownTraced = 10 * time.Millisecond

// traced begins the query's trace. The caller calls `ended` with the query's error.
//
// There may be hundreds of queries of rules in a second, nearly all of which take less than a millisecond, and their
// spans would cost a sixth of that. So a query in the lane of our own gets a span afterwards, if it was not quick, and
// none for its parts.
func (q *query) traced(ctx context.Context) (_ context.Context, ended func(error)) {
	end := func(span trace.Span, err error) {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
	if q.lane != q.engine.lanes.own {
		ctx, span := q.span(ctx)
		return ctx, func(err error) { end(span, err) }
	}
	began := time.Now()
	return untraced.NewContext(ctx), func(err error) {
		if time.Since(began) >= ownTraced {
			_, span := q.span(ctx, trace.WithTimestamp(began), trace.WithNewRoot())
			end(span, err)
		}
	}
}

// span begins a span below the sender's span if the request names one. The engine adds its own spans.
// adapter/tracing decides whether to keep the trace.
func (q *query) span(ctx context.Context, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	text := q.String()
	of, _ := tenant.FromContext(ctx)
	attributes := []attribute.KeyValue{
		attribute.String("freshet.tenant", of),
		attribute.String("freshet.query", strings.ToValidUTF8(text[:min(len(text), longestTraced)], "")),
	}
	if s, ok := q.Statement().(*parser.EvalStmt); ok {
		attributes = append(attributes, attribute.String("freshet.start", s.Start.UTC().Format(time.RFC3339Nano)),
			attribute.String("freshet.end", s.End.UTC().Format(time.RFC3339Nano)),
			attribute.String("freshet.step", s.Interval.String()))
	}
	options = append(options, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attributes...))
	return otel.Tracer("").Start(ctx, "query", options...)
}

// dropSuffixHints removes the hints that a counter's name should end in _total. Applications
// choose names, so every rate of every counter would get a hint.
func dropSuffixHints(notes annotations.Annotations) {
	maps.DeleteFunc(notes, func(_ string, note error) bool { return errors.Is(note, annotations.PossibleNonCounterInfo) })
}

// ErrSparse is a note of a Queryable: a range holds fewer samples than a function needs. Answers
// carry it as an info.
var ErrSparse = fmt.Errorf("%w: too few tiles in a range", annotations.PromQLInfo)

// dropSparse removes ErrSparse from the answer if all ranges of the query are anchored or smoothed,
// because such selectors also use samples outside their ranges.
func (q *query) dropSparse(notes annotations.Annotations) {
	s, ok := q.Statement().(*parser.EvalStmt)
	if !ok || len(notes) == 0 {
		return
	}
	plain := false
	parser.Inspect(s.Expr, func(n parser.Node, _ []parser.Node) error {
		if m, ok := n.(*parser.MatrixSelector); ok {
			v, ok := m.VectorSelector.(*parser.VectorSelector)
			plain = plain || !ok || !v.Anchored && !v.Smoothed
		}
		return nil
	})
	if !plain {
		maps.DeleteFunc(notes, func(_ string, note error) bool { return errors.Is(note, ErrSparse) })
	}
}

// notEntered returns the error of work that got no turn.
func (e *Engine) notEntered(cause error, l *lane) error {
	if errors.Is(cause, turns.ErrFull) {
		return fmt.Errorf("%d queries of the tenant already wait, which is the limit (query.max_waiting): "+
			"query less often, or raise %s: %w", e.waiting, l.raise, cause)
	}
	where := "the queue of the tenant: " + l.atOnce
	if errors.Is(cause, context.DeadlineExceeded) {
		return promql.ErrQueryTimeout(where)
	}
	return promql.ErrQueryCanceled(where)
}

// panicked counts a panic and returns it as an error that the API answers with status 500. A part of a file that cannot
// be read is no bug: see Suspect.
func (e *Engine) panicked(p any, query string, stack []byte) error {
	if fault := pagefault.Of(p); fault != nil {
		return fault
	}
	e.failed.WithLabelValues(failedPanic).Inc()
	e.logger.Error("panic in a query", "query", query, "panic", p, "stack", string(stack))
	return promql.ErrStorage{Err: fmt.Errorf("panic in the query: %v; this is a bug, and the log has the details", p)}
}
