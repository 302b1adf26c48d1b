package collector

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/event"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/tenant"
	"github.com/freshet-io/freshet/internal/core/top"
	"github.com/freshet-io/freshet/internal/core/window"
	"github.com/freshet-io/freshet/internal/lib/retry"
)

// maxEvents bounds the events of one window. People read events, so more would be of no
// use.
const maxEvents = 10_000

// closedWindow is a window on its way to the flusher.
type closedWindow struct {
	mark   *mark        // progress of the listener
	handed *atomic.Bool // the listener's flag; the flusher sets it to false when it has received the window
	tenant string
	at     time.Time      // when it was closed
	window *window.Window // nil if it has no samples and no events
	probed *window.Window // the window of the probes; nil if there were no probes
	left   *window.Table  // the table to release, if this is its last window; nil if the table stays in use
	events []event.Event
}

// flusher turns windows into batches and pushes them, one after the other.
type flusher struct {
	*Options
	windows     *progress
	metrics     *byTenant[top.Metrics] // for freshet top
	incarnation uint64
	sequence    uint64
	writer      batch.Writer
	events      []event.Event   // events that are not written yet, at most maxEvents
	last        context.Context // context of the last try for the window being flushed; nil before that try
	endLast     context.CancelFunc

	refused      atomic.Uint64 // samples that the aggregator refused for good
	unsent       atomic.Uint64 // samples given up at the end
	pushErrors   atomic.Uint64
	eventsUnsent atomic.Uint64
}

func newFlusher(o *Options, windows *progress, metrics *byTenant[top.Metrics], incarnation uint64) *flusher {
	return &flusher{Options: o, windows: windows, metrics: metrics, incarnation: incarnation}
}

const (
	// drainTime is how long pushes are retried after ctx is done. An aggregator that cannot accept
	// a window by then will not recover in time.
	drainTime = 10 * time.Second

	// lastTry is how long, after drainTime, the aggregator may take to accept each
	// remaining window.
	lastTry = time.Second

	// portionBytes is the size of a push. A larger window is pushed in portions, so that neither
	// the collector nor the aggregator holds all its batches in memory.
	portionBytes = 4 << 20

	// eventRetry is the interval at which the flusher retries events and logs an error. It can
	// be long, because no samples wait for events.
	eventRetry = 5 * time.Second
)

// run flushes windows until there are no more.
func (f *flusher) run(ctx context.Context, windows <-chan closedWindow) {
	drain, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(drainTime, stop) })()
	var eventsDue <-chan time.Time         // nil while no events wait
	seconds := time.NewTicker(time.Second) // for a collector without sockets
	defer seconds.Stop()
	for {
		select {
		case w, ok := <-windows:
			if !ok {
				f.appendLastEvents(ctx)
				return
			}
			w.handed.Store(false)
			if w.window != nil {
				f.flush(drain, w.tenant, w.window, w.at)
			}
			if w.probed != nil {
				f.flush(drain, tenant.Own, w.probed, w.at)
			}
			if w.window != nil || w.probed != nil {
				f.windows.pushed(w.mark)
			}
			if w.left != nil {
				w.left.Release(f.Now().UnixNano())
			}
			f.holdEvents(w.events)
		case <-eventsDue:
			eventsDue = nil
		case <-seconds.C:
		}
		f.tell()
		if eventsDue == nil && !f.appendEvents(drain) {
			eventsDue = time.After(eventRetry)
		}
	}
}

// flush pushes a window, in portions that each have a sequence number. The table can reuse the
// window as soon as the last portion is encoded.
func (f *flusher) flush(ctx context.Context, tenant string, w *window.Window, closed time.Time) {
	f.touch(tenant, w)
	f.saveNames()
	defer f.endTry()
	for done := false; !done; closed = f.Now() {
		trip := &stage.Trip{Input: stage.DogStatsD, Tenant: tenant, Born: time.Unix(0, w.Birth)}
		trip.Enter(stage.Window, closed)
		f.sequence++
		f.writer.Begin(batch.Header{
			Tenant: []byte(tenant), Producer: f.Producer, Incarnation: f.incarnation, Sequence: f.sequence,
			Second: w.Second, Birth: w.Birth,
		})
		done = w.Flush(&f.writer, portionBytes)
		batches := f.writer.End()
		trip.Samples = int(samples(batches))
		trip.Pass(stage.Window, stage.Forward, f.Now())
		ctx := stage.NewContext(ctx, trip)
		f.push(ctx, tenant, batches)
		f.Watch.End(trip)
	}
}

// tell informs the aggregator up to which second all windows were pushed. Any goroutine may call it.
func (f *flusher) tell() {
	through, later := f.windows.next(f.Now().Unix())
	if !later {
		return
	}
	f.Aggregator.Through(through * 1000)
}

