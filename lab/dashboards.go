package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/internal/adapter/loadgen"
	"github.com/freshet-io/freshet/internal/core/remoteload"
	"github.com/freshet-io/freshet/lab/report"
)

// dashboardsJob is the label `job` of the series on the dashboards. The writes beside the dashboards
// continue the series of the history.
const dashboardsJob = "shop"

// dashboardPlan is the plan of a run.
type dashboardPlan struct {
	series       int
	history      int           // number of rounds before the measurement
	interval     time.Duration // time between two rounds of the history
	historyBatch int

	rate        float64 // samples a second; one round a second if it equals the number of series
	batch       int
	connections int

	dashboards int
	every      time.Duration // time from one refresh of a dashboard to the next

	warmUp  time.Duration // time before each of the two phases, which is not measured
	alone   time.Duration
	beside  time.Duration
	settles time.Duration // the longest wait for a started database to become idle
	repeats int
}

// standardDashboards is a load that each database can take on two cores: the writes need a tenth of one
// core, and the queries at most two thirds of one.
func standardDashboards() dashboardPlan {
	return dashboardPlan{
		series: 8000, history: 6 * 60 * 4, interval: 15 * time.Second, historyBatch: 2000,
		rate: 8000, batch: 80, connections: 8, // a hundred requests a second
		dashboards: 10, every: 5 * time.Second,
		warmUp: 5 * time.Second, alone: 8 * time.Second, beside: 20 * time.Second, settles: 30 * time.Second,
		repeats: repeatsAtMost,
	}
}

// takes is the approximate duration of a run.
func (p dashboardPlan) takes() time.Duration { return 2*p.warmUp + p.alone + p.beside + 4*time.Second }

// dashboardSteps writes the history of each database, and then measures the databases in turns. A database
// runs only while it is measured.
func (l *lab) dashboardSteps() (steps []step) {
	plan := standardDashboards()
	if l.noisy {
		plan.repeats = 0
	}
	part := plan.part(l)
	l.results.Dashboards = part
	runs := l.runs
	if l.brief {
		runs = min(runs, quickWriteRuns)
	}
	return l.dashboardStepsOf(part, plan, runs, l.databases(), l.databases("--self-probe=true", "--self-metrics=true"))
}

// part returns results that contain only the plan.
func (p dashboardPlan) part(l *lab) *report.Dashboards {
	part := &report.Dashboards{Date: l.results.Date, Machine: l.results.Machine, Versions: l.ourVersion(),
		Dashboards: p.dashboards, Panels: len(panels("", "")), Every: p.every.Seconds(),
		Series: p.series, History: (time.Duration(p.history) * p.interval).Hours(), Interval: p.interval.Seconds(),
		Rate: p.rate, Batch: p.batch,
		OthersAtMost: othersAtMost, RepeatsAtMost: p.repeats}
	for _, peer := range l.tsdbs {
		part.Versions = append(part.Versions, report.Version{Name: peer.Name, Version: peer.Version})
	}
	return part
}

// dashboardStepsOf returns the steps for some databases. `filling` has the databases with the settings
// for writing the history, and `measured` has them with the settings for the measurement.
func (l *lab) dashboardStepsOf(part *report.Dashboards, plan dashboardPlan, runs int, filling,
	measured []database) (steps []step) {
	all := make([]*besideDashboards, len(measured))
	for i, d := range measured {
		b := &besideDashboards{
			lab: l, plan: plan, part: part, database: d, dir: filepath.Join(l.dir, fmt.Sprintf("dashboards-%d", i)),
		}
		all[i] = b
		steps = append(steps,
			step{what: "dashboards: the history of " + d.name, takes: 20 * time.Second, do: func(ctx context.Context) error {
				return b.tolerate(ctx, b.fill(ctx, filling[i]))
			}})
	}
	for run := range runs {
		for _, b := range all {
			steps = append(steps, step{
				what:  fmt.Sprintf("writes beside dashboards, run %d: %s", run+1, b.database.name),
				takes: plan.takes(),
				do:    func(ctx context.Context) error { return b.tolerate(ctx, b.run(ctx, uint64(run))) },
			})
		}
	}
	return steps
}

// besideDashboards measures one database while samples are written and dashboards are refreshed. The
// directory `dir` holds the database's files: fill writes the history there, and the runs continue it.
type besideDashboards struct {
	*lab
	plan     dashboardPlan
	part     *report.Dashboards
	database database
	dir      string
	failed   bool      // if set, further runs are left out
	last     time.Time // time of the last samples, after which the next run continues
}

