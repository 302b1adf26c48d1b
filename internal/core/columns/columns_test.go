package columns_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/freshet-io/freshet/internal/core/columns"
)

// The engine is the oracle: random queries over random data have the same results, bit by bit, the same
// notes, errors and statistics, whether they are evaluated here or by the engine alone. The data have
// resets, gaps, NaN, stale markers, duplicates, late samples, histograms of different layouts, and series
// that are floats at one time and histograms at another.
func TestLikeTheEngine(t *testing.T) {
	const sets, each = 100, 100
	taken, inChunks, all := 0, 0, 0
	forms := map[string]int{}
	for seed := range sets {
		r := rand.New(rand.NewPCG(uint64(seed), 23))
		db := randomData(t, r)
		for range each {
			q := randomQuery(r)
			how := compare(t, db, q)
			all++
			if how.chunks {
				inChunks++
			}
			if how.taken {
				taken++
				for _, f := range q.forms {
					forms[f]++
				}
			}
			if t.Failed() {
				t.Fatalf("seed %d: %v", seed, q)
			}
		}
	}
	t.Logf("%d of %d queries were taken; %d answers came from chunks alone", taken, all, inChunks)
	for _, f := range slices.Sorted(maps.Keys(forms)) {
		t.Logf("%5d %s", forms[f], f)
	}
	if 10*taken < 6*all {
		t.Errorf("only %d of %d queries were taken", taken, all)
	}
	if 100*inChunks < 15*all {
		t.Errorf("only %d of %d answers came from chunks alone", inChunks, all)
	}
	for _, f := range allForms() {
		if forms[f] < 200 {
			t.Errorf("%s: only %d queries were taken", f, forms[f])
		}
	}
}

// The limit of samples holds exactly: a query is answered with a limit of its peak, and with one less it
// has the engine's error.
func TestLimitOfSamples(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 23))
	db := randomData(t, r)
	for range 100 {
		q := randomQuery(r)
		q.maxSamples = 1_000_000
		plain, err := q.on(engine(q.maxSamples))(db)
		if err != nil {
			t.Fatal(err)
		}
		plain.Exec(context.Background())
		peak := plain.Stats().Samples.PeakSamples
		plain.Close()
		for _, q.maxSamples = range []int{peak, max(peak-1, 0)} {
			compare(t, db, q)
			if t.Failed() {
				t.Fatal(q)
			}
		}
	}
}

// An operator may drop histograms, so what the engine holds of such a result is not known before. Then
// the engine evaluates the query.
func TestHistogramsBeforeAnOperator(t *testing.T) {
	db := randomData(t, rand.New(rand.NewPCG(1, 23)))
	for left, want := range map[string]bool{"latency": false, "requests_total": true} {
		q := query{text: "(sum by (job) (increase(" + left + "[1h])) % 2) + sum by (job) (rate(requests_total[1h]))",
			start: time.UnixMilli(begin).Add(2 * time.Hour), maxSamples: 1_000_000}
		if how := compare(t, db, q); how.taken != want || !how.taken && how.reason != columns.ReasonAfter {
			t.Errorf("%v: taken is %v, the reason is %q", q, how.taken, how.reason)
		}
	}
}

// A query of which no part is evaluated here has a reason.
func TestReasons(t *testing.T) {
	db := randomData(t, rand.New(rand.NewPCG(1, 23)))
	for text, want := range map[string]columns.Reason{
		"sum(rate(gauge[5m]))":                            "",
		"topk(2, rate(gauge[5m]))":                        "",
		"absent(gauge) or sum(gauge)":                     columns.ReasonAfter,
		"gauge":                                           columns.ReasonPlain,
		"1 + 1":                                           columns.ReasonPlain,
		"sum(abs(gauge))":                                 columns.ReasonPlain,
		"topk(2, gauge)":                                  columns.ReasonAggregation,
		"max_over_time(gauge[10m:1m])":                    columns.ReasonSubquery,
		"sum(quantile_over_time(0.5, gauge[10m]))":        columns.ReasonFunction,
		"absent_over_time(gauge[10m])":                    columns.ReasonFunction,
		"sum(gauge @ 1700003600)":                         columns.ReasonModifier,
		"rate(gauge[5m] anchored)":                        columns.ReasonModifier,
		"gauge + on (job) group_left sum by (job)(gauge)": columns.ReasonAfter,
	} {
		q := query{text: text, start: time.UnixMilli(begin).Add(time.Hour), maxSamples: 1_000_000}
		if how := compare(t, db, q); how.reason != want || how.taken != (want == "") {
			t.Errorf("%s: taken is %v, the reason is %q, want %q", text, how.taken, how.reason, want)
		}
	}
}

