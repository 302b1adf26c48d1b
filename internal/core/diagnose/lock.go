package diagnose

import (
	"fmt"
	"math"

	"github.com/freshet-io/freshet/internal/core/record"
)

// A contended lock: goroutines wait for each other instead of working. The sum of their waits, in
// seconds per second, is the average number of waiting goroutines.
const (
	waitUsual = 0.3 // average number of waiting goroutines, from short waits
	waitBad   = 3   // several goroutines wait all the time

	// A few waiters in a single snapshot may be chance. If a snapshot has this many or more, half of
	// them count.
	manyStanding = 6

	// runtime.lock2 is the runtime's own lock. Its waiters spin, which takes processor time.
	runtimeUsual = 0.05
	runtimeBad   = 0.40
)

func lock(m *moment) finding {
	// Three sources: block.pprof has the waits that ended during the record, trace.out has the
	// waits of the seconds before, and goroutine.pprof has the goroutines that waited at the
	// record's start, perhaps for ever.
	waited := m.block.sum(isLock) / 1e9 / m.seconds
	before := 0.0
	if m.trace.seconds > 0 {
		before = m.trace.waits.total() / 1e9 / m.trace.seconds
	}
	standing := m.goroutines.sum(isLock)
	waiting := math.Max(waited, before)
	if standing >= manyStanding {
		waiting = math.Max(waiting, standing/2)
	}
	spinning := m.shareOf(func(s stack) bool { return s.has("runtime.lock2") })

	f := finding{fine: fmt.Sprintf("locks: on average %s goroutines wait for a lock (up to %.2g is usual); "+
		"locks inside Go's runtime take %s of the processor time", average(waiting), waitUsual, percent(spinning))}
	f.Name = Lock
	f.Score = ramp(waiting, waitUsual, waitBad)
	inside := ramp(spinning, runtimeUsual, runtimeBad) * m.active()
	if inside > f.Score {
		f.Score = inside
		f.Title = fmt.Sprintf("A lock inside Go's runtime: waiting for it takes %s of the used processor time",
			percent(spinning))
		f.Because = fmt.Sprintf("runtime.lock2 has %s of cpu.pprof: score 0 up to %s, 1 from %s, less if the process is idle",
			percent(spinning), percent(runtimeUsual), percent(runtimeBad))
		f.Evidence = m.runtimeLocks()
	} else {
		f.Because = fmt.Sprintf("on average %s goroutines wait for a lock (%s in block.pprof, %s in trace.out, "+
			"%.0f in goroutine.pprof at the start): score 0 up to %.2g, 1 from %.2g",
			average(waiting), average(waited), average(before), standing, waitUsual, float64(waitBad))
		f.Evidence = m.lockEvidence()
		f.Title = fmt.Sprintf("A contended lock: on average %s goroutines wait for a lock", average(waiting))
		if holder := m.holder(); holder != "" {
			f.Title += "; " + holder + " causes the most waiting"
		}
	}
	f.Next = "The holder must do less under the lock, or the lock must be split: report it with this record. " +
		"Until then, use fewer connections at a time (a sender's max_shards)."
	return f
}

// holder returns the function that held the lock for which goroutines waited most.
func (m *moment) holder() string {
	for _, p := range []profiled{m.trace.holders, m.mutex} {
		if all := p.groups(stack.own); len(all) > 0 && all[0].value > 0 {
			return short(all[0].name)
		}
	}
	return ""
}

// lockEvidence names waiters and holders.
func (m *moment) lockEvidence() (all []Evidence) {
	add := func(file, text string, p profiled, seconds float64) {
		if total := p.total(); seconds > 0 {
			for _, g := range largest(p.groups(stack.own), 2, total) {
				all = append(all,
					Evidence{
						What: fmt.Sprintf(text, short(g.name), percent(g.value/total), g.value/1e9/seconds, file), Stack: g.stack.shown(),
					})
			}
		}
	}
	waiters := profiled{}
	for _, s := range m.block {
		if isLock(s.stack) {
			waiters = append(waiters, s)
		}
	}
	add(record.Trace, "holder: %s released the lock at the end of %s of the waiting, %.2g s in each second (%s)",
		m.trace.holders, m.trace.seconds)
	add(record.Mutex, "holder: %s held the lock during %s of the waiting, %.2g s in each second (%s)",
		m.mutex, m.seconds)
	if len(waiters) > 0 {
		add(record.Block, "waiter: %s has %s of the waiting, %.2g s in each second (%s)", waiters, m.seconds)
	} else {
		add(record.Trace, "waiter: %s has %s of the waiting, %.2g s in each second (%s)", m.trace.waits, m.trace.seconds)
	}
	return all
}

// runtimeLocks names the waiters inside the runtime.
func (m *moment) runtimeLocks() (all []Evidence) {
	groups := m.cpu.groups(func(s stack) string {
		if !s.has("runtime.lock2") {
			return ""
		}
		return s.own()
	})
	for _, g := range largest(groups, 3, 0) {
		all = append(all,
			Evidence{
				What:  fmt.Sprintf("%s: %s of the processor time", short(g.name), percent(g.value/m.cpu.total())),
				Stack: g.stack.shown(),
			})
	}
	return all
}
