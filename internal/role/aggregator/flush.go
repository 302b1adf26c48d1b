package aggregator

import (
	"context"
	"slices"
	"time"

	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/stage"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// flush is the samples of some shards' tiles on their way to the stores.
type flush struct {
	shards     []uint16
	boundaries []int64 // of each shard
	samples    tile.Flush
	written    map[string]*Written // by tenant, of what the stores took
}

func newFlush() *flush { return &flush{samples: tile.Flush{}, written: map[string]*Written{}} }

// flushDue closes the tiles that are due and hands their samples to the flusher,
// which must be idle. It reports whether the flusher has work now. The boundary
// is journalled first: replaying it gives the same samples again.
func (a *Aggregator) flushDue(jobs chan<- *flush, now time.Time) (busy bool) {
	f := newFlush()
	a.records, a.boundaries = a.records[:0], a.boundaries[:0]
	for i := range a.shards {
		t := a.shards[i].tiles
		if t.Len() == 0 || t.Pending() || t.Closed()+tileMillis > a.dueBoundary(i, now) {
			continue
		}
		f.shards = append(f.shards, uint16(i))
		f.boundaries = append(f.boundaries, t.Closed()+tileMillis)
		a.records = append(a.records, a.boundaryRecord(uint16(i), t.Closed()+tileMillis))
	}
	if len(f.shards) == 0 {
		return false
	}
	if err := a.append(a.records); err != nil {
		a.logger.Error("tiles stay open until the journal can be written", "error", err)
		return false // the next tick tries again
	}
	for i, number := range f.shards {
		s := &a.shards[number]
		s.mu.Lock()
		closed := s.tiles.Close(f.boundaries[i], &a.tiles, f.samples)
		s.mu.Unlock()
		a.metrics.tiled.Add(float64(closed.Samples))
		a.postDuplicates(closed.Duplicates)
	}
	jobs <- f // the flusher is idle: it takes it at once
	return true
}

// committed is called with what the flusher stored: it leaves the open set.
func (a *Aggregator) committed(f *flush) {
	a.records, a.boundaries = a.records[:0], a.boundaries[:0]
	for _, number := range f.shards {
		a.records = append(a.records, journal.Record{Shard: number, Type: recordStored})
	}
	if err := a.append(a.records); err != nil {
		// Nothing is lost: after a restart the same samples are written again.
		a.logger.Warn("the journal does not know that tiles were stored", "error", err)
	}
	for _, number := range f.shards {
		s := &a.shards[number]
		s.mu.Lock()
		s.tiles.Committed()
		s.mu.Unlock()
	}
	a.postWritten(f.written)
}

// resume hands samples that the last process may not have stored to the flusher.
func (a *Aggregator) resume(jobs chan<- *flush) (busy bool) {
	f := newFlush()
	for i := range a.shards {
		if t := a.shards[i].tiles; t.Pending() {
			t.Resume(f.samples)
			f.shards = append(f.shards, uint16(i))
			f.boundaries = append(f.boundaries, t.Closed())
		}
	}
	if len(f.shards) == 0 {
		return false
	}
	jobs <- f
	return true
}

// behind reports whether a shard has so many tiles to close that a window of now
// might lie ahead of those that can be open.
func (a *Aggregator) behind(now time.Time) bool {
	oldest := now.UnixMilli() - (tile.MaxAhead-1)*tileMillis
	for i := range a.shards {
		if t := a.shards[i].tiles; t.Closed() < oldest && (t.Len() > 0 || t.Pending()) {
			return true
		}
	}
	return false
}

// retryPause is how long the flusher waits after a store refused a write.
const retryPause = time.Second

// flushLoop writes what it is handed, as often as it takes. It ends when jobs is
// closed or ctx is done; what is not stored then is written after the restart.
func (a *Aggregator) flushLoop(ctx context.Context, jobs <-chan *flush) {
	for f := range jobs {
		start := time.Now()
		for left := a.writeAll(ctx, f, f.samples); len(left) > 0; left = a.writeAll(ctx, f, left) {
			select {
			case <-time.After(retryPause):
			case <-ctx.Done():
				return
			}
		}
		a.metrics.flushSeconds.Observe(time.Since(start).Seconds())
		select {
		case a.stored <- f:
		case <-ctx.Done():
			return
		}
	}
}

// writeAll stores samples of a flush, and returns those that a store did not take:
// one that is broken does not keep the others waiting.
func (a *Aggregator) writeAll(ctx context.Context, f *flush, samples tile.Flush) (left tile.Flush) {
	left = tile.Flush{}
	for tenant, byWidth := range samples {
		for w, samples := range byWidth {
			if len(samples) == 0 {
				continue
			}
			trip := &stage.Trip{Input: stage.Tiles, Tenant: tenant, Born: time.UnixMilli(slices.Min(f.boundaries)), Samples: len(samples)}
			trip.Enter(stage.Distribute, a.now())
			written, err := a.writer.Write(stage.NewContext(ctx, trip), tenant, tile.Width(w), samples)
			if err == nil {
				f.count(tenant, written)
				a.watch.End(trip)
				continue
			}
			trip.Fail(a.now())
			a.watch.End(trip)
			a.metrics.writeErrors.Inc()
			a.logger.Error("tiles wait until the store takes them", "tenant", tenant, "width", tile.Width(w), "samples", len(samples), "error", err)
			if left[tenant] == nil {
				left[tenant] = new([tile.NumWidths][]tile.Sample)
			}
			left[tenant][w] = samples
		}
	}
	return left
}

// checkpoint is the state of all shards while it is being written, some at each
// tick.
type checkpoint struct {
	*journal.Checkpoint
	left   []uint16 // shards that are not in it yet
	buf    []byte
	begun  time.Time
	commit chan error // nil until all are in
}

// A checkpoint is due when the journal has grown, or some time after the last.
const (
	checkpointInterval = 5 * time.Minute
	sectionsPerTick    = 80 // all 1,024 in 3.2 s
)

// saveSome goes on with the checkpoint, or begins one that is due.
func (a *Aggregator) saveSome(now time.Time) {
	switch size := a.log.Size(); {
	case a.checkpoint != nil:
	case size > int64(a.config.Checkpoint), size > 0 && now.Sub(a.lastSaved) > checkpointInterval:
		a.beginCheckpoint(now)
	}
	if a.checkpoint != nil {
		a.continueCheckpoint(sectionsPerTick)
	}
}

func (a *Aggregator) beginCheckpoint(now time.Time) {
	a.lastSaved = now
	c, err := a.log.BeginCheckpoint()
	if err != nil {
		a.checkpointFailed(err)
		return
	}
	a.checkpoint = &checkpoint{Checkpoint: c, begun: now}
	for i := range a.shards {
		a.checkpoint.left = append(a.checkpoint.left, uint16(i))
	}
}

func (a *Aggregator) checkpointFailed(err error) {
	a.metrics.checkpointErrors.Inc()
	a.logger.Error("the journal keeps growing until a checkpoint succeeds", "error", err)
}

// continueCheckpoint writes up to n shards. Shards whose samples are on their way
// to the stores wait for a later tick.
func (a *Aggregator) continueCheckpoint(n int) {
	c := a.checkpoint
	if c.commit != nil {
		select {
		case err := <-c.commit:
			a.endCheckpoint(err)
		default:
		}
		return
	}
	waiting := c.left[:0]
	for i, number := range c.left {
		s := &a.shards[number]
		if n == 0 {
			waiting = append(waiting, c.left[i:]...)
			break
		}
		if s.tiles.Pending() {
			waiting = append(waiting, number)
			continue
		}
		n--
		s.mu.Lock() // sets are sorted for it, and may be looked at
		c.buf = s.tiles.AppendState(c.buf[:0])
		s.mu.Unlock()
		if err := c.Section(number, max(s.position, c.Base()), c.buf); err != nil {
			c.Abort()
			a.endCheckpoint(err)
			return
		}
	}
	if c.left = waiting; len(c.left) > 0 {
		return
	}
	// Syncing may take long, and holds nobody up here.
	c.commit = make(chan error, 1)
	go func() { c.commit <- c.Commit() }()
}

func (a *Aggregator) endCheckpoint(err error) {
	if err != nil {
		a.checkpointFailed(err)
	} else {
		a.metrics.checkpointSeconds.Set(a.now().Sub(a.checkpoint.begun).Seconds())
		a.metrics.checkpoints.Inc()
	}
	a.checkpoint = nil
}

// stopTime bounds the wait for a store at the end.
const stopTime = 10 * time.Second

// stop lets the flusher finish and checkpoints everything, so that the next start
// has nothing to replay.
func (a *Aggregator) stop(busy bool) error {
	a.abandonCheckpoint()
	if busy {
		select {
		case f := <-a.stored:
			a.committed(f)
		case <-time.After(stopTime):
			a.logger.Warn("the store did not take the last tiles in time; the next start writes them", "waited", stopTime)
			return a.log.Close()
		}
	}
	if a.beginCheckpoint(a.now()); a.checkpoint != nil {
		a.continueCheckpoint(len(a.shards))
		if a.checkpoint != nil {
			a.endCheckpoint(<-a.checkpoint.commit)
		}
	}
	return a.log.Close()
}

// abandonCheckpoint ends the one that is being written.
func (a *Aggregator) abandonCheckpoint() {
	switch c := a.checkpoint; {
	case c == nil:
	case c.commit != nil:
		a.endCheckpoint(<-c.commit)
	default:
		c.Abort()
		a.checkpoint = nil
	}
}

// syncLoop forces the journal to the disk once a second.
func (a *Aggregator) syncLoop(ctx context.Context) {
	if a.config.Fsync != FsyncInterval {
		return
	}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if err := a.log.Sync(); err != nil {
				a.metrics.journalErrors.Inc()
				a.logger.Error("what was journalled in the last second would not survive a power loss", "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}
