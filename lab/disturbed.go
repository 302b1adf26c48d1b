package main

import (
	"context"
	"os"
	"time"

	"github.com/freshet-io/freshet/lab/report"
)

// Other work on the machine makes latencies longer. So a run is repeated if other processes took more than
// this share of the processors.
const (
	othersAtMost  = .05
	repeatsAtMost = 2 // how often a run is repeated; then the least disturbed try counts
)

// tick is the kernel's unit of /proc/stat.
const tick = 10 * time.Millisecond

// undisturbed repeats a measurement, at most `repeats` times, while other processes take more than the
// allowed share. It returns the least disturbed measurement, the share of other processes during that
// measurement, and the number of repeats.
func undisturbed[T any](ctx context.Context, repeats int,
	measure func(context.Context) (m T, others float64, err error)) (best T, others float64, repeated int, err error) {
	for ; ; repeated++ {
		m, o, err := measure(ctx)
		if err != nil {
			return best, others, repeated, err
		}
		if repeated == 0 || o < others {
			best, others = m, o
		}
		if others <= othersAtMost || repeated == repeats {
			return best, others, repeated, nil
		}
	}
}

// used has the processor times up to one moment.
type used struct {
	machine processors
	ours    time.Duration // time of the measured processes and the lab
}

// usedUntilNow reads the processor time that the lab and the measured processes have used, and the time
// that all processes have used together.
func usedUntilNow(pids ...int) (u used, err error) {
	if u.machine, err = readStat(); err != nil {
		return u, err
	}
	for _, p := range append(pids, os.Getpid()) {
		time, err := report.CPUTime(p)
		if err != nil {
			return u, err
		}
		u.ours += time
	}
	return u, nil
}

// othersSince returns the share of the processor time since an earlier moment that went to other
// processes or, through the hypervisor, to other machines.
func (u used) othersSince(before used) float64 {
	if u.machine.all <= before.machine.all {
		return 0
	}
	others := float64(u.machine.worked) - float64(before.machine.worked) - float64(u.ours-before.ours)/float64(tick)
	// The kernel counts whole ticks, so the difference may be negative over a short interval.
	return max(0, others)/float64(u.machine.all-before.machine.all) + u.machine.stolenBy(before.machine)
}
