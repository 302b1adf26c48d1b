package ruler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// query returns a function that runs the queries of rules. It differs from rules.EngineQueryFunc in one
// respect: an answer that lacks samples, since a store is broken, is an error. A dashboard shows such an
// answer with a warning, but a rule would fire or resolve because of it.
func query(engine promql.QueryEngine, storage storage.Queryable) rules.QueryFunc {
	return func(ctx context.Context, expr string, at time.Time) (promql.Vector, error) {
		q, err := engine.NewInstantQuery(ctx, storage, nil, expr, at)
		if err != nil {
			return nil, err
		}
		defer q.Close()
		result := q.Exec(ctx)
		if result.Err != nil {
			return nil, result.Err
		}
		if err := lacking(result.Warnings); err != nil {
			return nil, fmt.Errorf("samples are missing, so the rule waits: %w", err)
		}
		switch v := result.Value.(type) {
		case promql.Vector:
			return v, nil
		case promql.Scalar:
			return promql.Vector{{T: v.T, F: v.V}}, nil
		}
		return nil, fmt.Errorf("the result is a %s, but a rule needs a vector or a scalar", result.Value.Type())
	}
}

// lacking returns a warning that the storage gave. The others are PromQL's hints about the expression.
func lacking(warnings annotations.Annotations) error {
	for _, w := range warnings {
		if !errors.Is(w, annotations.PromQLWarning) && !errors.Is(w, annotations.PromQLInfo) {
			return w
		}
	}
	return nil
}

// inTurn bounds how many queries run or wait in the engine at once.
func inTurn(query rules.QueryFunc) rules.QueryFunc {
	slots := make(chan struct{}, evaluations)
	return func(ctx context.Context, expr string, at time.Time) (promql.Vector, error) {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil, promql.ErrQueryCanceled("the wait for other rules of the tenant")
		}
		defer func() { <-slots }()
		return query(ctx, expr, at)
	}
}
