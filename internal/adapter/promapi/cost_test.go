package promapi

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/storage"

	"github.com/freshet-io/freshet/internal/core/changes"
	"github.com/freshet-io/freshet/internal/core/querycost"
	"github.com/freshet-io/freshet/internal/core/stepcache"
)

// fromGrafana makes r look like a request of a Grafana panel.
func fromGrafana(r *http.Request, panel string) *http.Request {
	r.RemoteAddr = "10.0.0.9:4711"
	r.Header.Set("User-Agent", "Grafana/12.1")
	r.Header.Set("X-Dashboard-Uid", "ab12")
	r.Header.Set("X-Panel-Id", panel)
	return r
}

func row(t *testing.T, s *server, tenant string) querycost.Row {
	t.Helper()
	rows := s.options.Engine.Costs(10)
	i := slices.IndexFunc(rows, func(r querycost.Row) bool { return r.Tenant == tenant })
	if i < 0 {
		t.Fatalf("no row of tenant %s in %+v", tenant, rows)
	}
	return rows[i]
}

// Costs lists each tenant's queries with their senders. It shows how long a query held a slot and,
// separately, how long it waited for one, summed over all turns of the query. It includes look-ups and
// waiting queries.
func TestCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(fakeSeries(600, 100*time.Millisecond), asTenant, func(cfg *Config, _ *Options) {
			cfg.MaxConcurrency, cfg.Timeout = 1, 10*time.Hour
		})
		for i, r := range []*http.Request{ranged(1000), ranged(2000)} { // a minute each, one after the other
			go func() {
				if w := s.as("a", fromGrafana(r, fmt.Sprint(i))); w.Code != http.StatusOK {
					t.Errorf("%d %s", w.Code, w.Body)
				}
			}()
		}
		<-time.After(30 * time.Second)
		if r := row(t, s, "a"); r.Active != 2 || r.Queries != 0 || r.Query != "x" {
			t.Errorf("while one query runs and one waits, the row is %+v, want 2 active queries and 0 ended ones", r)
		}
		active := s.options.Engine.TopCosts("a").Active
		since := float64(time.Now().Unix() - 30)
		if len(active) != 2 || active[0].Waiting == active[1].Waiting || active[0].Begun != since {
			t.Errorf("one query runs and one waits for 30 s, but the list has %+v", active)
		}
		if foreign := s.options.Engine.TopCosts("b"); len(foreign.Active)+len(foreign.Queries) > 0 {
			t.Errorf("another tenant sees %+v", foreign)
		}
		<-time.After(95 * time.Second)
		r := row(t, s, "a")
		if r.Active != 0 || r.Queries != 1 && r.Queries != 2 || r.Longest < 59.9 || r.Longest > 60.1 {
			t.Errorf("%+v", r)
		}
		if r.Samples == 0 || r.Series != 600*int64(r.Queries) || r.Step != 0.01 || r.Range != 9.99 && r.Range != 19.99 {
			t.Errorf("%+v", r)
		}
		if !strings.HasPrefix(r.Askers[0], "10.0.0.9 (Grafana/12.1), dashboard ab12, panel ") {
			t.Errorf("asked by %q", r.Askers)
		}
		if waited := r.Waited; waited < 59.9 || waited > 60.1 {
			t.Errorf("one query waited a minute for the other, but the table shows a wait of %v s", waited)
		}
		s.as("b", fromGrafana(get(prefix+"/series", url.Values{"match[]": {"x{a='b'}", "y"}}), "1"))
		if r := row(t, s, "b"); r.Query != "series x{a=?} y" || r.Queries != 1 {
			t.Errorf("%+v", r)
		}
		s.nothingHeld(t)
	})
}

// If the steps that are not kept were evaluated in vain, since the data changed meanwhile, they have cost something.
func TestCostOfStepsInVain(t *testing.T) {
	s := newServer(selects(func(ctx context.Context) storage.SeriesSet {
		stepcache.FromContext(ctx).Read(0)
		return &slowSet{n: 10}
	}), asTenant)
	changing := &changesAfter{}
	s.options.Engine.Source = changing
	s.as("a", ranged(100))
	whole := row(t, s, "a").Samples
	changing.calls = 1
	s.as("a", ranged(100))
	if r := row(t, s, "a"); whole == 0 || r.Queries != 2 || r.Samples != 2*whole+whole/100 {
		t.Errorf("a query and its repetition with one step in vain cost %d samples, the query %d", r.Samples, whole)
	}
}

// changesAfter is a source of data that change after Same was called so many times.
type changesAfter struct{ calls int }

func (*changesAfter) State(string) stepcache.State { return stepcache.State{} }

func (c *changesAfter) Same(string, stepcache.State) int64 {
	c.calls--
	if c.calls < 0 {
		return changes.All
	}
	return math.MaxInt64
}

// A query that got no turn is in the table, with the time that it waited.
func TestCostOfAQueryWithoutATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(fakeSeries(600, 100*time.Millisecond), asTenant, func(cfg *Config, _ *Options) {
			cfg.MaxConcurrency, cfg.Timeout = 1, 10*time.Second
		})
		for range 3 {
			go s.as("a", ranged(1000))
		}
		<-time.After(11 * time.Second)
		if r := row(t, s, "a"); r.Queries != 3 || r.Failed != 3 || r.Active != 0 || r.Waited < 19.9 || r.Waited > 20.1 {
			t.Errorf("%+v", r)
		}
		s.nothingHeld(t)
	})
}

// A profile shows which query a goroutine works for. The label is gone before the connection's next
// request begins.
func TestQueriesAreLabelledInProfiles(t *testing.T) {
	var seen []string
	s := newServer(selects(func(context.Context) storage.SeriesSet {
		seen = append(seen, goroutineLabels())
		return storage.EmptySeriesSet()
	}), asTenant)
	s.as("a", instant("x"))
	s.as("a", instant(`x{a="b"}`))
	id := row(t, s, "a").ID
	if len(seen) != 2 || !strings.Contains(seen[0], `"query":"`) ||
		!strings.Contains(strings.Join(seen, " "), `"query":"`+id+`"`) {
		t.Errorf("the goroutine labels are %q, but the id of the row is %s", seen, id)
	}
	if after := goroutineLabels(); strings.Contains(after, `"query"`) {
		t.Errorf("labels remain after the answer: %s", after)
	}
}

// goroutineLabels returns the labels of this test's goroutines as profiles show them.
func goroutineLabels() string {
	var text strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&text, 1) // a builder does not fail
	var found []string
	for line := range strings.Lines(text.String()) {
		if strings.HasPrefix(line, "# labels: ") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return strings.Join(found, " ")
}
