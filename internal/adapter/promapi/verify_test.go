package promapi

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"

	"github.com/freshet-io/freshet/internal/core/columns"
)

// One in so many queries that are evaluated in columns is compared with Prometheus' engine. Others are
// only counted.
func TestQueriesAreVerified(t *testing.T) {
	s := newServer(database(t), func(cfg *Config, _ *Options) { cfg.Verify = 2 })
	for _, expr := range []string{"sum(rate(requests_total[1m]))", "requests_total", "sum(rate(requests_total[1m]))",
		"count(requests_total)", "1", "avg(requests_total)", "max(requests_total)"} {
		form := url.Values{"query": {expr}, "time": {fmt.Sprint(base + 300)}}
		if w := s.ask(get("/api/v1/query", form)); w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", expr, w.Code, w.Body)
		}
	}
	c := s.options.Engine.columns
	got := []float64{testutil.ToFloat64(c.count("")), testutil.ToFloat64(c.count(columns.ReasonPlain)),
		testutil.ToFloat64(c.compared.WithLabelValues(resultEqual)),
		testutil.ToFloat64(c.compared.WithLabelValues(resultDifferent))}
	if want := []float64{5, 2, 2, 0}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("taken, not taken, equal and different are %v, want %v", got, want)
	}
}

// A difference counts only if the data have not changed: the first evaluation and the third, which are
// both in columns, have the same result.
func TestVerification(t *testing.T) {
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 10, Timeout: time.Minute})
	of := func(text string) prepare {
		return func() (promql.Query, error) {
			if text == "" {
				return nil, context.Canceled
			}
			return engine.NewInstantQuery(t.Context(), nothing{}, nil, text, time.Unix(0, 0))
		}
	}
	for _, c := range []struct{ first, plain, again, want string }{
		{"1", "1", "", resultEqual},
		{"1", "2", "1", resultDifferent},
		{"1", "2", "2", resultUnknown},
		{"1", "", "1", resultUnknown},
		{"1", "2", "", resultUnknown},
	} {
		first, _ := fingerprint(t.Context(), of(c.first))
		if got := compare(t.Context(), first, of(c.plain), of(c.again)); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// nothing is a storage without series.
type nothing struct{}

func (nothing) Querier(int64, int64) (storage.Querier, error) { return storage.NoopQuerier(), nil }

// Any change of a result changes its fingerprint, and the order of series does not.
func TestFingerprint(t *testing.T) {
	s := newServer(database(t))
	sum := func(expr string) uint64 {
		q, err := s.options.Engine.NewInstantQuery(t.Context(), s.options.Queryable, nil, expr, time.Unix(base+300, 0))
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		r := q.Exec(t.Context())
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		return columns.Fingerprint(r.Value)
	}
	if sum("sort(requests_total)") != sum("sort_desc(requests_total)") {
		t.Error("the order of series changes the fingerprint")
	}
	seen := map[uint64]string{}
	for _, expr := range []string{"requests_total", "requests_total + 0", "-requests_total", "requests_total[1m]",
		"requests_total[2m]", "latency", "latency * 1", "latency * 2", "latency[1m]", "1", "2", `"1"`} {
		if other, ok := seen[sum(expr)]; ok {
			t.Errorf("%s and %s have the same fingerprint", expr, other)
		}
		seen[sum(expr)] = expr
	}
}
