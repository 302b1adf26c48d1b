package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/loadgen"
	"github.com/freshet-io/freshet/internal/core/load"
	"github.com/freshet-io/freshet/lab/report"
)

// memoryPart is the name of this part in -only.
const memoryPart = "memory"

const (
	memoryRuns = 3

	// tilesMade is the time until each context has been stored in tiles of both widths, and tiles of a minute
	// have been closed once more.
	tilesMade = 130 * time.Second

	// tilesTime is how long the cost of tiles is measured. It has as many tiles of each width as any other minute.
	tilesTime = time.Minute
)

// memorySteps returns the steps of the part memory. Each needs a server of its own.
func (l *lab) memorySteps() (steps []step) {
	l.results.Memory = &report.Figures{Date: l.results.Date, Machine: l.results.Machine, Versions: l.ourVersion()}
	runs := min(l.runs, memoryRuns)
	if l.brief {
		runs = 1
	}
	w := writeWorkloads()[0]
	for run := range runs {
		steps = append(steps, l.tenantsStep(run), step{
			what:  fmt.Sprintf("memory, run %d: %d series of remote write", run+1, w.Series),
			takes: w.takes,
			do:    func(ctx context.Context) error { return l.writeMemory(ctx, w) },
		})
		for _, contexts := range []int{100_000, 500_000} {
			steps = append(steps, step{
				what:  fmt.Sprintf("memory, run %d: %d contexts", run+1, contexts),
				takes: tilesMade + tilesTime + 5*time.Second,
				do: func(ctx context.Context) error {
					return l.withFreshet(ctx, "all", func(f *freshet) error {
						return l.contextMemory(ctx, f, contexts, tilesMade, tilesTime, report.RateReached)
					}, "--limits-max-series", "0", "--limits-max-series-per-metric", "0",
						"--limits-max-new-series-per-minute", "0")
				},
			})
		}
	}
	return steps
}

// contextMemory sends counters and gauges to a whole server, each once in every tile of 10 s, and measures
// what the server spends on each of these contexts. Less than a share of the rate, `reached`, is an error.
func (l *lab) contextMemory(
	ctx context.Context, f *freshet, contexts int, made, measured time.Duration, reached float64,
) error {
	c := load.Standard()
	c.Contexts, c.Kinds = contexts, load.Mix{load.Counter: 1, load.Gauge: 1}
	traffic, err := load.New(c)
	if err != nil {
		return err
	}
	pid := f.cmd.Process.Pid
	empty, err := resident(pid)
	if err != nil {
		return err
	}
	const tile = 10 * time.Second
	pace := float64(contexts) / tile.Seconds()
	s, err := send(ctx, f.running(), road{network: udp}, traffic, loadgen.Pace{Rate: pace})
	if err != nil {
		return err
	}
	cpu, full, err := costAfter(ctx, pid, made, measured)
	result, ended := s.end()
	if err := errors.Join(err, ended); err != nil {
		return err
	}
	received, err := f.running().settle(ctx, counted{}, result.Sent, 3*time.Second)
	if err != nil {
		return err
	}
	if float64(received) < reached*result.Elapsed.Seconds()*pace {
		return fmt.Errorf("%d contexts were sent %d times in %v, and received %d times: too few to measure tiles",
			contexts, result.Sent.Metrics, result.Elapsed, received)
	}
	tiles := float64(contexts) * measured.Seconds() / tile.Seconds()
	add := func(unit string, must, aim, v float64) {
		l.results.Memory.Add(report.Figure{
			What: fmt.Sprintf("a DogStatsD context of %d,000, in tiles of 10 s and 1 min", contexts/1000), Unit: unit,
			Must: must, Aim: aim, Runs: []float64{v},
		})
	}
	add("bytes of resident memory", 6000, 4000, (float64(full)-float64(empty))/float64(contexts))
	add("CPU us a tile of 10 s", 3, 1.5, float64(cpu.Nanoseconds())/1e3/tiles)
	return nil
}
