package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/freshet-io/freshet/internal/core/checkpoint"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/segment"
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
	asked   []chan saved
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
	case len(g.asked) > 0 && g.savedAll():
		g.tellSaved(g.asked, g.base, nil)
		g.asked = nil
	case len(g.asked) > 0:
		g.beginSaving(now)
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
	g.saving.asked, g.asked = g.asked, nil
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
	g.tellSaved(c.asked, c.Base(), err)
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
	from, _ := g.pinned()
	job := &logJob{compact: min(g.base, g.synced, from)}
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

// A new member whose log could not be completed from the logs of the others is filled: it begins with a checkpoint
// of another member, with copies of that member's stores, and with the log behind the checkpoint. Meanwhile, all
// members keep their logs from there on.

// pinTime is how long a pin lasts if it is not renewed.
const pinTime = time.Minute

// pin keeps entries in the log for a copy of this member.
type pin struct {
	from  uint64    // the last entry that the copy does not need
	until time.Time // zero: until it is removed
}

// pinnedByBackup says that the log keeps entries for a copy by CopyWith.
const pinnedByBackup = "backup"

// Pin keeps the entries after `from` in the log for a minute, so that a node that is being filled can go on from
// there. If the log has more than 4 GiB, it keeps them no longer. A later call for the same node replaces the pin;
// one with math.MaxUint64 ends it.
func (g *Group) Pin(node string, from uint64) {
	g.pin("fill of node "+node, pin{from, time.Now().Add(pinTime)})
}

// pin replaces the pin that has a name; a pin from `never` ends it.
func (g *Group) pin(name string, p pin) {
	g.pinning.Lock()
	defer g.pinning.Unlock()
	if g.pins == nil {
		g.pins = map[string]pin{}
	}
	if delete(g.pins, name); p.from != never {
		g.pins[name] = p
	}
}

// pinned returns the lowest index from which the log is pinned, and the names of the pins, in order. Pins do not
// count for a log that has more than unsyncedBytes.
func (g *Group) pinned() (from uint64, names []string) {
	from = never
	if g.log.Bytes() > g.unsyncedBytes {
		return from, nil
	}
	g.pinning.Lock()
	defer g.pinning.Unlock()
	for name, p := range g.pins {
		if !p.until.IsZero() && time.Now().After(p.until) {
			delete(g.pins, name)
			continue
		}
		from = min(from, p.from)
		names = append(names, name)
	}
	slices.Sort(names)
	return from, names
}

// saved is a checkpoint that is in place.
type saved struct {
	base    uint64
	reaches uint64 // the last entry in any of its sections
	err     error  // why there is no such checkpoint
}

// Save writes a checkpoint that has at least all entries applied so far, and returns its base. `reaches` is the last
// entry in any of its sections.
func (g *Group) Save(ctx context.Context) (base, reaches uint64, err error) {
	c := make(chan saved, 1)
	select {
	case g.saves <- c:
	case <-g.ended:
		return 0, 0, ErrEnded
	case <-ctx.Done():
		return 0, 0, context.Cause(ctx)
	}
	select {
	case s := <-c:
		return s.base, s.reaches, s.err
	case <-g.ended:
		return 0, 0, ErrEnded
	case <-ctx.Done():
		return 0, 0, context.Cause(ctx)
	}
}

// savedAll reports whether the checkpoint that a start read has all entries that are applied by now.
func (g *Group) savedAll() bool {
	return g.restored.Checkpoint != nil && g.base == g.node.State().Index() && g.base == g.restored.Checkpoint.Base
}

// tellSaved answers calls of Save: the checkpoint at `base` is in place, or failed.
func (g *Group) tellSaved(asked []chan saved, base uint64, err error) {
	for _, c := range asked {
		c <- saved{base, max(g.node.State().Index(), g.node.State().Reaches()), err}
	}
}

// CopyLog writes to an empty directory what another member needs to begin with a checkpoint that Save returned: the
// checkpoint, and a log with the entries behind it up to `reaches`. The log has no votes.
func (g *Group) CopyLog(to segment.FS, base, reaches uint64) error {
	if err := g.copyCheckpoint(to, base); err != nil {
		return err
	}
	return g.copyEntries(to, base, reaches)
}

func (g *Group) copyCheckpoint(to segment.FS, base uint64) error {
	if err := checkpoint.Copy(g.FS, to, base); err != nil {
		return fmt.Errorf("copy the checkpoint at entry %d: %w", base, err)
	}
	return nil
}

// copyEntries writes a log with the entries behind `base`, up to `last`.
func (g *Group) copyEntries(to segment.FS, base, last uint64) error {
	if err := g.log.CopyTo(to, g.Mark, base, last); err != nil {
		return fmt.Errorf("copy the entries %d to %d of the log: %w", base+1, last, err)
	}
	return nil
}

// CopyWith does what CopyLog does, and calls `others` between the checkpoint and the log, to copy what may be newer
// than the checkpoint. `others` may take long: the checkpoint is copied before newer ones replace it, and the log keeps
// the entries behind it meanwhile. Only one call may run at a time. `last` is the last entry in the copied log, and all
// entries that `others` may have copied are in it.
func (g *Group) CopyWith(ctx context.Context, to segment.FS, others func() error) (last uint64, err error) {
	base, _, err := g.Save(ctx)
	if err != nil {
		return 0, fmt.Errorf("write a checkpoint: %w", err)
	}
	g.pin(pinnedByBackup, pin{from: base})
	defer g.pin(pinnedByBackup, pin{from: never})
	if err := g.copyCheckpoint(to, base); err != nil {
		return 0, err
	}
	if err := others(); err != nil {
		return 0, err
	}
	// Status, which is of the last tick, may lack entries that the stores have.
	if _, last, err = g.Save(ctx); err != nil {
		return 0, fmt.Errorf("write a checkpoint: %w", err)
	}
	return last, g.copyEntries(to, base, last)
}
