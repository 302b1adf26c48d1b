package aggregator

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/settings"
)

// Types of journal frames. Layout: docs/format/checkpoint.md.
const (
	frameBatch    = 1 // a window batch
	frameBoundary = 2 // the tile up to a boundary was closed; payload: see boundaryFrame
	frameStored   = 3 // the samples of a tenant up to a boundary are in its stores; payload: see storedFrame
	frameUpDown   = 4 // frameBoundary of a shard that has up/down counters, with their time to live
)

const tileMillis = 10_000

// dueBoundary is the end of the last tile that a shard must have closed at a time.
func (a *Aggregator) dueBoundary(shardNumber int, now time.Time) int64 {
	offset := spread * time.Duration(shardNumber) / time.Duration(len(a.shards))
	t := now.Add(-a.config.Lateness - offset).UnixMilli()
	return t - t%tileMillis
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

// foldOne counts one batch. Errors are bugs or damage, since the collector wrote it:
// they are counted, and cost only what could not be read.
func (a *Aggregator) foldOne(s *shard, b []byte) (h batch.Header, f tile.Folded) {
	f, err := s.tiles.Fold(b)
	if err != nil {
		a.metrics.damaged.Inc()
		a.logger.Error("a batch is damaged; what could be read of it is counted", "error", err)
	}
	h, _ = batch.ParseHeader(b)
	return h, f
}

// boundaryFrame says that the tile up to boundary is closed, by which times to live, how
// old a gauge with a time of its own may be from then on, and which tenants were full: a
// replay must do the same under another configuration, and whatever its stores do. The
// payload, varints of Unix ms and ms and then names, lies in a.boundaries until its next use.
// Only shards with up/down counters have a frame with the time to live of these, which
// programs from before them cannot replay.
func (a *Aggregator) boundaryFrame(shardNumber uint16, boundary int64, full []string) journal.Frame {
	from := len(a.boundaries)
	a.boundaries = binary.AppendVarint(a.boundaries, boundary)
	for _, d := range []time.Duration{a.tiles.CounterTTL, a.tiles.GaugeTTL, a.tiles.CheckTTL, a.tiles.OutOfOrder} {
		a.boundaries = binary.AppendVarint(a.boundaries, d.Milliseconds())
	}
	frameType := byte(frameBoundary)
	if a.shards[shardNumber].tiles.HasUpDown() {
		frameType = frameUpDown
		a.boundaries = binary.AppendVarint(a.boundaries, a.tiles.UpDownTTL.Milliseconds())
	}
	for _, tenant := range full {
		a.boundaries = append(binary.AppendUvarint(a.boundaries, uint64(len(tenant))), tenant...)
	}
	return journal.Frame{Shard: shardNumber, Type: frameType, Payload: a.boundaries[from:len(a.boundaries):len(a.boundaries)]}
}

// parseBoundary reads the payload of a boundary frame. Those of older programs end
// before the timed window, which they took from the configuration, and name no tenant.
func (a *Aggregator) parseBoundary(r journal.Frame) (boundary int64, config tile.Config, ok bool) {
	config = a.tiles
	payload := r.Payload
	boundary, n := binary.Varint(payload)
	times := []*time.Duration{&config.CounterTTL, &config.GaugeTTL, &config.CheckTTL, &config.OutOfOrder}
	if r.Type == frameUpDown {
		times = append(times, &config.UpDownTTL)
	}
	for i, d := range times {
		if n <= 0 {
			return 0, config, false
		}
		if payload = payload[n:]; i == 3 && len(payload) == 0 && r.Type == frameBoundary {
			return boundary, config, boundary%tileMillis == 0
		}
		var ms int64
		ms, n = binary.Varint(payload)
		*d = time.Duration(ms) * time.Millisecond
	}
	if n <= 0 {
		return 0, config, false
	}
	for payload = payload[n:]; len(payload) > 0; {
		size, n := binary.Uvarint(payload)
		if n <= 0 || size > uint64(len(payload)-n) {
			return 0, config, false
		}
		config.Full = append(config.Full, string(payload[n:][:size]))
		payload = payload[n:][size:]
	}
	return boundary, config, boundary%tileMillis == 0
}

// append journals frames and notes their positions.
func (a *Aggregator) append(frames []journal.Frame) error {
	last, err := a.log.Append(frames)
	if err != nil {
		a.metrics.journalErrors.Inc()
		return fmt.Errorf("journal %d frames: %w", len(frames), err)
	}
	first := last - journal.Position(len(frames)) + 1
	for i, r := range frames {
		a.shards[r.Shard].position = first + journal.Position(i)
	}
	return nil
}
