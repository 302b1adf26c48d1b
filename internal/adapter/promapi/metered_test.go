package promapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/freshet-io/freshet/internal/core/columns"
)

// Between two series that core/columns reads in chunks, a query passes its turn on. Otherwise one query with many
// series would hold its slot until its end. Series that are kept count against the turn.
func TestChunksAreMetered(t *testing.T) {
	for _, kept := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		one := &turn{begun: &lane{share: 1 << 20}}
		q := meteredQuerier{chunkSelector{storage.NoopQuerier(), 3}}
		set := q.SelectChunks(withTurn(ctx, one), true, kept, nil)
		for range 2 {
			if !set.Next() || set.Err() != nil {
				t.Fatal("the set ends early:", set.Err())
			}
		}
		cancel() // a turn that is not running returns the context's error
		if set.Next() || !errors.Is(set.Err(), context.Canceled) {
			t.Errorf("the error is %v, want that of the turn", set.Err())
		}
		if n := one.read.Load(); n != 3 {
			t.Errorf("%d series are counted, want 3", n)
		}
		if held := one.series > 0; held != kept {
			t.Errorf("kept is %v, but %d bytes are counted", kept, one.series)
		}
		if set := (meteredQuerier{storage.NoopQuerier()}).SelectChunks(ctx, true, kept, nil); set != nil {
			t.Errorf("a storage without chunks gives %v", set)
		}
	}
}

// Groups of an aggregation in columns count against the turn. A query with too many of them is refused as the engine's
// queries with too many series are. `count by (pod)` of many pods took all memory of the process.
func TestGroupsAreMetered(t *testing.T) {
	errorOf := func(query string, series int) string {
		s := newServer(fakeEnds(series), func(cfg *Config, _ *Options) { cfg.MaxConcurrency, cfg.MaxMemory = 1, 64<<20 })
		w := s.ask(get(prefix+"/query_range", url.Values{"query": {query}, "start": {fmt.Sprint(base)},
			"end": {fmt.Sprint(base + 3600)}, "step": {"1"}}))
		e := decode(t, w)
		refused := w.Code == http.StatusUnprocessableEntity && s.failures(t, failedMemory) == 1
		if refused == (e.Error == "") {
			t.Errorf("%s of %d series: status %d, %s", query, series, w.Code, e.Error)
		}
		s.nothingHeld(t)
		return e.Error
	}
	want := strings.TrimPrefix(errorOf("stddev by (i) (x)", 20_000), "expanding series: ")
	if !strings.Contains(want, "the series and labels that the query reads take more than its share of 12 MiB") {
		t.Errorf("20,000 series in the engine: %q", want)
	}
	// A group of 3,601 steps takes 86 kB, and the results of its series are 5 kB, so half of the share is enough for 77.
	for _, c := range []struct {
		query  string
		series int
		want   string
	}{
		{"count by (i) (x)", 70, ""},
		{"count by (i) (x)", 80, want},
		{"count by (i) (x) + count by (i) (x)", 70, ""}, // the first groups are freed before the second begin
		{"count(x)", 1000, ""},
	} {
		if got := errorOf(c.query, c.series); got != c.want {
			t.Errorf("%s of %d series: %q, want %q", c.query, c.series, got, c.want)
		}
	}
}

// fakeEnds is fakeSeries with a second sample an hour after the first.
func fakeEnds(n int) selects {
	return func(context.Context) storage.SeriesSet { return &endsSet{slowSet{n: n}} }
}

type endsSet struct{ slowSet }

func (s *endsSet) At() storage.Series {
	return storage.NewListSeries(s.slowSet.At().Labels(), []chunks.Sample{sample{}, laterSample{}})
}

type laterSample struct{ sample }

func (laterSample) T() int64 { return (base + 3600) * 1000 }

// chunkSelector selects a number of series without samples.
type chunkSelector struct {
	storage.Querier
	series int
}

func (q chunkSelector) SelectChunks(context.Context, bool, bool, *storage.SelectHints,
	...*labels.Matcher) columns.ChunkSet {
	return &emptySeries{left: q.series}
}

type emptySeries struct{ left int }

func (s *emptySeries) Next() bool                      { s.left--; return s.left >= 0 }
func (*emptySeries) At() columns.ChunkSeries           { return columns.ChunkSeries{} }
func (*emptySeries) Err() error                        { return nil }
func (*emptySeries) Warnings() annotations.Annotations { return nil }
func (*emptySeries) Live() storage.SeriesSet           { return storage.EmptySeriesSet() }
