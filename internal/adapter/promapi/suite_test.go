package promapi

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"

	"github.com/freshet-io/freshet/internal/core/columns"
)

// Prometheus' own test suite passes with our wrappers around its functions. Each of its queries also
// has the same result in columns as in an engine with our options; the suite's engine has others.
func TestSuiteOfPrometheus(t *testing.T) {
	e := &suiteEngine{Engine: promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery), t: t,
		ours: promql.NewEngine(promql.EngineOpts{MaxSamples: promqltest.DefaultMaxSamplesPerQuery, Timeout: time.Minute,
			LookbackDelta: 5 * time.Minute, EnableAtModifier: true, EnableNegativeOffset: true,
			NoStepSubqueryIntervalFn: func(int64) int64 { return 60_000 }, Parser: parser.NewParser(promqltest.TestParserOpts)})}
	promqltest.RunBuiltinTests(t, e)
	t.Logf("%d of %d queries were taken", e.taken, e.queries)
	if e.taken < 500 {
		t.Errorf("only %d of %d queries were evaluated in columns", e.taken, e.queries)
	}
}

type suiteEngine struct {
	*promql.Engine
	t              *testing.T
	ours           *promql.Engine
	taken, queries int
}

func (e *suiteEngine) NewInstantQuery(ctx context.Context, q storage.Queryable, opts promql.QueryOpts, text string,
	at time.Time) (promql.Query, error) {
	e.compare(ctx, text, q, func(q storage.Queryable) (promql.Query, error) {
		return e.ours.NewInstantQuery(ctx, q, nil, text, at)
	})
	return e.Engine.NewInstantQuery(ctx, q, opts, text, at)
}

func (e *suiteEngine) NewRangeQuery(ctx context.Context, q storage.Queryable, opts promql.QueryOpts, text string, start,
	end time.Time, step time.Duration) (promql.Query, error) {
	e.compare(ctx, text, q, func(q storage.Queryable) (promql.Query, error) {
		return e.ours.NewRangeQuery(ctx, q, nil, text, start, end, step)
	})
	return e.Engine.NewRangeQuery(ctx, q, opts, text, start, end, step)
}

// compare evaluates a query in both ways.
func (e *suiteEngine) compare(ctx context.Context, text string, q storage.Queryable, prepare columns.Prepare) {
	plain, err := prepare(q)
	if err != nil {
		return
	}
	defer plain.Close()
	ours, err := columns.New(q, promqltest.DefaultMaxSamplesPerQuery, prepare)
	if err != nil {
		e.t.Errorf("%s: %v", text, err)
		return
	}
	defer ours.Close()
	want, got := plain.Exec(ctx), ours.Exec(ctx)
	e.queries++
	if taken, _ := ours.Taken(); taken {
		e.taken++
	}
	notes := func(r *promql.Result) []string { return slices.Sorted(maps.Keys(r.Warnings)) }
	switch {
	case (want.Err == nil) != (got.Err == nil):
		e.t.Errorf("%s: the error is %v, want %v", text, got.Err, want.Err)
	case want.Err != nil:
	case columns.Fingerprint(got.Value) != columns.Fingerprint(want.Value), !slices.Equal(notes(got), notes(want)):
		e.t.Errorf("%s: the result is\n%v %v, want\n%v %v", text, got.Value, notes(got), want.Value, notes(want))
	}
}
