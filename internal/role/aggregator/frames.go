package aggregator

import (
	"encoding/binary"
	"time"

	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// tileMillis is the width of the tile that a boundary closes.
const tileMillis = 10_000

// Types of journal frames. Layout: docs/format/checkpoint.md.
const (
	frameBatch       = 1 // a window batch
	frameOldBoundary = 2 // only from older programs: like frameBoundary, without the time to live of up/down counters
	frameStored      = 3 // only from older programs: the samples of a tenant up to a boundary are in its stores
	frameBoundary    = 4 // the tile up to a boundary was closed; payload: see boundaryFrame
)

// boundaryFrame returns the frame that closes the tile up to `boundary`. The frame also has the times to
// live in force, the largest age of timed gauges from then on, and the names of the full tenants. So a
// replay does the same, even with another configuration and whatever the stores do. The payload is a
// varint of Unix ms, varints of ms, then names. It lies in a.boundaries until that slice is reused.
func (a *Aggregator) boundaryFrame(shardNumber uint16, boundary int64, full []string) journal.Frame {
	from := len(a.boundaries)
	a.boundaries = binary.AppendVarint(a.boundaries, boundary)
	for _, d := range []time.Duration{
		a.tiles.CounterTTL, a.tiles.GaugeTTL, a.tiles.CheckTTL, a.tiles.OutOfOrder, a.tiles.UpDownTTL,
	} {
		a.boundaries = binary.AppendVarint(a.boundaries, d.Milliseconds())
	}
	for _, tenant := range full {
		a.boundaries = append(binary.AppendUvarint(a.boundaries, uint64(len(tenant))), tenant...)
	}
	return journal.Frame{
		Shard: shardNumber, Type: frameBoundary, Payload: a.boundaries[from:len(a.boundaries):len(a.boundaries)],
	}
}

// parseBoundary reads the payload of a boundary frame. Frames of older programs lack the time to live
// of up/down counters. Frames of the oldest programs also lack the timed window and the names of full
// tenants. Times that a frame lacks come from the configuration.
func (a *Aggregator) parseBoundary(f journal.Frame) (boundary int64, config tile.Config, ok bool) {
	config = a.tiles
	payload := f.Payload
	boundary, n := binary.Varint(payload)
	times := []*time.Duration{&config.CounterTTL, &config.GaugeTTL, &config.CheckTTL, &config.OutOfOrder}
	if f.Type == frameBoundary {
		times = append(times, &config.UpDownTTL)
	}
	for i, d := range times {
		if n <= 0 {
			return 0, config, false
		}
		if payload = payload[n:]; i == 3 && len(payload) == 0 && f.Type == frameOldBoundary {
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
