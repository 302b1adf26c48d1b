package aggregator

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// restore brings the shards to the end of the journal.
func (a *Aggregator) restore() error {
	err := a.log.Load(func(number uint16, pos journal.Position, payload []byte) error {
		s, err := tile.ParseState(&a.tiles, payload)
		if err != nil {
			// Its checksum is right, so it was written like this: a bug. Refusing to start
			// would cost the other shards, too.
			a.metrics.damaged.Inc()
			a.logger.Error("BUG: the state of a shard cannot be read; the shard starts empty", "shard", number, "error", err)
			return nil
		}
		a.shards[number].tiles, a.shards[number].position = s, pos
		a.last = max(a.last, pos)
		a.forgetStored(s, s.Waiting(), pos)
		return nil
	})
	if err != nil {
		return err
	}
	if err := a.log.Replay(a.replay); err != nil {
		return err
	}
	now := a.now()
	for i := range a.shards {
		s := &a.shards[i]
		if s.tiles == nil {
			s.tiles = tile.New(&a.tiles, a.dueBoundary(i, now))
		} else {
			// Queries may come before the first window, and ask for the restored tiles.
			a.raiseStamp(min(max(s.tiles.Closed(), s.tiles.LastSeen()), now.UnixMilli()))
		}
	}
	a.postRestored()
	return nil
}

// replay repeats what Run did with a frame. Samples of closed tiles wait unless it is noted
// that they are stored; Run then writes them again. If frames are missing because the disk was
// damaged, it makes the best of the rest: a start must never fail for it.
func (a *Aggregator) replay(pos journal.Position, f journal.Frame) error {
	s := &a.shards[f.Shard]
	s.position, a.last = pos, max(a.last, pos)
	switch f.Type {
	case frameBatch:
		return a.replayBatch(s, f.Payload)
	case frameBoundary, frameUpDown:
		a.replayBoundary(s, pos, f)
	case frameStored:
		a.replayStored(s, f.Payload)
	default:
		return fmt.Errorf("frame of unknown type %d: it was written by a newer version", f.Type)
	}
	return nil
}

func (a *Aggregator) replayBatch(s *shard, b []byte) error {
	h, err := batch.ParseHeader(b)
	if errors.Is(err, batch.ErrNewer) {
		return fmt.Errorf("a batch in it: %w; start that version", err)
	}
	if s.tiles == nil {
		// The shard's first boundary is lost: begin at the window.
		if err != nil {
			a.logger.Error("a batch of the journal is damaged", "error", err)
			return nil
		}
		t := h.Second * 1000
		s.tiles = tile.New(&a.tiles, t-t%tileMillis)
	}
	_, f := a.foldOne(s, b)
	a.metrics.countFolded(&f)
	a.metrics.replayed.Inc()
	return nil
}

func (a *Aggregator) replayBoundary(s *shard, pos journal.Position, f journal.Frame) {
	boundary, config, ok := a.parseBoundary(f)
	if !ok {
		a.logger.Error("a boundary of the journal is damaged", "payload", f.Payload)
		return
	}
	if s.tiles == nil {
		s.tiles = tile.New(&a.tiles, boundary)
		s.tiles.Skip(boundary, &config)
		return
	}
	for s.tiles.Closed() < boundary {
		if s.tiles.Skip(boundary, &config) {
			return
		}
		next := s.tiles.Closed() + tileMillis
		if s.tiles.Rests() { // like flushDue
			next = boundary
		}
		a.forgetStored(s.tiles, s.tiles.Close(next, &config).Waiting, pos)
	}
}

// forgetStored removes tiles that are noted as stored from those that wait. They were closed by the frame
// at a position, or before.
func (a *Aggregator) forgetStored(s *tile.Shard, closed []*tile.Waiting, at journal.Position) {
	for _, w := range closed {
		if a.stored.reaches(w.Tenant, at) {
			s.Stored(w.Tenant, w.Boundary)
		}
	}
}

// replayStored removes stored samples from the backlog. Only older programs wrote such frames:
// the oldest without a payload, once the stores of all tenants had everything up to the last
// boundary.
func (a *Aggregator) replayStored(s *shard, payload []byte) {
	if s.tiles == nil {
		return
	}
	if len(payload) == 0 {
		s.tiles.AllStored()
		return
	}
	boundary, n := binary.Varint(payload)
	if n <= 0 {
		a.logger.Error("a frame of stored samples is damaged", "payload", payload)
		return
	}
	s.tiles.Stored(string(payload[n:]), boundary)
}
