package diagnose

import (
	"fmt"

	"github.com/freshet-io/freshet/internal/core/record"
)

// CPU throttling: a cgroup has used its quota up, and the kernel lets none of its threads
// run until the next period, mostly of 100 ms. Few, long stops hardly show in how long
// goroutines wait: most run while there is quota.
const (
	// Of the periods in which something ran, those in which the quota was used up. Short
	// bursts do that where nothing is wrong.
	throttledUsual = 0.10
	throttledBad   = 0.50

	// Processors that stood still on average though threads had work for them.
	stoodUsual = 0.02
	stoodBad   = 0.20

	// A process that uses less than this part of a quota that is used up shares it.
	quotaPart = 0.70
)

func cpuThrottling(m *moment) finding {
	f := finding{fine: "CPU quotas: no cgroup that the process sees itself in has one"}
	f.Name, f.Title, f.Because, f.Next = CPUThrottling, "No CPU quota was used up", "no cgroup was throttled", "Nothing is to be done."
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
		f.Because = fmt.Sprintf("the quota was used up in %s of the periods (nothing below %s, all from %s on), and %.2g processors stood still on average (%.2g to %.2g); the smaller counts",
			percent(periods), percent(throttledUsual), percent(throttledBad), stood, stoodUsual, stoodBad)
		f.Next = m.outOfQuota(q)
	}
	return f
}

// throttledShare is the part of the periods in which the quota was used up.
func throttledShare(q *record.CPUQuota) float64 {
	periods, throttled := q.Periods.Grown(), q.Throttled.Grown()
	if !(periods > 0 && throttled > 0) {
		return 0
	}
	return min(1, throttled/periods)
}

// throttled says how much a cgroup was throttled. Its time is what it ran and what it stood
// still.
func (m *moment) throttled(q *record.CPUQuota) string {
	stood := max(0, q.Stood.Grown())
	share := 0.0
	if stood > 0 {
		share = stood / (stood + m.cores()*m.seconds)
	}
	return fmt.Sprintf("cgroup %s has %s (%s): throttled in %s of %s periods, %s, and %s of the time in which it had work, %s on all processors together; the process used %.2f processors",
		clip(q.Cgroup), processors(q.Cores), clip(q.File), count(q.Throttled.Grown()), count(q.Periods.Grown()), percent(throttledShare(q)), percent(share), seconds(stood), m.cores())
}

func (m *moment) outOfQuota(q *record.CPUQuota) string {
	others := ""
	if m.cores() < quotaPart*q.Cores {
		others = " The process used less than the quota: others in the cgroup have the rest, so look at them first (cgroup.procs)."
	}
	return fmt.Sprintf("Raise the quota: it stands in %s, and comes from CPUQuota= of a systemd unit or slice, --cpus of Docker, or resources.limits.cpu of Kubernetes, where no limit is best. Or lower the load.%s "+
		"If GOMAXPROCS is set in the environment, leave it out: Go then takes the quota, rounded up, and more threads use a quota up sooner, to stand still for longer.", clip(q.File), others)
}

// processors is a quota as people say it.
func processors(n float64) string {
	if n == 1 {
		return "1 processor"
	}
	return fmt.Sprintf("%.3g processors", n)
}