// A sample that is exactly as old as the look-back delta is too old, and one at the beginning of a range
// is outside.
func TestEdges(t *testing.T) {
	db, err := tsdb.Open(t.TempDir(), nil, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	app := db.Appender(context.Background())
	_, err = app.Append(0, labels.FromStrings("__name__", "x"), begin, 1)
	if err := errors.Join(err, app.Commit()); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"count(x)", "count(count_over_time(x[5m]))"} {
		for _, step := range []time.Duration{time.Minute, 30_001 * time.Millisecond, 5 * time.Minute} {
			from := time.UnixMilli(begin)
			q := query{text: text, start: from, end: from.Add(time.Hour), step: step, maxSamples: 100}
			if how := compare(t, db, q); !how.taken {
				t.Errorf("%s is left to the engine: %s", text, how.reason)
			}
		}
	}
}

// Any expression that Prometheus parses has the engine's result.
func FuzzLikeTheEngine(f *testing.F) {
	r := rand.New(rand.NewPCG(2, 23))
	for range 40 {
		f.Add(randomQuery(r).text, r.Int64N(hours*3_600_000), uint8(r.IntN(60)), r.Uint32N(600_000))
	}
	db := randomData(f, r)
	f.Fuzz(func(t *testing.T, text string, after int64, steps uint8, step uint32) {
		expr, err := testParser.ParseExpr(text)
		if err != nil || expr.Type() != parser.ValueTypeVector && expr.Type() != parser.ValueTypeScalar ||
			len(text) > 200 || hasSubquery(expr) { // which could take minutes
			return
		}
		q := query{text: text, start: time.UnixMilli(begin + after%(hours*3_600_000)), maxSamples: 100_000,
			step: time.Duration(step) * time.Millisecond}
		q.end = q.start.Add(time.Duration(steps) * q.step)
		compare(t, db, q)
	})
}

func hasSubquery(e parser.Expr) (has bool) {
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		_, is := n.(*parser.SubqueryExpr)
		has = has || is
		return nil
	})
	return has
}

// query is a query with its times, and the forms that it has.
type query struct {
	text       string
	start, end time.Time
	step       time.Duration // 0 for one time
	maxSamples int
	forms      []string
}

func (q query) String() string {
	return fmt.Sprintf("%s from %d to %d each %v, %d samples", q.text, q.start.UnixMilli(), q.end.UnixMilli(), q.step,
		q.maxSamples)
}

const (
	hours = 3
	begin = int64(1_700_000_000_000)
)

var testParser = parser.NewParser(parser.Options{EnableExtendedRangeSelectors: true, EnableExperimentalFunctions: true})

func engine(maxSamples int) *promql.Engine {
	return promql.NewEngine(promql.EngineOpts{MaxSamples: maxSamples, Timeout: time.Minute, LookbackDelta: 5 * time.Minute,
		EnableAtModifier: true, EnableNegativeOffset: true, Parser: testParser,
		NoStepSubqueryIntervalFn: func(int64) int64 { return 60_000 }})
}

func (q query) on(e *promql.Engine) columns.Prepare {
	return func(from storage.Queryable) (promql.Query, error) {
		if q.step == 0 {
			return e.NewInstantQuery(context.Background(), from, nil, q.text, q.start)
		}
		return e.NewRangeQuery(context.Background(), from, nil, q.text, q.start, q.end, q.step)
	}
}

// compared says how a query was evaluated.
type compared struct {
	taken  bool           // whether a part of it was evaluated here
	reason columns.Reason // why none was
	chunks bool           // whether its answer has series, and all of them were read in chunks
}

