package querier

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/columns"
	"github.com/freshet-io/freshet/internal/core/series"
)

// With open tiles, too, results in columns are Prometheus' results, bit by bit, with the rates of live
// samples that adapter/promapi has put into the engine: see core/columns' TestLikeTheEngine.
func TestColumnsOfOpenTiles(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 23))
	windows := func(second int64) []batch.Increment {
		all := constant(second)
		for i := range 5 {
			if r.IntN(10) == 0 {
				continue // a second without this counter
			}
			key := series.AppendKey(nil, series.Counter, labels.FromStrings("__name__", "jobs_total", "job", fmt.Sprint(i)))
			all = append(all, batch.Increment{Key: key, Policy: series.AppendPolicy(nil, &series.DefaultPolicy), Samples: 1,
				Value: float64(r.IntN(100))})
		}
		return all
	}
	s := started(t, 300*time.Millisecond, 3*time.Second, windows)
	const most = 1_000_000
	const several = `{__name__=~"jobs_total|native"}` // floats in chunks come first, and then histograms
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: most, Timeout: time.Minute, LookbackDelta: 5 * time.Minute,
		Parser: parser.NewParser(parser.Options{})})
	for at := int64(now + 100_000); at < now+400_000; at += 1250 {
		s.until(at)
		for range 8 {
			f := []string{"rate", "increase", "delta", "avg_over_time", "min_over_time", "max_over_time", "sum_over_time",
				"last_over_time", "count_over_time"}[r.IntN(9)]
			name := []string{"jobs_total", "requests_total", "native", "classic_bucket", several}[r.IntN(5)]
			span := []string{"20s", "30s", "1m", "3m"}[r.IntN(4)]
			form := []string{"%s(%s[%s])", "sum(%s(%s[%s]))", "sum by (job) (%s(%s[%s])) / 2"}[r.IntN(3)]
			expr := fmt.Sprintf(form, f, name, span)
			if r.IntN(5) == 0 {
				expr = "sum(" + name + ")"
			}
			end, step := time.UnixMilli(at-r.Int64N(2000)), []time.Duration{time.Second, 10 * time.Second}[r.IntN(2)]
			prepare := func(q storage.Queryable) (promql.Query, error) {
				return engine.NewRangeQuery(ctx, q, nil, expr, end.Add(-20*step), end, step)
			}
			plain, err1 := prepare(s)
			ours, err2 := columns.New(s, most, prepare)
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			want, got := plain.Exec(ctx), ours.Exec(ctx)
			if want.Err != nil || got.Err != nil || columns.Fingerprint(want.Value) != columns.Fingerprint(got.Value) {
				t.Fatalf("%s at %v: %v, want %v", expr, end, got, want)
			}
			if a, b := besides(plain, want), besides(ours, got); a != b {
				t.Fatalf("%s at %v has %s, want %s", expr, end, b, a)
			}
			if taken, reason := ours.Taken(); !taken {
				t.Errorf("%s is left to the engine: %s", expr, reason)
			}
			plain.Close()
			ours.Close()
		}
	}
}

// besides returns the notes and the statistics of an answer.
func besides(q promql.Query, r *promql.Result) string {
	s := q.Stats().Samples
	return fmt.Sprintf("%q, %d samples, %d read, %d at once", slices.Sorted(maps.Keys(r.Warnings)), s.TotalSamples,
		s.SamplesRead, s.PeakSamples)
}
