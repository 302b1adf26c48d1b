// Package columns evaluates the parts of PromQL queries that read most samples, in front of
// Prometheus' engine: range functions of one selector, and aggregations of them or of a selector.
// Results, notes, errors and statistics are bit-equal to the engine's, which TestLikeTheEngine checks
// on random queries and data.
//
// The engine walks all samples of a window at every step, by four virtual calls a sample. This
// package reads a series once into a column. Two indexes that move along the column are the window,
// and a table of resets makes the rate of a window a subtraction. An aggregation adds a series to
// its groups as soon as it is evaluated, so the memory is that of the groups.
//
// A Query replaces each such part, a leaf, by a selector whose series are the leaf's results at all
// steps. The engine evaluates the rest, and asks for the series when it would evaluate the part
// itself. So binary operators, histogram_quantile or topk above leaves are the engine's own.
//
// The engine must have the options of adapter/promapi: no delayed removal of names, no type and
// unit labels, no start timestamps, and no statistics by step.
package columns

import (
	"cmp"
	"context"
	"errors"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// Prepare makes a query of the engine. It reads from the given storage.
type Prepare func(storage.Queryable) (promql.Query, error)

// Query is a query of the engine whose leaves are evaluated here.
type Query struct {
	promql.Query
	prepare    Prepare
	from       storage.Queryable
	reader     *reader
	text       string
	maxSamples int // the engine's limit
	reason     Reason
}

// Reason is why no part of a query is evaluated here. It is empty if a part is.
type Reason string

// The reasons. If there are several, a query has that of the part that the engine evaluates first.
const (
	ReasonPlain       Reason = "plain"       // no range function, and no aggregation of a selector
	ReasonSubquery    Reason = "subquery"    // a range function of a subquery
	ReasonModifier    Reason = "modifier"    // @, anchored or smoothed
	ReasonFunction    Reason = "function"    // a range function with another argument, or with its own way to read
	ReasonAggregation Reason = "aggregation" // an aggregation of a selector in its own way, such as topk
	ReasonAfter       Reason = "after"       // the engine has a result before it, and how large that is, is not known
)

// Reasons are all reasons.
func Reasons() []Reason {
	return []Reason{ReasonPlain, ReasonSubquery, ReasonModifier, ReasonFunction, ReasonAggregation, ReasonAfter}
}

// New prepares a query that reads from a storage. `maxSamples` is the limit of the query's engine.
func New(from storage.Queryable, maxSamples int, prepare Prepare) (*Query, error) {
	r := &reader{Queryable: from}
	q, err := prepare(r)
	if err != nil {
		return nil, err
	}
	return &Query{Query: q, prepare: prepare, from: from, reader: r, text: q.String(), maxSamples: maxSamples,
		reason: ReasonPlain}, nil
}

// String returns the text of the query. Other goroutines may call it while the query runs.
func (q *Query) String() string { return q.text }

// Taken reports whether Exec evaluated a part of the query here, and why it did not.
func (q *Query) Taken() (taken bool, reason Reason) { return q.reason == "", q.reason }

// Plain prepares the same query again, for the engine alone.
func (q *Query) Plain() (promql.Query, error) { return q.prepare(q.from) }

// Exec evaluates the query. The result is valid until Close.
func (q *Query) Exec(ctx context.Context) *promql.Result {
	s, ok := q.Statement().(*parser.EvalStmt)
	if !ok {
		return q.Query.Exec(ctx)
	}
	p := newPlan(s, q.Stats().Samples, q.maxSamples)
	if len(p.leaves) == 0 {
		q.reason = cmp.Or(p.refused, ReasonPlain)
		return q.Query.Exec(ctx)
	}
	q.reader.plan = p
	result := q.Query.Exec(ctx)
	p.undo()
	q.reader.plan = nil
	if errors.Is(p.failed, errDecline) {
		q.reason = ReasonAfter
		return q.decline(ctx)
	}
	q.reason = ""
	switch {
	case result.Err == nil:
		result.Warnings.Merge(p.notes)
	case p.failed != nil:
		result.Err = p.failed // without the engine's note that it happened while it read series
	}
	return result
}

// errDecline ends an evaluation whose statistics would differ from the engine's.
var errDecline = errors.New("the engine must evaluate the query")

func (q *Query) decline(ctx context.Context) *promql.Result {
	again, err := q.Plain()
	if err != nil {
		return &promql.Result{Err: err}
	}
	q.Query.Close()
	q.Query = again
	return again.Exec(ctx)
}

// reader is the storage of the engine. While it has a plan, it answers the plan's selectors.
type reader struct {
	storage.Queryable
	plan *plan
}

// Querier is part of storage.Queryable.
func (r *reader) Querier(mint, maxt int64) (storage.Querier, error) {
	if r.plan == nil {
		return r.Queryable.Querier(mint, maxt)
	}
	q, err := r.Queryable.Querier(r.plan.mint, r.plan.maxt)
	if err != nil {
		return nil, err
	}
	return querier{q, r.plan}, nil
}

// contextDone returns the engine's error for a context that has ended.
func contextDone(ctx context.Context) error {
	const where = "expression evaluation"
	switch err := ctx.Err(); {
	case errors.Is(err, context.Canceled):
		return promql.ErrQueryCanceled(where)
	case errors.Is(err, context.DeadlineExceeded):
		return promql.ErrQueryTimeout(where)
	default:
		return err
	}
}

// tooMany is the engine's error for a query that holds too many samples.
var tooMany = promql.ErrTooManySamples("query execution")

// errSameLabels is the engine's error for series that differ only in a label that a function drops.
var errSameLabels = errors.New("vector cannot contain metrics with the same labelset")

// merge adds notes to a set that may be nil.
func merge(to *annotations.Annotations, notes annotations.Annotations) {
	if len(notes) > 0 {
		to.Merge(notes)
	}
}