// compare evaluates a query by the engine, and here from samples and from chunks.
func compare(t testing.TB, from storage.Queryable, q query) (how compared) {
	t.Helper()
	e := engine(q.maxSamples)
	want, err := q.on(e)(from)
	if err != nil {
		t.Fatalf("%v: %v", q, err)
	}
	defer want.Close()
	got, err := columns.New(from, q.maxSamples, q.on(e))
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	w := want.Exec(context.Background())
	same(t, q, want, w, got)
	how.taken, how.reason = got.Taken()
	if db, ok := from.(*tsdb.DB); ok {
		var selects selects
		chunked, err := columns.New(inChunks{db, &selects}, q.maxSamples, q.on(e))
		if err != nil {
			t.Fatal(err)
		}
		defer chunked.Close()
		same(t, q, want, w, chunked)
		how.chunks = w.Err == nil && !empty(w.Value) && selects.inChunks > 0 && selects.inSamples == 0
	}
	return how
}

func empty(v parser.Value) bool {
	switch v := v.(type) {
	case promql.Matrix:
		return len(v) == 0
	case promql.Vector:
		return len(v) == 0
	}
	return false
}

// same checks that a query has the result of the engine, and its statistics.
func same(t testing.TB, q query, want promql.Query, w *promql.Result, got *columns.Query) {
	t.Helper()
	g := got.Exec(context.Background())
	// The order of these results is chance in the engine, too.
	unordered := strings.Contains(q.text, "histogram_quantile") || strings.Contains(q.text, "count_values")
	if a, b := text(w, unordered), text(g, unordered); a != b {
		t.Errorf("the engine's result is\n%s\nours is\n%s", a, b)
	}
	if a, b := counted(want), counted(got.Query); a != b && w.Err == nil {
		t.Errorf("the engine counts %+v, we count %+v", a, b)
	}
}

// inChunks is a database that selects series in chunks, too.
type inChunks struct {
	*tsdb.DB
	selects *selects
}

// selects counts how a query selected series. One that begins in chunks may go on in samples.
type selects struct{ inSamples, inChunks int }

func (db inChunks) Querier(mint, maxt int64) (storage.Querier, error) {
	samples, err1 := db.DB.Querier(mint, maxt)
	inChunks, err2 := db.DB.ChunkQuerier(mint, maxt)
	return bothQuerier{samples, inChunks, db.selects}, errors.Join(err1, err2)
}

type bothQuerier struct {
	storage.Querier
	inChunks storage.ChunkQuerier
	selects  *selects
}

func (q bothQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints,
	matchers ...*labels.Matcher) storage.SeriesSet {
	q.selects.inSamples++
	return q.Querier.Select(ctx, sorted, hints, matchers...)
}

func (q bothQuerier) SelectChunks(ctx context.Context, sorted, _ bool, hints *storage.SelectHints,
	matchers ...*labels.Matcher) columns.ChunkSet {
	q.selects.inChunks++
	return chunkSet{q.inChunks.Select(ctx, sorted, hints, matchers...)}
}

func (q bothQuerier) Close() error { return errors.Join(q.Querier.Close(), q.inChunks.Close()) }

type chunkSet struct{ storage.ChunkSeriesSet }

func (s chunkSet) At() columns.ChunkSeries {
	of := s.ChunkSeriesSet.At()
	return columns.ChunkSeries{Labels: of.Labels(), Stored: of}
}

func (s chunkSet) Live() storage.SeriesSet { return storage.EmptySeriesSet() }

// counts are the statistics of a query.
type counts struct{ total, read, peak int64 }

func counted(q promql.Query) counts {
	s := q.Stats().Samples
	return counts{s.TotalSamples, s.SamplesRead, int64(s.PeakSamples)}
}

