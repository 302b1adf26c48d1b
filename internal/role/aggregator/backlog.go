package aggregator

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/tile"
)

const (
	// retryPause is how long a tenant waits after a store refused a write.
	retryPause = time.Second

	// complaint is how often the log says that a tenant's store takes nothing. A try fails
	// each second, and many tenants may have a store on one broken disk.
	complaint = time.Minute

	// stalled is how long a write may take before nobody waits for it any more: neither
	// tiles that are to be made up for, nor the end of the process.
	stalled = 5 * time.Second

	// portionSamples bounds a write: what waited long goes in several, of 7 MB each.
	portionSamples = 128 << 10
)

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

// resume takes up what the last process may not have stored.
func (a *Aggregator) resume() {
	var all []closedTile
	for i := range a.shards {
		for _, w := range a.shards[i].tiles.Waiting() {
			all = append(all, closedTile{uint16(i), w})
		}
	}
	slices.SortStableFunc(all, func(x, y closedTile) int { return cmp.Compare(x.Boundary, y.Boundary) })
	for _, t := range all {
		a.backlogOf(t.Tenant).add(t.shard, t.Waiting)
	}
	a.writeDue()
}

// writeDue begins a write for each tenant that has something to write, is not writing and
// does not pause.
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

// portion is the first tiles, at least one, up to portionSamples.
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

// storing reports whether a store is at work that neither failed nor hangs, nor is slower
// than what it is given: one that never has it all would hold up everybody's tiles.
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

// store writes the samples of one width.
func (a *Aggregator) store(w *write, width tile.Width) error {
	var samples []tile.Sample
	born := w.tiles[0].Boundary
	for _, t := range w.tiles {
		samples = append(samples, t.Samples[width]...)
		born = min(born, t.Boundary)
	}
	if len(samples) == 0 {
		return nil
	}
	trip := &stage.Trip{Input: stage.Tiles, Tenant: w.tenant, Born: time.UnixMilli(born), Samples: len(samples)}
	defer a.watch.End(trip)
	trip.Enter(stage.Distribute, a.now())
	written, err := a.writer.WriteTiles(stage.NewContext(a.writes, trip), w.tenant, width, samples)
	if err != nil {
		trip.Fail(a.now())
		a.metrics.writeErrors.WithLabelValues(w.tenant).Inc()
		return err
	}
	if width == tile.Width10s {
		w.written = written
	}
	return nil
}

// settle is called with a write that came back.
func (a *Aggregator) settle(w *write) {
	b := w.backlog
	b.onItsWay, b.err = false, w.failure
	if w.failure != nil {
		b.retryAt = time.Now().Add(retryPause)
		if time.Since(b.saidAt) >= complaint {
			b.saidAt = time.Now()
			a.logger.Error("samples wait until the store takes them", "tenant", b.tenant, "waiting_samples", b.samples, "error", b.err)
		}
		a.publish(b)
		return
	}
	if !b.saidAt.IsZero() {
		b.saidAt = time.Time{}
		a.logger.Info("the store takes samples again", "tenant", b.tenant)
	}
	b.write = nil
	a.metrics.flushSeconds.Observe(w.took.Seconds())
	a.journalStored(w)
	for _, t := range w.tiles {
		s := &a.shards[t.shard]
		s.mu.Lock()
		s.tiles.Stored(b.tenant, t.Boundary)
		s.mu.Unlock()
		b.bytes -= t.Bytes
		b.samples -= t.Raw
	}
	b.tiles = slices.Clone(b.tiles[len(w.tiles):]) // and lets go of what is stored
	a.postWritten(b.tenant, &w.written)
	if len(b.tiles) == 0 {
		delete(a.backlogs, b.tenant)
	}
	a.publish(b)
}

// journalStored says up to which tile the stores of a tenant have each shard of a write.
// Without that nothing is lost: after a restart the same samples are written again.
func (a *Aggregator) journalStored(w *write) {
	newest := map[uint16]int64{}
	for _, t := range w.tiles {
		newest[t.shard] = max(newest[t.shard], t.Boundary)
	}
	a.frames, a.boundaries = a.frames[:0], a.boundaries[:0]
	for shard, boundary := range newest {
		a.frames = append(a.frames, a.storedFrame(shard, w.tenant, boundary))
	}
	if err := a.append(a.frames); err != nil {
		a.logger.Warn("the journal does not know that samples were stored", "tenant", w.tenant, "error", err)
	}
}

// storedFrame says that a tenant's stores have all of a shard up to boundary. The payload,
// a varint of Unix ms and the tenant's name, lies in a.boundaries until its next use.
func (a *Aggregator) storedFrame(shard uint16, tenant string, boundary int64) journal.Frame {
	from := len(a.boundaries)
	a.boundaries = append(binary.AppendVarint(a.boundaries, boundary), tenant...)
	return journal.Frame{Shard: shard, Type: frameStored, Payload: a.boundaries[from:len(a.boundaries):len(a.boundaries)]}
}

// stopTime bounds the wait for the stores at the end.
const stopTime = 10 * time.Second

// finishWrites waits for the writes that are on their way, but not for those that hang.
func (a *Aggregator) finishWrites() {
	deadline := time.After(stopTime)
	check := time.NewTicker(tick)
	defer check.Stop()
	for {
		waits := false
		for _, b := range a.backlogs {
			waits = waits || b.onItsWay && time.Since(b.begun) < stalled
		}
		if !waits {
			return
		}
		select {
		case w := <-a.written:
			a.settle(w)
		case <-check.C:
		case <-deadline:
			return
		}
	}
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
