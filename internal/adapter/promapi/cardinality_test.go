package promapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/freshet-io/freshet/internal/core/top"
)

func (s *server) cardinality(t *testing.T, query string) (c top.ViewCardinality) {
	t.Helper()
	w := s.ask(httptest.NewRequest(http.MethodGet, prefix+"/status/cardinality?"+query, nil))
	if e := decode(t, w); json.Unmarshal(e.Data, &c) != nil || w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", query, w.Code, w.Body)
	}
	return c
}

func TestCardinality(t *testing.T) {
	s := newServer(database(t))
	today := time.Unix(base, 0).UTC().Format(time.DateOnly)
	for query, want := range map[string]top.ViewCardinality{
		"limit=2": {Day: today, Series: 4, Others: 1,
			Counts: []top.NameCount{{Name: "requests_total", Series: 2}, {Name: "http.duration", Series: 1}}},
		"metric=requests_total&label=code&limit=1&day=" + today: {Day: today, Series: 2, Others: 1,
			Metric: "requests_total", Label: "code", Values: []top.NameCount{{Name: "200", Series: 1}},
			Labels: []top.LabelCost{{Name: "code", Values: 2, Series: 2, Saved: 1}}},
		"metric=none":    {Day: today, Metric: "none"},
		"day=2001-02-03": {Day: "2001-02-03"},
	} {
		if got := s.cardinality(t, query); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", query, got, want)
		}
	}
	for query, want := range map[string]string{
		"limit=0": "limit must be between 1 and 1000", "day=today": "want a day in UTC", "label=code": "label needs a metric",
	} {
		w := s.ask(httptest.NewRequest(http.MethodGet, prefix+"/status/cardinality?"+query, nil))
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s, want %s", query, w.Code, w.Body, want)
		}
	}
}

// A count ends when its time is over, and says that there are more series. The answer is given again for a while, and
// counts nothing.
func TestCardinalityIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counted := 0
		s := newServer(selects(func(ctx context.Context) storage.SeriesSet {
			counted++
			return fakeSeries(600, 100*time.Millisecond)(ctx)
		}), func(_ *Config, o *Options) { o.Now = time.Now })
		for range 2 {
			got := s.cardinality(t, "")
			if got.Series < 10 || got.Series > 60 || !strings.Contains(got.Short, "no time") || counted != 1 {
				t.Errorf("counted %d times: %+v, want about 50 series and a reason", counted, got)
			}
		}
		time.Sleep(cardinalityAge)
		if s.cardinality(t, ""); counted != 2 {
			t.Errorf("half a minute later: counted %d times, want 2", counted)
		}
	})
}

// A request does not wait for its turn for longer than a count may take.
func TestCardinalityIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(selects(func(ctx context.Context) storage.SeriesSet {
			time.Sleep(2 * cardinalityTime) // a store that does not notice that the time is over
			return fakeSeries(1, 0)(ctx)
		}), func(_ *Config, o *Options) { o.Now = time.Now })
		var other sync.WaitGroup
		defer other.Wait()
		other.Go(func() { s.ask(httptest.NewRequest(http.MethodGet, prefix+"/status/cardinality", nil)) })
		synctest.Wait()
		began := time.Now()
		w := s.ask(httptest.NewRequest(http.MethodGet, prefix+"/status/cardinality", nil))
		if e := decode(t, w); w.Code != http.StatusServiceUnavailable || !strings.Contains(e.Error, "one counts at a time") {
			t.Errorf("status %d: %s", w.Code, e.Error)
		}
		if took := time.Since(began); took != cardinalityTime {
			t.Errorf("waited for %v, want %v", took, cardinalityTime)
		}
	})
}

// If a store cannot be read, the counts are too low, and the answer says so.
func TestCardinalityOfABrokenStore(t *testing.T) {
	s := newServer(selects(func(ctx context.Context) storage.SeriesSet {
		return warns{fakeSeries(2, 0)(ctx), errors.New("store raw cannot be opened")}
	}))
	if got := s.cardinality(t, ""); got.Series != 2 || got.Short != "store raw cannot be opened" {
		t.Errorf("got %+v, want 2 series and the warning", got)
	}
}

// warns is a set with a warning.
type warns struct {
	storage.SeriesSet
	why error
}

func (w warns) Warnings() annotations.Annotations { return annotations.New().Add(w.why) }
