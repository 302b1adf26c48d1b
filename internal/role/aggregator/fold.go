package aggregator

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/freshet-io/freshet/internal/core/batch"
	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// Types of journal records. Layout: docs/format/checkpoint.md.
const (
	recordBatch    = 1 // a window batch
	recordBoundary = 2 // the tile up to a boundary was closed; payload: see boundaryRecord
	recordStored   = 3 // the samples of that boundary are in the stores; no payload
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
// record of a shard is one too, since a replay begins there.
func (a *Aggregator) fold(p *push, now time.Time) error {
	trip := stage.FromContext(p.ctx)
	trip.Pass(stage.Forward, stage.Journal, a.now())
	a.records, a.boundaries = a.records[:0], a.boundaries[:0]
	for _, b := range p.batches {
		s := &a.shards[b.Shard]
		if s.tiles.Len() == 0 && !s.tiles.Pending() {
			due := max(a.dueBoundary(int(b.Shard), now), s.tiles.Closed())
			if due > s.tiles.Closed() || s.position == 0 {
				a.records = append(a.records, a.boundaryRecord(b.Shard, due))
			}
		}
		a.records = append(a.records, journal.Record{Shard: b.Shard, Type: recordBatch, Payload: b.Bytes})
	}
	if err := a.append(a.records); errors.Is(err, journal.ErrTooLarge) {
		return fmt.Errorf("%w: %w", batch.ErrRefused, err)
	} else if err != nil {
		return err
	}
	trip.Pass(stage.Journal, stage.Tile, a.now())
	folded := map[string]*tile.Folded{}
	for _, r := range a.records {
		s := &a.shards[r.Shard]
		s.mu.Lock()
		if r.Type == recordBoundary {
			boundary, _, _ := parseBoundary(r.Payload)
			s.tiles.Skip(boundary)
		} else {
			h, f := a.foldOne(s, r.Payload, now)
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
	seen := a.now()
	trip.Leave(stage.Tile, seen)
	trip.Seen(seen)
	if a.config.Fsync == FsyncCommit {
		if err := a.log.Sync(); err != nil {
			// It counts, but is not acknowledged: pushed again, it is a repeat.
			a.metrics.journalErrors.Inc()
			return fmt.Errorf("%w: sync the journal: %w", batch.ErrUnsynced, err)
		}
		trip.Add(stage.Journal, a.now().Sub(seen))
	}
	return nil
}

// foldOne counts one batch. Errors are bugs or damage, since the collector wrote it:
// they are counted, and cost only what could not be read.
func (a *Aggregator) foldOne(s *shard, b []byte, now time.Time) (h batch.Header, f tile.Folded) {
	f, err := s.tiles.Fold(b)
	if err != nil {
		a.metrics.damaged.Inc()
		a.logger.Error("a batch is damaged; what could be read of it is counted", "error", err)
	}
	if h, err = batch.ParseHeader(b); err == nil {
		a.raiseStamp(min(h.Second*1000+1000, now.UnixMilli()))
	}
	return h, f
}

// boundaryRecord says that the tile up to boundary is closed, and by which times
// to live: a replay must do the same under another configuration. The payload,
// varints of Unix ms and ms, lies in a.boundaries until its next use.
func (a *Aggregator) boundaryRecord(shardNumber uint16, boundary int64) journal.Record {
	from := len(a.boundaries)
	for _, v := range []int64{boundary, a.tiles.CounterTTL.Milliseconds(), a.tiles.GaugeTTL.Milliseconds(), a.tiles.CheckTTL.Milliseconds()} {
		a.boundaries = binary.AppendVarint(a.boundaries, v)
	}
	return journal.Record{Shard: shardNumber, Type: recordBoundary, Payload: a.boundaries[from:len(a.boundaries):len(a.boundaries)]}
}

// parseBoundary reads the payload of a boundary record.
func parseBoundary(payload []byte) (boundary int64, config tile.Config, ok bool) {
	var v [4]int64
	for i := range v {
		n := 0
		if v[i], n = binary.Varint(payload); n <= 0 {
			return 0, config, false
		}
		payload = payload[n:]
	}
	config.CounterTTL, config.GaugeTTL = time.Duration(v[1])*time.Millisecond, time.Duration(v[2])*time.Millisecond
	config.CheckTTL = time.Duration(v[3]) * time.Millisecond
	return v[0], config, v[0]%tileMillis == 0 && len(payload) == 0
}

// append journals records and notes their positions.
func (a *Aggregator) append(records []journal.Record) error {
	last, err := a.log.Append(records)
	if err != nil {
		a.metrics.journalErrors.Inc()
		return fmt.Errorf("journal %d records: %w", len(records), err)
	}
	first := last - journal.Position(len(records)) + 1
	for i, r := range records {
		a.shards[r.Shard].position = first + journal.Position(i)
	}
	return nil
}

// restore brings the shards to where the journal ends.
func (a *Aggregator) restore() error {
	err := a.log.Load(func(number uint16, pos journal.Position, payload []byte) error {
		if int(number) >= len(a.shards) {
			return nil // the instance's own section, which this role does not use
		}
		s, err := tile.ParseState(&a.tiles, payload)
		if err != nil {
			// Its checksum is right, so it was written like that: a bug. A server that
			// does not start would cost the other shards, too.
			a.metrics.damaged.Inc()
			a.logger.Error("BUG: the state of a shard cannot be read; it begins anew", "shard", number, "error", err)
			return nil
		}
		a.shards[number].tiles, a.shards[number].position = s, pos
		return nil
	})
	if err != nil {
		return err
	}
	if err := a.log.Replay(a.replay); err != nil {
		return err
	}
	for i := range a.shards {
		if a.shards[i].tiles == nil {
			a.shards[i].tiles = tile.New(&a.tiles, a.dueBoundary(i, a.now()))
		}
	}
	a.postRestored()
	return nil
}

// replay does again what Run did with a record. Samples of the last boundary stay
// pending if nothing says that they were stored; Run then writes them again.
// Where records are missing, since the disk was damaged, it makes the best of
// what is left: a start must never fail for it.
func (a *Aggregator) replay(pos journal.Position, r journal.Record) error {
	s := &a.shards[r.Shard]
	s.position = pos
	switch r.Type {
	case recordBatch:
		a.replayBatch(s, r.Payload)
	case recordBoundary:
		a.replayBoundary(s, r.Payload)
	case recordStored:
		if s.tiles != nil {
			s.tiles.Committed()
		}
	default:
		return fmt.Errorf("record of unknown type %d: it was written by a newer version", r.Type)
	}
	return nil
}

func (a *Aggregator) replayBatch(s *shard, b []byte) {
	if s.tiles == nil {
		// The shard's first boundary is lost: begin at the window.
		h, err := batch.ParseHeader(b)
		if err != nil {
			a.logger.Error("a batch of the journal is damaged", "error", err)
			return
		}
		t := h.Second * 1000
		s.tiles = tile.New(&a.tiles, t-t%tileMillis)
	}
	_, f := a.foldOne(s, b, a.now())
	a.metrics.countFolded(&f)
	a.metrics.replayed.Inc()
}

func (a *Aggregator) replayBoundary(s *shard, payload []byte) {
	boundary, config, ok := parseBoundary(payload)
	if !ok {
		a.logger.Error("a boundary of the journal is damaged", "payload", payload)
		return
	}
	if s.tiles == nil {
		s.tiles = tile.New(&a.tiles, boundary)
		return
	}
	for s.tiles.Closed() < boundary {
		s.tiles.Committed() // the next boundary is journalled only after that
		if !s.tiles.Skip(boundary) {
			s.tiles.Close(s.tiles.Closed()+tileMillis, &config, tile.Flush{})
		}
	}
}
