package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/prompb"
	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/lab/report"
)

// queryPart is the name of this part in -only.
const queryPart = "query"

const (
	day = 24 * time.Hour

	// queryBatch is the size of the requests that write the data, in series.
	queryBatch = 2000

	// queryRepeats is how often each query is sent in a run. Its cost is the mean.
	queryRepeats = 5
)

// queriedSeries are series that have the same name. They differ in the label `instance`.
type queriedSeries struct {
	name   string
	number int
	every  time.Duration
	since  time.Duration // the age of the first sample
	native bool          // native histograms in place of counters
}

// queriedData is what the queries read.
func queriedData() []queriedSeries {
	return []queriedSeries{
		{name: "requests_total", number: 4000, every: 15 * time.Second, since: day / 4},
		{name: "many_total", number: 10_000, every: 15 * time.Second, since: day / 4},
		{name: "seconds_bucket", number: 4000, every: 15 * time.Second, since: day / 4},
		{name: "seconds", number: 200, every: 15 * time.Second, since: day / 4, native: true},
		{name: "minute_total", number: 4000, every: time.Minute, since: day / 4},
		{name: "week_total", number: 1000, every: time.Minute, since: 7 * day},
	}
}

// comparedQuery is a query whose cost is compared.
type comparedQuery struct {
	text       string
	span, step time.Duration // of a range query; 0 for a query at one time
	native     bool          // needs native histograms
	refreshed  bool          // a panel: each repetition is a step later, and may use what the database keeps
	goals      report.QueryGoals
}

// comparedQueries are the queries of the page.
func comparedQueries() []comparedQuery {
	const short, long = day / 4, 7 * day
	of := func(most, aim float64) report.QueryGoals { return report.QueryGoals{Most: most, Aim: aim} }
	return []comparedQuery{
		{text: `sum by (service) (rate(requests_total[5m]))`, span: short, step: time.Minute, goals: of(190, 130)},
		{text: `sum by (service) (rate(many_total[5m]))`, span: short, step: time.Minute, goals: of(450, 320)},
		{text: `sum by (service) (rate(minute_total[5m]))`, span: short, step: time.Minute, goals: of(80, 40)},
		{text: `sum(increase(requests_total[1h]))`, span: short, step: time.Minute, goals: of(200, 120)},
		{text: `histogram_quantile(0.99, sum by (le) (rate(seconds_bucket[5m])))`, span: short, step: time.Minute,
			goals: of(180, 100)},
		{text: `histogram_quantile(0.99, sum(rate(seconds[5m])))`, span: short, step: time.Minute, native: true,
			goals: of(180, 100)},
		{text: `sum by (service) (rate(requests_total[5m]))`, span: short, step: time.Minute, refreshed: true,
			goals: of(15, 5)},
		{text: `sum(rate(week_total[1h]))`, span: long, step: 10 * time.Minute, goals: of(200, 100)},
		{text: `count(week_total)`, span: long, step: 10 * time.Minute, goals: of(200, 90)},
		{text: `count(many_total)`},
		{text: `count(many_total{instance=~"i.*7"})`},
	}
}

// querySteps writes the data of each database, and then measures the databases in turns.
func (l *lab) querySteps() (steps []step) {
	part := &report.Queries{Date: l.results.Date, Machine: l.results.Machine, Versions: l.ourVersion(),
		Repeats: queryRepeats}
	for _, p := range l.tsdbs {
		part.Versions = append(part.Versions, report.Version{Name: p.Name, Version: p.Version})
	}
	l.results.Queries = part
	end := time.Now().Add(-writeEnds).Truncate(time.Minute)
	var all []*queried
	for i, d := range l.databases() {
		q := &queried{lab: l, database: d, data: queriedData(), end: end, part: part,
			dir: filepath.Join(l.dir, fmt.Sprintf("query-%d", i))}
		all = append(all, q)
		steps = append(steps, step{what: "queries: the data of " + d.name, takes: time.Minute, do: q.tolerate(q.fill)})
	}
	for run := range l.runs {
		for _, q := range all {
			steps = append(steps, step{what: fmt.Sprintf("queries, run %d: %s", run+1, q.database.name),
				takes: 40 * time.Second, do: q.tolerate(q.run)})
		}
	}
	return steps
}

// queried is a database whose queries are measured.
type queried struct {
	*lab
	database database
	data     []queriedSeries
	dir      string
	end      time.Time // of the data and of the queries
	part     *report.Queries
	failed   bool
}

// tolerate leaves out a peer that has failed.
func (q *queried) tolerate(do func(context.Context, *runningDatabase) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if q.failed {
			return nil
		}
		err := os.MkdirAll(q.dir, 0o755)
		if err != nil {
			return err
		}
		p, err := q.database.start(ctx, q.dir)
		if err == nil {
			err = do(ctx, p)
			if stopped := p.stop(); err == nil {
				err = stopped
			}
		}
		if err == nil || q.database.group != report.Peer || ctx.Err() != nil {
			return err
		}
		q.failed = true
		q.leaveOut("queries, %s: %v", q.database.name, err)
		return nil
	}
}

