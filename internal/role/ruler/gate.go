package ruler

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/prometheus/rules"

	"github.com/freshet-io/freshet/internal/core/rulestate"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/watermark"
)

// gate makes the evaluations of groups wait for the watermark. Each group is evaluated at every multiple
// of its interval, its slots, in order: those that it missed while it waited run afterwards. Prometheus'
// loop drops ticks while an evaluation waits, so the gate keeps the list of slots itself.
type gate struct {
	hooks

	mu        sync.Mutex
	interrupt chan struct{} // closed while waits must end
	groups    map[string]*progress
}

// hooks are what a gate needs of others.
type hooks struct {
	marks  func() watermark.Marks
	resend func(*rules.Group)            // sends the firing alerts of a group again
	skip   func(slots int)               // counts slots that are never evaluated
	keep   func(*rules.Group, time.Time) // keeps the state of a group after the evaluation of a slot
	forget func(rulestate.Key)           // forgets the state of a group that is gone
}

func newGate(h hooks) *gate {
	return &gate{hooks: h, interrupt: make(chan struct{}), groups: map[string]*progress{}}
}

// progress is how far a group is.
type progress struct {
	file, name string
	interval   time.Duration
	last       time.Time // the last slot that was evaluated
	waiting    time.Time // since when the group waits; zero if it does not
	slot       time.Time // the slot that waits
	stale      time.Time // since when the group is stale; zero if it is not

	// doubted is the group in the evaluation of the slot doubtful, during which rules began to change; nil if
	// there was none. If the group is among the changed ones, it may have left out rules.
	doubted  *rules.Group
	doubtful time.Time

	// sent is when the alerts of the group were last sent by an earlier process; zero once a wait or an
	// evaluation has looked at it.
	sent time.Time

	// unrestored is how many evaluations follow until the alerts get their times from ALERTS_FOR_STATE;
	// 0 if they do not. Before, alerts on recordings of the group may be missing.
	unrestored int
}

const (
	// catchUp and mostSlots bound the slots that are evaluated late. Results that are older help
	// nobody, and a group that is evaluated each second has many.
	catchUp   = 15 * time.Minute
	mostSlots = 600

	// setBack is how far the last slot may be ahead of the clock, besides an interval: the clock of the last leader
	// may have been fast. If it is further ahead, the clock was set back, and the group goes on at once.
	setBack = time.Minute

	// poll is how often a waiting group looks at the watermark.
	poll = 200 * time.Millisecond

	// staleAfter is how far the watermark may be behind, besides two intervals, before a group that
	// waits for it is stale.
	staleAfter = 30 * time.Second

	// restoredAfter is how many evaluations a group without a state has before its alerts are restored. In
	// the first, recordings that other groups make may be missing.
	restoredAfter = 2
)

// begin sets how far a new group is. `saved` is its state from an earlier process, or nil if there is none.
func (g *gate) begin(group *rules.Group, saved *rulestate.Group) {
	p := g.progressOf(group)
	if saved == nil {
		p.unrestored = restoredAfter
		for rule := range identified(group) {
			rule.SetRestored(false) // it writes no ALERTS_FOR_STATE
		}
		return
	}
	if saved.Interval == p.interval {
		p.last = saved.Slot
	}
	p.sent = saved.LastSent()
}

// enter keeps where a group begins that is new, before its first evaluation. A process that dies between this
// evaluation and the save of its state would otherwise leave a group that begins anew.
func (g *gate) enter(group *rules.Group, now time.Time) (entered bool) {
	p := g.progressOf(group)
	slot := aligned(group.EvalTimestamp(now.UnixNano()), group.Interval())
	g.mu.Lock()
	entered = p.last.IsZero() && p.unrestored == 0
	if entered {
		p.last = slot
	}
	g.mu.Unlock()
	if entered {
		g.keep(group, slot)
	}
	return entered
}

// iterate implements rules.GroupEvalIterationFunc.
func (g *gate) iterate(ctx context.Context, group *rules.Group, at time.Time) {
	at = aligned(at, group.Interval())
	p := g.progressOf(group)
	for slot := g.next(p, at); !slot.After(at); slot = slot.Add(group.Interval()) {
		if !g.wait(group, p, slot) {
			return
		}
		rules.DefaultEvalIterationFunc(ctx, group, slot)
		if !g.evaluated(group, p, slot) {
			return
		}
		if g.restored(p, group, slot) {
			g.keep(group, slot)
		}
	}
	g.caughtUp(p, at)
}

// restored reports whether the alerts of a group go on from those of an earlier process. If there is no
// state of them, it restores their times after some evaluations.
func (g *gate) restored(p *progress, group *rules.Group, slot time.Time) bool {
	if p.unrestored > 0 {
		p.unrestored--
		if p.unrestored == 0 {
			group.RestoreForState(slot)
		}
	}
	return p.unrestored == 0
}

