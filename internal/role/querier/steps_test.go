package querier

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	promtsdb "github.com/prometheus/prometheus/tsdb"

	"github.com/freshet-io/freshet/internal/adapter/promapi"
	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/labelrules"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/stepcache"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/lib/conf"
)

// dashboard is a server whose range queries are answered twice: with the steps of earlier queries, and without.
type dashboard struct {
	*server
	kept, plain *promapi.Engine
	metrics     *prometheus.Registry // of kept
	state       write.State
}

func newDashboard(t *testing.T, window func(second int64) []batch.Increment) *dashboard {
	d := &dashboard{server: started(t, 300*time.Millisecond, 3*time.Second, window), metrics: prometheus.NewRegistry()}
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	engine := func(most int64, reg *prometheus.Registry) *promapi.Engine {
		cfg := promapi.DefaultConfig()
		cfg.StepCache, cfg.Verify = conf.Bytes(most), 2
		e := promapi.NewEngine(cfg, promapi.Memory{Bytes: 1 << 30, Of: "this test"}, logger, reg)
		e.Source = d.Queryable
		return e
	}
	d.kept, d.plain = engine(64<<20, d.metrics), engine(0, prometheus.NewRegistry())
	return d
}

// write writes a sample as remote write does. The store may refuse it.
func (d *dashboard) write(at int64, v float64, ls ...string) {
	d.t.Helper()
	d.writeTo(false, &d.state, at, v, ls...)
}

// writeTo writes a sample of a sender, or the result of a rule.
func (d *dashboard) writeTo(results bool, state *write.State, at int64, v float64, ls ...string) {
	d.t.Helper()
	var r remotewrite.Request
	var b remotewrite.Builder
	b.Begin(&r, nil)
	b.Series()
	for i := 0; i < len(ls); i += 2 {
		b.Label(ls[i], ls[i+1])
	}
	b.Sample(remotewrite.Sample{Time: at, Value: v})
	b.Finish()
	w := &write.Request{Request: &r, Tenant: tenant.Default, Terms: &write.Terms{Generation: 1, Rules: labelrules.Rules{}},
		Arrival: d.now, Window: 30 * time.Minute, Results: results}
	if err := d.stores.WriteRequests(ctx, tenant.Default, state, []*write.Request{w}); err != nil {
		d.t.Fatal(err)
	}
}

// panel is a range query that ends at the time of its refresh.
type panel struct {
	expr        string
	steps, step int64 // ms
}

// refresh evaluates a panel in both ways. The results must be the same, bit by bit.
func (d *dashboard) refresh(p panel, end int64) {
	d.t.Helper()
	got, want := d.answer(d.kept, p, end), d.answer(d.plain, p, end)
	if got != want {
		d.t.Fatalf("%+v to %d, at %d, with kept steps is\n%s\nwithout\n%s", p, end, d.now, got, want)
	}
}

