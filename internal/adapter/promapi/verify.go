package promapi

import (
	"context"
	"log/slog"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/freshet-io/freshet/internal/core/columns"
	"github.com/freshet-io/freshet/internal/core/stepcache"
)

// columnCounts counts the queries that are evaluated in columns, and compares some of them with
// Prometheus' engine.
type columnCounts struct {
	every    int64 // one in so many queries is compared; 0 for none
	n        atomic.Int64
	queries  *prometheus.CounterVec
	compared *prometheus.CounterVec
	logger   *slog.Logger
}

// Results of a comparison.
const (
	resultEqual     = "equal"
	resultDifferent = "different"
	resultUnknown   = "unknown" // one of the evaluations failed, the data changed, or the engine has several results
)

func newColumnCounts(every int, logger *slog.Logger, reg prometheus.Registerer) *columnCounts {
	c := &columnCounts{every: int64(every), logger: logger,
		queries: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "freshet", Subsystem: "query",
			Name: "columns_total",
			Help: "Queries that were answered, by whether a part of them was evaluated in columns, which is several times " +
				"cheaper than Prometheus' engine, and the reason if none was. plain: nothing to gain; others: the engine " +
				"evaluates this form alone."}, []string{"taken", "reason"}),
		compared: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "freshet", Subsystem: "query",
			Name: "verified_total",
			Help: "Queries evaluated in columns that Prometheus' engine evaluated, too (query.verify), by result. " +
				"different above 0: a bug, and the log has the query; unknown: the data changed meanwhile, one of the " +
				"evaluations failed, or the engine itself may have another result each time, as topk of equal values.",
		}, []string{"result"}),
	}
	reg.MustRegister(c.queries, c.compared)
	for _, reason := range append(columns.Reasons(), "") {
		c.count(reason)
	}
	for _, result := range []string{resultEqual, resultDifferent, resultUnknown} {
		c.compared.WithLabelValues(result)
	}
	return c
}

// evaluated counts a query that has a result, and compares the result if it is the query's turn. `again`
// prepares the same query.
func (c *columnCounts) evaluated(ctx context.Context, q *columns.Query, result *promql.Result, again prepare) {
	taken, reason := q.Taken()
	c.count(reason).Inc()
	if !taken || c.every == 0 || c.n.Add(1)%c.every != 0 {
		return
	}
	is := compare(ctx, columns.Fingerprint(result.Value), q.Plain, again)
	if is == resultDifferent && !repeats(q) {
		is = resultUnknown
	}
	c.compared.WithLabelValues(is).Inc()
	if is == resultDifferent {
		c.logger.Error("a query has another result in Prometheus' engine; this is a bug", "query", q.String())
	}
}

// repeats reports whether the engine gives the same result each time.
func repeats(q *columns.Query) bool {
	s, ok := q.Statement().(*parser.EvalStmt)
	return ok && stepcache.Repeats(s.Expr)
}

// count is the counter of the queries with a reason not to be taken, or without one.
func (c *columnCounts) count(reason columns.Reason) prometheus.Counter {
	return c.queries.WithLabelValues(strconv.FormatBool(reason == ""), string(reason))
}

// prepare makes a query.
type prepare func() (promql.Query, error)

// compare compares the first result of a query in columns with the engine's. If they differ, samples
// may have come in between. Then the query is evaluated in columns once more: if that result is still
// the first one, the data have not changed.
func compare(ctx context.Context, first uint64, plain, again prepare) string {
	switch engine, ok := fingerprint(ctx, plain); {
	case !ok:
		return resultUnknown
	case engine == first:
		return resultEqual
	}
	if second, ok := fingerprint(ctx, again); !ok || second != first {
		return resultUnknown
	}
	return resultDifferent
}

// fingerprint evaluates a query and drops the result. It is not ok if the evaluation failed.
func fingerprint(ctx context.Context, make prepare) (sum uint64, ok bool) {
	q, err := make()
	if err != nil {
		return 0, false
	}
	defer q.Close()
	result := q.Exec(ctx)
	if result.Err != nil {
		return 0, false
	}
	return columns.Fingerprint(result.Value), true
}
