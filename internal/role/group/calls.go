package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/imports"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/ruleset"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/write"
)

// ErrEnded means that the member has ended. The call may count or not.
var ErrEnded = errors.New("this member of the group has ended")

// push is a window on its way to Run.
type push struct {
	ctx    context.Context // of the caller, who waits for the answer
	bytes  []byte          // see entry.AppendPush
	trip   *stage.Trip
	answer chan member.Answer
}

// call is any question for the member except a push.
type call struct {
	ctx      context.Context // of the caller
	timed    bool            // it waits until the clock is believed
	gathers  int             // bytes of its entry, which may wait for others: see gathering; 0 for none
	ask      func(member.ID)
	requests string // queue of requests that a store must take before the answer comes: see write.QueueOf; empty for none
	results  string // another such queue, of a barrier
	tiles    string // tenant whose stores must take tiles before the answer comes; empty for none
	answer   chan member.Answer
	begun    time.Time // start of the try that stored the request; set before the answer
	refused  bool      // the member was not asked; set before the answer

	handed, answered bool // only the caller uses these: Run has the call; the answer has come
}

// waiting is a caller that waits for an answer. It has either a push or a call.
type waiting struct {
	answer   chan member.Answer
	push     *push
	call     *call
	answered bool // answered by fail or tellFailure, but not yet by the member
}

// proposes reports whether the caller waits until something that it proposed is applied.
func (w *waiting) proposes() bool { return w.push != nil || w.call.timed }

// Push proposes the batches of one window, and waits until they count: see package batch.
func (g *Group) Push(ctx context.Context, batches []batch.Batch) error {
	if len(batches) == 0 {
		return nil
	}
	bytes, err := member.PushOf(batches)
	if err != nil {
		return err
	}
	return g.PushBytes(ctx, bytes)
}

// PushBytes is Push for a push in the form of entry.AppendPush, which member.CheckPush has checked. The
// bytes must not change afterwards.
func (g *Group) PushBytes(ctx context.Context, bytes []byte) error {
	p := &push{ctx: ctx, bytes: bytes, trip: stage.FromContext(ctx), answer: make(chan member.Answer, 1)}
	p.trip.Pass(stage.Forward, stage.Journal, g.Now())
	select {
	case g.pushes <- p:
	case <-g.ended:
		return ErrEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case a := <-p.answer:
		return g.result(p, a.Err)
	case <-g.ended:
	case <-ctx.Done():
		// The caller should get the answer if it comes soon, as it usually does.
		select {
		case a := <-p.answer:
			return g.result(p, a.Err)
		case <-g.ended:
		case <-time.After(grace):
			return fmt.Errorf("wait until the log of the group has the window: %w", context.Cause(ctx))
		}
	}
	select {
	case a := <-p.answer:
		return g.result(p, a.Err)
	default:
		return ErrEnded
	}
}

// grace is how long a push waits for its answer after its caller has given up. If no answer comes in
// that time, the window may still count later. If the window is pushed again, the second push is then a
// repeat.
const grace = time.Second

// maxPushed bounds the bytes of the pushes that the member has not answered, whether their callers still
// wait or not. Beyond it, Run takes no push, and the callers wait until there is room or until they give
// up. So pushes that come again while the disk hangs do not pile up.
const maxPushed = 16 << 20

// push hands the held push to the member. If its caller could not wait any longer, the window may lie
// ahead of the open tiles: its samples then count in the last open tile, which is better than losing them.
func (g *Group) push() {
	p := g.held
	g.held = nil
	if err := g.sickness(true); err != nil { // otherwise pushes that come again would pile up
		p.answer <- member.Answer{Err: err}
		return
	}
	g.id++
	g.waiting[g.id] = waiting{answer: p.answer, push: p}
	g.pushed += int64(len(p.bytes))
	g.node.Push(g.now, g.id, p.bytes)
}

// result counts the refused samples of a push, and returns its error.
func (g *Group) result(p *push, err error) error {
	seen := g.Now()
	if full := (*batch.FullError)(nil); errors.As(err, &full) {
		for tenant, n := range full.Samples {
			g.metrics.PendingRefused.WithLabelValues(tenant).Add(float64(n))
		}
	} else if err != nil {
		return err
	}
	p.trip.Pass(stage.Journal, stage.Tile, seen)
	p.trip.Leave(stage.Tile, seen)
	p.trip.Seen(seen)
	return err
}

