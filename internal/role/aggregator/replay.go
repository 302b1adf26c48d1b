package aggregator

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// restore brings the shards to the end of the journal.
func (a *Aggregator) restore() error {
	err := a.log.Load(func(number uint16, pos journal.Position, payload []byte) error {
		s, err := tile.ParseState(&a.tiles, payload)
		if err != nil {
			// The checksum is right, so a bug wrote this state. If the start failed, the other shards
			// would also be unavailable.
			a.metrics.Damaged.Inc()
			a.logger.Error("BUG: the state of a shard cannot be read; the shard starts empty", "shard", number, "error", err)
			return nil
		}
		a.shards.Begin(number, s)
		a.positions[number] = pos
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
	for i := range uint16(series.Shards) {
		if s := a.shards.Of(i); s == nil {
			a.shards.Begin(i, tile.New(&a.tiles, 0)) // the first frame of a shard is a boundary
		} else {
			// Queries may come before the first window, and ask for the restored tiles.
			a.Raise(min(max(s.Closed(), s.LastSeen()), now.UnixMilli()))
		}
	}
	// The samples of these tenants were acknowledged, so the tenants keep their places even if the
	// limit is lower now.
	a.tenants.Restore(slices.Collect(maps.Keys(a.shards.Unstored()))...)
	a.books.Restored(a.shards)
	return nil
}

// replay applies a frame of an earlier process. Samples of closed tiles wait, and Run writes them
// again, unless they are noted as stored. If frames are missing because the disk was damaged, replay
// continues with the rest: damage must never make a start fail.
func (a *Aggregator) replay(pos journal.Position, f journal.Frame) error {
	a.positions[f.Shard], a.last = pos, max(a.last, pos)
	if f.Type == frameStored {
		a.replayStored(a.shards.Of(f.Shard), f.Payload)
		return nil
	}
	applied, err := a.apply(pos, f)
	if err != nil {
		return err
	}
	if f.Type == frameBatch {
		a.metrics.Count(&applied.folded)
		a.metrics.Replayed.Inc()
	}
	for _, closed := range applied.closed {
		a.forgetStored(a.shards.Of(f.Shard), closed.Waiting, pos)
	}
	return nil
}

// forgetStored removes the tiles that are noted as stored from the waiting tiles. The frame at
// position `at`, or an earlier frame, closed the tiles. If an older program saved a tile, the position
// of the frame that closed the tile is unknown.
func (a *Aggregator) forgetStored(s *tile.Shard, closed []*tile.Waiting, at journal.Position) {
	for _, w := range closed {
		if a.stored.Reaches(w.Tenant, cmp.Or(w.Index, uint64(at))) {
			s.Stored(w.Tenant, w.Boundary)
		}
	}
}

// replayStored applies a frame of stored samples: it removes the samples from the waiting tiles. Only older
// programs wrote such frames. The oldest programs wrote them without a payload, once the stores of all
// tenants had everything up to the last boundary.
func (a *Aggregator) replayStored(s *tile.Shard, payload []byte) {
	if s == nil {
		return
	}
	if len(payload) == 0 {
		s.AllStored()
		return
	}
	boundary, n := binary.Varint(payload)
	if n <= 0 {
		a.logger.Error("a frame of stored samples is damaged", "payload", payload)
		return
	}
	s.Stored(string(payload[n:]), boundary)
}
