package promapi

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/freshet-io/freshet/internal/core/stepcache"
	"github.com/freshet-io/freshet/internal/core/top"
)

// daily is a storage and its source. Its series differ from day to day.
type daily struct {
	selects
	days  map[string][]string // the metric of each series, by day
	each  time.Duration       // to read a series
	files uint64              // see stepcache.State
	final string              // from this day on, samples still come
	late  string              // a sample of this day came late; empty if none did
	read  []string            // the days that were read
}

func (d *daily) Querier(mint, _ int64) (storage.Querier, error) {
	return dailyQuerier{storage.NoopQuerier(), d, dayText(mint)}, nil
}

type dailyQuerier struct {
	storage.Querier
	*daily
	day string
}

func (q dailyQuerier) Select(_ context.Context, _ bool, _ *storage.SelectHints,
	is ...*labels.Matcher) storage.SeriesSet {
	q.read = append(q.read, q.day)
	names := slices.DeleteFunc(slices.Clone(q.days[q.day]), func(name string) bool { return !is[0].Matches(name) })
	return &dailySet{slowSet{n: len(names), each: q.each}, names}
}

type dailySet struct {
	slowSet
	names []string
}

func (s *dailySet) At() storage.Series {
	return storage.NewListSeries(labels.FromStrings("__name__", s.names[s.n], "i", fmt.Sprint(s.n)), nil)
}

func (d *daily) State(string) stepcache.State {
	return stepcache.State{Files: d.files, FinalBefore: millisOf(d.final)}
}

func (d *daily) Same(_ string, s stepcache.State) int64 {
	switch {
	case s.Files != d.files:
		return math.MinInt64
	case d.late != "":
		return min(s.FinalBefore, millisOf(d.late))
	}
	return s.FinalBefore
}

func millisOf(day string) int64 {
	t, err := time.Parse(time.DateOnly, day)
	if err != nil {
		panic(err)
	}
	return t.UnixMilli()
}

// newDaily has four days. In a bubble of synctest, the first of January of 2000 is today.
func newDaily() (*daily, *server) {
	d := &daily{final: "2000-01-01", days: map[string][]string{
		"1999-12-29": {"a", "a", "b"},
		"1999-12-30": {"a", "a", "b", "c"},
		"1999-12-31": {"a", "a", "b", "b", "b", "c", "c"},
		"2000-01-01": {"a", "b", "b", "b", "b", "c", "c"},
	}}
	s := newServer(d, func(_ *Config, o *Options) { o.Now = time.Now })
	s.options.Engine.Source = d
	return d, s
}

// The days stand beside each other, the newest first, with the metrics that have grown since the first day that has
// series.
func TestCardinalityOfDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := newDaily()
		want := top.ViewCardinality{Day: "2000-01-01", Series: 7, Others: 2, Since: "1999-12-29",
			Counts: []top.NameCount{{Name: "b", Series: 4}},
			Grown:  []top.NameGrowth{{Name: "b", Was: 1, Series: 4}},
			Days: []top.DayCount{{Day: "2000-01-01", Series: 7}, {Day: "1999-12-31", Series: 7},
				{Day: "1999-12-30", Series: 4}, {Day: "1999-12-29", Series: 3}, {Day: "1999-12-28"}}}
		if got := s.cardinality(t, "days=5&limit=1"); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
		want = top.ViewCardinality{Day: "1999-12-31", Metric: "b", Series: 3,
			Labels: []top.LabelCost{{Name: "i", Values: 3, Series: 3, Saved: 2}},
			Days:   []top.DayCount{{Day: "1999-12-31", Series: 3}, {Day: "1999-12-30", Series: 1}}}
		if got := s.cardinality(t, "days=2&metric=b&day=1999-12-31"); !reflect.DeepEqual(got, want) {
			t.Errorf("of a metric: got %+v, want %+v", got, want)
		}
		for _, days := range []string{"0", "32", "x"} {
			w := s.ask(httptest.NewRequest(http.MethodGet, prefix+"/status/cardinality?days="+days, nil))
			if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "days must be") {
				t.Errorf("days=%s: %d %s", days, w.Code, w.Body)
			}
		}
	})
}

// The time of a count is the time of all its days. The newest come first, and days without time are named.
func TestCardinalityOfASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, s := newDaily()
		d.each = 400 * time.Millisecond // 12.5 series in 5 s
		began := time.Now()
		got := s.cardinality(t, "days=4")
		if took := time.Since(began); took < cardinalityTime || took > cardinalityTime+d.each {
			t.Errorf("counted for %v, want %v", took, cardinalityTime)
		}
		const why = "there was no time for more series than these in 5s"
		days := []top.DayCount{{Day: "2000-01-01", Series: 7}, {Day: "1999-12-31", Series: 6, Short: why},
			{Day: "1999-12-30", Short: why}, {Day: "1999-12-29", Short: why}}
		if !reflect.DeepEqual(got.Days, days) || got.Short != "on 1999-12-31, 1999-12-30, 1999-12-29: "+why {
			t.Errorf("got %+v, want %+v", got, days)
		}
		if got.Since != "" || got.Grown != nil {
			t.Errorf("compared with days whose counts are too low: since %s %v", got.Since, got.Grown)
		}
	})
}

// Days that are over are counted once, until their data change.
func TestCountsOfDaysAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, s := newDaily()
		count := func(query string) (read []string) {
			t.Helper()
			time.Sleep(cardinalityAge) // the answer is not given again
			d.read = nil
			if got := s.cardinality(t, query); len(got.Days) != 4 || got.Days[3].Series == 0 || got.Short != "" {
				t.Errorf("got %+v, want four days", got)
			}
			return d.read
		}
		all := []string{"2000-01-01", "1999-12-31", "1999-12-30", "1999-12-29"}
		for _, c := range []struct {
			why    string
			change func()
			want   []string
		}{
			{"all days", func() {}, all},
			{"samples of this day still come", func() {}, all[:1]},
			{"a sample came late", func() { d.late = "1999-12-30" }, all[:3]},
			{"all samples have come", func() { d.late, d.final = "", "2000-01-02" }, all[:3]},
			{"nothing has changed", func() {}, nil},
			{"other files may have other samples", func() { d.files++ }, all},
		} {
			c.change()
			if got := count("days=4"); !slices.Equal(got, c.want) {
				t.Errorf("%s: read %v, want %v", c.why, got, c.want)
			}
		}
		if got := count("days=4&metric=a"); !slices.Equal(got, all) {
			t.Errorf("of a metric: read %v, want %v", got, all)
		}
		if got := count("days=4&metric=a"); !slices.Equal(got, all[:1]) {
			t.Errorf("of a metric again: read %v, want its labels of the last day only", got)
		}
	})
}

func TestKeptDaysAreBounded(t *testing.T) {
	d, _ := newDaily()
	var k keptDays
	for i := range 3 * maxKeptDays {
		k.keep(dayOf{from: -int64(i) * dayMillis}, d, keptDay{before: d.State(""), counts: dayCounts{"a": 1}})
		if len(k.days) > maxKeptDays || k.metrics != len(k.days) {
			t.Fatalf("keeps %d days of %d metrics", len(k.days), k.metrics)
		}
	}
	k.metrics = maxKeptMetrics
	k.keep(dayOf{metric: "b"}, d, keptDay{before: d.State(""), counts: dayCounts{"b": 1}})
	if len(k.days) != 1 || k.metrics != 1 {
		t.Errorf("keeps %d days of %d metrics, want only the last", len(k.days), k.metrics)
	}
}