// Write proposes an entry of a request, of deltas, of events, of a rule set or of an import, waits until it is
// applied, and returns its outcome. The end of ctx ends only the wait. The error is member.ErrLost or ErrUnknown if the
// entry may count nevertheless, and one of ruleset.Kept or imports.Kept for an entry that changes nothing. Write takes
// what the entry offers.
func (g *Group) Write(ctx context.Context, e *entry.Entry) (*outcome.Outcome, error) {
	switch e.Kind {
	case entry.KindRequest, entry.KindDeltas, entry.KindRuleSet, entry.KindImport:
	case entry.KindEvents:
		if err := member.CheckEvents(&e.Events); err != nil {
			return nil, fmt.Errorf("propose events: %w", err)
		}
		e.Events.MaxEvents, e.Events.Retention = g.KeptEvents()
	default:
		return nil, fmt.Errorf("propose an entry of kind %d: only requests, deltas, events, rule sets and imports can be "+
			"proposed", e.Kind)
	}
	if !e.Request.Offer.Take() {
		e.Request.Offer = nil
	}
	c := &call{ctx: ctx, timed: true, gathers: len(e.Request.Body), ask: func(id member.ID) { g.node.Write(g.now, id, e) }}
	waits := stage.Journal
	if e.Kind == entry.KindRequest {
		c.requests, waits = write.QueueOf(e.Request.Tenant, e.Request.Results), stage.Queue
	}
	trip := stage.FromContext(ctx)
	trip.Pass(stage.Distribute, waits, g.Now())
	a, err := g.ask(c)
	switch {
	case err == nil:
		c.seen(trip, waits, g.Now())
	case c.mayCount(err):
		err = fmt.Errorf("%w: %w", member.ErrUnknown, err)
	}
	return a.Outcome, err
}

// mayCount reports whether the entry of a call may count although the call ended with err. The member's
// own errors already say whether it may count.
func (c *call) mayCount(err error) bool {
	if !c.handed || c.answered && c.refused {
		return false
	}
	for _, said := range []error{replica.ErrNotLeader, member.ErrLost, member.ErrFull, member.ErrMoved, member.ErrOlder,
		ruleset.ErrNoGroup, ruleset.ErrNoNamespace, ruleset.ErrMistakes,
		imports.ErrKnown, imports.ErrGivenUp, imports.ErrTooMany} {
		if errors.Is(err, said) {
			return false
		}
	}
	return true
}

// seen notes the stages that a request or deltas have passed. A request is in the queue until the try in
// which its store takes it.
func (c *call) seen(trip *stage.Trip, waits stage.Stage, now time.Time) {
	switch {
	case waits == stage.Journal:
		trip.Pass(stage.Journal, stage.Tile, now)
		trip.Leave(stage.Tile, now)
	case c.begun.IsZero(): // no store had to take the request
		trip.Leave(waits, now)
		return
	default:
		trip.Pass(stage.Queue, stage.Append, c.begun)
		trip.Leave(stage.Append, now)
	}
	trip.Seen(now)
}

// Barrier waits until the open tiles and the stores of a tenant have everything that was acknowledged
// before the call.
func (g *Group) Barrier(ctx context.Context, tenant string) error {
	_, err := g.ask(&call{
		ctx: ctx, ask: func(id member.ID) { g.node.Barrier(id, tenant) }, requests: tenant,
		results: write.QueueOf(tenant, true), tiles: tenant,
	})
	return err
}

// leaderTime is how long a query waits for a leader.
const leaderTime = 3 * time.Second

// Current is Barrier for a query: it waits at most leaderTime. A whole member has nothing to wait for. The
// error says since when samples may be missing.
func (g *Group) Current(ctx context.Context, tenant string) error {
	if g.Status().Whole {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaderTime)
	defer cancel()
	return g.missing("samples", g.Barrier(ctx, tenant))
}

// CurrentEvents is Current for the event log.
func (g *Group) CurrentEvents(ctx context.Context, tenant string) error {
	ctx, cancel := context.WithTimeout(ctx, leaderTime)
	defer cancel()
	_, err := g.ask(&call{ctx: ctx, ask: func(id member.ID) { g.node.EventsBarrier(id, tenant) }})
	return g.missing("events", err)
}

// missing adds a time to the error of a query's barrier: after that time, something may be missing in
// the answer.
func (g *Group) missing(what string, err error) error {
	if err == nil {
		return nil
	}
	s := g.Status()
	since := g.Now().Add(-s.Lag).UTC().Format(time.RFC3339)
	if s.Leader == "" {
		return fmt.Errorf("%s after %s may be missing, since the group has no leader: fewer than half of its nodes "+
			"reach each other (%w); partial_response=true answers without these %[1]s", what, since, err)
	}
	return fmt.Errorf("%s after %s may be missing, since this node lags behind node %s (%w); ask that node, or "+
		"partial_response=true answers without these %[1]s", what, since, s.Leader, err)
}

func (g *Group) ask(c *call) (member.Answer, error) {
	c.answer = make(chan member.Answer, 1)
	select {
	case g.calls <- c:
		c.handed = true
	case <-g.ended:
		return member.Answer{}, ErrEnded
	case <-c.ctx.Done():
		return member.Answer{}, context.Cause(c.ctx)
	}
	select {
	case a := <-c.answer:
		c.answered = true
		return a, a.Err
	case <-g.ended:
		return member.Answer{}, ErrEnded
	case <-c.ctx.Done():
		return member.Answer{}, context.Cause(c.ctx)
	}
}

func (g *Group) call(c *call) {
	if c.timed && !g.look() {
		g.early = append(g.early, c)
		return
	}
	if err := cmp.Or(g.sickness(c.timed), g.stuck(c)); err != nil {
		c.refused = true
		c.answer <- member.Answer{Err: err}
		return
	}
	g.id++
	g.waiting[g.id] = waiting{answer: c.answer, call: c}
	if c.gathers > 0 && g.leads {
		g.gathering.add(g.id, c.gathers)
		return
	}
	c.ask(g.id)
}

