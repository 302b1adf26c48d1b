package diagnose

import "fmt"

// Stack growth: a goroutine begins with a small stack and copies it to one of twice the
// size each time it is too small, which shows as runtime.copystack in the profile of the
// processors. Go's profiler goes on through runtime.morestack to the call that had no room.
const (
	// A pool of long-lived workers has below 1 %; the pipeline of the field notes had its
	// latency doubled at some 8 %.
	growthUsual = 0.02
	growthBad   = 0.12
)

func stackGrowth(m *moment) finding {
	grows := func(s stack) bool { return s.has("runtime.copystack") }
	share := m.shareOf(grows)
	f := finding{fine: fmt.Sprintf("stack growth: %s of the processor time that was used; up to %s is usual%s", percent(share), percent(growthUsual), m.idleNote())}
	f.Name = StackGrowth
	f.Score = ramp(share, growthUsual, growthBad) * m.active()
	f.Title = fmt.Sprintf("Goroutines whose stacks are too small: growing them takes %s of the processor time that is used", percent(share))
	f.Because = fmt.Sprintf("runtime.copystack has %s of cpu.pprof: nothing below %s, all from %s on, as far as the process is busy", percent(share), percent(growthUsual), percent(growthBad))
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
			What:  fmt.Sprintf("%s: %s of the processor time went into growing stacks for it", short(g.name), percent(g.value/m.cpu.total())),
			Stack: grower(g.stack).shown(),
		})
	}
	f.Evidence = append(f.Evidence, Evidence{What: fmt.Sprintf("%.0f goroutines began a second; stacks have %s now",
		m.perSecond("/sched/goroutines-created:goroutines"), bytesText(m.Runtime["/memory/classes/heap/stacks:bytes"].End))})
	f.Next = "Work that is this deep belongs on goroutines that live long, as internal/lib/pool has them, or needs fewer calls. If it is not code of your own, report it with this record."
	return f
}

// grower is the part of a stack that had no room: what lies beyond runtime.morestack.
func grower(s stack) stack {
	for i := len(s) - 1; i >= 0; i-- {
		if hasPrefix(s[i], "runtime.morestack", "runtime.newstack") {
			return s[i+1:]
		}
	}
	return s
}
