package diagnose

import (
	"fmt"
	"math"
)

// Starvation: runnable goroutines wait for a processor, because other goroutines or other processes
// have all processors.
const (
	// The 99th percentile of how long goroutines wait before they run. It is below a millisecond while
	// processors are free. Go preempts a running goroutine after 10 ms.
	latencyUsual = 0.005 // seconds
	latencyBad   = 0.050

	// Goroutines in the run queue at any time, per processor.
	queueUsual = 1
	queueBad   = 5

	// If goroutines wait although the process uses less than this part of its processors, the process
	// does not get the rest.
	ownPart = 0.70

	// The highest score if other processes have the processors: these processes may end in a moment, and
	// no change to Freshet can stop them.
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

	f := finding{fine: fmt.Sprintf("the scheduler: 99 of 100 goroutines waited at most %s for a processor "+
		"(up to %s is usual); %s goroutines were queued per processor; the process used %s of its %d processors",
		seconds(latency.P99), seconds(latencyUsual), average(queue), percent(used), m.GOMAXPROCS)}
	f.Name = Starvation
	// Starvation needs both a long latency and a long queue. Long waits of a few goroutines mean only
	// that the machine paused for a moment. A long queue with short waits is a load that the machine can
	// bear.
	f.Score = math.Sqrt(ramp(latency.P99, latencyUsual, latencyBad) * ramp(queue, queueUsual, queueBad))
	f.Because = fmt.Sprintf("one goroutine in 100 waited %s or longer for a processor (score 0 up to %s, 1 from %s), "+
		"and %s goroutines were queued per processor (%.2g to %.2g); both are needed",
		seconds(latency.P99), seconds(latencyUsual), seconds(latencyBad), average(queue), float64(queueUsual),
		float64(queueBad))
	f.Evidence = []Evidence{{What: fmt.Sprintf("the process used %.2f of %d processors; "+
		"in trace.out goroutines waited up to %s", m.cores(), m.GOMAXPROCS, seconds(m.trace.longest))}}
	busiest, with := m.cpu.groups(stack.own), ""
	if len(busiest) > 0 && m.cpu.total() > 0 {
		with = fmt.Sprintf("; the process spends %s of its processor time in %s",
			percent(busiest[0].value/m.cpu.total()), short(busiest[0].name))
	}
	if used < ownPart && m.cpu.total() > 0 {
		f.Score = min(f.Score, othersMost)
		f.Title = fmt.Sprintf("No free processor: one goroutine in 100 waits %s or longer, and the process gets "+
			"%.2f of %d processors; other processes have the rest", seconds(latency.P99), m.cores(), m.GOMAXPROCS) + with
		f.Next = "Look at what else runs on the machine (top), and set GOMAXPROCS to what the process really gets. " +
			"If the load does not explain the busiest function, report that function with this record."
	} else {
		f.Title = fmt.Sprintf("No free processor: one goroutine in 100 waits %s or longer; all %d processors are busy",
			seconds(latency.P99), m.GOMAXPROCS) + with
		f.Next = "If the load explains the busiest function, use a larger machine or split the load over two. If not, " +
			"report that function with this record."
	}
	for _, g := range largest(busiest, 4, m.cpu.total()) {
		f.Evidence = append(f.Evidence,
			Evidence{
				What:  fmt.Sprintf("%s takes %s of the processor time", short(g.name), percent(g.value/m.cpu.total())),
				Stack: g.stack.shown(),
			})
	}
	return f
}