// callAgain takes up the calls that waited until the clock is believed, unless their callers have gone.
func (g *Group) callAgain() {
	early := g.early
	g.early = nil
	for _, c := range early {
		if c.ctx.Err() == nil {
			g.call(c)
		}
	}
}

// forgetBarriers forgets the barriers whose callers have given up. Behind a store that hangs, they would
// be kept for as long as it hangs.
func (g *Group) forgetBarriers() {
	for id, asked := range g.waiting {
		if c := asked.call; c != nil && !c.timed && c.ctx.Err() != nil {
			g.node.Cancel(id)
			delete(g.waiting, id)
		}
	}
}

// begins returns the start of a push's window, in Unix milliseconds.
func (p *push) begins(tenant string) int64 {
	parsed, err := entry.ParsePush(p.bytes)
	if err != nil {
		return 0 // CheckPush has refused it
	}
	for b := range parsed.Batches.All() {
		if h, err := batch.ParseHeader(b); err == nil && string(h.Tenant) == tenant {
			return h.Second * 1000
		}
	}
	return 0
}

// gathering are requests that the leader has not proposed yet. While other requests are on their way
// into the log, new requests gather. Once the others are in the log, the leader proposes the gathered
// requests together: group commit. They share the messages to the other members, a sync of each member's
// disk, and a commit of each store.
//
// A few senders that each wait for their answer would still take turns, each with a proposal of its own.
// So the leader also waits until as many requests have come as came last time, but no longer than the
// last proposal took to get into the log. These senders are then answered together, and so their next
// requests come together, too. If a wait was in vain, the leader does not wait for a while.
type gathering struct {
	ids   []member.ID
	bytes int // of their entries, about

	flying int         // number of requests in the last proposal; 0 once they are in the log
	begun  time.Time   // when the last proposal was made
	enough int         // with this many requests, the leader does not wait for more
	until  time.Time   // when the wait for more ends
	timer  *time.Timer // ends the wait; nil before the first one
	vain   int         // number of waits in a row that were in vain
	hasty  int         // proposals left that need no wait
}

const (
	// gatherMost is the largest number of requests that the leader waits for. More of them save little.
	gatherMost = 8

	// gatherTime bounds the wait, since the disk may be slow.
	gatherTime = 20 * time.Millisecond

	// gatherVain bounds how many proposals follow without a wait: 63 of them, after 6 waits in vain.
	gatherVain = 6
)

func (w *gathering) add(id member.ID, bytes int) {
	w.ids = append(w.ids, id)
	w.bytes += bytes
}

// late returns a channel that ends the wait for more requests.
func (w *gathering) late() <-chan time.Time {
	if w.timer == nil {
		return nil
	}
	return w.timer.C
}

// landed notes that the last requests are in the log.
func (w *gathering) landed(now time.Time) {
	w.enough = min(w.flying+len(w.ids), gatherMost)
	w.until = now.Add(min(now.Sub(w.begun), gatherTime))
	w.flying = 0
	if w.hasty > 0 {
		w.hasty--
		w.enough = 1
	}
}

// wait returns how long to wait for more requests; 0 or less if the gathered ones are to be proposed
// now.
func (w *gathering) wait(now time.Time) (left time.Duration) {
	if len(w.ids) < w.enough {
		left = w.until.Sub(now)
	}
	if left > 0 || w.enough < 2 {
		return left
	}
	if len(w.ids) >= w.enough {
		w.vain = 0
	} else {
		w.vain = min(w.vain+1, gatherVain)
		w.hasty = 1<<w.vain - 1
	}
	return left
}

// take removes the requests, which are proposed now.
func (w *gathering) take(now time.Time) []member.ID {
	ids := w.ids
	w.ids, w.bytes = nil, 0
	w.flying, w.begun, w.enough = len(ids), now, 0
	if w.timer != nil {
		w.timer.Stop()
	}
	return ids
}

// wake sets the timer behind late, so that it fires when the wait ends.
func (w *gathering) wake(left time.Duration) {
	if w.timer == nil {
		w.timer = time.NewTimer(left)
		return
	}
	w.timer.Reset(left)
}

// proposeGathered asks the member to write the requests that have gathered, if it is time, and reports
// whether it did. While the disk hangs, no more requests gather than fit into one entry, because the
// member bounds what waits.
func (g *Group) proposeGathered() bool {
	w, now, flying := &g.gathering, time.Now(), g.node.Writing()
	if w.flying > 0 && !flying {
		w.landed(now)
	}
	if len(w.ids) == 0 {
		return false
	}
	if w.bytes < entry.TargetSize {
		if flying {
			return false
		}
		if left := w.wait(now); left > 0 {
			w.wake(left)
			return false
		}
	}
	for _, id := range w.take(now) {
		if asked, waits := g.waiting[id]; waits { // see breaks
			asked.call.ask(id)
		}
	}
	return true
}