// fill writes the data, in order of time: databases refuse samples that are much older than the newest.
func (q *queried) fill(ctx context.Context, p *runningDatabase) error {
	var since time.Duration
	for _, s := range q.data {
		since = max(since, s.since)
	}
	for at := q.end.Add(-since); at.Before(q.end); at = at.Add(15 * time.Second) {
		writes, ctx := errgroup.WithContext(ctx)
		writes.SetLimit(writeConnections)
		for _, s := range q.data {
			if at.Before(q.end.Add(-s.since)) || at.UnixMilli()%s.every.Milliseconds() != 0 ||
				s.native && !q.database.native {
				continue
			}
			for from := 0; from < s.number; from += queryBatch {
				writes.Go(func() error { return p.send(ctx, s.request(from, min(from+queryBatch, s.number), at)) })
			}
		}
		if err := writes.Wait(); err != nil {
			return err
		}
	}
	return p.flush(ctx)
}

// request returns the samples of some of the series at a time.
func (s queriedSeries) request(from, to int, at time.Time) *prompb.WriteRequest {
	r := &prompb.WriteRequest{Timeseries: make([]prompb.TimeSeries, 0, to-from)}
	n := at.UnixMilli() / s.every.Milliseconds() % 100_000
	for i := from; i < to; i++ {
		one := prompb.TimeSeries{Labels: []prompb.Label{
			{Name: "__name__", Value: s.name}, {Name: "instance", Value: fmt.Sprint("i", i)},
			{Name: "le", Value: fmt.Sprint(i % 11)}, {Name: "service", Value: fmt.Sprint("s", i%20)},
		}}
		if s.native {
			one.Labels = append(one.Labels[:2], one.Labels[3:]...)
			one.Histograms = []prompb.Histogram{prompb.FromIntHistogram(at.UnixMilli(), nativeHistogram(n))}
		} else {
			one.Samples = []prompb.Sample{{Value: float64(n * int64(1+i%7)), Timestamp: at.UnixMilli()}}
		}
		r.Timeseries = append(r.Timeseries, one)
	}
	return r
}

// nativeHistogram has n observations in each of 20 buckets.
func nativeHistogram(n int64) *histogram.Histogram {
	h := &histogram.Histogram{Schema: 3, ZeroThreshold: 1e-10, Count: uint64(20 * n), Sum: float64(n),
		PositiveSpans: []histogram.Span{{Length: 20}}, PositiveBuckets: make([]int64, 20)}
	h.PositiveBuckets[0] = n // the others are differences
	return h
}

// run measures each query once it has been sent without being measured.
func (q *queried) run(ctx context.Context, p *runningDatabase) error {
	if err := p.settle(ctx, time.Minute); err != nil {
		return err
	}
	for _, one := range comparedQueries() {
		if one.native && !q.database.native {
			continue
		}
		if err := p.answer(ctx, one, one.endOf(0, q.end)); err != nil {
			return err
		}
		before, err := report.CPUTime(p.pid)
		if err != nil {
			return err
		}
		for i := range queryRepeats {
			if err := p.answer(ctx, one, one.endOf(i+1, q.end)); err != nil {
				return err
			}
		}
		after, err := report.CPUTime(p.pid)
		if err != nil {
			return err
		}
		cost := q.part.Query(one.text, one.span.Hours(), one.refreshed, one.goals).Cost(q.database.name, q.database.group)
		cost.Millis = append(cost.Millis, (after-before).Seconds()*1e3/queryRepeats)
	}
	return nil
}

// endOf returns the end of the query when it is sent for the i-th time, from 0. The last one is the end of the data.
func (q comparedQuery) endOf(i int, last time.Time) time.Time {
	if !q.refreshed {
		return last
	}
	return last.Add(-time.Duration(queryRepeats-i) * q.step)
}

// answer sends a query, and reads its answer. An answer without series is an error.
func (p *runningDatabase) answer(ctx context.Context, q comparedQuery, end time.Time) error {
	seconds := func(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
	path, form := "/api/v1/query", url.Values{"query": {q.text}, "time": {seconds(end)}}
	if !q.refreshed { // otherwise VictoriaMetrics and Freshet would answer from what they keep
		form.Set("nocache", "1")
	}
	if q.span > 0 {
		path = "/api/v1/query_range"
		form.Set("start", seconds(end.Add(-q.span)))
		form.Set("end", seconds(end))
		form.Set("step", fmt.Sprint(q.step.Seconds()))
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path+"?"+form.Encode(), nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	const leastAnswer = 100 // bytes; one without series has less
	if err == nil && (answer.StatusCode != http.StatusOK || len(text) < leastAnswer) {
		err = fmt.Errorf("query %s: %s: %.200s", q.text, answer.Status, text)
	}
	return err
}
