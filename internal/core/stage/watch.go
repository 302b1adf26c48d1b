package stage

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Budgets are what each stage may take; 0 for any time.
type Budgets [NumStages]time.Duration

// Watch adds up the trips of a process. It may be used by many at once, none of whom
// waits. A nil *Watch watches nothing.
type Watch struct {
	cells   [NumStages][NumInputs]cell
	samples [NumInputs][NumStages]atomic.Uint64 // side by side, as a trip counts them
	paces   [NumInputs]pace
	budgets atomic.Pointer[Budgets]
	over    atomic.Pointer[func(*Trip)]
	ended   atomic.Pointer[func(*Trip)]
}

// cell is what is known of the batches of one input in one stage.
type cell struct {
	spent, age histogram
}

// pace chooses the requests of an input that are timed. All are while they are few; of
// many, one in timedEvery on average, since to time them all takes 1 % of what small
// requests take. Chance chooses: what comes in a rhythm must not be left out by one.
type pace struct{ last atomic.Int64 } // Unix nanoseconds, when the last that was timed had ended

const (
	timedEvery = 4
	few        = 100 * time.Millisecond // from one to the next
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

// Budgets are those in force.
func (w *Watch) Budgets() Budgets { return *w.budgets.Load() }

// OnOver has f called with each trip that ends and was over budget in a stage, by whoever
// ends it: f must be quick. The trip does not change any more, and may be kept.
func (w *Watch) OnOver(f func(*Trip)) { w.over.Store(&f) }

// OnEnd has f called with each trip that ends, by whoever ends it: f must be quick, and not
// keep the trip.
func (w *Watch) OnEnd(f func(*Trip)) { w.ended.Store(&f) }

// End counts a trip in all stages that it passed, and times it, unless it is a request and
// there are many of them at the time. It must be called once, and the trip not be used for
// another batch afterwards.
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
		if !span.passed {
			continue
		}
		spent := span.left - span.entered
		if timed {
			c := &w.cells[s][t.Input]
			c.spent.observe(spent)
			if Stage(s) != Visible { // whose age is the same
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

// Over is the first stage in which a trip was over its budget, and how long it was there.
func (b *Budgets) Over(t *Trip) (s Stage, spent time.Duration, over bool) {
	for s := range t.spans {
		if span := &t.spans[s]; span.passed && b[s] > 0 && span.left-span.entered > b[s] {
			return Stage(s), span.left - span.entered, true
		}
	}
	return 0, 0, false
}

// Count adds samples of a stage whose trips are not all watched, and then have none.
func (w *Watch) Count(s Stage, i Input, samples uint64) {
	if w != nil {
		w.samples[i][s].Add(samples)
	}
}

// Stats is what a Watch knows of one input in one stage.
type Stats struct {
	Stage   Stage
	Input   Input
	Spent   Histogram // by batch that was timed
	Age     Histogram // on entry; empty for Visible, whose age is what it spent
	Samples uint64
}

// Stats are those of the stages through which anything came.
func (w *Watch) Stats() (all []Stats) {
	for s := range w.cells {
		for i := range w.cells[s] {
			c := &w.cells[s][i]
			if stats := (Stats{Stage(s), Input(i), c.spent.read(), c.age.read(), w.samples[i][s].Load()}); stats.Spent.Count > 0 {
				all = append(all, stats)
			}
		}
	}
	return all
}

// An Exemplar is a trip that can be looked at.
type Exemplar struct {
	Trace string // its number, in hexadecimal
	Spent time.Duration
	At    time.Time
}

// Exemplify makes a trip that has ended, and is kept as a trace, the exemplar of the
// buckets that it is in.
func (w *Watch) Exemplify(t *Trip, trace string) {
	for s := range t.spans {
		if span := &t.spans[s]; span.passed {
			w.cells[s][t.Input].spent.exemplar.Store(&Exemplar{Trace: trace, Spent: span.left - span.entered, At: t.Born.Add(span.left)})
		}
	}
}
