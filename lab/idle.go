package main

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/lab/report"
)

const (
	idleWarmUp   = 5 * time.Second  // until all servers have started
	idleInterval = 10 * time.Second // long enough for a flush of every receiver
	idleRuns     = 3
	idleAround   = 3 * time.Second // time to start and stop the servers
)

// watched returns receivers that run Freshet with different sets of its self-observing features: with
// all three, which is the default, with each one alone, and with none.
func watched(program string) (all []receiver) {
	for _, of := range []struct{ what, probe, metrics, flight string }{
		{"as by default", "true", "true", "true"},
		{"probe alone", "true", "false", "false"},
		{"own metrics alone", "false", "true", "false"},
		{"flight recorder alone", "false", "false", "true"},
		{"none of the three", "false", "false", "false"},
	} {
		all = append(all,
			receiver{name: allInOneName + ", " + of.what, group: report.Ours, stores: true, around: 2 * time.Second,
				start: serve(program, "all", "--self-probe="+of.probe, "--self-metrics="+of.metrics,
					"--self-recorder-flight="+of.flight)})
	}
	return all
}

// idleSteps measures all servers at the same time, since idle servers do not disturb each other.
func (l *lab) idleSteps() []step {
	receivers := slices.Concat([]receiver{collectorReceiver(l.freshet)}, watched(l.freshet), l.others)
	runs := idleRuns
	if l.brief {
		runs = 1
	}
	return []step{{
		what:  "nobody sends",
		takes: idleWarmUp + time.Duration(runs)*idleInterval + idleAround,
		do: func(ctx context.Context) error {
			idle := make([]report.Idle, len(receivers))
			group, ctx := errgroup.WithContext(ctx)
			for i, r := range receivers {
				idle[i] = report.Idle{Name: r.name, Group: r.group}
				group.Go(func() (err error) {
					idle[i].Percent, idle[i].Resident, err = r.idle(ctx, idleWarmUp, idleInterval, runs)
					return l.tolerate(ctx, r, err)
				})
			}
			if err := group.Wait(); err != nil {
				return err
			}
			l.results.Idle = slices.DeleteFunc(idle, func(i report.Idle) bool { return len(i.Percent) == 0 })
			return nil
		},
	}}
}

// idle returns, for each run, the percentage of a core that the receiver used, and its memory in
// bytes at the end.
func (r receiver) idle(ctx context.Context, warmUp, interval time.Duration,
	runs int) (percent, bytes []float64, err error) {
	err = r.with(ctx, nil, func(p *running) error {
		if err := wait(ctx, warmUp); err != nil {
			return err
		}
		for range runs {
			begun := time.Now()
			before, err := report.CPUTime(p.pid)
			if err != nil {
				return err
			}
			if err := wait(ctx, interval); err != nil {
				return err
			}
			after, err := report.CPUTime(p.pid)
			if err != nil {
				return err
			}
			percent = append(percent, 100*float64(after-before)/float64(time.Since(begun)))
			memory, err := resident(p.pid)
			if err != nil {
				return err
			}
			bytes = append(bytes, float64(memory))
		}
		return nil
	})
	return percent, bytes, err
}
