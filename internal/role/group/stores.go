package group

import (
	"cmp"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/tiling"
)

// job is a Work on its way to the stores. While a try runs, the job belongs to the goroutine of that
// try, except for the fields of Run.
type job struct {
	*member.Work
	stored   [tile.NumWidths]bool
	written  tile.Written // of the finest width, since only its samples count values on the wire
	requests []*write.Request
	unstored uint64 // see Group.unstored
	failure  error  // of this try
	took     time.Duration

	// Of Run.
	onItsWay bool
	begun    time.Time // when the last try began
	fails    time.Time // when the first try of those failed that failed in a row
	retryAt  time.Time
	err      error     // of the last try; nil if it succeeded
	stuck    bool      // the last try panicked, so there is no further one
	saidAt   time.Time // time of the last log line; zero if there was none since the last success
}

// begin begins to store `all`.
func (g *Group) begin(all []*member.Work) {
	if len(all) == 0 {
		return
	}
	unstored := g.unstored()
	for _, w := range all {
		j := &job{Work: w, unstored: unstored}
		if w.Events != nil {
			g.events = j
			g.try(j)
			continue
		}
		if w.Requests == nil {
			b := g.backlogOf(w.Tenant)
			b.job = j
			g.try(j)
			g.publish(b)
			continue
		}
		g.requested[w.Queue] = j
		g.try(j)
	}
}

// retry repeats the writes that a store refused a while ago, and publishes the backlogs.
func (g *Group) retry() {
	again := func(j *job) {
		if j != nil && !j.onItsWay && !j.stuck && !time.Now().Before(j.retryAt) {
			g.try(j)
		}
	}
	for _, b := range g.backlogs {
		if again(b.job); b.job != nil || b.full {
			g.publish(b)
		}
	}
	again(g.events)
	for tenant, j := range g.requested {
		if g.replays[tenant] > 0 && j.onItsWay && time.Since(j.begun) >= stalled {
			g.FailReplay(tenant, errStalled)
		}
		again(j)
	}
}

// try makes one attempt in another goroutine, which hands the job back to Run.
func (g *Group) try(j *job) {
	j.onItsWay, j.begun = true, time.Now()
	select {
	case g.tries <- j:
	default:
		go g.makeTries(j)
	}
}

// makeTries makes an attempt, and then those of other jobs. A goroutine of its own for each attempt would have to
// grow its stack each time.
func (g *Group) makeTries(j *job) {
	for {
		begun := time.Now()
		j.failure = g.attempt(j)
		j.took = time.Since(begun)
		select {
		case g.written <- j:
		case <-g.ended:
			return
		}
		if g.idle.Add(1) > maxIdle {
			g.idle.Add(-1)
			return
		}
		select {
		case j = <-g.tries:
			g.idle.Add(-1)
		case <-g.ended:
			return
		}
	}
}

// maxIdle is how many goroutines wait for jobs. If many tenants are written at once, the others end.
const maxIdle = 8

// panicError is the failure of a try that panicked.
type panicError struct {
	cause any
	stack []byte
}

func (e *panicError) Error() string {
	return fmt.Sprintf("panic: %v; this is a bug, and the log has the details", e.cause)
}

// attempt writes a job to the stores. A panic ends only this try, not the process with all tenants.
func (g *Group) attempt(j *job) (err error) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		err = &panicError{cause, debug.Stack()}
		if j.State != nil {
			j.State.Recent.Undo() // so that the state is as before the requests
		}
	}()
	switch {
	case j.Events != nil:
		return g.Writer.WriteEvents(g.writes, j.Events)
	case j.Requests != nil:
		return g.storeRequests(j)
	}
	return g.storeTiles(j)
}

// storeTiles writes the samples of each width that is not stored yet.
func (g *Group) storeTiles(j *job) (failure error) {
	for width := range j.stored {
		if !j.stored[width] {
			if err := g.storeWidth(j, tile.Width(width)); err != nil {
				failure = cmp.Or(failure, err)
				continue
			}
			j.stored[width] = true
		}
	}
	return failure
}

