package promapi

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/teststorage"

	"github.com/freshet-io/freshet/internal/core/columns"
)

// Prometheus' own test suite passes with our wrappers around its functions. Each of its queries also
// has the same result in columns, from samples and from chunks, as in an engine with our options; the
// suite's engine has others.
func TestSuiteOfPrometheus(t *testing.T) {
	e := &suiteEngine{Engine: promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery), t: t,
		ours: promql.NewEngine(promql.EngineOpts{MaxSamples: promqltest.DefaultMaxSamplesPerQuery, Timeout: time.Minute,
			LookbackDelta: 5 * time.Minute, EnableAtModifier: true, EnableNegativeOffset: true,
			NoStepSubqueryIntervalFn: func(int64) int64 { return 60_000 }, Parser: parser.NewParser(promqltest.TestParserOpts)})}
	promqltest.RunBuiltinTestsWithStorage(t, e, func(t testing.TB) storage.Storage {
		return teststorage.New(t, func(o *tsdb.Options) {
			if strings.Contains(t.Name(), "start_timestamps") { // in chunks of another encoding, which columns do not read
				o.EnableSTStorage, o.EnableHistogramSTEncoding, o.FloatChunkEncoding = true, true, chunkenc.EncXOR2
			}
		})
	})
	t.Logf("%d of %d queries were taken, %d of them from chunks", e.taken, e.queries, e.chunks)
	if e.taken < 500 || e.chunks < 500 {
		t.Errorf("only %d of %d queries were evaluated in columns, %d of them from chunks", e.taken, e.queries, e.chunks)
	}
}

type suiteEngine struct {
	*promql.Engine
	t              *testing.T
	ours           *promql.Engine
	taken, queries int
	chunks         int // queries that were taken and read chunks only
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

// compare evaluates a query in all ways.
func (e *suiteEngine) compare(ctx context.Context, text string, q storage.Queryable, prepare columns.Prepare) {
	plain, err := prepare(q)
	if err != nil {
		return
	}
	defer plain.Close()
	want := plain.Exec(ctx)
	e.queries++
	if !e.same(ctx, text, q, prepare, want) {
		return
	}
	e.taken++
	if both, ok := q.(storage.SampleAndChunkQueryable); ok {
		in := &inChunks{SampleAndChunkQueryable: both}
		e.same(ctx, text, in, prepare, want)
		if in.chunks > 0 && in.samples == 0 {
			e.chunks++
		}
	}
}

// same compares the result in columns with that of the engine, and returns whether columns have taken the query.
func (e *suiteEngine) same(ctx context.Context, text string, q storage.Queryable, prepare columns.Prepare,
	want *promql.Result) (taken bool) {
	ours, err := columns.New(q, promqltest.DefaultMaxSamplesPerQuery, prepare)
	if err != nil {
		e.t.Errorf("%s: %v", text, err)
		return false
	}
	defer ours.Close()
	got := ours.Exec(ctx)
	notes := func(r *promql.Result) []string { return slices.Sorted(maps.Keys(r.Warnings)) }
	switch {
	case (want.Err == nil) != (got.Err == nil):
		e.t.Errorf("%s: the error is %v, want %v", text, got.Err, want.Err)
	case want.Err != nil:
	case columns.Fingerprint(got.Value) != columns.Fingerprint(want.Value), !slices.Equal(notes(got), notes(want)):
		e.t.Errorf("%s: the result is\n%v %v, want\n%v %v", text, got.Value, notes(got), want.Value, notes(want))
	}
	taken, _ = ours.Taken()
	return taken
}

// inChunks is a storage that selects series in chunks, too. It counts selects.
type inChunks struct {
	storage.SampleAndChunkQueryable
	samples, chunks int
}

func (s *inChunks) Querier(mint, maxt int64) (storage.Querier, error) {
	samples, err1 := s.SampleAndChunkQueryable.Querier(mint, maxt)
	chunks, err2 := s.ChunkQuerier(mint, maxt)
	return bothQuerier{samples, chunks, s}, errors.Join(err1, err2)
}

type bothQuerier struct {
	storage.Querier
	chunks storage.ChunkQuerier
	of     *inChunks
}

func (q bothQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints,
	matchers ...*labels.Matcher) storage.SeriesSet {
	q.of.samples++
	return q.Querier.Select(ctx, sorted, hints, matchers...)
}

func (q bothQuerier) SelectChunks(ctx context.Context, sorted, _ bool, hints *storage.SelectHints,
	matchers ...*labels.Matcher) columns.ChunkSet {
	q.of.chunks++
	return chunkSet{q.chunks.Select(ctx, sorted, hints, matchers...)}
}

func (q bothQuerier) Close() error { return errors.Join(q.Querier.Close(), q.chunks.Close()) }

type chunkSet struct{ storage.ChunkSeriesSet }

func (s chunkSet) At() columns.ChunkSeries {
	of := s.ChunkSeriesSet.At()
	return columns.ChunkSeries{Labels: of.Labels(), Stored: of}
}

func (s chunkSet) Live() storage.SeriesSet { return storage.EmptySeriesSet() }
