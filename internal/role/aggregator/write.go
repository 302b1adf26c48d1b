package aggregator

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/tile"
)

const (
	// retryPause is how long a tenant waits after a store refused a write.
	retryPause = time.Second

	// complaint is the interval at which the log repeats that a tenant's store takes no writes. A try
	// fails each second, and many tenants may have stores on one broken disk.
	complaint = time.Minute

	// portionSamples bounds a write: a long backlog takes several writes, of 7 MB each.
	portionSamples = 128 << 10
)

// Writer stores the samples of closed tiles. It is always in the same process, because a sample has a
// pointer to its series, and the stores recognize a series by this pointer. That is enough for a
// cluster, since each member writes its own stores.
type Writer interface {
	// WriteTiles stores samples of one width. After an error none of them counts as stored, and the
	// caller writes the same samples again. Repeating a write must be harmless. The slice is the caller's again when
	// WriteTiles returns.
	WriteTiles(ctx context.Context, tenant string, width tile.Width, samples []tile.Sample) (tile.Written, error)
	// Sync makes everything that is stored survive a power loss.
	Sync(ctx context.Context) error
}

// resume prepares the writes that the last process may not have finished, in the order in which the
// tiles were closed. Tiles that an older program saved come first, in the order of their boundaries.
func (a *Aggregator) resume() {
	var all []closedTile
	for i := range uint16(series.Shards) {
		for _, w := range a.shards.Of(i).Waiting() {
			all = append(all, closedTile{i, w})
		}
	}
	slices.SortStableFunc(all, func(x, y closedTile) int {
		return cmp.Or(cmp.Compare(x.Index, y.Index), cmp.Compare(x.Boundary, y.Boundary))
	})
	for _, t := range all {
		a.backlogOf(t.Tenant).add(t)
	}
	a.writeDue()
}

// writeDue begins a write for each tenant that has waiting tiles, no write in progress and no pause.
func (a *Aggregator) writeDue() {
	for _, b := range a.backlogs {
		if !b.onItsWay && !time.Now().Before(b.retryAt) {
			if b.write == nil {
				b.write = &write{backlog: b, tenant: b.tenant, tiles: b.portion()}
			}
			b.onItsWay, b.begun = true, time.Now()
			go a.try(b.write)
		}
		a.publish(b)
	}
}

// portion returns the first waiting tiles, at least one, until they reach portionSamples.
func (b *backlog) portion() []closedTile {
	n, samples := 0, 0
	for n < len(b.tiles) && (n == 0 || samples < portionSamples) {
		for _, of := range b.tiles[n].Samples {
			samples += len(of)
		}
		n++
	}
	return b.tiles[:n:n]
}

// storing reports whether a write is in progress in a healthy store: a store that does not fail, hang,
// or lag behind its input. A store that never catches up must not delay the tiles of all tenants.
func (a *Aggregator) storing() bool {
	for _, b := range a.backlogs {
		if b.onItsWay && b.err == nil && time.Since(b.since) < stalled {
			return true
		}
	}
	return false
}

// try makes one attempt with a write, and hands it back to Run.
func (a *Aggregator) try(w *write) {
	begun := time.Now()
	w.failure = nil
	for width := range w.done {
		if !w.done[width] {
			if err := a.store(w, tile.Width(width)); err != nil {
				w.failure = cmp.Or(w.failure, err)
				continue
			}
			w.done[width] = true
		}
	}
	w.took = time.Since(begun)
	select {
	case a.written <- w:
	case <-a.ended:
	}
}

// buffers has memory for the samples of writes, at most portionSamples and a tile for each. If each write allocated its
// own, that would be half of the garbage of tiles.
var buffers = sync.Pool{New: func() any { return new([]tile.Sample) }}

// store writes the samples of one width.
func (a *Aggregator) store(w *write, width tile.Width) error {
	number, born := 0, w.tiles[0].Boundary
	for _, t := range w.tiles {
		number += len(t.Samples[width])
		born = min(born, t.Boundary)
	}
	if number == 0 {
		return nil
	}
	pooled := buffers.Get().(*[]tile.Sample)
	samples := slices.Grow(*pooled, number)
	for _, t := range w.tiles {
		samples = append(samples, t.Samples[width]...)
	}
	defer func() {
		clear(samples) // so that the pool keeps no series in memory
		*pooled = samples[:0]
		buffers.Put(pooled)
	}()
	trip := &stage.Trip{Input: stage.Tiles, Tenant: w.tenant, Born: time.UnixMilli(born), Samples: len(samples)}
	defer a.watch.End(trip)
	trip.Enter(stage.Distribute, a.now())
	written, err := a.writer.WriteTiles(stage.NewContext(a.writes, trip), w.tenant, width, samples)
	if err != nil {
		trip.Fail(a.now())
		a.metrics.WriteErrors.WithLabelValues(w.tenant).Inc()
		return err
	}
	if width == tile.Width10s {
		w.written = written
	}
	return nil
}

// settle handles a write that came back.
func (a *Aggregator) settle(w *write) {
	b := w.backlog
	b.onItsWay, b.err = false, w.failure
	if w.failure != nil {
		b.retryAt = time.Now().Add(retryPause)
		if time.Since(b.saidAt) >= complaint {
			b.saidAt = time.Now()
			a.logger.Error("samples wait until the store takes them",
				"tenant", b.tenant, "waiting_samples", b.samples, "error", b.err)
		}
		a.publish(b)
		return
	}
	if !b.saidAt.IsZero() {
		b.saidAt = time.Time{}
		a.logger.Info("the store takes samples again", "tenant", b.tenant)
	}
	b.write = nil
	a.metrics.FlushSeconds.Observe(w.took.Seconds())
	for _, t := range w.tiles {
		a.shards.Stored(t.shard, b.tenant, t.Boundary)
		b.bytes -= t.Bytes
		b.samples -= t.Raw
	}
	b.tiles = slices.Clone(b.tiles[len(w.tiles):]) // a clone, so that the stored tiles are freed
	a.noteStored(b)
	a.books.Written(b.tenant, &w.written)
	if len(b.tiles) == 0 {
		delete(a.backlogs, b.tenant)
	}
	a.publish(b)
}

// noteStored notes that a tenant's stores have all tiles that were closed before the first waiting
// tile. If the note cannot be written, nothing is lost: a restart writes the same samples again.
func (a *Aggregator) noteStored(b *backlog) {
	to := uint64(a.last)
	if len(b.tiles) > 0 {
		to = max(b.tiles[0].Index, 1) - 1
	}
	if err := a.stored.Raise(b.tenant, to); err != nil {
		a.metrics.JournalErrors.Inc()
		a.logger.Warn("a tenant's stored tiles cannot be noted until the next checkpoint; nothing is lost, and a restart "+
			"before it writes their samples again: if the disk is full, free space",
			"tenant", b.tenant, "error", err)
	}
}
