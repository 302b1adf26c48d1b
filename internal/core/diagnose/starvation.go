package diagnose

import (
	"fmt"
	"math"
)

// Starvation: goroutines that could run wait for a processor, because others have them, in
// this process or outside of it.
const (
	// How long 99 of 100 goroutines wait at most before they run. A process that has room
	// is below a millisecond; Go lets others run after 10 ms.
	latencyUsual = 0.005 // seconds
	latencyBad   = 0.050

	// How many stand in the queue at any time, for each processor.
	queueUsual = 1
	queueBad   = 5

	// A process that uses less than this part of its processors, and whose goroutines
	// wait nevertheless, does not get them.
	ownPart = 0.70

	// What others take may be over in a moment, and is nothing of ours.
	othersMost = 0.70
)

func starvation(m *moment) finding {
	latency := m.Spreads["/sched/latencies:seconds"]
	queue := 0.0
	if m.trace.seconds > 0 {
		queue = m.trace.runnable / m.trace.seconds
	}
	standing := m.Runtime["/sched/goroutines/runnable:goroutines"]
	queue = math.Max(queue, math.Min(standing.Begin, standing.End)) / float64(max(1, m.GOMAXPROCS))
	used := m.full()

	f := finding{fine: fmt.Sprintf("the scheduler: 99 of 100 goroutines ran within %s, up to %s is usual; %.2g stood in the queue for each processor; %s of %d processors was used",
		seconds(latency.P99), seconds(latencyUsual), queue, percent(used), m.GOMAXPROCS)}
	f.Name = Starvation
	// Both must be so: long waits of a few are a moment in which the machine stood still,
	// and a long queue that moves on is a load that fits.
	f.Score = math.Sqrt(ramp(latency.P99, latencyUsual, latencyBad) * ramp(queue, queueUsual, queueBad))
	f.Because = fmt.Sprintf("one goroutine in 100 waited %s for a processor (nothing below %s, all from %s on), and %.2g stood in the queue for each (%.2g to %.2g); both must be so",
		seconds(latency.P99), seconds(latencyUsual), seconds(latencyBad), queue, float64(queueUsual), float64(queueBad))
	f.Evidence = []Evidence{{What: fmt.Sprintf("the process used %.2f of %d processors; in trace.out goroutines waited up to %s", m.cores(), m.GOMAXPROCS, seconds(m.trace.longest))}}
	busiest, with := m.cpu.groups(stack.own), ""
	if len(busiest) > 0 && m.cpu.total() > 0 {
		with = fmt.Sprintf("; %s of what it has goes into %s", percent(busiest[0].value/m.cpu.total()), short(busiest[0].name))
	}
	if used < ownPart && m.cpu.total() > 0 {
		f.Score = min(f.Score, othersMost)
		f.Title = fmt.Sprintf("No processor: goroutines wait %s for one, and the process gets %.2f of %d, and others the rest", seconds(latency.P99), m.cores(), m.GOMAXPROCS) + with
		f.Next = "If the function that is busiest does not do what the load asks for, report it with this record. Then look what else runs on the machine (top). GOMAXPROCS should be what the process really gets."
	} else {
		f.Title = fmt.Sprintf("No processor: goroutines wait %s for one; all %d are busy", seconds(latency.P99), m.GOMAXPROCS) + with
		f.Next = "If the function that is busiest does what the load asks for, the machine is too small, or the load belongs on two. If not, report it with this record."
	}
	for _, g := range largest(busiest, 4, m.cpu.total()) {
		f.Evidence = append(f.Evidence, Evidence{What: fmt.Sprintf("%s has %s of the processor time", short(g.name), percent(g.value/m.cpu.total())), Stack: g.stack.shown()})
	}
	return f
}
