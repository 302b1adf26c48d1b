package diagnose

import (
	"fmt"

	"github.com/freshet-io/freshet/internal/core/record"
)

// CPU throttling: a cgroup has used up its quota, and the kernel stops all of its threads until the
// next period, usually of 100 ms. A few long stops hardly show in the waits of goroutines, because
// most goroutines run while there is quota.
const (
	// Shares of active periods in which the quota was used up. Short bursts use up the quota in a
	// healthy process too.
	throttledUsual = 0.10
	throttledBad   = 0.50

	// How many processors stood still on average although threads had work.
	stoodUsual = 0.02
	stoodBad   = 0.20

	// A process that uses less than this part of an exhausted quota shares the quota with others.
	quotaPart = 0.70
)

func cpuThrottling(m *moment) finding {
	f := finding{fine: "CPU quotas: no cgroup visible to the process has a quota"}
	f.Name, f.Title, f.Because, f.Next = CPUThrottling, "No CPU quota was used up", "no cgroup was throttled",
		"Nothing to do."
	worst := -1.0
	for i := range m.CPUQuotas {
		q := &m.CPUQuotas[i]
		periods, stood := throttledShare(q), max(0, q.Stood.Grown())/m.seconds
		score := min(ramp(periods, throttledUsual, throttledBad), ramp(stood, stoodUsual, stoodBad))
		if score > 0 {
			f.Evidence = append(f.Evidence, Evidence{What: m.throttled(q)})
		}
		if score <= worst {
			continue
		}
		worst, f.Score = score, score
		f.fine = "CPU quotas: " + m.throttled(q)
		f.Title = fmt.Sprintf("A CPU quota stops the process: cgroup %s may use %s, and was throttled in %s of %s periods",
			clip(q.Cgroup), processors(q.Cores), count(q.Throttled.Grown()), count(q.Periods.Grown()))
		f.Because = fmt.Sprintf("the quota was used up in %s of the periods (score 0 up to %s, 1 from %s), "+
			"and %s processors stood still on average (%.2g to %.2g); the smaller score counts",
			percent(periods), percent(throttledUsual), percent(throttledBad), average(stood), stoodUsual, stoodBad)
		f.Next = m.outOfQuota(q)
	}
	return f
}

// throttledShare returns the share of periods in which the quota was used up.
func throttledShare(q *record.CPUQuota) float64 {
	periods, throttled := q.Periods.Grown(), q.Throttled.Grown()
	if !(periods > 0 && throttled > 0) {
		return 0
	}
	return min(1, throttled/periods)
}

// throttled describes how much a cgroup was throttled, as a share of the time in which it ran or
// stood still.
func (m *moment) throttled(q *record.CPUQuota) string {
	stood := max(0, q.Stood.Grown())
	share := 0.0
	if stood > 0 {
		share = stood / (stood + m.cores()*m.seconds)
	}
	return fmt.Sprintf("cgroup %s may use %s (%s): it was throttled in %s of %s periods (%s), and in %s of the time in "+
		"which it had work, %s on all processors together; the process used %.2f processors",
		clip(q.Cgroup), processors(q.Cores), clip(q.File), count(q.Throttled.Grown()), count(q.Periods.Grown()),
		percent(throttledShare(q)), percent(share), seconds(stood), m.cores())
}

func (m *moment) outOfQuota(q *record.CPUQuota) string {
	others := ""
	if m.cores() < quotaPart*q.Cores {
		others = " The process used less than the quota: other processes in the cgroup use the rest, " +
			"so look at them first (cgroup.procs)."
	}
	return fmt.Sprintf("Raise the quota: it is set in %s, with CPUQuota= of a systemd unit or slice, --cpus of Docker, "+
		"or resources.limits.cpu of Kubernetes, where no CPU limit is best. Or lower the load.%s "+
		"If GOMAXPROCS is set in the environment, unset it: Go then uses the quota, rounded up. "+
		"More threads only use up the quota sooner, and then stand still for longer.", clip(q.File), others)
}

// processors formats a quota of n processors.
func processors(n float64) string {
	if n == 1 {
		return "1 processor"
	}
	return fmt.Sprintf("%.3g processors", n)
}
