package columns_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"

	"github.com/freshet-io/freshet/internal/core/columns"
)

// What a query counts, for the results of its series and for its groups, is what the groups take. A group has no cells
// before its first result and after its last: with `count by (pod)`, each of many short-lived pods took 276 kB.
func TestMemoryOfGroups(t *testing.T) {
	const last = 4999
	for _, c := range []struct {
		why          string
		text         string
		groups, each int     // series of each group
		at           []int64 // times of a series' samples, in seconds
		last         int     // the last step, in seconds
		most         int64   // bytes a group
	}{
		{"from the first step to the last", "count by (pod) (x)", 100, 1, []int64{0, last}, last, 125_000},
		{"short-lived", "count by (pod) (x)", 1000, 1, []int64{1000}, last, 9000},
		{"growing", "sum by (pod) (x)", 200, 2, []int64{1000}, last, 17_000},
		{"at one time", "count by (pod) (x)", 20_000, 1, []int64{0}, 0, 250},
		{"of histograms", "sum by (pod) (x)", 50, 2, []int64{1000}, last, 200_000},
	} {
		p := &pods{groups: c.groups, each: c.each, at: c.at, histograms: c.why == "of histograms", most: 1 << 40}
		got, result := p.run(t, c.text, c.last)
		if result.Err != nil {
			t.Fatalf("%s: %v", c.why, result.Err)
		}
		took, counted := p.after-p.before, p.held+16*got.Stats().Samples.TotalSamples
		n := int64(c.groups)
		if took/n > c.most {
			t.Errorf("%s: a group takes %d bytes, want at most %d", c.why, took/n, c.most)
		}
		if counted < took*85/100 || counted > took*115/100 { // the runtime rounds sizes up by 12 % at most
			t.Errorf("%s: a group takes %d bytes, but %d are counted", c.why, took/n, counted/n)
		}
	}
}

// A query ends as soon as its groups take too much memory.
func TestTooManyGroups(t *testing.T) {
	p := &pods{groups: 1000, each: 1, at: []int64{0, 4999}, most: 2_500_000}
	_, result := p.run(t, "count by (pod) (x)", 4999)
	if !errors.Is(result.Err, errTooLarge) || p.read < 20 || p.read > 30 {
		t.Errorf("after %d series, each with a group of 120 kB: %v", p.read, result.Err)
	}
}

var errTooLarge = errors.New("the query takes too much memory")

// pods is a storage with some series of each pod. The samples of each of them are a bit later than those of the one
// before.
type pods struct {
	groups, each int
	at           []int64
	histograms   bool

	most, held    int64 // bytes that a query may hold, and those that it holds
	before, after int64 // bytes of the heap before the first series and after the last one
	read          int   // series
}

// run evaluates a query at steps of a second.
func (p *pods) run(t *testing.T, text string, last int) (promql.Query, *promql.Result) {
	t.Helper()
	q := query{text: text, start: time.UnixMilli(begin), step: time.Second, maxSamples: 100_000_000}
	q.end = q.start.Add(time.Duration(last) * time.Second)
	got, err := columns.New(p, q.maxSamples, q.on(engine(q.maxSamples)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(got.Close)
	result := got.Exec(context.Background())
	if taken, reason := got.Taken(); !taken {
		t.Fatalf("%s is left to the engine: %s", text, reason)
	}
	return got, result
}

func (p *pods) Querier(int64, int64) (storage.Querier, error) {
	return podQuerier{storage.NoopQuerier(), p}, nil
}

type podQuerier struct {
	storage.Querier
	of *pods
}

func (q podQuerier) Select(context.Context, bool, *storage.SelectHints, ...*labels.Matcher) storage.SeriesSet {
	q.of.before = heapInUse()
	return &podSet{SeriesSet: storage.EmptySeriesSet(), pods: q.of}
}

// Hold is part of columns.Meter.
func (q podQuerier) Hold(_ context.Context, bytes int64) error {
	if q.of.held += bytes; q.of.held > q.of.most {
		return errTooLarge
	}
	return nil
}

// heapInUse collects garbage first, and what queries of other tests have left in pools.
func heapInUse() int64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

type podSet struct {
	storage.SeriesSet
	*pods
}

func (s *podSet) Next() bool {
	if s.read == s.groups*s.each {
		s.after = heapInUse()
		return false
	}
	s.read++
	return true
}

func (s *podSet) At() storage.Series {
	i := s.read - 1
	var samples []chunks.Sample
	for _, at := range s.at {
		one := sample{begin + (at+int64(i%s.each)*100)*1000, 1}
		if s.histograms {
			samples = append(samples, histogramSample{one, tsdbutil.GenerateTestFloatHistogram(int64(i))})
		} else {
			samples = append(samples, one)
		}
	}
	return storage.NewListSeries(labels.FromStrings("__name__", "x", "container", fmt.Sprint(i%s.each), "pod",
		fmt.Sprintf("deployment-%06d", i/s.each)), samples)
}

type histogramSample struct {
	sample
	h *histogram.FloatHistogram
}

func (s histogramSample) FH() *histogram.FloatHistogram { return s.h }
func (histogramSample) Type() chunkenc.ValueType        { return chunkenc.ValFloatHistogram }