func (g *Group) storeWidth(j *job, width tile.Width) error {
	samples := j.Samples(width)
	if len(samples) == 0 {
		return nil
	}
	born := j.Tiles[0].Boundary
	for i := range j.Tiles {
		born = min(born, j.Tiles[i].Boundary)
	}
	trip := &stage.Trip{Input: stage.Tiles, Tenant: j.Tenant, Born: time.UnixMilli(born), Samples: len(samples)}
	defer g.Watch.End(trip)
	trip.Enter(stage.Distribute, g.Now())
	written, err := g.Writer.WriteTiles(stage.NewContext(g.writes, trip), j.Tenant, width, samples)
	if err != nil {
		trip.Fail(g.Now())
		g.metrics.WriteErrors.WithLabelValues(j.Tenant).Inc()
		return err
	}
	if width == tile.Width10s {
		j.written = written
	}
	g.forwardTiles(j, width, samples)
	return nil
}

// storeRequests writes requests. The error is member.ErrEntry if the log has a request that cannot be
// read.
func (g *Group) storeRequests(j *job) error {
	if j.requests == nil {
		for _, r := range j.Requests {
			if err := r.Decode(); err != nil {
				return err
			}
		}
		for _, r := range j.Requests {
			j.requests = append(j.requests, &r.Write)
		}
	}
	if err := g.Writer.WriteRequests(g.writes, j.Tenant, j.State, j.requests); err != nil {
		return err
	}
	g.forwardRequests(j)
	return nil
}

// settle handles a job that came back.
func (g *Group) settle(j *job) {
	j.onItsWay, j.err = false, j.failure
	if errors.Is(j.failure, member.ErrEntry) {
		g.broke = j.failure
		return
	}
	if j.Events != nil {
		g.settleEvents(j)
		return
	}
	if panicked := (*panicError)(nil); errors.As(j.failure, &panicked) {
		g.breaks(j, panicked)
		return
	}
	if j.failure != nil {
		if j.fails.IsZero() {
			j.fails = time.Now()
		}
		j.retryAt = time.Now().Add(retryPause)
		if time.Since(j.saidAt) >= complaint {
			j.saidAt = time.Now()
			g.Logger.Error("samples wait until the store takes them",
				"tenant", j.Tenant, "waiting_samples", g.node.State().Waiting(j.Tenant).Samples, "error", j.err)
		}
		if j.Requests == nil {
			g.publish(g.backlogs[j.Tenant])
		} else {
			g.FailReplay(j.Queue, j.err)
			g.node.StoresFail(true)
			g.tellFailure(j)
		}
		return
	}
	if !j.saidAt.IsZero() {
		g.Logger.Info("the store takes samples again", "tenant", j.Tenant)
	}
	note := g.node.Done(j.Work)
	if j.Requests != nil {
		g.tried = j.begun
		g.noteRequests(j.Tenant, note)
		delete(g.requested, j.Queue)
		g.node.StoresFail(g.anyFails())
		g.replayedSome(j)
		if g.Told != nil {
			tellStored(g.Told, j.Work)
		}
		for _, r := range j.Requests {
			r.Release()
		}
		return
	}
	g.metrics.FlushSeconds.Observe(j.took.Seconds())
	g.noteStored(j.Tenant)
	g.books.Written(j.Tenant, &j.written)
	b := g.backlogs[j.Tenant]
	b.job = nil
	g.publish(b)
}

// settleEvents handles events that came back from the event log.
func (g *Group) settleEvents(j *job) {
	if j.failure == nil {
		if !j.saidAt.IsZero() {
			g.Logger.Info("the event log takes events again")
		}
		g.events = nil
		g.node.Done(j.Work)
		return
	}
	j.retryAt = time.Now().Add(retryPause)
	if time.Since(j.saidAt) >= complaint {
		j.saidAt = time.Now()
		g.Logger.Error("events wait until the event log takes them", "entries", len(j.Events), "error", j.failure)
	}
}

// anyFails reports whether a store refuses requests.
func (g *Group) anyFails() bool {
	for _, j := range g.requested {
		if j.err != nil {
			return true
		}
	}
	return false
}

// tellFailure answers the callers whose requests the store does not take. The requests are in the log, and
// are stored once the store takes them. A request that comes again is then a repeat.
//
// In a group of several members, a leader asks another member to lead meanwhile. Callers wait for that, for at most
// `takeover`, and propose their requests to the next leader.
func (g *Group) tellFailure(j *job) {
	why := j.err
	if !g.alone && time.Since(j.fails) < takeover {
		if g.leads {
			return
		}
		why = fmt.Errorf("%w: %w", member.ErrLost, j.err)
	}
	for id, asked := range g.waiting {
		if asked.call != nil && asked.call.requests == j.Queue && asked.call.tiles == "" && !asked.answered {
			asked.answer <- member.Answer{ID: id, Err: why}
			asked.answered = true
			g.waiting[id] = asked
		}
	}
}

