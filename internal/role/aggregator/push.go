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
)

// push is a window on its way to Run.
type push struct {
	ctx     context.Context // of the caller, who waits for done
	batches []batch.Batch
	done    chan error
}

// Push journals the batches of one window and counts them. When it returns nil
// they survive the death of the process. After a batch.FullError those of the tenants
// that it names are refused, and all others count. After an error other than that and
// batch.ErrUnsynced none of them counts; they should be pushed again after any but
// batch.ErrRefused. The batches may be used again afterwards.
func (a *Aggregator) Push(ctx context.Context, batches []batch.Batch) error {
	p := push{ctx, batches, make(chan error, 1)}
	select {
	case a.pushes <- p:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	// Only Run knows whether it counts: to give up here could count it twice.
	return <-p.done
}

// fold journals the batches of a window, then counts them. An empty shard closed
// no tiles while it had nothing to close: its boundary comes first. The first
// frame of a shard is one too, since a replay begins there.
func (a *Aggregator) fold(p *push, now time.Time) error {
	trip := stage.FromContext(p.ctx)
	trip.Pass(stage.Forward, stage.Journal, a.now())
	if err := readable(p.batches); err != nil {
		return err
	}
	admitted, refusal := a.admit(p.batches)
	a.frames, a.boundaries = a.frames[:0], a.boundaries[:0]
	for _, b := range admitted {
		s := &a.shards[b.Shard]
		if s.tiles.Len() == 0 {
			due := max(a.dueBoundary(int(b.Shard), now), s.tiles.Closed())
			if due > s.tiles.Closed() || s.position == 0 {
				a.frames = append(a.frames, a.boundaryFrame(b.Shard, due, nil))
			}
		}
		a.frames = append(a.frames, journal.Frame{Shard: b.Shard, Type: frameBatch, Payload: b.Bytes})
	}
	if err := a.append(a.frames); errors.Is(err, journal.ErrTooLarge) {
		return fmt.Errorf("%w: %w", batch.ErrRefused, err)
	} else if err != nil {
		return err
	}
	trip.Pass(stage.Journal, stage.Tile, a.now())
	folded := map[string]*tile.Folded{}
	for _, r := range a.frames {
		s := &a.shards[r.Shard]
		s.mu.Lock()
		if r.Type == frameBoundary {
			boundary, config, _ := a.parseBoundary(r)
			s.tiles.Skip(boundary, &config)
		} else {
			h, f := a.foldOne(s, r.Payload)
			sum := folded[string(h.Tenant)]
			if sum == nil {
				sum = new(tile.Folded)
				folded[string(h.Tenant)] = sum
			}
			sum.Add(f)
		}
		s.mu.Unlock()
	}
	a.postFolded(folded)
	for tenant, n := range refusal.samples {
		a.metrics.pendingRefused.WithLabelValues(tenant).Add(float64(n))
	}
	seen := a.now()
	trip.Leave(stage.Tile, seen)
	trip.Seen(seen)
	if a.config.Fsync == settings.FsyncCommit {
		if err := a.log.Sync(); err != nil {
			// It counts, but is not acknowledged: pushed again, it is a repeat.
			a.metrics.journalErrors.Inc()
			return fmt.Errorf("%w: sync the journal: %w", batch.ErrUnsynced, err)
		}
		trip.Add(stage.Journal, a.now().Sub(seen))
	}
	return refusal.err()
}

// readable refuses batches of a newer version before they are journalled: what cannot be
// read would be counted nowhere.
func readable(batches []batch.Batch) error {
	for _, b := range batches {
		if _, err := batch.ParseHeader(b.Bytes); errors.Is(err, batch.ErrNewer) {
			return fmt.Errorf("%w: %w; upgrade the aggregator before its collectors", batch.ErrRefused, err)
		}
	}
	return nil
}

// refusal is what admit did not let in.
type refusal struct {
	samples map[string]uint64 // by tenant
	cause   error
}

// admit returns the batches but those of tenants whose stores take nothing, and for which as
// much waits as may. What comes again counts already, and is let in.
func (a *Aggregator) admit(batches []batch.Batch) (admitted []batch.Batch, r refusal) {
	if a.full == 0 {
		return batches, r
	}
	for _, x := range batches {
		h, err := batch.ParseHeader(x.Bytes)
		b := a.backlogs[string(h.Tenant)]
		if err != nil || b == nil || !b.full || a.shards[x.Shard].tiles.Knows(&h) {
			admitted = append(admitted, x)
			continue
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
	}
	return admitted, r
}

// err is nil if all were let in.
func (r *refusal) err() error {
	if r.samples == nil {
		return nil
	}
	return &batch.FullError{Samples: r.samples, Cause: r.cause}
}
