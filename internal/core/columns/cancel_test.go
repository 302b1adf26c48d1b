package columns_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/freshet-io/freshet/internal/core/columns"
)

// If the context ends while the samples of a series are read, the query reads no other series and has the engine's
// error. An aggregation would otherwise read all series before the engine looks at the context.
func TestQueriesEndWithTheirContext(t *testing.T) {
	db := inOrder(t, 10)
	for _, expr := range []string{"sum by (job) (x)", "sum(rate(x[5m]))", "rate(x[5m])"} {
		q := query{text: expr, start: time.UnixMilli(begin), end: time.UnixMilli(begin + 3_600_000), step: time.Minute,
			maxSamples: 1_000_000}
		e := engine(q.maxSamples)
		run := func(from storage.Queryable, prepare func(storage.Queryable) (promql.Query, error)) string {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			s := &ending{Queryable: from, after: 3, end: cancel}
			one, err := prepare(s)
			if err != nil {
				t.Fatal(err)
			}
			defer one.Close()
			r := one.Exec(ctx)
			if s.read != s.after {
				t.Errorf("%s: canceled after %d series, %d were read", expr, s.after, s.read)
			}
			return text(r, false)
		}
		want := run(db, q.on(e))
		for what, from := range map[string]storage.Queryable{"samples": db, "chunks": inChunks{db, &selects{}}} {
			got := run(from, func(from storage.Queryable) (promql.Query, error) {
				return columns.New(from, q.maxSamples, q.on(e))
			})
			if got != want || !strings.Contains(got, "canceled") {
				t.Errorf("%s, canceled while it reads %s: %s, want %s", expr, what, got, want)
			}
		}
	}
}

// inOrder writes an hour of samples of some series, so that all are in chunks one after the other.
func inOrder(t *testing.T, series int) *tsdb.DB {
	db, err := tsdb.Open(t.TempDir(), nil, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	app := db.Appender(context.Background())
	for i := range series {
		ls := labels.FromStrings("__name__", "x", "job", fmt.Sprint("j", i%2), "instance", fmt.Sprint("i", i))
		for at := begin; at < begin+3_600_000; at += 15_000 {
			if _, err := app.Append(0, ls, at, float64(at)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	return db
}

// ending is a storage that ends the context of a query when the query reads the samples of a series.
type ending struct {
	storage.Queryable
	after int // series
	read  int
	end   func()
}

func (e *ending) reads() {
	if e.read++; e.read == e.after {
		e.end()
	}
}

func (e *ending) Querier(mint, maxt int64) (storage.Querier, error) {
	q, err := e.Queryable.Querier(mint, maxt)
	if of, ok := q.(bothQuerier); ok {
		return endingChunks{endingQuerier{of, e}, of}, err
	}
	return endingQuerier{q, e}, err
}

type endingQuerier struct {
	storage.Querier
	of *ending
}

func (q endingQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints,
	matchers ...*labels.Matcher) storage.SeriesSet {
	return endingSet{q.Querier.Select(ctx, sorted, hints, matchers...), q.of}
}

type endingSet struct {
	storage.SeriesSet
	of *ending
}

func (s endingSet) At() storage.Series { return endingSeries{s.SeriesSet.At(), s.of} }

type endingSeries struct {
	storage.Series
	of *ending
}

func (s endingSeries) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	s.of.reads()
	return s.Series.Iterator(it)
}

type endingChunks struct {
	endingQuerier
	chunks bothQuerier
}

func (q endingChunks) SelectChunks(ctx context.Context, sorted, kept bool, hints *storage.SelectHints,
	matchers ...*labels.Matcher) columns.ChunkSet {
	return endingChunkSet{q.chunks.SelectChunks(ctx, sorted, kept, hints, matchers...), q.of}
}

type endingChunkSet struct {
	columns.ChunkSet
	of *ending
}

func (s endingChunkSet) At() columns.ChunkSeries {
	of := s.ChunkSet.At()
	of.Stored = endingChunkSeries{of.Stored, s.of}
	return of
}

type endingChunkSeries struct {
	storage.ChunkSeries
	of *ending
}

func (s endingChunkSeries) Iterator(it chunks.Iterator) chunks.Iterator {
	s.of.reads()
	return s.ChunkSeries.Iterator(it)
}