// breaks takes a job and its tenant's queue out of use after a panic, until the next start. The job
// would panic again, and the panic may have left locks of the store held. The other tenants go on.
func (g *Group) breaks(j *job, panicked *panicError) {
	j.stuck = true
	g.metrics.WriteErrors.WithLabelValues(j.Tenant).Inc()
	g.Logger.Error("a bug: storing a tenant's samples panicked; this tenant's samples wait or are refused until the "+
		"process is restarted, and the other tenants go on",
		"tenant", j.Tenant, "panic", panicked.cause, "stack", string(panicked.stack))
	if j.Requests == nil {
		g.publish(g.backlogs[j.Tenant])
	} else {
		g.FailReplay(j.Queue, j.err)
	}
	for id, asked := range g.waiting {
		if err := g.stuck(asked.call); err != nil && !asked.answered {
			asked.answer <- member.Answer{ID: id, Err: err}
			g.node.Cancel(id) // otherwise a barrier would wait for ever
			delete(g.waiting, id)
		}
	}
}

// stuck returns an error if the answer to a call will never come, because nothing writes any more to the
// stores that the call waits for.
func (g *Group) stuck(c *call) error {
	if c == nil {
		return nil
	}
	for _, queue := range [...]string{c.requests, c.results} {
		if j := g.requested[queue]; j != nil && j.stuck {
			return j.err
		}
	}
	if b := g.backlogs[c.tiles]; b != nil && b.job != nil && b.job.stuck {
		return b.job.err
	}
	return nil
}

// replayedSome notes that the store has some of the requests that the start put into a tenant's queue.
func (g *Group) replayedSome(j *job) {
	left, behind := g.replays[j.Queue]
	if !behind {
		return
	}
	if left -= len(j.Requests); left > 0 {
		g.replays[j.Queue] = left
		g.ResumeReplay(j.Queue)
		return
	}
	delete(g.replays, j.Queue)
	g.EndReplay(j.Queue)
}

// noteRequests notes that a tenant's store has requests. If the note fails, nothing is lost: a restart
// looks for their samples in the store.
func (g *Group) noteRequests(tenant string, note []byte) {
	if err := g.noted.Note(note); err != nil {
		g.metrics.JournalErrors.Inc()
		g.Logger.Warn("a tenant's stored requests cannot be noted until the next checkpoint; nothing is lost, and a restart "+
			"before it looks for their samples in the stores: if the disk is full, free space",
			"tenant", tenant, "error", err)
	}
}

// noteStored notes up to which entry a tenant's stores have all tiles. If the note fails, nothing is
// lost: a restart writes the same samples again.
func (g *Group) noteStored(tenant string) {
	if err := g.stored.Raise(tenant, g.node.State().VisibleTiles(tenant)); err != nil {
		g.metrics.JournalErrors.Inc()
		g.Logger.Warn("a tenant's stored tiles cannot be noted until the next checkpoint; nothing is lost, and a restart "+
			"before it writes their samples again: if the disk is full, free space",
			"tenant", tenant, "error", err)
	}
}

const (
	// retryPause is how long a tenant waits after a store refused a write.
	retryPause = time.Second

	// complaint is the interval at which the log repeats that a tenant's store takes nothing.
	// A try fails each second, and many tenants may have stores on one broken disk.
	complaint = time.Minute

	// stalled is how long a write may run before the end of the process no longer waits for it.
	stalled = 5 * time.Second
)

// backlog is what the role knows about the closed tiles that wait for the stores of one tenant.
// core/member has the tiles.
type backlog struct {
	tenant string
	job    *job // under way, or to be tried again; nil if nothing waits

	full        bool  // the backlog has reached Options.MaxPending
	refused     bool  // a window was refused because the backlog is full
	refusedFrom int64 // Unix ms, the start of the first such window
}

// backlogOf returns the backlog of a tenant, and makes one if there is none.
func (g *Group) backlogOf(tenant string) *backlog {
	b := g.backlogs[tenant]
	if b == nil {
		b = &backlog{tenant: tenant}
		g.backlogs[tenant] = b
		g.metrics.WriteErrors.WithLabelValues(tenant) // shown as 0 until there are errors
	}
	return b
}

