package diagnose

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"golang.org/x/exp/trace"
)

// maxEvents bounds the events that are read from a trace. The trace of a busy server has a million
// events in 8 MB.
const maxEvents = 8_000_000

// traced is the content of an execution trace. The zero value is empty.
type traced struct {
	seconds  float64
	syscalls profiled // time in system calls, by caller
	waits    profiled // time of waiting for locks, by waiter
	holders  profiled // the same time, by the goroutine that ended the wait
	created  profiled // goroutines that began, by creator
	runnable float64  // seconds that goroutines waited for a processor, in total
	longest  float64  // the longest of these waits, in seconds
}

// readTrace decodes an execution trace. It fails if the trace is damaged.
func readTrace(text []byte) (traced, error) {
	r, err := trace.NewReader(bytes.NewReader(text))
	if err != nil {
		return traced{}, err
	}
	t := tracing{goroutines: map[trace.GoID]goroutine{}, places: map[trace.Stack]*place{}, same: map[string]*place{}}
	for range maxEvents {
		event, err := r.ReadEvent()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return traced{}, err
		}
		t.see(&event)
	}
	t.end()
	all := traced{seconds: float64(t.last-t.first) / 1e9, runnable: t.runnable / 1e9, longest: t.longest / 1e9}
	for _, key := range slices.Sorted(maps.Keys(t.same)) {
		p := t.same[key]
		p.syscalls.addTo(&all.syscalls, p.stack)
		p.waits.addTo(&all.waits, p.stack)
		p.holds.addTo(&all.holders, p.stack)
		p.creates.addTo(&all.created, p.stack)
	}
	return all, nil
}

// tracing is the state while a trace is read.
type tracing struct {
	first, last       trace.Time
	goroutines        map[trace.GoID]goroutine
	places            map[trace.Stack]*place // by the stack's number in this generation of the trace
	same              map[string]*place      // places of all generations, by the functions of the stack
	runnable, longest float64                // nanoseconds
}

// place is a stack, and what happened there.
type place struct {
	stack                           stack
	lock                            bool // the stack waits for a lock
	syscalls, waits, holds, creates tally
}

// tally has how often something happened, and how many nanoseconds it took.
type tally struct{ count, value float64 }

func (t *tally) add(value float64) {
	t.count++
	t.value += value
}

func (t tally) addTo(p *profiled, s stack) {
	if t.count > 0 {
		*p = append(*p, sampled{stack: s, count: t.count, value: t.value})
	}
}

// goroutine has a goroutine's present state, and when this state began.
type goroutine struct {
	state trace.GoState
	since trace.Time
	place *place // where the goroutine waits or makes a system call; else nil
}

func (t *tracing) see(e *trace.Event) {
	if t.first == 0 {
		t.first = e.Time()
	}
	t.last = max(t.last, e.Time())
	if e.Kind() != trace.EventStateTransition {
		return
	}
	s := e.StateTransition()
	if s.Resource.Kind != trace.ResourceGoroutine {
		return
	}
	id := s.Resource.Goroutine()
	from, to := s.Goroutine()
	if from == to { // a new generation of the trace repeats the state of all goroutines
		return
	}
	g, known := t.goroutines[id]
	spent := float64(e.Time() - t.first)
	if known {
		spent = float64(e.Time() - g.since)
	}
	switch from {
	case trace.GoNotExist:
		t.placeOf(e.Stack()).creates.add(1)
	case trace.GoRunnable:
		t.runnable += spent
		t.longest = max(t.longest, spent)
	case trace.GoSyscall:
		if g.place != nil {
			g.place.syscalls.add(spent)
		}
	case trace.GoWaiting:
		if g.place != nil && g.place.lock {
			g.place.waits.add(spent)
			t.placeOf(e.Stack()).holds.add(spent) // the goroutine that ends the wait held the lock
		}
	}
	next := goroutine{state: to, since: e.Time()}
	switch to {
	case trace.GoSyscall, trace.GoWaiting:
		next.place = t.placeOf(s.Stack)
	case trace.GoNotExist:
		delete(t.goroutines, id)
		return
	}
	t.goroutines[id] = next
}

// end counts the waits and system calls that last until the trace ends.
func (t *tracing) end() {
	for _, g := range t.goroutines {
		spent := float64(t.last - g.since)
		switch {
		case g.state == trace.GoRunnable:
			t.runnable += spent
			t.longest = max(t.longest, spent)
		case g.state == trace.GoSyscall && g.place != nil:
			g.place.syscalls.add(spent)
		case g.state == trace.GoWaiting && g.place != nil && g.place.lock:
			g.place.waits.add(spent)
		}
	}
}

// placeOf returns the place of a stack. It remembers places, since most stacks come many times.
func (t *tracing) placeOf(s trace.Stack) *place {
	if known := t.places[s]; known != nil {
		return known
	}
	var names stack
	for f := range s.Frames() {
		if len(names) == maxStack {
			break
		}
		names = append(names, f.Func)
	}
	key := strings.Join(names, "\n")
	p := t.same[key]
	if p == nil {
		p = &place{stack: names, lock: isLock(names)}
		t.same[key] = p
	}
	t.places[s] = p
	return p
}
