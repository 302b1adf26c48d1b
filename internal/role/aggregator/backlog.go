package aggregator

import (
	"fmt"
	"slices"
	"time"

	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/tiling"
)

// stalled is the duration after which a running write counts as stalled. Then neither the tiles of a
// downtime nor the end of the process waits for the write any more.
const stalled = 5 * time.Second

// backlog holds the closed tiles that wait for the stores of one tenant, in the order of closing. A
// tenant has one write at a time, in its own goroutine, so that a store that fails or hangs delays
// only its own samples. Only Run uses a backlog.
type backlog struct {
	tenant  string
	tiles   []closedTile
	bytes   int64  // size of the tiles
	samples uint64 // number of values on the wire in the tiles

	write    *write // in progress, or waiting for its retry at retryAt; may be nil
	onItsWay bool
	begun    time.Time // when the last try of the write began
	retryAt  time.Time
	err      error     // the error of the last try; nil if it succeeded
	since    time.Time // the time up to which everything was stored
	saidAt   time.Time // time of the last log line; zero if there was none since the last success

	full        bool  // the backlog has reached Options.MaxPending
	refused     bool  // a window was refused because the backlog is full
	refusedFrom int64 // Unix ms, the start of the first such window
}

// closedTile is a waiting tile of a tenant, and its shard. The tile's Index is the position of the
// frame that closed it.
type closedTile struct {
	shard uint16
	*tile.Waiting
}

// write holds the first tiles of a backlog, on their way to the stores. While a try runs, the write
// belongs to the goroutine of that try.
type write struct {
	backlog *backlog
	tenant  string
	tiles   []closedTile
	done    [tile.NumWidths]bool
	written tile.Written // of the finest width, since only its samples count values on the wire
	failure error        // the error of this try
	took    time.Duration
}

// backlogOf returns the backlog of a tenant, and makes one if there is none.
func (a *Aggregator) backlogOf(tenant string) *backlog {
	b := a.backlogs[tenant]
	if b == nil {
		b = &backlog{tenant: tenant, since: time.Now()}
		a.backlogs[tenant] = b
		a.metrics.WriteErrors.WithLabelValues(tenant) // shown as 0 until there are errors
	}
	return b
}

// add appends a tile.
func (b *backlog) add(t closedTile) {
	b.tiles = append(b.tiles, t)
	b.bytes += t.Bytes
	b.samples += t.Raw
}

// reason returns the error that keeps the tiles from being stored, or nil if a write is in progress.
func (b *backlog) reason() error {
	if b.err == nil && b.onItsWay && time.Since(b.begun) >= stalled {
		return errStalled
	}
	return b.err
}

// errStalled is the reason when a write has been in progress for too long.
var errStalled = fmt.Errorf("a write has been running for more than %v", stalled)

// publish updates the mark that the backlog is full, and the summary of the backlog for other
// goroutines.
func (a *Aggregator) publish(b *backlog) {
	if full := b.bytes >= a.maxPending; full != b.full {
		b.full = full
		if full {
			a.full++
			a.logger.Error("a tenant's store takes no writes, and store.pending is reached: the tenant's new "+
				"samples are refused",
				"tenant", b.tenant, "bytes", b.bytes, "error", b.reason())
		} else {
			a.full--
			a.logger.Info("there is room for a tenant's samples again", "tenant", b.tenant)
		}
	}
	b.refused = b.refused && b.full
	var p tiling.Pending
	if len(b.tiles) > 0 {
		p = tiling.Pending{
			Samples: b.samples, Bytes: b.bytes, Since: b.tiles[0].Boundary, Err: b.reason(), Refused: b.refused,
			RefusedFrom: b.refusedFrom,
		}
	}
	a.SetPending(b.tenant, p)
}

// fullTenants returns the names of the tenants whose backlogs are full, sorted; nil if there are none.
func (a *Aggregator) fullTenants() (names []string) {
	if a.full == 0 {
		return nil
	}
	for name, b := range a.backlogs {
		if b.full {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
