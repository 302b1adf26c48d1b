package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/loadgen"
	"github.com/freshet-io/freshet/internal/core/load"
	"github.com/freshet-io/freshet/lab/report"
)

const (
	rateRuns  = 3           // number of searches for each receiver
	tryTime   = time.Second // time at each rate; a receive buffer holds only a small part of that time's metrics
	searching = 15 * time.Second

	ratePrecision = 0.05 // the search ends when the interval is this fraction of the rate
	rateTries     = 4    // number of tries at a rate that the sender does not reach
	rateLeast     = 1000 // metrics a second; below this rate the search fails
)

// tried is the result of sending at a rate.
type tried struct {
	reached float64 // metrics a second
	lost    bool
}

// highest searches for the highest rate without loss. It first sends as fast as possible (rate 0), and
// then halves the interval between a rate without loss and a rate with loss. Other processes also cause
// losses and delays, so a rate fails only after two losses, or after four tries in which the sender did
// not reach the rate. `sender` reports that the sender was the limit: it did not reach a rate, or
// nothing was lost at any rate.
func highest(try func(rate float64) (tried, error)) (rate float64, sender bool, err error) {
	flatOut, err := try(0)
	if err != nil || !flatOut.lost {
		return flatOut.reached, true, err
	}
	for loses := flatOut.reached; loses-rate > ratePrecision*loses; {
		if loses < rateLeast {
			return 0, false, fmt.Errorf("datagrams are lost at every rate, down to %.0f metrics a second", loses)
		}
		asked := (rate + loses) / 2
		t, err := try(asked)
		if err == nil && t.lost {
			t, err = try(asked)
		}
		for tries := 1; err == nil && !t.lost && t.reached < report.RateReached*asked && tries < rateTries; tries++ {
			t, err = try(asked)
		}
		switch {
		case err != nil:
			return rate, false, err
		case t.lost:
			loses = asked
		case t.reached < report.RateReached*asked:
			return max(rate, t.reached), true, nil
		default:
			rate = asked
		}
	}
	return rate, false, nil
}

// rateSteps returns the steps that search for the highest rates, with packed datagrams. The
// receiver has one core, and the sender has all others.
func (l *lab) rateSteps() (steps []step) {
	receivers := []receiver{bareReceiver(l.bare, recvfrom), collectorReceiver(l.freshet)}
	runs := rateRuns
	if l.brief {
		runs = 1
	}
	for run := range runs {
		for _, r := range receivers {
			steps = append(steps, step{
				what:  fmt.Sprintf("highest rate, search %d: %s", run+1, r.name),
				takes: searching,
				do: func(ctx context.Context) error {
					rate, sender, err := searchRate(ctx, r)
					if err != nil {
						return err
					}
					found := l.results.Rate(r.name, r.group)
					found.Sender = found.Sender || sender
					found.PerSecond = append(found.PerSecond, rate)
					return nil
				},
			})
		}
	}
	return steps
}

func searchRate(ctx context.Context, r receiver) (rate float64, sender bool, err error) {
	last := runtime.NumCPU() - 1
	if last == 0 {
		return 0, false, errors.New("needs two cores: one for the receiver and one for the sender")
	}
	by := road{network: udp, segmented: true}
	for cpu := range last {
		by.on = append(by.on, cpu)
	}
	traffic, err := load.New(load.Standard())
	if err != nil {
		return 0, false, err
	}
	err = r.with(ctx, cpus{last}, func(p *running) error {
		rate, sender, err = highest(func(rate float64) (tried, error) {
			result, received, err := sendFor(ctx, p, by, traffic, loadgen.Pace{Rate: rate, Duration: tryTime})
			return tried{result.Rate(), received != result.Sent.Metrics}, err
		})
		return err
	})
	return rate, sender, err
}

// halfRate returns half of the collector's highest rate that the lab has measured.
func (l *lab) halfRate() float64 {
	for _, r := range l.results.Rates {
		if r.Name == collectorName {
			return report.Median(r.PerSecond) / 2
		}
	}
	panic("BUG: the highest rate is needed before it was measured")
}
