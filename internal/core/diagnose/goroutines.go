package diagnose

import "fmt"

// A goroutine storm: many that wait, each with a stack that the collector looks through, or
// many that begin and end, each of which the scheduler handles and whose stack grows anew.
const (
	// A server has some for each connection and worker: hundreds. Each takes 2 to 8 kB and
	// some microseconds of each collection.
	manyUsual = 2_000
	manyBad   = 20_000

	// To begin and end one takes a microsecond: 100,000 a second a tenth of a processor,
	// besides what their stacks cost.
	beginUsual = 10_000 // a second
	beginBad   = 100_000
)

// waitsOtherwise are goroutines that are many for another reason: they wait for a lock or a
// file, which are causes by themselves, or for a connection, which is the load.
func waitsOtherwise(s stack) bool {
	return isLock(s) || isFile(s) || s.has("internal/poll.runtime_pollWait")
}

func goroutines(m *moment) finding {
	now := m.Runtime["/sched/goroutines:goroutines"]
	total := max(now.Begin, now.End, m.goroutines.total())
	counted := m.goroutines.sum(func(s stack) bool { return !waitsOtherwise(s) })
	if now.End > now.Begin && m.goroutines.total() > 0 { // what came since is like what was there
		counted *= max(1, now.End/m.goroutines.total())
	}
	begun := m.perSecond("/sched/goroutines-created:goroutines")

	f := finding{fine: fmt.Sprintf("goroutines: %s, of which %s wait for no lock, file or connection; up to %s is usual. %s begin a second; up to %s is usual",
		count(total), count(counted), count(manyUsual), count(begun), count(beginUsual))}
	f.Name = Goroutines
	f.Score = max(ramp(counted, manyUsual, manyBad), ramp(begun, beginUsual, beginBad))
	f.Title = fmt.Sprintf("A goroutine storm: there are %s, and %s more begin each second", count(total), count(begun))
	f.Because = fmt.Sprintf("%s goroutines that wait for no lock, file or connection (nothing below %s, all from %s on), or %s that begin a second (from %s to %s); the larger counts",
		count(counted), count(manyUsual), count(manyBad), count(begun), count(beginUsual), count(beginBad))
	for _, g := range m.whichGoroutines() {
		f.Evidence = append(f.Evidence, Evidence{What: fmt.Sprintf("%s of them are in %s", count(g.value), short(g.name)), Stack: g.stack.shown()})
	}
	for _, g := range largest(m.trace.created.groups(stack.own), 2, m.trace.created.total()) {
		f.Evidence = append(f.Evidence, Evidence{What: fmt.Sprintf("%s began %s a second", short(g.name), count(g.value/max(m.trace.seconds, 1e-3))), Stack: g.stack.shown()})
	}
	f.Evidence = append(f.Evidence, Evidence{What: fmt.Sprintf("%s at the begin of the record, %s at its end; their stacks have %s", count(now.Begin), count(now.End),
		bytesText(m.Runtime["/memory/classes/heap/stacks:bytes"].End))})
	f.Next = "Whoever begins them needs a bound, as internal/lib/pool has one: report it with this record. A restart gives the memory back."
	return f
}

// whichGoroutines are the largest groups, by the function of ours that they are in.
func (m *moment) whichGoroutines() []*group {
	groups := m.goroutines.groups(func(s stack) string {
		if waitsOtherwise(s) {
			return ""
		}
		return s.own()
	})
	return largest(groups, 3, m.goroutines.total())
}
