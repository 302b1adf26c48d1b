package diagnose

import "fmt"

// Garbage: the garbage collector must mark and sweep all allocated memory. A goroutine that
// allocates faster than the collector works has to assist it, in the middle of its own work.
const (
	// Servers usually spend up to a quarter of their time on collection and allocation together; above
	// a half, servers do little other work.
	garbageUsual = 0.30
	garbageBad   = 0.60
)

func garbage(m *moment) finding {
	collects := func(s stack) bool {
		// Marking on idle processors costs nothing.
		return !s.has("runtime.gcDrainMarkWorkerIdle") &&
			s.has("runtime.gcBgMarkWorker", "runtime.gcAssistAlloc", "runtime.gcStart", "runtime.bgsweep", "runtime.bgscavenge",
				"runtime.sweepone")
	}
	assists := func(s stack) bool { return s.has("runtime.gcAssistAlloc") }
	allocates := func(s stack) bool {
		return !collects(s) && s.has("runtime.mallocgc", "runtime.newobject", "runtime.growslice", "runtime.makeslice")
	}
	gc, malloc := m.shareOf(collects), m.shareOf(allocates)
	rate := m.perSecond("/gc/heap/allocs:bytes") // exact; the profile lags until the next collection
	cycles := m.perSecond("/gc/cycles/total:gc-cycles")

	f := finding{fine: fmt.Sprintf("garbage: collection takes %s of the processor time, and allocation %s "+
		"(up to %s together is usual); %s a second are allocated%s",
		percent(gc), percent(malloc), percent(garbageUsual), bytesText(rate), m.idleNote())}
	f.Name = Garbage
	f.Score = ramp(gc+malloc, garbageUsual, garbageBad) * m.active()
	f.Title = fmt.Sprintf("Garbage: %s a second are allocated; allocating and collecting that takes %s of the "+
		"used processor time", bytesText(rate), percent(gc+malloc))
	f.Because = fmt.Sprintf("collection takes %s of the time in cpu.pprof and allocation %s: "+
		"score 0 up to %s together, 1 from %s, "+
		"less if the process is idle",
		percent(gc), percent(malloc), percent(garbageUsual), percent(garbageBad))
	f.Evidence = []Evidence{{What: fmt.Sprintf("%.1f collections a second, %s of the processor time in assists; "+
		"the heap has %s in use, its goal is %s", cycles, percent(m.shareOf(assists)),
		bytesText(m.Runtime["/gc/heap/live:bytes"].End), bytesText(m.Runtime["/gc/heap/goal:bytes"].End))}}
	total := m.Runtime["/cpu/classes/total:cpu-seconds"].Grown() -
		m.Runtime["/cpu/classes/idle:cpu-seconds"].Grown()
	if cycles > 0 && total > 0 {
		f.Evidence[0].Figures = []string{fmt.Sprintf("the runtime itself estimates that collection takes %s of the "+
			"time that is not idle", percent(m.Runtime["/cpu/classes/gc/total:cpu-seconds"].Grown()/total))}
	}
	all := m.allocs.total()
	for _, g := range largest(m.allocs.groups(stack.own), 4, all) {
		f.Evidence = append(f.Evidence, Evidence{
			What: fmt.Sprintf("%s allocates %s a second, %s of all",
				short(g.name), bytesText(g.value/m.seconds), percent(g.value/all)),
			Stack: g.stack.shown(),
		})
	}
	f.Next = "If the load is wanted, GOGC=200 halves the number of collections for twice the heap, " +
		"and GOMEMLIMIT bounds the heap. If one function allocates most, report that function with this record."
	return f
}