// aligned returns the slot of a time. If the interval allows, slots are the ends of tiles. Between them,
// queries see part of an open tile, which is gone once the slot is evaluated late.
func aligned(at time.Time, interval time.Duration) time.Time {
	width := time.Duration(tile.Width10s.Millis()) * time.Millisecond
	if interval%width != 0 {
		return at
	}
	return at.Truncate(width)
}

func (g *gate) progressOf(group *rules.Group) *progress {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := rules.GroupKey(group.File(), group.Name())
	p := g.groups[key]
	if p == nil || p.interval != group.Interval() {
		p = &progress{file: group.File(), name: group.Name(), interval: group.Interval()}
		g.groups[key] = p
	}
	return p
}

// next returns the first slot that is not evaluated yet, and counts those that are too old.
func (g *gate) next(p *progress, at time.Time) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.last.IsZero() || p.last.Sub(at) > max(p.interval, setBack) {
		return at
	}
	next := p.last.Add(p.interval)
	most := min(catchUp, mostSlots*p.interval)
	if behind := at.Sub(next); behind > most {
		skipped := (behind - most + p.interval - 1) / p.interval
		next = next.Add(skipped * p.interval)
		g.skip(int(skipped))
	}
	return next
}

// wait waits until the data of a slot are complete. It reports whether the slot may be evaluated: not if
// the wait was interrupted.
func (g *gate) wait(group *rules.Group, p *progress, slot time.Time) bool {
	g.mu.Lock()
	interrupt := g.interrupt
	g.mu.Unlock()
	needed := slot.Add(-group.QueryOffset()).UnixMilli()
	alerting := group.HasAlertingRules()
	sent := time.Now()
	if !p.sent.IsZero() {
		sent, p.sent = p.sent, time.Time{}
	}
	for {
		select {
		case <-interrupt:
			return false
		default:
		}
		mark := g.markFor(alerting)
		if mark >= needed {
			return true
		}
		now := time.Now()
		g.waits(p, slot, now, time.UnixMilli(mark))
		if now.Sub(sent) >= resendDelay {
			sent = now
			g.resend(group)
		}
		timer := time.NewTimer(poll)
		select {
		case <-interrupt:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// markFor returns the watermark that a group waits for. A recording should be complete. An alert is in
// time: it waits only for what is late.
func (g *gate) markFor(alerting bool) int64 {
	m := g.marks()
	if alerting {
		return m.InTime
	}
	return m.Complete
}

// waits notes that a group waits.
func (g *gate) waits(p *progress, slot, now, mark time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p.slot = slot
	if p.waiting.IsZero() {
		p.waiting = now
	}
	if p.stale.IsZero() && now.Sub(mark) > 2*p.interval+staleAfter {
		p.stale = now
	}
}

// caughtUp notes that all slots up to `at` are evaluated. If that is the present, the group waits no
// longer. Otherwise slots have passed meanwhile, and the group still catches up.
func (g *gate) caughtUp(p *progress, at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(at) < 2*p.interval+poll {
		p.waiting, p.slot, p.stale = time.Time{}, time.Time{}, time.Time{}
	}
}

// evaluated notes that a slot was evaluated. It reports whether to go on. A group that is being stopped
// may have left out rules, so its slot is evaluated again.
func (g *gate) evaluated(group *rules.Group, p *progress, slot time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.interrupt:
		p.doubted, p.doubtful = group, slot
		return false
	default:
		p.last = slot
		return true
	}
}

// halt ends all waits, until resume. Prometheus' manager waits for evaluations under way before it
// changes or stops groups.
func (g *gate) halt() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.interrupt: // halted before
	default:
		close(g.interrupt)
	}
}

// resume lets groups wait again. Groups that are not in `all` are forgotten. A group that was evaluated
// meanwhile, and has not changed, has left out no rules.
func (g *gate) resume(all []*rules.Group) {
	known := map[string]*rules.Group{}
	for _, group := range all {
		known[rules.GroupKey(group.File(), group.Name())] = group
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.interrupt = make(chan struct{})
	for key, p := range g.groups {
		if p.doubted != nil && p.doubted == known[key] {
			p.last = p.doubtful
		}
		p.doubted = nil
		if known[key] == nil {
			g.forget(rulestate.Key{File: p.file, Name: p.name})
			delete(g.groups, key)
		}
	}
}

// waitingGroups returns a copy of the progress of the groups that wait.
func (g *gate) waitingGroups() (all []progress) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.groups {
		if !p.waiting.IsZero() {
			all = append(all, *p)
		}
	}
	return all
}
