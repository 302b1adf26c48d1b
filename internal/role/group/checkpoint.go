package group

import (
	"context"
	"errors"
	"time"

	"github.com/freshet-io/freshet/internal/core/checkpoint"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/series"
)

// saving is a checkpoint that is being written.
type saving struct {
	*checkpoint.Writer
	shards  []uint16 // not written yet
	tenants []string // not written yet
	grown   int64    // bytes of the log when it began
	buf     []byte
	begun   time.Time
	commit  chan error // nil until all sections are written
	synced  bool       // no store was left out
	leftOut []string   // stores that were left out; valid once commit has sent
}

// A checkpoint is due when the log has grown enough, or checkpointInterval after the last.
const (
	checkpointInterval = 5 * time.Minute
	sectionsPerTick    = 32 // all 1,024 shards take 3.2 s

	// syncTime bounds the wait for the stores' disks. A store that hangs must stop neither the
	// checkpoint of the other stores' samples nor the end of the process.
	syncTime = 30 * time.Second

	// A failed checkpoint is begun again after savePause, and the pause doubles with each further failure,
	// up to checkpointInterval: a checkpoint that fails costs as much as one that succeeds.
	savePause = 10 * time.Second

	// keepBytes is how much of the log stays for members that were away for a while.
	keepBytes = 1 << 30

	// unsyncedBytes bounds how much of the log stays for stores that cannot be synced, beside the entries since
	// the last two checkpoints. A store that is never synced must not fill the disk.
	unsyncedBytes = 4 << 30
)

// saveSome continues the checkpoint, or begins one that is due.
func (g *Group) saveSome() {
	now := g.Now()
	switch grown := g.grown.Load(); {
	case g.saving != nil, now.Sub(g.failedAt) < g.pause:
	case grown > int64(g.Config.Checkpoint), grown > 0 && now.Sub(g.lastSaved) > checkpointInterval:
		g.beginSaving(now)
	}
	if g.saving != nil {
		g.continueSaving(sectionsPerTick)
	}
}

func (g *Group) beginSaving(now time.Time) {
	g.lastSaved = now
	state := g.node.State()
	w, err := checkpoint.Begin(g.FS, g.Mark, state.Index())
	if err != nil {
		g.savingFailed(err)
		return
	}
	g.noted.Begin()
	g.saving = newSaving(w, state)
	g.saving.grown, g.saving.begun = g.grown.Load(), now
	g.added(g.saving.addGroup(state))
}

// newSaving returns a checkpoint that has no sections yet.
func newSaving(w *checkpoint.Writer, state *member.Member) *saving {
	c := &saving{Writer: w, tenants: state.Tenants()}
	for i := range uint16(series.Shards) {
		c.shards = append(c.shards, i)
	}
	return c
}

func (g *Group) savingFailed(err error) {
	g.failedAt, g.pause = g.Now(), min(max(savePause, 2*g.pause), checkpointInterval)
	g.metrics.CheckpointErrors.Inc()
	g.Logger.Error("a checkpoint failed; the log of the group grows until one succeeds", "error", err, "again_in", g.pause)
}

// added ends the checkpoint if a section could not be written.
func (g *Group) added(err error) {
	if err != nil {
		g.saving.Abort()
		g.endSaving(err)
	}
}

// continueSaving writes up to n sections.
func (g *Group) continueSaving(n int) {
	if c := g.saving; c.commit != nil {
		select {
		case err := <-c.commit:
			g.endSaving(err)
		default:
		}
		return
	}
	for ; n > 0 && g.saving != nil && len(g.saving.shards) > 0; n-- {
		g.added(g.saving.addShard(g.node.State()))
	}
	for ; n > 0 && g.saving != nil && len(g.saving.tenants) > 0; n-- {
		g.added(g.saving.addTenant(g.node.State()))
	}
	if c := g.saving; c != nil && len(c.shards) == 0 && len(c.tenants) == 0 {
		g.added(c.addDecisions(g.node.State()))
		if g.saving == nil {
			return
		}
		// Syncing may take long; in a goroutine it delays nothing here.
		c.commit = make(chan error, 1)
		keep := g.base
		go func() { c.commit <- g.commit(c, keep) }()
	}
}

// addGroup writes the first section, which is that of the group.
func (c *saving) addGroup(state *member.Member) error {
	c.buf = state.AppendGroup(c.buf[:0])
	return c.Add(&checkpoint.Section{Kind: checkpoint.Group, Index: c.Base(), Payload: c.buf})
}

