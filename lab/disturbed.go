package main

import (
	"context"
	"os"
	"time"

	"github.com/freshet-io/freshet/lab/report"
)

// The rule of latencies, which whatever else runs on the machine makes longer: a run in
// which others took more than this part of the processors is measured again.
const (
	othersAtMost  = .05
	repeatsAtMost = 2 // of a run; then the one that others took least of counts
)

// tick is the kernel's unit of /proc/stat.
const tick = 10 * time.Millisecond

// undisturbed measures until others took no more than they may, or so often as it may. It
// returns the measurement that they took least of, what that was, and how often it measured
// again.
func undisturbed[T any](ctx context.Context, repeats int, measure func(context.Context) (m T, others float64, err error)) (best T, others float64, repeated int, err error) {
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

// used is what was used of the processors until a moment.
type used struct {
	machine processors
	ours    time.Duration // by what is measured, and by the lab
}

// usedUntilNow is of the lab and of what runs besides and is measured.
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

// othersSince is the part of the processors' time since before that other processes had, or
// other machines by the hypervisor.
func (u used) othersSince(before used) float64 {
	if u.machine.all <= before.machine.all {
		return 0
	}
	others := float64(u.machine.worked) - float64(before.machine.worked) - float64(u.ours-before.ours)/float64(tick)
	// The kernel looks at each tick who runs, so that a short interval may give less than nothing.
	return max(0, others)/float64(u.machine.all-before.machine.all) + u.machine.stolenBy(before.machine)
}
