package diagnose

import "fmt"

// Garbage: what is allocated must be marked and swept, and who allocates faster than that
// goes on is made to help (assists), in the middle of whatever it does.
const (
	// Usual servers have up to a quarter of their time in collection and allocation
	// together; at more than a half they do little else.
	garbageUsual = 0.30
	garbageBad   = 0.60
)

func garbage(m *moment) finding {
	collects := func(s stack) bool {
		// What only idle processors mark costs nobody anything.
		return !s.has("runtime.gcDrainMarkWorkerIdle") && s.has("runtime.gcBgMarkWorker", "runtime.gcAssistAlloc", "runtime.gcStart", "runtime.bgsweep", "runtime.bgscavenge", "runtime.sweepone")
	}
	assists := func(s stack) bool { return s.has("runtime.gcAssistAlloc") }
	allocates := func(s stack) bool {
		return !collects(s) && s.has("runtime.mallocgc", "runtime.newobject", "runtime.growslice", "runtime.makeslice")
	}
	gc, malloc := m.shareOf(collects), m.shareOf(allocates)
	rate := m.perSecond("/gc/heap/allocs:bytes") // exact, where the profile waits for a collection
	cycles := m.perSecond("/gc/cycles/total:gc-cycles")

	f := finding{fine: fmt.Sprintf("garbage: %s of the processor time goes into collection and %s into allocation, of %s a second; up to %s together is usual%s",
		percent(gc), percent(malloc), bytesText(rate), percent(garbageUsual), m.idleNote())}
	f.Name = Garbage
	f.Score = ramp(gc+malloc, garbageUsual, garbageBad) * m.active()
	f.Title = fmt.Sprintf("Garbage: %s a second are allocated, and %s of the processor time that is used goes into that and into collecting it", bytesText(rate), percent(gc+malloc))
	f.Because = fmt.Sprintf("collection has %s of cpu.pprof and allocation %s: nothing below %s together, all from %s on, as far as the process is busy",
		percent(gc), percent(malloc), percent(garbageUsual), percent(garbageBad))
	f.Evidence = []Evidence{{What: fmt.Sprintf("%.1f collections a second, %s of the processor time in assists; the heap has %s in use, goal %s", cycles, percent(m.shareOf(assists)),
		bytesText(m.Runtime["/gc/heap/live:bytes"].End), bytesText(m.Runtime["/gc/heap/goal:bytes"].End))}}
	if total := m.Runtime["/cpu/classes/total:cpu-seconds"].Grown() - m.Runtime["/cpu/classes/idle:cpu-seconds"].Grown(); cycles > 0 && total > 0 {
		f.Evidence[0].Figures = []string{fmt.Sprintf("the runtime itself estimates %s of the time that is not idle for collection", percent(m.Runtime["/cpu/classes/gc/total:cpu-seconds"].Grown()/total))}
	}
	all := m.allocs.total()
	for _, g := range largest(m.allocs.groups(stack.own), 4, all) {
		f.Evidence = append(f.Evidence, Evidence{
			What:  fmt.Sprintf("%s allocates %s a second, %s of all", short(g.name), bytesText(g.value/m.seconds), percent(g.value/all)),
			Stack: g.stack.shown(),
		})
	}
	f.Next = "If it is a load that is wanted, GOGC=200 halves the collections for twice the heap, and GOMEMLIMIT bounds it. If one function has most of it, report it with this record."
	return f
}
