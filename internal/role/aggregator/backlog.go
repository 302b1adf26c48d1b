package aggregator

import (
	"fmt"
	"slices"
	"time"

	"github.com/freshet-io/freshet/internal/core/tile"
)

// stalled is how long a write may take before nobody waits for it any more: neither
// tiles that are to be made up for, nor the end of the process.
const stalled = 5 * time.Second

// backlog is what waits for the stores of one tenant, its closed tiles in the order in
// which they were closed. A tenant has one write at a time, in a goroutine that ends with
// it, so that a store that fails or hangs keeps none but its own samples waiting. It
// belongs to Run.
type backlog struct {
	tenant  string
	tiles   []closedTile
	bytes   int64  // of them
	samples uint64 // values on the wire that they stand for

	write    *write // on its way, or to be tried again at retryAt; nil for none
	onItsWay bool
	begun    time.Time // the last try of write
	retryAt  time.Time
	err      error     // of the last try; nil if it went well
	since    time.Time // until when all was stored
	saidAt   time.Time // when the log said so; zero if it has not since a try went well

	full        bool  // there is no room for more: see Options.MaxPending
	refused     bool  // a window was refused since it is full
	refusedFrom int64 // Unix ms, the start of the first such window
}

// closedTile is a tile of a tenant that waits, and its shard.
type closedTile struct {
	shard uint16
	*tile.Waiting
}

// write is the first tiles of a backlog on their way to the stores. Once on its way it
// belongs to the goroutine that writes.
type write struct {
	backlog *backlog
	tenant  string
	tiles   []closedTile
	done    [tile.NumWidths]bool
	written tile.Written // by the finest width, whose samples alone stand for values on the wire
	failure error        // of this try
	took    time.Duration
}

// backlogOf returns the backlog of a tenant, new if need be.
func (a *Aggregator) backlogOf(tenant string) *backlog {
	b := a.backlogs[tenant]
	if b == nil {
		b = &backlog{tenant: tenant, since: time.Now()}
		a.backlogs[tenant] = b
		a.metrics.writeErrors.WithLabelValues(tenant) // shown as 0 until there are some
	}
	return b
}

// add puts a tile behind those that wait.
func (b *backlog) add(shard uint16, w *tile.Waiting) {
	b.tiles = append(b.tiles, closedTile{shard, w})
	b.bytes += w.Bytes
	b.samples += w.Raw
}

// reason says why what waits is not stored, nil if a store is at work.
func (b *backlog) reason() error {
	if b.err == nil && b.onItsWay && time.Since(b.begun) >= stalled {
		return errStalled
	}
	return b.err
}

// errStalled says why samples wait when a write neither ends nor fails.
var errStalled = fmt.Errorf("a write has not come to an end for more than %v", stalled)

// Pending is what waits for the stores of a tenant.
type Pending struct {
	Samples uint64 // values on the wire
	Bytes   int64  // of memory, about
	Since   int64  // Unix ms, end of the oldest tile that waits
	Err     error  // why the stores did not take it, nil if they are at work
	Refused bool   // there is no room for more: windows are refused

	refusedFrom int64
}

// Pending returns what waits for the stores, by tenant.
func (a *Aggregator) Pending() map[string]Pending {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make(map[string]Pending, len(a.pending))
	for tenant, p := range a.pending {
		all[tenant] = p
	}
	return all
}

// publish finds out whether there is room for more, and tells others what waits.
func (a *Aggregator) publish(b *backlog) {
	if full := b.bytes >= a.maxPending; full != b.full {
		b.full = full
		if full {
			a.full++
			a.logger.Error("a tenant's store takes nothing, and store.pending is reached: its new samples are refused", "tenant", b.tenant, "bytes", b.bytes, "error", b.reason())
		} else {
			a.full--
			a.logger.Info("there is room for a tenant's samples again", "tenant", b.tenant)
		}
	}
	b.refused = b.refused && b.full
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(b.tiles) == 0 {
		delete(a.pending, b.tenant)
		return
	}
	p := Pending{Samples: b.samples, Bytes: b.bytes, Since: b.tiles[0].Boundary, Err: b.reason(), Refused: b.refused, refusedFrom: b.refusedFrom}
	a.pending[b.tenant] = p
}

// fullTenants are those for which no more may wait, sorted; nil for none.
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

// unstored is the end of each tenant's oldest tile that is not stored, Unix ms.
func (a *Aggregator) unstored() map[string]int64 {
	oldest := map[string]int64{}
	for i := range a.shards {
		s := &a.shards[i]
		s.mu.Lock()
		for tenant, end := range s.tiles.Unstored() {
			if first, known := oldest[tenant]; !known || end < first {
				oldest[tenant] = end
			}
		}
		s.mu.Unlock()
	}
	return oldest
}
