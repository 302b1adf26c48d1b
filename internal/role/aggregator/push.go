package aggregator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/settings"
	"github.com/freshet-io/freshet/internal/tiling"
)

// push is a window on its way to Run.
type push struct {
	ctx     context.Context // of the caller, which waits for done
	batches []batch.Batch
	trip    *stage.Trip
	refusal refusal
	done    chan error
}

// Push journals the batches of one window and counts them. Package batch defines the contract of Push.
func (a *Aggregator) Push(ctx context.Context, batches []batch.Batch) error {
	p := &push{ctx: ctx, batches: batches, trip: stage.FromContext(ctx), done: make(chan error, 1)}
	select {
	case a.pushes <- p:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	// Only Run knows whether the window counts. If Push returned before Run answers, its caller would
	// push the window again, and the window could count twice.
	return <-p.done
}

// line returns the channels on which Run waits for pushes. While no push is held, Run waits for the next
// push. While a push is held, Run waits until the caller of this push gives up; later pushes wait in
// Push.
func (a *Aggregator) line() (pushes <-chan *push, givenUp <-chan struct{}) {
	if a.held != nil {
		return nil, a.held.ctx.Done()
	}
	return a.pushes, nil
}

// countHeld counts a push whose caller cannot wait any longer, as at the end of a process. The window
// may be ahead of the open tiles. Its samples then count in the last open tile, because losing them
// would be worse.
func (a *Aggregator) countHeld() {
	p := a.held
	a.held = nil
	a.count([]*push{p}, a.now())
}

// countWaiting counts the waiting pushes, once the clock is believed and earlier tiles are
// closed.
func (a *Aggregator) countWaiting() {
	if a.held == nil {
		return
	}
	if now, believed := a.look(); believed && !a.behind(now) {
		a.count(a.waiting(), now)
	}
}

// appendBytes bounds the bytes that one append journals. At this size, each push has only a small part
// of the cost of an append, and the first push waits for little more than its own bytes.
const appendBytes = 1 << 20

// waiting returns the held push and the pushes behind it, in order, up to appendBytes.
func (a *Aggregator) waiting() []*push {
	pushes, size := []*push{a.held}, a.held.bytes()
	a.held = nil
	for size < appendBytes {
		select {
		case p := <-a.pushes:
			pushes, size = append(pushes, p), size+p.bytes()
		default:
			return pushes
		}
	}
	return pushes
}

func (p *push) bytes() (n int) {
	for _, b := range p.batches {
		n += len(b.Bytes)
	}
	return n
}

// count journals pushes, counts them, and answers each. They share one append. If each acknowledgement
// waits for the disk, they also share one fsync (group commit).
func (a *Aggregator) count(pushes []*push, now time.Time) {
	read := make([]*push, 0, len(pushes))
	for _, p := range pushes {
		p.trip.Pass(stage.Forward, stage.Journal, a.now())
		if err := readable(p.batches); err != nil {
			p.done <- err
			continue
		}
		read = append(read, p)
	}
	if len(read) > 0 {
		a.countTogether(read, now)
	}
}

// countTogether counts readable pushes.
func (a *Aggregator) countTogether(pushes []*push, now time.Time) {
	a.frames, a.boundaries, a.entered = a.frames[:0], a.boundaries[:0], a.entered[:0]
	for _, p := range pushes {
		admitted, refusal := a.admit(p.batches)
		p.refusal = refusal
		a.frame(admitted, now)
	}
	err := a.append(a.frames)
	for _, tenant := range a.entered {
		a.tenants.Leave(tenant, err == nil)
	}
	if err != nil && len(pushes) > 1 {
		// A single push may have caused the error, for example because it is too large. So append each
		// push alone, with an answer of its own.
		for i := range pushes {
			a.countTogether(pushes[i:i+1], now)
		}
		return
	} else if err != nil {
		if errors.Is(err, journal.ErrTooLarge) {
			err = fmt.Errorf("%w: %w", batch.ErrRefused, err)
		}
		pushes[0].done <- err
		return
	}
	appended := a.now()
	for _, p := range pushes {
		p.trip.Pass(stage.Journal, stage.Tile, appended)
	}
	a.fold(a.frames)
	a.answer(pushes)
}

// frame adds the frames of a window to a.frames. An empty shard has closed no tiles since it became
// empty. So for such a shard, the method first adds a boundary. The first frame of a shard is also a
// boundary, since a replay begins there.
func (a *Aggregator) frame(batches []batch.Batch, now time.Time) {
	for _, b := range batches {
		tiles := a.shards.Of(b.Shard)
		if tiles.Len() == 0 {
			due := max(a.dueBoundary(int(b.Shard), now), tiles.Closed())
			if due > tiles.Closed() || a.positions[b.Shard] == 0 {
				a.frames = append(a.frames, a.boundaryFrame(b.Shard, due, nil))
			}
		}
		a.frames = append(a.frames, journal.Frame{Shard: b.Shard, Type: frameBatch, Payload: b.Bytes})
	}
}

// answer answers each push with its outcome, after any sync that the outcome requires.
func (a *Aggregator) answer(pushes []*push) {
	seen := a.now()
	for _, p := range pushes {
		for tenant, n := range p.refusal.samples {
			a.metrics.PendingRefused.WithLabelValues(tenant).Add(float64(n))
		}
		p.trip.Leave(stage.Tile, seen)
		p.trip.Seen(seen)
	}
	var unsynced error
	if a.config.Fsync == settings.FsyncCommit {
		if err := a.log.Sync(); err != nil {
			// The windows are counted, but not acknowledged. If they are pushed again, they are
			// repeats. They are acknowledged once a checkpoint has them: see Journal.Doubtful.
			a.metrics.JournalErrors.Inc()
			unsynced = fmt.Errorf("%w: sync the journal: %w", batch.ErrUnsynced, err)
		} else {
			took := a.now().Sub(seen)
			for _, p := range pushes {
				p.trip.Add(stage.Journal, took)
			}
		}
	}
	for _, p := range pushes {
		if unsynced == nil { // otherwise the push is repeated, and refused again
			a.books.Folded(p.refusal.noTenant)
		}
		p.done <- cmp.Or(unsynced, p.refusal.err())
	}
}

// readable refuses batches of a newer version before they are journalled. Their samples are
// unreadable, so nothing could count them.
func readable(batches []batch.Batch) error {
	for _, b := range batches {
		if _, err := batch.ParseHeader(b.Bytes); errors.Is(err, batch.ErrNewer) {
			return fmt.Errorf("%w: %w; upgrade the aggregator before its collectors", batch.ErrRefused, err)
		}
	}
	return nil
}

// refusal has the samples that the method `admit` refused, by reason.
type refusal struct {
	samples  map[string]uint64 // number of samples of full tenants, by tenant
	cause    error
	noTenant map[string]*tile.Folded // samples of tenants that are not admitted
}

// admit leaves out the batches of tenants that are not admitted, and the new batches of tenants whose
// backlog is full. It returns the other batches. In a replay, a journalled batch counts as admitted,
// whatever the limits are then.
func (a *Aggregator) admit(batches []batch.Batch) (admitted []batch.Batch, r refusal) {
	admitted = make([]batch.Batch, 0, len(batches))
	for _, x := range batches {
		h, err := batch.ParseHeader(x.Bytes)
		if err == nil && (a.refuseTenant(&x, &h, &r) || a.refuseFull(&x, &h, &r)) {
			continue
		}
		admitted = append(admitted, x)
	}
	return admitted, r
}

// refuseTenant refuses a batch of a tenant that is not admitted.
func (a *Aggregator) refuseTenant(x *batch.Batch, h *batch.Header, r *refusal) (refused bool) {
	if n := len(a.entered); n > 0 && a.entered[n-1] == string(h.Tenant) {
		return false
	}
	if tenant := string(h.Tenant); a.tenants.Enter(tenant) == nil {
		a.entered = append(a.entered, tenant)
		return false
	}
	if r.noTenant == nil {
		r.noTenant = map[string]*tile.Folded{}
	}
	f := r.noTenant[string(h.Tenant)]
	if f == nil {
		f = new(tile.Folded)
		r.noTenant[string(h.Tenant)] = f
	}
	f.NoTenant += x.Samples
	if time.Since(a.saidAt) >= complaint {
		a.saidAt = time.Now()
		a.logger.Error(tiling.NotAdmitted, "tenant", string(h.Tenant), "samples", x.Samples)
	}
	return true
}

// refuseFull refuses a new batch of a tenant whose backlog is full. Repeats are accepted, because they
// are already counted.
func (a *Aggregator) refuseFull(x *batch.Batch, h *batch.Header, r *refusal) (refused bool) {
	if a.full == 0 {
		return false
	}
	b := a.backlogs[string(h.Tenant)]
	if b == nil || !b.full || a.shards.Of(x.Shard).Knows(h) {
		return false
	}
	if !b.refused {
		b.refused, b.refusedFrom = true, h.Second*1000
	}
	b.refusedFrom = min(b.refusedFrom, h.Second*1000)
	if r.samples == nil {
		r.samples = map[string]uint64{}
	}
	r.samples[b.tenant] += x.Samples
	r.cause = cmp.Or(r.cause, b.reason())
	a.publish(b)
	return true
}

// err returns the error for the caller, or nil if nothing was refused.
func (r *refusal) err() error {
	if r.samples == nil {
		return nil
	}
	return &batch.FullError{Samples: r.samples, Cause: r.cause}
}