// text has everything of a result, floats as bits. An unordered vector is sorted.
func text(r *promql.Result, unordered bool) string {
	var b strings.Builder
	if r.Err != nil {
		all, _, _ := strings.Cut(r.Err.Error(), " for the match group ") // which group is chance in the engine, too
		return fmt.Sprintf("%T %s", r.Err, all)
	}
	for _, note := range slices.Sorted(maps.Keys(r.Warnings)) {
		fmt.Fprintln(&b, note)
	}
	bits := math.Float64bits
	hist := func(h *histogram.FloatHistogram) string {
		var v []uint64
		for _, l := range [][]float64{h.PositiveBuckets, h.NegativeBuckets, h.CustomValues, {h.Sum, h.Count, h.ZeroCount,
			h.ZeroThreshold}} {
			for _, f := range l {
				v = append(v, bits(f))
			}
		}
		return fmt.Sprint(h.CounterResetHint, h.Schema, h.PositiveSpans, h.NegativeSpans, v, h)
	}
	switch v := r.Value.(type) {
	case promql.Matrix:
		for _, s := range v {
			fmt.Fprintln(&b, s.Metric)
			for _, p := range s.Floats {
				fmt.Fprintf(&b, " %d:%x(%g)", p.T, bits(p.F), p.F)
			}
			for _, p := range s.Histograms {
				fmt.Fprintf(&b, " %d:%s", p.T, hist(p.H))
			}
			b.WriteByte('\n')
		}
	case promql.Vector:
		if unordered {
			slices.SortFunc(v, func(a, b promql.Sample) int { return labels.Compare(a.Metric, b.Metric) })
		}
		for _, s := range v {
			fmt.Fprintf(&b, "%s %d %x(%g)", s.Metric, s.T, bits(s.F), s.F)
			if s.H != nil {
				b.WriteString(hist(s.H))
			}
			b.WriteByte('\n')
		}
	default:
		fmt.Fprint(&b, v)
	}
	return b.String()
}

var (
	functions = []string{"rate", "increase", "delta", "avg_over_time", "min_over_time", "max_over_time", "sum_over_time",
		"count_over_time", "last_over_time"}
	rare = []string{"irate", "idelta", "changes", "resets", "deriv", "stddev_over_time", "first_over_time",
		"present_over_time", "absent_over_time"}
	aggregations = []string{"sum", "avg", "min", "max", "count"}
)

// allForms are the forms that must be taken often.
func allForms() []string {
	return slices.Concat(functions, aggregations, []string{"agg(selector)", "vector op scalar", "vector op vector",
		"histogram_quantile of classic buckets", "histogram_quantile of native histograms", "one time", "range",
		"rate of histograms", "increase of histograms", "sum of histograms", "offset"})
}

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

func randomQuery(r *rand.Rand) query {
	q := query{maxSamples: 1_000_000}
	if r.IntN(12) == 0 {
		q.maxSamples = 1 << (4 + r.IntN(12))
	}
	q.start = time.UnixMilli(begin + r.Int64N(hours*3_600_000))
	if r.IntN(2) == 0 {
		q.start = q.start.Truncate(time.Second) // where samples are at the edges of windows
	}
	if r.IntN(4) == 0 {
		q.end = q.start
		q.forms = append(q.forms, "one time")
	} else {
		q.step = pick(r, []time.Duration{time.Second, 10 * time.Second, 15 * time.Second, time.Minute, 7 * time.Minute,
			time.Hour, 12_345 * time.Millisecond})
		q.end = q.start.Add(time.Duration(r.IntN(60)) * q.step).Add(time.Duration(r.IntN(900)) * time.Millisecond)
		q.forms = append(q.forms, "range")
	}
	forms := q.forms
	for {
		q.forms = slices.Clone(forms)
		q.text = q.expression(r, 2)
		if _, err := testParser.ParseExpr(q.text); err == nil { // an operator between scalars may need bool
			return q
		}
	}
}

func (q *query) form(f string) { q.forms = append(q.forms, f) }

func (q *query) selector(r *rand.Rand, name string) string {
	if r.IntN(4) == 0 {
		name += pick(r, []string{`{job="j0"}`, `{job=~"j.*",instance!="i1"}`, `{instance="nowhere"}`})
	}
	if r.IntN(40) == 0 {
		name = `{__name__=~"requests_total|errors_total|gauge"}`
	}
	return name
}

func (q *query) suffix(r *rand.Rand) string {
	switch r.IntN(24) {
	case 0, 1, 2:
		q.form("offset")
		return pick(r, []string{" offset 5m", " offset 1h", " offset -3m"})
	case 3:
		return pick(r, []string{" @ start()", " @ 1700003600"})
	}
	return ""
}

