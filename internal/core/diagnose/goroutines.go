package diagnose

import "fmt"

// A goroutine storm: many goroutines wait, or many begin and end. The garbage collector must scan
// the stacks of waiting goroutines. The scheduler must handle new goroutines, and their stacks grow
// anew.
const (
	// A server has some goroutines for each connection and worker, hundreds in all. Each takes 2 to 8
	// kB, and some microseconds of each collection.
	manyUsual = 2_000
	manyBad   = 20_000

	// A goroutine takes a microsecond to begin and end. So 100,000 a second take a tenth of a
	// processor, plus the cost of their stacks.
	beginUsual = 10_000 // a second
	beginBad   = 100_000
)

// waitsOtherwise matches goroutines that are no storm, however many they are: they wait for a lock
// or a file, which are causes of their own, or for a connection, which is load.
func waitsOtherwise(s stack) bool {
	return isLock(s) || isFile(s) || s.has("internal/poll.runtime_pollWait")
}

func goroutines(m *moment) finding {
	now := m.Runtime["/sched/goroutines:goroutines"]
	total := max(now.Begin, now.End, m.goroutines.total())
	counted := m.goroutines.sum(func(s stack) bool { return !waitsOtherwise(s) })
	if now.End > now.Begin && m.goroutines.total() > 0 { // assume that new goroutines resemble the earlier ones
		counted *= max(1, now.End/m.goroutines.total())
	}
	begun := m.perSecond("/sched/goroutines-created:goroutines")

	f := finding{fine: fmt.Sprintf("goroutines: %s, of which %s do not wait for a lock, file or connection "+
		"(up to %s is usual); %s goroutines begin per second (up to %s is usual)",
		count(total), count(counted), count(manyUsual), count(begun), count(beginUsual))}
	f.Name = Goroutines
	f.Score = max(ramp(counted, manyUsual, manyBad), ramp(begun, beginUsual, beginBad))
	f.Title = fmt.Sprintf("A goroutine storm: there are %s goroutines, and %s begin each second",
		count(total), count(begun))
	f.Because = fmt.Sprintf("%s goroutines do not wait for a lock, file or connection (score 0 up to %s, 1 from %s), "+
		"and %s goroutines begin per second (%s to %s); the larger score counts",
		count(counted), count(manyUsual), count(manyBad), count(begun), count(beginUsual), count(beginBad))
	for _, g := range m.whichGoroutines() {
		f.Evidence = append(f.Evidence,
			Evidence{What: fmt.Sprintf("%s goroutines are in %s", count(g.value), short(g.name)), Stack: g.stack.shown()})
	}
	for _, g := range largest(m.trace.created.groups(stack.own), 2, m.trace.created.total()) {
		f.Evidence = append(f.Evidence,
			Evidence{
				What:  fmt.Sprintf("%s began %s goroutines per second", short(g.name), count(g.value/max(m.trace.seconds, 1e-3))),
				Stack: g.stack.shown(),
			})
	}
	f.Evidence = append(f.Evidence,
		Evidence{What: fmt.Sprintf("%s goroutines at the start of the record, %s at its end; their stacks take %s",
			count(now.Begin), count(now.End),
			bytesText(m.Runtime["/memory/classes/heap/stacks:bytes"].End))})
	f.Next = "The code that starts the goroutines needs a bound, such as internal/lib/pool: report it with this record. " +
		"A restart frees the memory."
	return f
}

// whichGoroutines returns the largest groups of goroutines. A group has the goroutines in one
// function of ours.
func (m *moment) whichGoroutines() []*group {
	groups := m.goroutines.groups(func(s stack) string {
		if waitsOtherwise(s) {
			return ""
		}
		return s.own()
	})
	return largest(groups, 3, m.goroutines.total())
}
