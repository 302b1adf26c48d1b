package aggregator

import (
	"time"

	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// tick is the interval between checks for due tiles. The cost of a check does not depend on what is
// due, but each flush costs a commit of the stores.
const tick = 250 * time.Millisecond

// look returns the time, and whether the clock can be believed.
func (a *Aggregator) look() (now time.Time, believed bool) {
	if now, believed = a.wall.Look(); believed {
		a.Looked(now)
	}
	return now, believed
}

// flushDue closes one tile of each shard that has a due tile, and appends the samples to the backlogs
// of their tenants. It does nothing while the clock is not believed. A shard does not wait for a store
// that takes no writes. The boundary is journalled first, so that a replay gives the same samples
// again.
func (a *Aggregator) flushDue() {
	now, believed := a.look()
	if !believed {
		return
	}
	a.frames, a.boundaries = a.frames[:0], a.boundaries[:0]
	storing := a.storing()
	leaps := a.leaps(now)
	full := a.fullTenants()
	for i := range series.Shards {
		t := a.shards.Of(uint16(i))
		next, due := t.Closed()+tileMillis, a.dueBoundary(i, now)
		if leaps {
			next = max(next, due)
		}
		// Close the tiles of a downtime one after the other, each after the stores have the previous tile.
		// Otherwise all of these tiles would be in memory at once.
		if t.Len() == 0 || next > due || next < due && storing {
			continue
		}
		a.frames = append(a.frames, a.boundaryFrame(uint16(i), next, full))
	}
	if len(a.frames) == 0 {
		return
	}
	if err := a.append(a.frames); err != nil {
		a.logger.Error("tiles stay open until the journal can be written", "error", err)
		return // the next tick tries again
	}
	a.fold(a.frames)
	a.writeDue()
}

// spread is the time over which the shards close the same tile, one shard after the other, so that a
// flush of many series is not a burst.
const spread = 4 * time.Second

// dueBoundary returns the end of the last tile that a shard must have closed by `now`.
func (a *Aggregator) dueBoundary(shardNumber int, now time.Time) int64 {
	offset := spread * time.Duration(shardNumber) / time.Duration(series.Shards)
	t := now.Add(-a.config.Lateness - offset).UnixMilli()
	return t - t%tileMillis
}

// leapMillis is how far shards must be behind before they leap. It is PromQL's default look-back.
// Shards that are less behind repeat their totals as usual.
const leapMillis = 5 * 60_000

// leaps reports whether the shards skip the tiles of a downtime and continue at the present. They do
// if some shard is far behind and all shards rest: see tile.Shard.Rests. A shard that does not rest
// still has samples of the downtime, and the stores would refuse these samples after samples of the
// present.
func (a *Aggregator) leaps(now time.Time) bool {
	far := false
	for i := range series.Shards {
		t := a.shards.Of(uint16(i))
		far = far || t.Len() > 0 && a.dueBoundary(i, now)-t.Closed() > leapMillis
	}
	for i := 0; far && i < series.Shards; i++ {
		far = a.shards.Of(uint16(i)).Rests()
	}
	return far
}

// behind reports whether some shard has so many tiles to close that a window of the present might be
// ahead of all open tiles of that shard.
func (a *Aggregator) behind(now time.Time) bool {
	oldest := now.UnixMilli() - (tile.MaxAhead-1)*tileMillis
	for i := range series.Shards {
		if t := a.shards.Of(uint16(i)); t.Closed() < oldest && t.Len() > 0 {
			return true
		}
	}
	return false
}