// reason returns why the tiles are not stored, or nil if a write is in progress.
func (b *backlog) reason() error {
	if b.job == nil {
		return nil
	}
	if b.job.err == nil && b.job.onItsWay && time.Since(b.job.begun) >= stalled {
		return errStalled
	}
	return b.job.err
}

// errStalled is the reason when a write neither ends nor fails.
var errStalled = fmt.Errorf("a write has been running for more than %v", stalled)

// publish updates whether there is room for more, and the summary for other goroutines.
func (g *Group) publish(b *backlog) {
	waits := g.node.State().Waiting(b.tenant)
	if full := waits.Bytes >= g.MaxPending; full != b.full {
		b.full = full
		if full {
			g.full++
			g.Logger.Error("a tenant's store takes no writes, and store.pending is reached: the tenant's new "+
				"samples are refused",
				"tenant", b.tenant, "bytes", waits.Bytes, "error", b.reason())
		} else {
			g.full--
			g.Logger.Info("there is room for a tenant's samples again", "tenant", b.tenant)
		}
	}
	b.refused = b.refused && b.full
	var p tiling.Pending
	if waits.Tiles > 0 {
		p = tiling.Pending{Samples: waits.Samples, Bytes: waits.Bytes, Since: waits.Since, Err: b.reason(),
			Refused: b.refused, RefusedFrom: b.refusedFrom}
	}
	g.SetPending(b.tenant, p)
}

// Backends forwards to other servers what the stores have. It has a queue on disk for each backend. All
// members put the same into their queues, and the leader sends.
type Backends interface {
	// ForwardTiles and ForwardRequest put something into the queues. A start may repeat what an earlier process has put
	// there. They count what a queue does not take.
	ForwardTiles(from entry.Span, tenant string, width tile.Width, samples []tile.Sample)
	ForwardRequest(from entry.Span, tenant string, version int, parts outcome.Counts, body []byte)
	// Lead says whether this member sends.
	Lead(leads bool)
	// Settle tells the queues up to which entry each backend has everything, as the log says.
	Settle(of func(backend string) uint64)
	// Reached returns, by the name of each backend, up to which entry the backend has everything. The
	// queues already have everything that entries before `unstored` brought.
	Reached(unstored uint64) map[string]uint64
}

// noteEvery is how often a leader notes in the log what is forwarded. If it dies, the next leader
// repeats everything forwarded since the last note.
const noteEvery = time.Second

// noteForwarded notes in the log up to which entry backends have everything. It is called at each tick.
func (g *Group) noteForwarded() {
	if g.notesAt--; g.notesAt > 0 || g.Backends == nil || !g.sends {
		return
	}
	g.notesAt = int(noteEvery / replica.TickEvery)
	g.node.Forwarded(g.Backends.Reached(g.node.State().Unstored()))
}

// settleForwarded tells the queues what the log has noted.
func (g *Group) settleForwarded() {
	if g.Backends != nil {
		g.Backends.Settle(g.node.State().Forwarded)
	}
}

// send sets whether this member sends to the backends.
func (g *Group) send(sends bool) {
	if g.Backends != nil && sends != g.sends {
		g.Backends.Lead(sends)
	}
	g.sends = sends
}

// unstored returns the first entry in the span of any work that begins now.
func (g *Group) unstored() uint64 {
	if g.Backends == nil {
		return 0
	}
	return g.node.State().Unstored()
}

// forwardTiles forwards tiles of one width that are stored.
func (g *Group) forwardTiles(j *job, width tile.Width, samples []tile.Sample) {
	if g.Backends == nil {
		return
	}
	last := uint64(0)
	for i := range j.Tiles {
		last = max(last, j.Tiles[i].Index)
	}
	g.Backends.ForwardTiles(entry.Span{First: j.unstored, Last: last}, j.Tenant, width, samples)
}

// forwardRequests forwards requests that are stored.
func (g *Group) forwardRequests(j *job) {
	if g.Backends == nil {
		return
	}
	for _, r := range j.Requests {
		if r.Write.Outcome.NoTenant() {
			continue
		}
		version := 1
		form, body := r.Body()
		if form == entry.RemoteWrite2 {
			version = 2
		}
		g.Backends.ForwardRequest(entry.Span{First: j.unstored, Last: r.Index}, j.Tenant, version, r.Write.Counts(), body)
	}
}