// tolerate leaves out a peer that has failed.
func (b *besideDashboards) tolerate(ctx context.Context, err error) error {
	if err == nil || b.database.group != report.Peer || ctx.Err() != nil {
		return err
	}
	b.failed = true
	b.leaveOut("%v", err)
	return nil
}

// with is a helper: it starts a database on the files in dir, calls `do`, and stops the database.
func (b *besideDashboards) with(ctx context.Context, d database, do func(*runningDatabase) error) error {
	p, err := d.start(ctx, b.dir)
	if err != nil {
		return fmt.Errorf("start %s: %w", d.name, err)
	}
	if err := errors.Join(do(p), p.stop()); err != nil {
		return fmt.Errorf("dashboards, %s: %w", d.name, err)
	}
	return nil
}

// fill writes the history, as fast as the database accepts it.
func (b *besideDashboards) fill(ctx context.Context, d database) error {
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	return b.with(ctx, d, func(p *runningDatabase) error {
		c := remoteload.Standard()
		c.Name, c.Series, c.Batch, c.Interval = dashboardsJob, b.plan.series, b.plan.historyBatch,
			b.plan.interval.Milliseconds()
		c.Begin = time.Now().Add(-time.Duration(b.plan.history) * b.plan.interval).UnixMilli()
		w, err := p.writer(c, writeConnections)
		if err != nil {
			return err
		}
		written, err := w.Run(ctx, loadgen.WriterPace{Rounds: b.plan.history})
		if err != nil {
			return err
		}
		return b.check(ctx, p, c, b.plan.history, written)
	})
}

// check asks the database for the acknowledged samples of a load, and adds the number of samples found
// to the results.
func (b *besideDashboards) check(ctx context.Context, p *runningDatabase, c remoteload.Config, rounds int,
	written ...loadgen.WriterResult) error {
	var acknowledged uint64
	for _, r := range written {
		acknowledged += r.Written
		if r.Written != r.Sent.Samples {
			return fmt.Errorf("sent %d samples, but only %d were acknowledged: %s", r.Sent.Samples, r.Written, r.Refused)
		}
	}
	if err := p.flush(ctx); err != nil {
		return err
	}
	b.last = time.UnixMilli(c.Time(rounds - 1))
	found, err := p.find(ctx, c, rounds)
	cost := b.part.Cost(b.database.name, b.database.group)
	cost.Acknowledged += acknowledged
	cost.Found += found
	return err
}

// run measures once, and repeats the measurement if other processes take too much processor time.
func (b *besideDashboards) run(ctx context.Context, seed uint64) error {
	if b.failed {
		return nil
	}
	m, others, repeated, err := undisturbed(ctx, b.plan.repeats,
		func(ctx context.Context) (m besideMeasurement, others float64, err error) {
			err = b.with(ctx, b.database, func(p *runningDatabase) error {
				m, others, err = b.measure(ctx, p, seed)
				return err
			})
			return m, others, err
		})
	if err != nil {
		return err
	}
	if others > othersAtMost {
		b.progress.note(fmt.Sprintf("%s: other processes took %.0f %% of the processors, more than the allowed %.0f %%; "+
			"the run still counts",
			b.database.name, 100*others, 100*othersAtMost))
	}
	cost := b.part.Cost(b.database.name, b.database.group)
	cost.Repeated += repeated
	cost.Others = append(cost.Others, others)
	m.addTo(cost)
	return nil
}

// besideMeasurement is the result of a run.
type besideMeasurement struct {
	alone, beside timedWrites
	answers       *answered
}

// timedWrites is the result of one phase.
type timedWrites struct {
	writes  loadgen.WriterResult
	fresh   []float64          // milliseconds until a query found a sample
	percent float64            // CPU time, in percent of a core
	own     map[string]float64 // milliseconds, as Freshet's own probes measured them, by path
}

