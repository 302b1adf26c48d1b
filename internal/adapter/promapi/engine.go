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
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/freshet-io/freshet/internal/core/promqlguard"
	"github.com/freshet-io/freshet/internal/core/tenant"
)

// Engine is Prometheus' query engine behind guards: queries that could take the
// process down are refused before they run, only so many run at once, and a
// panic costs one query. The API and the rules share one, and its limits.
type Engine struct {
	engine   *promql.Engine
	parser   promqlguard.Parser
	limits   promqlguard.Limits
	timeout  time.Duration
	lookback time.Duration
	slots    chan struct{} // one for each query that runs
	logger   *slog.Logger
	failed   *prometheus.CounterVec
}

// The reasons by which failed queries are counted.
const (
	failedLimit   = "limit"
	failedTimeout = "timeout"
	failedPanic   = "panic"
)

// NewEngine returns an engine with the limits of cfg.
//
// Anchored and smoothed selectors are on, since increase(x[5m] anchored) is what
// tells exactly how many events were sent. The experimental functions are off, unless
// cfg says otherwise: Prometheus may change or remove them in any version, and a
// dashboard or rule that uses one would break with an update of ours. So are the other
// experiments of PromQL.
func NewEngine(cfg Config, logger *slog.Logger, reg prometheus.Registerer) *Engine {
	failed := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "freshet", Subsystem: "query", Name: "failures_total",
		Help: "Queries that failed for no fault of the data, by reason. Rising: limit, a dashboard asks for more than the max_* settings allow, and its panel says which; timeout, queries are slow or too many at once; panic, a bug, and the log has the stack.",
	}, []string{"reason"})
	reg.MustRegister(failed)
	for _, reason := range []string{failedLimit, failedTimeout, failedPanic} {
		failed.WithLabelValues(reason)
	}
	guarded := promqlguard.NewParser(parser.Options{EnableExtendedRangeSelectors: true, EnableExperimentalFunctions: cfg.Experimental}, cfg.limits(), failed.WithLabelValues(failedLimit).Inc)
	return &Engine{
		engine: promql.NewEngine(promql.EngineOpts{
			Logger:                   logger,
			Reg:                      reg,
			MaxSamples:               cfg.MaxSamples,
			Timeout:                  cfg.Timeout,
			LookbackDelta:            cfg.LookbackDelta,
			NoStepSubqueryIntervalFn: func(int64) int64 { return promqlguard.DefaultStep.Milliseconds() },
			EnableAtModifier:         true,
			EnableNegativeOffset:     true,
			Parser:                   guarded,
		}),
		parser:   guarded,
		limits:   cfg.limits(),
		timeout:  cfg.Timeout,
		lookback: cfg.LookbackDelta,
		slots:    make(chan struct{}, cfg.MaxConcurrency),
		logger:   logger,
		failed:   failed,
	}
}

// NewInstantQuery prepares a query at one time.
func (e *Engine) NewInstantQuery(ctx context.Context, q storage.Queryable, opts promql.QueryOpts, text string, at time.Time) (promql.Query, error) {
	prepared, err := e.engine.NewInstantQuery(ctx, q, opts, text, at)
	return e.guard(prepared, err)
}

// NewRangeQuery prepares a query over a range of time.
func (e *Engine) NewRangeQuery(ctx context.Context, q storage.Queryable, opts promql.QueryOpts, text string, start, end time.Time, step time.Duration) (promql.Query, error) {
	prepared, err := e.engine.NewRangeQuery(ctx, q, opts, text, start, end, step)
	return e.guard(prepared, err)
}

func (e *Engine) guard(q promql.Query, err error) (promql.Query, error) {
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
	return &query{q, e}, nil
}

// query is a query that passed the limits.
type query struct {
	promql.Query
	engine *Engine
}

// Exec waits for one of the slots and runs the query, both within the engine's
// timeout.
func (q *query) Exec(ctx context.Context) (result *promql.Result) {
	e := q.engine
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	ctx, span := q.span(ctx)
	defer func() {
		if result.Err != nil {
			span.SetStatus(codes.Error, result.Err.Error())
		}
		span.End()
	}()
	defer func() {
		if _, late := errors.AsType[promql.ErrQueryTimeout](result.Err); late {
			e.failed.WithLabelValues(failedTimeout).Inc()
		}
	}()
	_, waiting := otel.Tracer("").Start(ctx, "wait")
	select {
	case e.slots <- struct{}{}:
		defer func() { <-e.slots }()
		waiting.End()
	case <-ctx.Done():
		waiting.End()
		return &promql.Result{Err: waitedInVain(ctx.Err(), cap(e.slots))}
	}
	defer func() {
		if p := recover(); p != nil {
			result = &promql.Result{Err: e.panicked(p, q.String(), debug.Stack())}
		}
	}()
	result = q.Query.Exec(ctx)
	dropSuffixHints(result.Warnings)
	q.dropSparse(result.Warnings)
	// The engine recovers most panics itself, logs them, and makes them look like a
	// mistake in the query.
	if p, ok := errors.AsType[runtime.Error](result.Err); ok {
		result.Err = e.panicked(p, q.String(), nil)
	}
	return result
}

// longestTraced is how much of a query's text its span has, in bytes.
const longestTraced = 1000

// span begins the trace of the query, below the sender's if it named one. The engine adds
// its own spans: whether a trace is kept is adapter/tracing's business.
func (q *query) span(ctx context.Context) (context.Context, trace.Span) {
	text := q.String()
	of, _ := tenant.FromContext(ctx)
	attributes := []attribute.KeyValue{attribute.String("freshet.tenant", of), attribute.String("freshet.query", strings.ToValidUTF8(text[:min(len(text), longestTraced)], ""))}
	if s, ok := q.Statement().(*parser.EvalStmt); ok {
		attributes = append(attributes, attribute.String("freshet.start", s.Start.UTC().Format(time.RFC3339Nano)),
			attribute.String("freshet.end", s.End.UTC().Format(time.RFC3339Nano)), attribute.String("freshet.step", s.Interval.String()))
	}
	return otel.Tracer("").Start(ctx, "query", trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attributes...))
}

// dropSuffixHints takes out the remarks that a counter's name should end in
// _total. Names are those that applications send, so every rate of every counter
// would carry one.
func dropSuffixHints(notes annotations.Annotations) {
	maps.DeleteFunc(notes, func(_ string, note error) bool { return errors.Is(note, annotations.PossibleNonCounterInfo) })
}

// ErrSparse is in notes of a Queryable that a range holds less samples than a function
// needs. They are infos in an answer.
var ErrSparse = fmt.Errorf("%w: too few tiles in a range", annotations.PromQLInfo)

// dropSparse takes such notes out of the answer to a query all of whose ranges are anchored
// or smoothed: those look beyond their ranges.
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

// waitedInVain is the engine's error of a query that never got a slot.
func waitedInVain(cause error, slots int) error {
	where := fmt.Sprintf("the queue behind %d running queries", slots)
	if errors.Is(cause, context.DeadlineExceeded) {
		return promql.ErrQueryTimeout(where)
	}
	return promql.ErrQueryCanceled(where)
}

// panicked counts a panic and returns it as an error that the API answers with
// status 500.
func (e *Engine) panicked(p any, query string, stack []byte) error {
	e.failed.WithLabelValues(failedPanic).Inc()
	e.logger.Error("panic in a query", "query", query, "panic", p, "stack", string(stack))
	return promql.ErrStorage{Err: fmt.Errorf("panic in the query: %v; this is a bug, and the log has the details", p)}
}