// addShard writes the section of the next shard, if it has one.
func (c *saving) addShard(state *member.Member) error {
	number := c.shards[0]
	c.shards = c.shards[1:]
	var index uint64
	var has bool
	if c.buf, index, has = state.AppendShard(c.buf[:0], number); !has {
		return nil
	}
	return c.Add(&checkpoint.Section{Kind: checkpoint.Shard, Shard: number, Index: index, Payload: c.buf})
}

// addTenant writes the section of the next tenant.
func (c *saving) addTenant(state *member.Member) error {
	tenant := c.tenants[0]
	c.tenants = c.tenants[1:]
	c.buf = state.AppendTenant(c.buf[:0], tenant, c.Base())
	return c.Add(&checkpoint.Section{Kind: checkpoint.Tenant, Tenant: tenant, Index: state.Index(), Payload: c.buf})
}

// addDecisions writes the last section.
func (c *saving) addDecisions(state *member.Member) error {
	c.buf = state.AppendDecisions(c.buf[:0], c.Base())
	return c.Add(&checkpoint.Section{Kind: checkpoint.Decisions, Index: max(state.Index(), c.Base()), Payload: c.buf})
}

// commit commits a checkpoint that has all sections. It first syncs the stores: only they have the samples
// that the sections no longer have, and these samples must survive a power loss.
//
// Stores that a sync leaves out must not hold up the checkpoint, or the log would be replayed for ever. So the
// checkpoint counts for as long as the machine runs. For a start after a power loss, the last checkpoint for
// which all stores were synced is kept, with the log behind it. Once that log is too large, the new checkpoint
// replaces the kept one. A power loss then loses the samples that these stores got earlier and did not sync.
func (g *Group) commit(c *saving, keep uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), syncTime)
	defer cancel()
	err := g.Writer.Sync(ctx)
	leftOut := (*checkpoint.LeftOutError)(nil)
	if errors.As(err, &leftOut) {
		c.leftOut = leftOut.Stores
	}
	switch size := g.log.Bytes(); {
	case leftOut != nil && size > g.unsyncedBytes:
		g.Logger.Error("stores could not be synced for so long that the log of the group no longer keeps what they got: a "+
			"power loss would take their newest samples", "log_bytes", size, "to_entry", c.Base(), "error", err)
		err = nil
	case leftOut != nil:
		g.Logger.Warn("the log of the group is kept since the last checkpoint for which all stores were synced",
			"entry", g.synced, "error", err)
		err = (&checkpoint.Unsynced{Base: g.synced, Boot: g.Boot}).Write(g.FS)
		if err == nil {
			return c.Commit(keep, g.synced)
		}
	}
	if err != nil {
		c.Abort()
		return err
	}
	if err := c.Commit(keep, g.synced); err != nil {
		return err
	}
	c.synced = true
	return checkpoint.EndUnsynced(g.FS)
}

// endSaving ends a checkpoint. The log keeps what a start needs behind this checkpoint, or behind the
// checkpoint before it, which counts if this one is damaged.
func (g *Group) endSaving(err error) {
	c := g.saving
	g.saving = nil
	if err != nil {
		g.noted.Abort()
		g.savingFailed(err)
		return
	}
	g.pause = 0
	g.metrics.CheckpointSeconds.Set(g.Now().Sub(c.begun).Seconds())
	g.metrics.Checkpoints.Inc()
	g.grown.Add(-c.grown)
	g.rewriteNotes(c.Base())
	if err := g.noted.Commit(); err != nil {
		g.metrics.JournalErrors.Inc()
		g.Logger.Warn("the notes of stored requests could not be written; a restart looks for their samples in the stores",
			"error", err)
	}
	job := &logJob{compact: min(g.base, g.synced)}
	if !g.alone {
		job.keep = keepBytes
	}
	g.queue = append(g.queue, job)
	if g.base, g.unsynced = c.Base(), c.leftOut; c.synced {
		g.synced, g.unsynced = c.Base(), nil
	}
	g.metrics.CheckpointUnsynced.Set(float64(g.base - g.synced))
}

// rewriteNotes writes the notes anew, once a checkpoint is in place.
func (g *Group) rewriteNotes(base uint64) {
	waits := func(tenant string) bool { return g.node.State().Waiting(tenant).Tiles > 0 }
	if err := g.stored.Rewrite(base, waits); err != nil {
		g.metrics.JournalErrors.Inc()
		g.Logger.Warn("the file of notes, which says what the stores already have, could not be written; "+
			"a restart before the next checkpoint may write samples to the stores again", "error", err)
	}
}
