package collector

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/common/model"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/series"
)

// flusher turns windows into batches and pushes them, one after the other.
type flusher struct {
	*Options
	incarnation uint64
	sequence    uint64
	writers     map[string]*batch.Writer // by tenant
	owned       []batch.Batch            // scratch of ownedBy

	overflowed   atomic.Uint64 // samples refused
	unsent       atomic.Uint64 // samples given up at the end
	pushErrors   atomic.Uint64
	eventsUnsent atomic.Uint64
}

func newFlusher(o *Options, incarnation uint64) *flusher {
	return &flusher{Options: o, incarnation: incarnation, writers: map[string]*batch.Writer{}}
}

// drainTime is how long a push is tried again after ctx is done. An aggregator
// that cannot write by then will not.
const drainTime = 10 * time.Second

// run flushes windows until there are no more.
func (f *flusher) run(ctx context.Context, windows <-chan closedWindow) {
	drain, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(drainTime, stop) })()
	for w := range windows {
		w.listener.handed.Store(false)
		if w.window != nil {
			f.flush(drain, w)
		}
		if len(w.events) > 0 {
			f.appendEvents(drain, w)
		}
	}
}

func (f *flusher) flush(ctx context.Context, w closedWindow) {
	tenant := w.listener.tenant
	if w.touch {
		f.touch(w)
	}
	out := f.writers[tenant]
	if out == nil {
		out = new(batch.Writer)
		f.writers[tenant] = out
	}
	f.sequence++
	out.Begin(batch.Header{
		Tenant: []byte(tenant), Sender: f.Sender, Incarnation: f.incarnation, Sequence: f.sequence,
		Second: w.window.Second, Birth: w.window.Birth,
	})
	f.overflowed.Add(w.window.Flush(out))
	f.saveNames()
	batches := out.End()
	for _, instance := range f.Placement.Instances() {
		f.push(ctx, f.Aggregators[instance], f.ownedBy(instance, batches))
	}
}

// ownedBy returns those batches whose shard an instance owns.
func (f *flusher) ownedBy(instance string, batches []batch.Batch) []batch.Batch {
	if len(f.Placement.Instances()) == 1 {
		return batches
	}
	f.owned = f.owned[:0]
	for _, b := range batches {
		if f.Placement.Owner(b.Shard) == instance {
			f.owned = append(f.owned, b)
		}
	}
	return f.owned
}

// push tries until the batches are acknowledged. Meanwhile listeners stretch
// their open window: what comes adds to what is there, and nothing is lost.
func (f *flusher) push(ctx context.Context, to Aggregator, batches []batch.Batch) {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := to.Push(ctx, batches)
		if err == nil {
			return
		}
		f.pushErrors.Add(1)
		if ctx.Err() != nil {
			lost := samples(batches)
			f.unsent.Add(lost)
			f.Logger.Error("samples are lost: the aggregator took no window before the end", "samples", lost, "error", err)
			return
		}
		f.Logger.Error("windows grow until the aggregator takes them", "error", err, "retry_in", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

func samples(batches []batch.Batch) (n uint64) {
	var r batch.Reader
	for _, b := range batches {
		if r.Reset(b.Bytes) != nil {
			continue
		}
		for inc := r.Next(); inc != nil; inc = r.Next() {
			n += uint64(inc.Samples)
		}
	}
	return n
}

// saveNames makes the owners of new names durable before their first batch is.
func (f *flusher) saveNames() {
	dirty := f.Catalogue.Dirty()
	if len(dirty) == 0 {
		return
	}
	if err := f.Names.Save(dirty); err != nil {
		f.Catalogue.MarkDirty(dirty)
		f.Logger.Error("after a restart, another kind could own one of these names", "names", len(dirty), "error", err)
	}
}

// touch tells the catalogue that names are in use, once an hour.
func (f *flusher) touch(w closedWindow) {
	now := f.Now().UnixMilli()
	for key := range w.window.Keys() {
		if _, ls, err := series.ParseKey(key); err == nil {
			f.Catalogue.Touch(now, w.listener.tenant, ls.Get(model.MetricNameLabel))
		}
	}
}

func (f *flusher) appendEvents(ctx context.Context, w closedWindow) {
	err := f.Events.Append(ctx, w.events)
	if err == nil {
		return
	}
	f.eventsUnsent.Add(uint64(len(w.events)))
	f.Logger.Error("events are lost", "events", len(w.events), "error", err)
}
