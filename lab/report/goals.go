package report

import "fmt"

// The collector's goals, except the ratios, which are in each Load. The collector is always the
// first of Freshet's receivers.
const (
	goalIdle        = 1.0 // must be below this percentage of a core
	goalRate        = 3e6 // must be above this many metrics a second on one core
	goalContexts    = 10_000
	goalResident    = 40e6  // must be below this many bytes with goalContexts contexts
	goalAllocations = 0.005 // must be below this many objects a metric, which rounds to 0.00
	goalContext     = 400.0 // must be at most this many bytes a context
	goalNewContexts = 100e3 // must be at least this many new contexts a second, in a storm
)

// goals compares all goals with the results.
func (r *Results) goals() string {
	rows := r.ratioGoals()
	for _, i := range r.Idle {
		if i.Group == Ours {
			rows = append(rows,
				runsRow("nobody sends", "percent of a core, "+i.Name, i.Percent, significant, "under 1", under(goalIdle)))
			break
		}
	}
	for _, rate := range r.Rates {
		if rate.Group == Ours {
			rows = append(rows,
				verdictRow("highest rate without loss", "million metrics a second on one core, "+rate.Name, rate.millions(),
					"over 3", verdictOfRuns(rate.PerSecond, over(goalRate))))
			break
		}
	}
	rows = append(rows, r.memoryGoals()...)
	rows = append(rows, r.scaleGoals()...)
	rows = append(rows, r.writeGoals()...)
	rows = append(rows, r.fairnessGoals()...)
	rows = append(rows, r.dashboardGoals()...)
	rows = append(rows, r.clusterGoals()...)
	rows = append(rows, r.queryGoals()...)
	rows = append(rows, r.rulesGoals()...)
	rows = append(rows, r.Packed.goals()...)
	rows = append(rows, r.Memory.goals()...)
	rows = append(rows, r.Start.goals()...)
	rows = append(rows, r.Disk.goals()...)
	return table([]string{"goal", "measured", "is:", "must be"}, grouped(rows))
}

// ratioGoals compares the collector with the bare receiver, and the whole server with the
// collector, in each turn.
func (r *Results) ratioGoals() (rows [][]string) {
	row := func(name string, base, c *Cost, goal float64) {
		rows = append(rows, runsRow(name, fmt.Sprintf("%s: %s, to %s: %s", c.Name, c.micros(), base.Name, base.micros()),
			ratios(c.Micros, base.Micros), two, fmt.Sprintf("at most %.2f", goal), atMost(goal)))
	}
	for _, l := range r.Loads {
		bare, ours := l.of(Bare), l.of(Ours)
		if len(bare) > 0 && len(ours) > 0 && l.Goal > 0 {
			row(l.Name, &bare[0], &ours[0], l.Goal)
		}
		if len(ours) > 1 && l.WholeGoal > 0 {
			row(l.Name, &ours[0], &ours[1], l.WholeGoal)
		}
	}
	return rows
}

// memoryGoals returns the goals for the load with the most contexts, if it has enough of them.
func (r *Results) memoryGoals() (rows [][]string) {
	most := r.mostContexts()
	ours := most.of(Ours)
	if most.Contexts < goalContexts || len(ours) == 0 {
		return nil
	}
	c, with := ours[0], thousands(float64(most.Contexts))+" contexts"
	rows = append(rows, runsRow(with, "resident MB, "+c.Name, c.Resident, megabytes, "under 40", under(goalResident)))
	if len(c.Allocations) > 0 {
		rows = append(rows,
			runsRow(with, "allocations a metric, "+c.Name, c.Allocations, two, "0.00", under(goalAllocations)))
	}
	return rows
}

func (r *Results) scaleGoals() (rows [][]string) {
	if m := r.Scale.Million; m != nil {
		with := thousands(float64(m.Contexts)) + " contexts"
		for _, memory := range []struct {
			of    string
			bytes float64
		}{{"resident memory", m.ResidentEntry()}, {"heap", m.HeapEntry()}} {
			rows = append(rows,
				goalRow(with, "bytes a context, "+memory.of, fmt.Sprintf("%.0f", memory.bytes), "at most 400",
					memory.bytes <= goalContext))
		}
	}
	for _, s := range r.Scale.storms() {
		rows = append(rows,
			goalRow(s.name, "metrics a second, as half of the highest rate", thousands(s.Rate), thousands(s.Asked),
				s.Rate >= RateReached*s.Asked))
		if s.ofNewContexts {
			rows = append(rows,
				goalRow(s.name, "new contexts a second", thousands(s.NewContexts), thousands(goalNewContexts),
					s.NewContexts >= RateReached*goalNewContexts))
		}
		rows = append(rows,
			goalRow(s.name, "metrics sent and not received", thousands(float64(s.Sent)-float64(s.Received)), "0",
				s.Sent == s.Received),
			goalRow(s.name, "datagrams dropped by the kernel, "+s.rate(), thousands(float64(s.KernelDropped)), "0",
				s.KernelDropped == 0),
			goalRow(s.name, "samples by which the ledger differs", fmt.Sprint(s.Difference), "0", s.Difference == 0))
	}
	return rows
}
