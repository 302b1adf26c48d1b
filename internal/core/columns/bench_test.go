package columns_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/freshet-io/freshet/internal/core/columns"
)

// Each query runs on the engine alone and on columns, side by side. The data are those of the lab's
// dashboards: samples each 15 s over 6 h, steps of a minute, and tiles of a minute over 7 days.
func BenchmarkQueries(b *testing.B) {
	const day = 24 * time.Hour
	for _, bench := range []struct {
		name, text  string
		series      int
		kind        string
		every, over time.Duration
		step        time.Duration
	}{
		{"rate 4,000", `sum by (service) (rate(x_total[5m]))`, 4_000, "counter", 15 * time.Second, day / 4, time.Minute},
		{"rate 10,000", `sum by (service) (rate(x_total[5m]))`, 10_000, "counter", 15 * time.Second, day / 4, time.Minute},
		{"rate 4,000 of 1m tiles", `sum by (service) (rate(x_total[5m]))`, 4_000, "counter", time.Minute, day / 4, time.Minute},
		{"increase[1h]", `sum(increase(x_total[1h]))`, 4_000, "counter", 15 * time.Second, day / 4, time.Minute},
		{"classic quantile", `histogram_quantile(0.99, sum by (le) (rate(x_total[5m])))`, 4_000, "counter", 15 * time.Second,
			day / 4, time.Minute},
		{"native quantile", `histogram_quantile(0.99, sum(rate(x_total[5m])))`, 200, "native", 15 * time.Second, day / 4,
			time.Minute},
		{"7 days rate[1h]", `sum(rate(x_total[1h]))`, 1_000, "counter", time.Minute, 7 * day, 10 * time.Minute},
		{"7 days count", `count(x_total)`, 1_000, "counter", time.Minute, 7 * day, 10 * time.Minute},
		{"rate, no sum", `rate(x_total[5m])`, 1_000, "counter", 15 * time.Second, day / 4, time.Minute},
	} {
		b.Run(bench.name, func(b *testing.B) {
			db := benchData(b, bench.series, bench.kind, bench.every, bench.over)
			from := time.UnixMilli(begin)
			q := query{text: bench.text, start: from.Add(5 * time.Minute), end: from.Add(bench.over), step: bench.step}
			const most = 100_000_000
			prepare := q.on(engine(most))
			run := func(b *testing.B, make func() (promql.Query, error)) {
				b.ReportAllocs()
				for b.Loop() {
					q, err := make()
					if err != nil {
						b.Fatal(err)
					}
					if r := q.Exec(context.Background()); r.Err != nil {
						b.Fatal(r.Err)
					}
					q.Close()
				}
			}
			b.Run("engine", func(b *testing.B) { run(b, func() (promql.Query, error) { return prepare(db) }) })
			b.Run("columns", func(b *testing.B) {
				run(b, func() (promql.Query, error) { return columns.New(db, most, prepare) })
			})
			b.Run("chunks", func(b *testing.B) {
				run(b, func() (promql.Query, error) { return columns.New(inChunks{db, &selects{}}, most, prepare) })
			})
		})
	}
}

func benchData(b *testing.B, series int, kind string, every, over time.Duration) *tsdb.DB {
	b.Helper()
	db, err := tsdb.Open(b.TempDir(), nil, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		b.Fatal(err)
	}
	db.DisableCompactions()
	b.Cleanup(func() { db.Close() })
	h := &histogram.Histogram{Schema: 3, ZeroThreshold: 1e-10, PositiveSpans: []histogram.Span{{Offset: 0, Length: 20}},
		PositiveBuckets: make([]int64, 20)}
	refs, names := make([]storage.SeriesRef, series), make([]labels.Labels, series)
	for i := range series {
		names[i] = labels.FromStrings("__name__", "x_total", "service", fmt.Sprint("s", i%20), "le", fmt.Sprint(i%11),
			"instance", fmt.Sprint("i", i))
	}
	for n := range int64(over / every) {
		app, at := db.Appender(context.Background()), begin+n*every.Milliseconds()
		for i := range series {
			if kind == "native" {
				h.PositiveBuckets[0] = n
				h.Count = uint64(20 * n)
				refs[i], err = app.AppendHistogram(refs[i], names[i], at, h, nil)
			} else {
				refs[i], err = app.Append(refs[i], names[i], at, float64(n*int64(1+i%7)))
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		if err := app.Commit(); err != nil {
			b.Fatal(err)
		}
	}
	return db
}