// answer returns everything that a panel shows.
func (d *dashboard) answer(e *promapi.Engine, p panel, end int64) string {
	d.t.Helper()
	q, err := e.NewRangeQuery(ctx, d, nil, p.expr, time.UnixMilli(end-p.steps*p.step), time.UnixMilli(end),
		time.Duration(p.step)*time.Millisecond)
	if err != nil {
		d.t.Fatal(err)
	}
	defer q.Close()
	result := q.Exec(ctx)
	if result.Err != nil {
		return result.Err.Error()
	}
	var b strings.Builder
	for _, note := range slices.Sorted(maps.Keys(result.Warnings)) {
		fmt.Fprintln(&b, note)
	}
	for _, s := range result.Value.(promql.Matrix) {
		fmt.Fprintln(&b, s.Metric)
		for _, f := range s.Floats {
			fmt.Fprintf(&b, " %d:%x", f.T, math.Float64bits(f.F))
		}
		for _, h := range s.Histograms {
			fmt.Fprintf(&b, " %d:%v", h.T, h.H)
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}

// count returns the value of a counter with a label.
func (d *dashboard) count(metric, result string) float64 {
	d.t.Helper()
	all, err := d.metrics.Gather()
	if err != nil {
		d.t.Fatal(err)
	}
	for _, f := range all {
		for _, m := range f.Metric {
			is := func(l *dto.LabelPair) bool { return l.GetValue() == result }
			if f.GetName() == metric && slices.ContainsFunc(m.Label, is) {
				return m.GetCounter().GetValue()
			}
		}
	}
	d.t.Fatalf("there is no %s with %s", metric, result)
	return 0
}

// Panels that are refreshed show the same, bit by bit, whether their earlier steps are kept or evaluated again. Between
// the refreshes come samples of all kinds: in time and late, from requests and in windows, with a sender's time and
// without, and of series that are new.
func TestKeptStepsAreTheSame(t *testing.T) {
	seeds, refreshes := 3, 120
	switch {
	case os.Getenv("FRESHET_SOAK") != "":
		seeds, refreshes = 40, 300
	case testing.Short():
		seeds = 1
	}
	var used, all float64
	for seed := range seeds {
		r := rand.New(rand.NewPCG(uint64(seed), 23))
		var at int64 // of the dashboard, s
		d := newDashboard(t, func(second int64) []batch.Increment {
			at = now/1000 + second
			return randomWindow(r, at)
		})
		panels := make([]panel, 14)
		for i := range panels {
			panels[i] = randomPanel(r)
		}
		for range refreshes {
			before := d.now
			d.until(d.now + 1000*[]int64{1, 5, 10, 15, 60}[r.IntN(5)])
			for at := before - before%15_000 + 15_000; at <= d.now; at += 15_000 {
				for i := range 4 {
					if r.IntN(8) > 0 {
						d.write(at+int64(i), float64(at%1_000_000)+r.Float64(), "__name__", "sent_total", "job", fmt.Sprint(i%2),
							"instance", fmt.Sprint(i))
					}
				}
			}
			if r.IntN(15) == 0 { // late
				d.write(d.now-r.Int64N(900_000), r.Float64(), "__name__", "sent_total", "job", "0",
					"instance", fmt.Sprint(r.IntN(5)))
			}
			for range 3 {
				p := panels[r.IntN(len(panels))]
				end := d.now - d.now%p.step
				switch r.IntN(10) {
				case 0:
					end -= p.step * r.Int64N(20)
				case 1:
					end = d.now
				case 2:
					p.steps = 1 + r.Int64N(p.steps)
				}
				d.refresh(p, end)
			}
		}
		if n := d.count("freshet_query_verified_total", "different"); n > 0 {
			t.Errorf("seed %d: %v answers differ from Prometheus' engine", seed, n)
		}
		used += d.count("freshet_query_kept_total", "used")
		all += float64(3 * refreshes)
	}
	t.Logf("%v of %v answers had kept steps", used, all)
	if used < all/4 {
		t.Errorf("only %v of %v answers had kept steps", used, all)
	}
}

// randomWindow is a second of counters and timers, of which some are silent at times, and of gauges with a time of
// their own.
func randomWindow(r *rand.Rand, at int64) []batch.Increment {
	all := constant(at)
	key := func(k series.Kind, name string, i int) []byte {
		return series.AppendKey(nil, k, labels.FromStrings("__name__", name, "job", fmt.Sprint(i)))
	}
	policy := series.AppendPolicy(nil, &series.DefaultPolicy)
	for i := range 4 {
		if at/100%4 != int64(i) && r.IntN(4) > 0 {
			all = append(all, batch.Increment{Key: key(series.Counter, "jobs_total", i), Policy: policy, Samples: 1,
				Value: float64(r.IntN(100))})
		}
	}
	if at%20 < 7 { // a new series every 97 s
		all = append(all, batch.Increment{Key: key(series.Counter, "jobs_total", int(at/97)), Policy: policy, Samples: 1,
			Value: 1})
	}
	if r.IntN(60) == 0 {
		all = append(all, batch.Increment{Key: key(series.Gauge, "stamped", r.IntN(2)), Policy: policy, Samples: 1,
			Value: r.Float64(), Time: at - r.Int64N(300)})
	}
	if r.IntN(20) == 0 {
		all = append(all, batch.Increment{Key: key(series.Gauge, "level", r.IntN(2)), Policy: policy, Samples: 1,
			Value: r.Float64()})
	}
	return all
}

func randomPanel(r *rand.Rand) panel {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	name := pick("sent_total", "sent_total", "jobs_total", "requests_total", "stamped", "level", "classic_bucket",
		"native")
	over := pick("rate", "increase", "delta", "avg_over_time", "max_over_time", "count_over_time", "last_over_time",
		"changes", "present_over_time", "irate", "resets", "quantile_over_time")
	ranged := fmt.Sprintf("%s(%s[%s]%s)", over, name, pick("30s", "1m", "5m"), pick("", "", " offset 2m"))
	ranged = strings.Replace(ranged, "quantile_over_time(", "quantile_over_time(0.3, ", 1)
	expr := fmt.Sprintf(pick("%s", "sum(%s)", "sum by (job) (%s)", "avg by (job) (%s)", "topk(1, %s)", "count(%s) > 1",
		"max without (instance) (%s) / 2", "stddev(%s)", "(%s) * 60"), pick(name, ranged, ranged, ranged))
	switch r.IntN(8) {
	case 0:
		expr = fmt.Sprintf("histogram_quantile(0.9, sum by (le) (rate(classic_bucket[%s])))", pick("1m", "5m"))
	case 1:
		expr = fmt.Sprintf("histogram_quantile(0.9, rate(native[%s]))", pick("1m", "5m"))
	case 2:
		expr = "sum by (job) (rate(jobs_total[1m])) / sum by (job) (rate(sent_total[1m]))"
	case 3:
		expr = pick("absent(sent_total{instance='4'})", "sum(rate(jobs_total[1m])) or vector(0)", "time() - max(level)",
			"max_over_time(sum(sent_total)[2m:30s])", "sent_total @ end()", "sum(sent_total offset -1m)", "-sent_total")
	}
	return panel{expr, 5 + r.Int64N(40), []int64{1000, 10_000, 15_000, 60_000}[r.IntN(4)]}
}

// A rule and a sender may write one series at the same times. Which sample counts depends on where a query begins, so
// no steps are kept.
func TestSeriesInSeveralStoresAreNotKept(t *testing.T) {
	for _, expr := range []string{"sum_over_time(x[1m])", "sum(sum_over_time(x[1m]))", "x"} {
		d := newDashboard(t, constant)
		var results write.State
		both := func(at int64) { // the one that wrote last by itself counts from then on
			if at%300_000 != 0 {
				d.write(at, 1, "__name__", "x")
			}
			if at%300_000 != 160_000 {
				d.writeTo(true, &results, at, 2, "__name__", "x")
			}
		}
		d.until(now + 3_600_000)
		at := int64(now)
		for range 4 {
			for ; at <= d.now; at += 20_000 {
				both(at)
			}
			for _, p := range []panel{{expr, 20, 60_000}, {expr, 45, 15_000}} {
				d.refresh(p, d.now-d.now%p.step)
			}
			d.until(d.now + 60_000)
		}
		if n := d.count("freshet_query_kept_total", "mixed"); n != 8 {
			t.Errorf("%s: %v of 8 answers are said to merge stores", expr, n)
		}
	}
}

// A rule may begin to write a series of which steps are kept.
func TestSeriesComesIntoAnotherStore(t *testing.T) {
	d := newDashboard(t, constant)
	var results write.State
	p := panel{"sum_over_time(x[1m])", 30, 15_000}
	d.until(now + 3_600_000)
	at := int64(now)
	for refresh := range 6 {
		for ; at <= d.now; at += 20_000 {
			d.write(at, 1, "__name__", "x")
			if refresh >= 3 {
				d.writeTo(true, &results, at, 2, "__name__", "x")
			}
		}
		d.refresh(p, d.now-d.now%p.step)
		d.until(d.now + 30_000)
	}
	if used, mixed := d.count("freshet_query_kept_total", "used"),
		d.count("freshet_query_kept_total", "mixed"); used != 2 || mixed != 3 {
		t.Errorf("%v answers had kept steps, want 2; %v are said to merge stores, want 3", used, mixed)
	}
}

// A late sample changes a panel at once, as soon as its write is acknowledged.
func TestLateSampleChangesKeptSteps(t *testing.T) {
	d := newDashboard(t, constant)
	p := panel{"sum_over_time(x[1m])", 30, 60_000}
	d.until(now + 3_600_000)
	for at := int64(now); at <= d.now; at += 30_000 {
		d.write(at, 1, "__name__", "x")
	}
	d.refresh(p, d.now)
	d.refresh(p, d.now)
	if n := d.count("freshet_query_kept_total", "used"); n != 1 {
		t.Fatalf("%v of 2 answers had kept steps, want 1", n)
	}
	before := d.answer(d.kept, p, d.now)
	d.write(d.now-600_001, 1000, "__name__", "x")
	d.refresh(p, d.now)
	if d.answer(d.kept, p, d.now) == before {
		t.Error("the late sample has changed nothing")
	}
	if n := d.count("freshet_query_steps_total", "kept"); n < 2*30+2*20 {
		t.Errorf("%v steps were kept, but a late sample changes only the steps after it", n)
	}
}

// A late sample may come while a query is evaluated. If that evaluates new steps only, all steps are evaluated again,
// since the new steps may have the sample already.
func TestLateSampleDuringAnEvaluation(t *testing.T) {
	d := newDashboard(t, constant)
	p := panel{"sum_over_time(x[10m])", 30, 60_000}
	d.until(now + 3_600_000)
	for at := int64(now); at <= d.now; at += 30_000 {
		d.write(at, 1, "__name__", "x")
	}
	d.kept.Source = &interrupted{d.Queryable, func() { d.write(d.now-900_001, 500, "__name__", "x") }}
	d.refresh(p, d.now)
	d.kept.Source = &interrupted{d.Queryable, func() { d.write(d.now-300_001, 1000, "__name__", "x") }}
	d.refresh(p, d.now)
	if n := d.count("freshet_query_kept_total", "raced"); n != 1 {
		t.Errorf("%v evaluations began again, want 1", n)
	}
}

// interrupted is a source that calls a function once, before the new steps are evaluated.
type interrupted struct {
	stepcache.Source
	once func()
}

func (i *interrupted) State(tenant string) stepcache.State {
	if i.once != nil {
		i.once()
		i.once = nil
	}
	return i.Source.State(tenant)
}

// A block that is imported into the time of a panel changes the panel at once, and so does its removal. The block has
// a series of its own, or more samples of one that is stored, whose steps are then not kept.
func TestImportChangesKeptSteps(t *testing.T) {
	for _, c := range []struct {
		ls   []string
		used float64 // answers with kept steps, after the import
	}{
		{[]string{"__name__", "x", "job", "imported"}, 2},
		{[]string{"__name__", "x"}, 1},
	} {
		d := newDashboard(t, constant)
		p := panel{"sum(sum_over_time(x[1m]))", 30, 60_000}
		d.until(now + 3_600_000)
		for at := int64(now); at <= d.now; at += 30_000 {
			d.write(at, 1, "__name__", "x")
		}
		d.imports(d.now, 1, "__name__", "y") // the first import opens the store, which changes everything anyway
		shown := func(when string, used float64) string {
			t.Helper()
			d.refresh(p, d.now)
			text := d.answer(d.kept, p, d.now)
			if n := d.count("freshet_query_kept_total", "used"); n != used {
				t.Errorf("%s %v: %v answers had kept steps, want %v", when, c.ls, n, used)
			}
			return text
		}
		before := shown("before the import of", 1)
		block := d.imports(d.now-600_001, 1000, c.ls...)
		if shown("after the import of", c.used) == before {
			t.Errorf("the import of %v has changed nothing", c.ls)
		}
		if err := d.stores.RemoveImported(ctx, tenant.Default, block); err != nil {
			t.Fatal(err)
		}
		if after := shown("after the removal of", c.used+1); after != before {
			t.Errorf("after the removal of %v the panel is\n%s\nand before the import it was\n%s", c.ls, after, before)
		}
	}
}

// imports imports a block with one sample.
func (d *dashboard) imports(at int64, v float64, ls ...string) ulid.ULID {
	d.t.Helper()
	dir := d.t.TempDir()
	w, err := promtsdb.NewBlockWriter(slog.New(slog.DiscardHandler), dir, 2*time.Hour.Milliseconds())
	if err != nil {
		d.t.Fatal(err)
	}
	app := w.Appender(ctx)
	if _, err = app.Append(0, labels.FromStrings(ls...), at, v); err == nil {
		err = app.Commit()
	}
	if err != nil {
		d.t.Fatal(err)
	}
	id, err := w.Flush(ctx)
	if err == nil {
		_, err = d.stores.Import(ctx, tenant.Default, id, func(to string) error {
			return os.CopyFS(to, os.DirFS(filepath.Join(dir, id.String())))
		})
	}
	if err := errors.Join(err, w.Close()); err != nil {
		d.t.Fatal(err)
	}
	return id
}

// A gauge with a sender's time is in the answers before its tile closes, and so changes steps long before the open
// tiles.
func TestStampedGaugeChangesKeptSteps(t *testing.T) {
	var stamped []batch.Increment
	d := newDashboard(t, func(second int64) []batch.Increment {
		all := append(constant(second), stamped...)
		stamped = nil
		return all
	})
	key := series.AppendKey(nil, series.Gauge, labels.FromStrings("__name__", "stamped"))
	p := panel{"sum_over_time(stamped[1m])", 30, 15_000}
	for age := int64(200); age < 400; age += 20 {
		d.until(max(d.now, now+3_600_000) + 2_000)
		d.refresh(p, d.now-d.now%p.step)
		stamped = []batch.Increment{{Key: key, Policy: series.AppendPolicy(nil, &series.DefaultPolicy), Samples: 1, Value: 1,
			Time: d.now/1000 - age}}
	}
	if n := d.count("freshet_query_kept_total", "used"); n < 5 {
		t.Errorf("%v of 10 answers had kept steps", n)
	}
}

// Of the gauges with a sender's time that are not stored yet, a query takes the newest up to its end for a live sample.
// So a step may look different in a query that ends later.
func TestStampedGaugesInQueriesWithOtherEnds(t *testing.T) {
	var stamped []batch.Increment
	d := newDashboard(t, func(second int64) []batch.Increment {
		all := append(constant(second), stamped...)
		stamped = nil
		return all
	})
	d.until(now + 3_600_000 + 4_000)
	key := series.AppendKey(nil, series.Gauge, labels.FromStrings("__name__", "stamped"))
	begin := d.now/1000 - 304
	for _, second := range []int64{1, 5, 9, 25} {
		stamped = append(stamped, batch.Increment{Key: key, Policy: series.AppendPolicy(nil, &series.DefaultPolicy),
			Samples: 1, Value: float64(second * second), Time: begin + second})
	}
	d.until(d.now + 2_000)
	p := panel{"delta(stamped[30s])", 18, 5_000}
	d.refresh(p, 1000*(begin+10))
	d.refresh(p, 1000*(begin+60))
}

// Of equal values, topk takes another one each time if it gets them from a function. That is no difference of the kept
// steps.
func TestEqualValuesAreNoDifference(t *testing.T) {
	d := newDashboard(t, constant)
	d.until(now + 3_600_000)
	for at := int64(now); at <= d.now; at += 30_000 {
		for _, job := range []string{"a", "b", "c"} {
			d.write(at, 1, "__name__", "x", "job", job)
		}
	}
	for range 40 {
		d.answer(d.kept, panel{"topk(1, ceil(x))", 30, 60_000}, d.now)
	}
	if n := d.count("freshet_query_verified_total", "different"); n > 0 {
		t.Errorf("%v answers are said to differ from Prometheus' engine", n)
	}
	if n := d.count("freshet_query_verified_total", "equal") + d.count("freshet_query_verified_total", "unknown"); n < 10 {
		t.Errorf("%v of 39 answers were compared, want every second one", n)
	}
}

// A panel that has a warning from now on is evaluated once at each refresh, not twice.
func TestWarningDropsKeptSteps(t *testing.T) {
	d := newDashboard(t, constant)
	p := panel{"quantile_over_time(scalar(q), x[1m])", 30, 15_000}
	d.until(now + 3_600_000)
	quantile := 0.5
	for refresh := range 5 {
		for at := d.now - 2_400_000*int64(1-min(refresh, 1)); at <= d.now; at += 30_000 {
			d.write(at, 1, "__name__", "x")
			d.write(at, quantile, "__name__", "q")
		}
		d.refresh(p, d.now-d.now%p.step)
		quantile = 2
		d.until(d.now + 60_000)
	}
	if n := d.count("freshet_query_kept_total", "odd"); n != 1 {
		t.Errorf("%v of 5 refreshes were evaluated twice, want 1", n)
	}
}

// The width of tiles depends on the start of a query. The steps that are evaluated later read the same width, although
// they alone would read a finer one.
func TestKeptStepsHaveOneWidth(t *testing.T) {
	d := newDashboard(t, constant)
	d.Queryable.store = keepsTiles{d.stores, time.Hour}
	p := panel{"increase(requests_total[5m])", 350, 15_000} // from before the retention of the finest tiles
	for range 10 {
		d.until(max(d.now, now+7_200_000) + 15_000)
		d.refresh(p, d.now)
	}
	if n := d.count("freshet_query_kept_total", "used"); n < 8 {
		t.Errorf("%v of 10 answers had kept steps", n)
	}
}

// A query may read tiles of several widths, one for each range. No steps of it are kept, and the metric says why.
func TestQueriesOfSeveralWidthsAreCounted(t *testing.T) {
	d := newDashboard(t, constant)
	p := panel{"increase(requests_total[5m]) / increase(requests_total[30s])", 20, 60_000}
	for range 3 {
		d.until(max(d.now, now+3_600_000) + 60_000)
		d.refresh(p, d.now)
	}
	if n := d.count("freshet_query_kept_total", "mixed"); n != 3 {
		t.Errorf("%v of 3 answers are said to come from tiles of several widths", n)
	}
}

// keepsTiles is a store that says how long it keeps the finest tiles.
type keepsTiles struct {
	Store
	finest time.Duration
}

func (k keepsTiles) Retention(store string) time.Duration {
	if store == tile.Width10s.String() {
		return k.finest
	}
	return k.Store.Retention(store)
}

// A Prometheus with type-and-unit-labels sends the type as a label. When it changes, a range function has two series
// with the same labels, which is an error even if they are at different steps: kept steps had hidden the older one. An
// aggregation of the samples themselves drops no type, so its steps are kept.
func TestStepsOfTypedSeries(t *testing.T) {
	d := newDashboard(t, constant)
	write := func(kind string, until int64) {
		from := d.now - d.now%15_000 + 15_000
		d.until(until)
		for at := from; at <= d.now; at += 15_000 {
			d.write(at, float64(at/1000), "__name__", "x", "__type__", kind)
		}
	}
	write("counter", d.now+3_600_000)
	p, sum := panel{"increase(x[1m])", 30, 15_000}, panel{"sum(x)", 30, 15_000}
	failed := false
	for minute := range 10 {
		d.refresh(p, d.now)
		d.refresh(sum, d.now)
		failed = failed || strings.Contains(d.answer(d.kept, p, d.now), "the same labelset")
		if minute == 0 { // a pause that is longer than the range
			d.until(d.now + 120_000)
			d.refresh(p, d.now)
		}
		write("gauge", d.now+60_000)
	}
	if !failed {
		t.Error("no answer had series of both types")
	}
	mixed, used := d.count("freshet_query_kept_total", "mixed"), d.count("freshet_query_kept_total", "used")
	if mixed == 0 || used != 9 {
		t.Errorf("no steps of %v answers could be kept, and kept steps of %v were used, want 9 of the sum", mixed, used)
	}
}