// push tries until the batches are acknowledged or permanently refused. Meanwhile listeners extend
// their open window: new samples are added to it, and nothing is lost. After ctx is done there is
// one last try.
func (f *flusher) push(ctx context.Context, tenant string, batches []batch.Batch) {
	backoff := retry.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}
	for {
		last := ctx.Err() != nil
		err := f.pushOnce(ctx, batches)
		if err == nil {
			return
		}
		f.pushErrors.Add(1)
		var full *batch.FullError
		switch {
		case errors.As(err, &full):
			for of, lost := range full.Samples {
				f.lose(of, lost, reasonPending)
			}
			f.Logger.Error("samples are lost: the store of their tenant takes no writes", "error", err)
			return
		case errors.Is(err, batch.ErrRefused):
			lost := samples(batches)
			f.lose(tenant, lost, reasonNotTaken)
			f.Logger.Error("samples are lost: the aggregator can never take their window", "samples", lost, "error", err)
			return
		case last && errors.Is(err, batch.ErrUnsynced):
			f.Logger.Error("the aggregator took the last window, but it would not survive a power loss", "error", err)
			return
		case last:
			lost := samples(batches)
			f.unsent.Add(lost)
			f.Ledger.Post(tenant, ledger.Transfer{From: ledger.Window, To: ledger.Unsent, Reason: reasonUnsent, Samples: lost})
			f.Logger.Error("samples are lost: the aggregator took no window before the process "+
				"ended", "samples", lost, "error", err)
			return
		}
		pause := backoff.Next()
		f.Logger.Error("windows grow until the aggregator takes them", "error", err, "retry_in", pause)
		_ = retry.Wait(ctx, pause) // the error means that ctx is done; the loop then makes a last try
	}
}

// lose adds permanently refused samples of a window to the ledger.
func (f *flusher) lose(tenant string, lost uint64, reason string) {
	f.refused.Add(lost)
	f.Ledger.Post(tenant, ledger.Transfer{From: ledger.Window, To: ledger.Refused, Reason: reason, Samples: lost})
}

// endTry ends the context of a window's last try, if there was a last try.
func (f *flusher) endTry() {
	if f.last != nil {
		f.endLast()
		f.last = nil
	}
}

// pushOnce tries once. After ctx is done it uses a new context, since a push with a cancelled
// context would not even begin. The portions of a window share this context.
func (f *flusher) pushOnce(ctx context.Context, batches []batch.Batch) error {
	if ctx.Err() != nil {
		if f.last == nil {
			f.last, f.endLast = context.WithTimeout(context.WithoutCancel(ctx), lastTry)
		}
		ctx = f.last
	}
	return f.Aggregator.Push(ctx, batches)
}

func samples(batches []batch.Batch) (n uint64) {
	for _, b := range batches {
		n += b.Samples
	}
	return n
}

// saveNames makes the owners of new names durable before their first batch is pushed, and
// removes names that were given back.
func (f *flusher) saveNames() {
	if gone := f.Catalogue.Gone(); len(gone) > 0 {
		if err := f.CatalogueFile.Forget(gone); err != nil {
			f.Catalogue.MarkGone(gone)
			f.Logger.Error("names that were given back could not be removed from the file: "+
				"after a restart they would have owners again", "names", len(gone), "error", err)
		} else {
			f.Logger.Info("unused names were given back, because the tenant had reached the limit of names",
				"tenant", gone[0].Tenant, "names", len(gone), "one", gone[0].Name)
		}
	}
	dirty := f.Catalogue.Dirty()
	if len(dirty) == 0 {
		return
	}
	if err := f.CatalogueFile.Save(dirty); err != nil {
		f.Catalogue.MarkDirty(dirty)
		f.Logger.Error("names could not be saved: after a restart another kind could own one of them",
			"names", len(dirty), "error", err)
	}
}

// touch marks the names of the window as in use in the catalogue, and counts the window's series
// for freshet top.
func (f *flusher) touch(tenant string, w *window.Window) {
	now := f.Now().UnixMilli()
	for key := range w.InUse() {
		f.Catalogue.Touch(now, tenant, series.Name(key))
	}
	metrics := f.metrics.lock(tenant, top.NewMetrics)
	defer f.metrics.mu.Unlock()
	if metrics == nil { // no freshet top is running
		return
	}
	for s := range w.Series() {
		metrics.Add(w.Second, s.Key, s.Samples)
	}
}

// holdEvents adds to the waiting events. Beyond the limit the oldest events are lost. So an
// event that can never be written does not stay for ever.
func (f *flusher) holdEvents(events []event.Event) {
	f.events = append(f.events, events...)
	if beyond := len(f.events) - maxEvents; beyond > 0 {
		f.loseEvents(beyond, errors.New("too many events wait to be written"))
	}
}

// loseEvents gives up the n oldest waiting events.
func (f *flusher) loseEvents(n int, cause error) {
	f.eventsUnsent.Add(uint64(n))
	f.Logger.Error("events are lost", "events", n, "error", cause)
	f.events = append([]event.Event(nil), f.events[n:]...)
}

// appendEvents tries once to write the waiting events, and reports whether it wrote them all. It
// delays no samples.
func (f *flusher) appendEvents(ctx context.Context) bool {
	if len(f.events) == 0 {
		return true
	}
	if err := f.Events.Append(ctx, f.events); err != nil {
		f.Logger.Error("events wait until they can be written", "events", len(f.events), "error", err, "retry_in", eventRetry)
		return false
	}
	f.events = nil
	return true
}

// appendLastEvents writes the waiting events, or gives them up. Like the last push of a window,
// the write uses a new context.
func (f *flusher) appendLastEvents(ctx context.Context) {
	if len(f.events) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTry)
	defer cancel()
	if err := f.Events.Append(ctx, f.events); err != nil {
		f.loseEvents(len(f.events), err)
		return
	}
	f.events = nil
}
