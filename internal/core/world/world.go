// Package world is the world of a simulation: one thread, a virtual clock, and faults. Processes live in
// it, send messages to each other and write to disks in memory. A seed decides everything, so a seed
// repeats its run. Only tests import it.
package world

import (
	"container/heap"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
)

// Units of virtual time.
const (
	Millisecond = int64(1)
	Second      = 1000 * Millisecond
)

// World is one run.
type World struct {
	Rand   *rand.Rand
	Now    int64 // milliseconds since the beginning
	Story  strings.Builder
	Failed error // why the run has ended early

	order  int64
	events events
	digest uint64
	cut    map[[2]int]bool // cut links, from the first node to the second
}

// New returns the world of a seed.
func New(seed uint64) *World {
	return &World{Rand: rand.New(rand.NewPCG(seed, 19)), cut: map[[2]int]bool{}}
}

// Process is the process on a node. A node embeds it.
type Process struct {
	Up          bool
	Life        int // a crash ends a life, and all events of that life
	PausedUntil int64
}

// Stop ends a process.
func (p *Process) Stop() {
	p.Up = false
	p.Life++
	p.PausedUntil = 0
}

// event is something that happens at a given time. Events with the same time happen in the order in
// which they were added.
type event struct {
	at, order int64
	process   *Process // if not nil, the event happens only in this life of the process, and after any pause
	life      int
	do        func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}

// At plans an event. If p is not nil, the event happens only if the process p still lives then, and never
// during a pause of p.
func (w *World) At(after int64, p *Process, do func()) {
	w.order++
	e := event{at: w.Now + after, order: w.order, process: p, do: do}
	if p != nil {
		e.life = p.Life
	}
	heap.Push(&w.events, e)
}

// Run carries out the events up to a time, or until the run fails.
func (w *World) Run(until int64) {
	for w.Failed == nil && len(w.events) > 0 {
		if w.events[0].at > until {
			break
		}
		e := heap.Pop(&w.events).(event)
		w.Now = e.at
		switch p := e.process; {
		case p == nil:
		case !p.Up || p.Life != e.life:
			continue
		case w.Now < p.PausedUntil:
			e.at = p.PausedUntil // events keep their order
			heap.Push(&w.events, e)
			continue
		}
		e.do()
	}
}

// Tell adds a line to the story of the run.
func (w *World) Tell(format string, args ...any) {
	fmt.Fprintf(&w.Story, "%7.2f  ", float64(w.Now)/1000)
	fmt.Fprintf(&w.Story, format, args...)
	w.Story.WriteByte('\n')
}

// Fail ends the run.
func (w *World) Fail(format string, args ...any) {
	if w.Failed == nil {
		w.Failed = fmt.Errorf(format, args...)
		w.Tell("BROKEN: %v", w.Failed)
	}
}

// Note adds bytes to the digest of the run. Two runs of one seed must note the same bytes.
func (w *World) Note(b []byte) {
	h := fnv.New64a()
	_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, w.digest))
	_, _ = h.Write(b)
	w.digest = h.Sum64()
}

// Digest returns the digest of everything noted.
func (w *World) Digest() uint64 { return w.digest }

// Between returns a random number in [from, to).
func (w *World) Between(from, to int64) int64 { return from + w.Rand.Int64N(to-from) }

// Chance returns true in a percentage of calls.
func (w *World) Chance(percent float64) bool { return w.Rand.Float64()*100 < percent }
