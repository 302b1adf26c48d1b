package aggregator

import (
	"context"
	"errors"
	"time"

	groupcheckpoint "github.com/freshet-io/freshet/internal/core/checkpoint"
	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/series"
)

// checkpoint is a checkpoint in progress: it holds the state of all shards, and each tick writes
// some of them.
type checkpoint struct {
	journal.Checkpoint
	left   []uint16 // shards that are not yet written
	size   int64    // bytes of the sections so far
	buf    []byte
	begun  time.Time
	commit chan error // nil until all shards are written
}

// A checkpoint is due when the journal has grown enough, and at the latest checkpointInterval after
// the last one. After a failed sync of the journal, a checkpoint is due at once: until it succeeds,
// the journal acknowledges nothing that must survive a power loss.
const (
	checkpointInterval = 5 * time.Minute
	sectionsPerTick    = 80 // all 1,024 shards take 3.2 s

	// journalShare is how many times as large as the last checkpoint the journal must be before the next one. With a
	// million series, a checkpoint is larger than Config.Checkpoint, and most of what is written would be checkpoints.
	journalShare = 2

	// After a failed checkpoint, the next one begins savePause later. The pause doubles up to
	// maxSavePause with each further failure, because a failed checkpoint costs as much as a
	// successful one.
	savePause    = time.Second
	maxSavePause = time.Minute

	// syncTime bounds the wait for the stores' disks. A store that hangs must delay neither the
	// checkpoint of the other stores' samples nor the end of the process.
	syncTime = 30 * time.Second

	// unsyncedBytes bounds how much the journal keeps for stores that cannot be synced, beside the
	// frames since the last two checkpoints. A store that is never synced must not fill the disk.
	unsyncedBytes = 4 << 30
)

// saveSome continues the checkpoint, or begins one that is due.
func (a *Aggregator) saveSome() {
	now, size := a.now(), a.log.Size()
	_, doubtful := a.log.Doubtful()
	switch {
	case a.checkpoint != nil, time.Now().Before(a.saveAgain):
	case doubtful, size > max(int64(a.config.Checkpoint), journalShare*a.savedSize),
		size > 0 && now.Sub(a.lastSaved) > checkpointInterval:
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
	for i := range series.Shards {
		a.checkpoint.left = append(a.checkpoint.left, uint16(i))
	}
}

func (a *Aggregator) checkpointFailed(err error) {
	pause := a.savePause.Next()
	a.saveAgain = time.Now().Add(pause)
	a.metrics.CheckpointErrors.Inc()
	a.logger.Error("a checkpoint failed; the journal grows until one succeeds", "error", err, "again_in", pause)
}

// continueCheckpoint writes up to n shards, with their tiles that wait for stores.
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
	for _, number := range c.left[:min(n, len(c.left))] {
		if a.positions[number] == 0 {
			continue // the shard has had no frame, so it has no state
		}
		c.buf = a.shards.AppendState(number, c.buf[:0])
		if err := c.Section(number, max(a.positions[number], c.Base()), c.buf); err != nil {
			c.Abort()
			a.endCheckpoint(err)
			return
		}
		c.size += int64(len(c.buf))
	}
	if c.left = c.left[min(n, len(c.left)):]; len(c.left) > 0 {
		return
	}
	// The sync may take long. In a goroutine of its own, it delays nothing here.
	c.commit = make(chan error, 1)
	go func() { c.commit <- a.commitCheckpoint(c) }()
}

// commitCheckpoint commits a checkpoint that has all sections. It first syncs the stores: only they
// have the samples that the sections no longer have, and these samples must survive a power loss.
//
// If a sync leaves out a store, the checkpoint must still be committed, or the journal would grow for
// ever. So the checkpoint is committed as unsynced: it is valid as long as the machine runs, and the
// journal keeps the frames that a start after a power loss needs. The journal no longer keeps these
// frames if they take too much space, or if a sync of the journal itself failed.
func (a *Aggregator) commitCheckpoint(c *checkpoint) error {
	ctx, cancel := context.WithTimeout(context.Background(), syncTime)
	defer cancel()
	err := a.writer.Sync(ctx)
	if leftOut := (*groupcheckpoint.LeftOutError)(nil); errors.As(err, &leftOut) {
		_, size := a.log.Unsynced()
		_, doubtful := a.log.Doubtful()
		if !doubtful && size <= a.unsyncedBytes {
			a.logger.Warn("some stores cannot be synced: the journal keeps the frames since the last checkpoint with "+
				"all stores synced",
				"bytes", size, "error", err)
			return c.CommitUnsynced()
		}
		a.logger.Error("some stores cannot be synced, and the journal no longer keeps their samples: a power loss would "+
			"lose the newest samples of these stores", "bytes", size, "sync_of_the_journal_failed", doubtful, "error", err)
		err = nil
	}
	if err != nil {
		c.Abort()
		return err
	}
	return c.Commit()
}

func (a *Aggregator) endCheckpoint(err error) {
	if err != nil {
		a.checkpointFailed(err)
	} else {
		a.metrics.CheckpointSeconds.Set(a.now().Sub(a.checkpoint.begun).Seconds())
		a.metrics.Checkpoints.Inc()
		a.savePause.Reset()
		a.savedSize = a.checkpoint.size
		a.countUnsynced()
		a.rewriteNotes(a.checkpoint.Base())
	}
	a.checkpoint = nil
}

func (a *Aggregator) countUnsynced() {
	frames, _ := a.log.Unsynced()
	a.metrics.CheckpointUnsynced.Set(float64(frames))
}

// rewriteNotes rewrites the file of notes, once a checkpoint is in place.
func (a *Aggregator) rewriteNotes(base journal.Position) {
	waits := func(tenant string) bool { return a.backlogs[tenant] != nil }
	if err := a.stored.Rewrite(uint64(base), waits); err != nil {
		a.metrics.JournalErrors.Inc()
		a.logger.Warn("the file of notes, which says what the stores already have, could not be written; "+
			"a restart before the next checkpoint may write samples to the stores again", "error", err)
	}
}
