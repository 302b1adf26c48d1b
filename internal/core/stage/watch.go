package stage

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Budgets are how long each stage may take; 0 means no limit.
type Budgets [NumStages]time.Duration

// Watch adds up the trips of a process. It is safe for concurrent use, and its methods do not
// block. The methods of a nil *Watch do nothing.
type Watch struct {
	cells   [NumStages][NumInputs]cell
	samples [NumInputs][NumStages]atomic.Uint64 // by input first, so that a trip writes to neighbouring counters
	paces   [NumInputs]pace
	budgets atomic.Pointer[Budgets]
	over    atomic.Pointer[func(*Trip)]
	ended   atomic.Pointer[func(*Trip)]
}

// cell has the figures of one input's batches in one stage.
type cell struct {
	spent, age histogram
}

// pace chooses which requests of an input are timed: all while requests are few, otherwise one in
// timedEvery on average, because timing takes 1 % of a small request's time. It chooses at random,
// so that a sender's rhythm cannot hide requests.
type pace struct{ last atomic.Int64 } // Unix nanoseconds; end of the last request that was timed

const (
	timedEvery = 4
	few        = 100 * time.Millisecond // a request this long after the last timed one is always timed
)

func (p *pace) times(ended time.Time) bool {
	now := ended.UnixNano()
	if since := now - p.last.Load(); since >= 0 && since < int64(few) && rand.N(timedEvery) != 0 {
		return false
	}
	p.last.Store(now)
	return true
}

// NewWatch makes a Watch without budgets.
func NewWatch() *Watch {
	w := new(Watch)
	w.budgets.Store(new(Budgets))
	return w
}

// SetBudgets puts budgets in force.
func (w *Watch) SetBudgets(b Budgets) { w.budgets.Store(&b) }

// Budgets returns the budgets in force.
func (w *Watch) Budgets() Budgets { return *w.budgets.Load() }

// OnOver calls f with each ended trip that was over budget in a stage, on the goroutine that
// ends the trip: f must be quick. The trip no longer changes, and f may keep it.
func (w *Watch) OnOver(f func(*Trip)) { w.over.Store(&f) }

// OnEnd calls f with each trip that ends, on the goroutine that ends it: f must be quick, and
// must not keep the trip.
func (w *Watch) OnEnd(f func(*Trip)) { w.ended.Store(&f) }

// End counts a trip in all stages that it passed, and times it there. If there are very many
// requests, it times only some of them. Call it once, and do not use the trip for another batch.
func (w *Watch) End(t *Trip) {
	if w == nil {
		return
	}
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	budgets, over := w.budgets.Load(), false
	requests := t.Input == RemoteWrite || t.Input == OTLP
	timed := !requests || w.paces[t.Input].times(t.Born.Add(t.Took()))
	for s := range t.spans {
		span := &t.spans[s]
		if span.elsewhere {
			w.samples[t.Input][s].Add(uint64(t.Samples))
		}
		if !span.passed {
			continue
		}
		spent := span.left - span.entered
		if timed {
			c := &w.cells[s][t.Input]
			c.spent.observe(spent)
			if Stage(s) != Visible { // for Visible, the age equals the time spent
				c.age.observe(span.entered)
			}
		}
		w.samples[t.Input][s].Add(uint64(t.Samples))
		over = over || budgets[s] > 0 && spent > budgets[s]
	}
	if f := w.ended.Load(); f != nil {
		(*f)(t)
	}
	if f := w.over.Load(); over && f != nil {
		(*f)(t)
	}
}

// Over returns the first stage in which a trip was over its budget, and how long it stayed.
func (b *Budgets) Over(t *Trip) (s Stage, spent time.Duration, over bool) {
	for s := range t.spans {
		if span := &t.spans[s]; span.passed && b[s] > 0 && span.left-span.entered > b[s] {
			return Stage(s), span.left - span.entered, true
		}
	}
	return 0, 0, false
}

// Count adds samples of a stage in which only some batches have a trip. These trips carry no
// samples, so that no sample counts twice.
func (w *Watch) Count(s Stage, i Input, samples uint64) {
	if w != nil {
		w.samples[i][s].Add(samples)
	}
}

// Stats are the figures of one input in one stage.
type Stats struct {
	Stage   Stage
	Input   Input
	Spent   Histogram // of timed batches
	Age     Histogram // on entry; empty for Visible, where it equals Spent
	Samples uint64
}

// Stats returns the figures of each stage that a batch has passed.
func (w *Watch) Stats() (all []Stats) {
	for s := range w.cells {
		for i := range w.cells[s] {
			c := &w.cells[s][i]
			stats := Stats{Stage(s), Input(i), c.spent.read(), c.age.read(), w.samples[i][s].Load()}
			if stats.Spent.Count > 0 || stats.Samples > 0 {
				all = append(all, stats)
			}
		}
	}
	return all
}

// An Exemplar is a trip that a person can look up by its trace.
type Exemplar struct {
	Trace string // its number, in hexadecimal
	Spent time.Duration
	At    time.Time
}

// Exemplify makes an ended trip the exemplar of its buckets. The trip must be kept as a trace.
func (w *Watch) Exemplify(t *Trip, trace string) {
	for s := range t.spans {
		if span := &t.spans[s]; span.passed {
			w.cells[s][t.Input].spent.exemplar.Store(&Exemplar{
				Trace: trace, Spent: span.left - span.entered, At: t.Born.Add(span.left),
			})
		}
	}
}