func (q *query) name(r *rand.Rand) string {
	return kinds[r.IntN(len(kinds))].name
}

// rangeOf is a function of a range selector.
func (q *query) rangeOf(r *rand.Rand, name string) string {
	f := pick(r, functions)
	if r.IntN(8) == 0 {
		f = pick(r, rare)
	}
	span := pick(r, []string{"1m", "5m", "20m", "1h", "17s123ms"})
	modifier := ""
	if r.IntN(40) == 0 && f != "absent_over_time" {
		modifier = pick(r, []string{" anchored", " smoothed"})
		f = "rate"
	}
	q.form(f)
	if (f == "rate" || f == "increase") && strings.Contains(name, "latency") {
		q.form(f + " of histograms")
	}
	return fmt.Sprintf("%s(%s[%s]%s%s)", f, q.selector(r, name), span, modifier, q.suffix(r))
}

func (q *query) grouping(r *rand.Rand) string {
	return pick(r, []string{"", "", " by (job)", " by (job, instance)", " without (instance)", " by (instance, job)",
		" by ()", " without (le, instance)", " by (__name__)"})
}

func (q *query) aggregation(r *rand.Rand) string {
	f := pick(r, aggregations)
	if r.IntN(12) == 0 {
		f = pick(r, []string{"group", "stddev", "stdvar"})
	}
	q.form(f)
	name := q.name(r)
	if f == "sum" && strings.Contains(name, "latency") {
		q.form("sum of histograms")
	}
	if r.IntN(3) == 0 {
		q.form("agg(selector)")
		return fmt.Sprintf("%s%s(%s%s)", f, q.grouping(r), q.selector(r, name), q.suffix(r))
	}
	return fmt.Sprintf("%s%s(%s)", f, q.grouping(r), q.rangeOf(r, name))
}

func (q *query) expression(r *rand.Rand, depth int) string {
	operators := []string{"+", "-", "*", "/", "%", "^", ">", "<=", "==", "!= bool", "and", "or", "unless"}
	switch n := r.IntN(20); {
	case n < 8:
		return q.aggregation(r)
	case n < 11:
		return q.rangeOf(r, q.name(r))
	case n < 12:
		return q.name(r)
	case n < 14 && depth > 0:
		q.form("vector op scalar")
		a, b := q.expression(r, depth-1), pick(r, []string{"2", "0.5", "-1", "time()", "NaN"})
		if r.IntN(2) == 0 {
			a, b = b, a
		}
		return fmt.Sprintf("(%s) %s (%s)", a, operators[r.IntN(10)], b)
	case n < 16 && depth > 0:
		q.form("vector op vector")
		op := pick(r, operators) + pick(r, []string{"", " on (job)", " ignoring (instance)"})
		return fmt.Sprintf("(%s) %s (%s)", q.expression(r, depth-1), op, q.expression(r, depth-1))
	case n < 17:
		q.form("histogram_quantile of classic buckets")
		return fmt.Sprintf("histogram_quantile(%g, sum by (le%s) (%s))", pick(r, []float64{0.5, 0.99, 2}),
			pick(r, []string{"", ", job"}), q.rangeOf(r, "seconds_bucket"))
	case n < 18:
		q.form("histogram_quantile of native histograms")
		name := pick(r, []string{"latency", "float_latency", "custom_latency"})
		f := pick(r, []string{"rate", "increase"})
		q.form(f + " of histograms")
		q.form("sum of histograms")
		return fmt.Sprintf("histogram_quantile(%g, sum%s(%s(%s[%s])))", pick(r, []float64{0.5, 0.99}), q.grouping(r), f, name,
			pick(r, []string{"1m", "10m"}))
	default:
		inner := q.aggregation(r)
		return fmt.Sprintf(pick(r, []string{"topk(2, %s)", "abs(%s)", "sort(%s)", "absent(%s)", "scalar(%s)", "timestamp(%s)",
			"-(%s)", "max_over_time((%s)[10m:1m])", "histogram_count(%s)", "clamp_max(%s, 5)", "quantile(0.5, %s)",
			`label_replace(%s, "a", "$1", "job", "(.*)")`, `count_values("v", %s)`, "vector(scalar(%s))", "sum(%s)"}), inner)
	}
}