// measure times writes: first alone, and then beside the dashboards.
func (b *besideDashboards) measure(ctx context.Context, p *runningDatabase,
	seed uint64) (m besideMeasurement, others float64, err error) {
	if err := p.settle(ctx, b.plan.settles); err != nil {
		return m, 0, err
	}
	c := remoteload.Standard()
	c.Name, c.Series, c.Batch = dashboardsJob, b.plan.series, b.plan.batch
	c.Interval = int64(1000 * float64(b.plan.series) / b.plan.rate)
	if err := wait(ctx, time.Until(b.last.Add(2*time.Duration(c.Interval)*time.Millisecond))); err != nil {
		return m, 0, err
	}
	c.Begin = time.Now().UnixMilli()
	w, err := p.writer(c, b.plan.connections)
	if err != nil {
		return m, 0, err
	}
	first, err := w.Run(ctx, loadgen.WriterPace{Rounds: 1}) // the first round creates the series, and is not timed
	if err != nil {
		return m, 0, err
	}
	// Turn off the lab's own garbage collection, which would delay the timed requests. A run makes
	// some 100 MB of garbage.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	runtime.GC()
	before, err := usedUntilNow(p.pid)
	if err != nil {
		return m, 0, err
	}
	if m.alone, _, err = b.phase(ctx, p, w, b.plan.alone, nil); err != nil {
		return m, 0, err
	}
	shown := dashboards(b.plan.dashboards, p.url, dashboardsJob, b.plan.every, seed)
	if m.beside, m.answers, err = b.phase(ctx, p, w, b.plan.beside, shown); err != nil {
		return m, 0, err
	}
	after, err := usedUntilNow(p.pid)
	if err != nil {
		return m, 0, err
	}
	return m, after.othersSince(before), b.check(ctx, p, c, w.Rounds(), first, m.alone.writes, m.beside.writes)
}

// phase sends writes for a while, beside the dashboards `shown`, if any. It times nothing during the
// warm-up.
func (b *besideDashboards) phase(ctx context.Context, p *runningDatabase, w *loadgen.Writer, takes time.Duration,
	shown []*dashboard) (t timedWrites, a *answered, err error) {
	a = new(answered)
	warmUp, end := b.plan.warmUp, b.plan.warmUp+takes
	begun := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		// The phase ends after a number of rounds, not at a fixed time, so that late requests are sent,
		// too.
		rounds := int(math.Ceil(b.plan.rate * end.Seconds() / float64(b.plan.series)))
		t.writes, err = w.Run(ctx, loadgen.WriterPace{Rate: b.plan.rate, Rounds: rounds, WarmUp: warmUp})
		return err
	})
	group.Go(func() (err error) {
		t.fresh, err = p.freshness(ctx, begun, warmUp, end)
		return err
	})
	for _, d := range shown {
		group.Go(func() error { return d.refresh(ctx, begun, b.plan.every, warmUp, end, a) })
	}
	group.Go(func() error { return t.server(ctx, p, begun, warmUp, end) })
	return t, a, group.Wait()
}

// server is a helper: after the warm-up it measures the database's process, and reads the database's own
// probes, if any.
func (t *timedWrites) server(ctx context.Context, p *runningDatabase, begun time.Time, warmUp,
	end time.Duration) error {
	look := func(at time.Duration) (used time.Duration, found probes, when time.Time, err error) {
		if err := wait(ctx, time.Until(begun.Add(at))); err != nil {
			return 0, nil, when, err
		}
		when = time.Now()
		if used, err = report.CPUTime(p.pid); err == nil && p.probed != nil {
			found, err = p.probed(ctx)
		}
		return used, found, when, err
	}
	usedBefore, foundBefore, from, err := look(warmUp)
	if err != nil {
		return err
	}
	used, found, until, err := look(end)
	if err != nil {
		return err
	}
	t.percent = 100 * (used - usedBefore).Seconds() / until.Sub(from).Seconds()
	t.own, err = found.p99Since(foundBefore)
	return err
}

func (m besideMeasurement) addTo(c *report.DashboardCost) {
	m.alone.addTo(&c.Alone)
	m.beside.addTo(&c.Beside)
	a := m.answers
	c.Queries += uint64(len(a.took))
	c.Refused += a.refused
	c.Failed += a.failed
	c.Empty += a.empty
	c.Delayed += a.delayed
	if c.Why == "" {
		c.Why = a.why
	}
	c.QueryP50 = append(c.QueryP50, report.Quantile(a.took, .5))
	c.QueryP99 = append(c.QueryP99, report.Quantile(a.took, .99))
}

func (t timedWrites) addTo(w *report.WritesBeside) {
	milliseconds := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
	due := &t.writes.FromDue
	w.P50 = append(w.P50, milliseconds(due.Quantile(.5)))
	w.P99 = append(w.P99, milliseconds(due.Quantile(.99)))
	w.Longest = append(w.Longest, milliseconds(due.Max()))
	w.CPU = append(w.CPU, t.percent)
	w.Fresh = append(w.Fresh, report.Quantile(t.fresh, .5))
	w.FreshLongest = append(w.FreshLongest, report.Quantile(t.fresh, 1))
	for path, p99 := range t.own {
		if w.Own == nil {
			w.Own = map[string][]float64{}
		}
		w.Own[path] = append(w.Own[path], p99)
	}
}
