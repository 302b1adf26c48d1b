package diagnose

import "fmt"

// Stack growth: a goroutine begins with a small stack. Each time the stack is too small, the runtime
// copies it to one of twice the size. The profile shows the copying as runtime.copystack. Go's profiler
// continues the stack through runtime.morestack to the call that had no room.
const (
	// Parts of the processor time. A pool of long-lived workers spends less than 1 % on stack growth. At
	// about 8 % the latency of a real pipeline doubled.
	growthUsual = 0.02
	growthBad   = 0.12
)

func stackGrowth(m *moment) finding {
	grows := func(s stack) bool { return s.has("runtime.copystack") }
	share := m.shareOf(grows)
	f := finding{fine: fmt.Sprintf("stack growth: %s of the used processor time; up to %s is usual%s",
		percent(share), percent(growthUsual), m.idleNote())}
	f.Name = StackGrowth
	f.Score = ramp(share, growthUsual, growthBad) * m.active()
	f.Title = fmt.Sprintf("Goroutines whose stacks are too small: growing them takes %s of the used processor time",
		percent(share))
	f.Because = fmt.Sprintf("runtime.copystack has %s of cpu.pprof: score 0 up to %s, 1 from %s, "+
		"less if the process is idle", percent(share), percent(growthUsual), percent(growthBad))
	triggers := m.cpu.groups(func(s stack) string {
		if !grows(s) {
			return ""
		}
		return grower(s).own()
	})
	if len(triggers) > 0 {
		f.Title += ", most of it for " + short(triggers[0].name)
	}
	for _, g := range largest(triggers, 3, share*m.cpu.total()) {
		f.Evidence = append(f.Evidence, Evidence{
			What: fmt.Sprintf("%s: %s of the processor time went into growing stacks for it",
				short(g.name), percent(g.value/m.cpu.total())),
			Stack: grower(g.stack).shown(),
		})
	}
	f.Evidence = append(f.Evidence, Evidence{What: fmt.Sprintf("%.0f goroutines began per second; stacks take %s now",
		m.perSecond("/sched/goroutines-created:goroutines"), bytesText(m.Runtime["/memory/classes/heap/stacks:bytes"].End))})
	f.Next = "Run such deep calls on long-lived goroutines, as internal/lib/pool does, or make them less deep. " +
		"If it is not your own code, report it with this record."
	return f
}

// grower returns the calls that had no room on the stack: the calls beyond runtime.morestack.
func grower(s stack) stack {
	for i := len(s) - 1; i >= 0; i-- {
		if hasPrefix(s[i], "runtime.morestack", "runtime.newstack") {
			return s[i+1:]
		}
	}
	return s
}
