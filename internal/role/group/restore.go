package group

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/freshet-io/freshet/internal/core/checkpoint"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/identity"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/notes"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/lib/fulldisk"
	"github.com/freshet-io/freshet/internal/tiling"
)

// New restores a member from its last checkpoint and the log behind it. It starts nothing.
func New(o Options) (*Group, error) {
	g := &Group{
		Options: o,
		tiles: tile.Config{
			CounterTTL: o.Config.CounterTTL, GaugeTTL: o.Config.GaugeTTL, CheckTTL: o.Config.CheckTTL,
			UpDownTTL: o.Config.UpDownTTL, OutOfOrder: o.Config.TimedWindow,
		},
		now:     o.Now().UnixMilli(),
		pushes:  make(chan *push),
		calls:   make(chan *call),
		saves:   make(chan chan saved),
		halts:   make(chan struct{}),
		ended:   make(chan struct{}),
		tries:   make(chan *job),
		written: make(chan *job),
		jobs:    make(chan *logJob),
		done:    make(chan *logJob),
		failing: make(chan error),

		received:  make(chan member.Message),
		waiting:   map[member.ID]waiting{},
		backlogs:  map[string]*backlog{},
		requested: map[string]*job{},
		replays:   map[string]int{},

		unsyncedBytes: unsyncedBytes,
	}
	noted := g.readNotes()
	state, err := g.restore(noted)
	if err != nil {
		return nil, fmt.Errorf("restore member %d of group %d: %w", o.Member, o.Number, err)
	}
	g.Open = tiling.NewOpen(state.Shards())
	g.metrics = tiling.NewMetrics(o.Registry)
	g.books = tiling.Books{Ledger: o.Ledger, Metrics: g.metrics, Collected: o.Node != ""}
	g.Register(o.Registry, o.Now, g.grown.Load)
	g.register()
	g.metrics.CheckpointUnsynced.Set(float64(g.base - g.synced))
	if err := g.replay(); err != nil {
		return nil, errors.Join(fmt.Errorf("restore member %d of group %d: %w", o.Member, o.Number, err), g.log.Close())
	}
	for i := range uint16(series.Shards) {
		if s := state.Shards().Of(i); s != nil {
			// Queries may come before the first window, and ask for the restored tiles.
			g.Raise(min(max(s.Closed(), s.LastSeen()), g.now))
		}
	}
	for _, tenant := range state.Tenants() {
		if n := state.Waiting(tenant).Requests; n > 0 {
			g.replays[tenant] = n
			g.BeginReplay(tenant)
		}
	}
	g.books.Restored(state.Shards())
	g.rewriteNotes(0)
	g.settleForwarded()
	g.Looked(o.Now())
	return g, nil
}

// readNotes reads the notes of the last process, and returns the notes of requests. Without notes, samples
// that the stores have are written again.
func (g *Group) readNotes() (ofRequests [][]byte) {
	tiles, requests := notes.In(g.FS, notes.OfTiles), notes.In(g.FS, notes.OfRequests)
	g.files = []*notes.File{&tiles, &requests}
	var err error
	if g.stored, err = notes.ReadStored(&tiles, g.Boot); err != nil {
		g.Logger.Warn("the file of notes, which says what the stores already have, cannot be read: this start may write "+
			"samples to the stores again", "error", err)
	}
	if g.noted, ofRequests, err = notes.ReadSince(&requests, g.Boot); err != nil {
		g.Logger.Warn("the notes of stored requests cannot be read or written: a restart looks for their samples in the "+
			"stores", "error", err)
	}
	return ofRequests
}

// restore restores the state from the last checkpoint and the notes of requests, and opens the log.
func (g *Group) restore(noted [][]byte) (*member.Member, error) {
	file, damage, err := g.newest()
	if err != nil {
		return nil, err
	}
	for _, d := range damage {
		g.Logger.Error("a checkpoint of the group cannot be used; the state comes from the one before it and the log",
			"error", d)
	}
	state := member.New(g.Number, &g.tiles)
	if file != nil {
		g.restored.Checkpoint = file
		if state, err = g.load(file); err != nil {
			return nil, err
		}
	}
	state.Skip(g.Skips)
	g.restoreNotes(state, noted)
	state.Restored(g.stored.All())
	g.Writer.CutBack(g.Boot, state.Requests())
	if err := g.open(state, file == nil && len(damage) == 0 && g.Voters != nil); err != nil {
		return nil, err
	}
	if err := g.Writer.LogEnds(g.log.Last()); err != nil {
		return nil, errors.Join(err, g.log.Close())
	}
	g.base = state.Index()
	g.synced = min(g.synced, g.base)
	return state, nil
}

// newest returns the newest checkpoint that counts. After a power loss, a checkpoint for which some stores
// were not synced does not count.
func (g *Group) newest() (*checkpoint.File, []error, error) {
	unsynced, err := checkpoint.ReadUnsynced(g.FS)
	if err != nil {
		return nil, nil, err
	}
	most := never
	if g.synced = never; unsynced != nil {
		if g.synced = unsynced.Base; unsynced.LostPower(g.Boot) {
			g.Logger.Warn("stores were not synced before the machine went down: their samples are written again from the log",
				"from_entry", unsynced.Base)
			most = unsynced.Base
		}
	}
	file, damage, err := checkpoint.Newest(g.FS, most)
	if err == nil && most != never && (file != nil || most == 0) {
		// Remove the checkpoints beyond `most`: a later start, or a copy, must not use one of them
		// instead of the next checkpoint.
		err = checkpoint.RemoveBeyond(g.FS, most)
	}
	return file, damage, err
}

const never = uint64(math.MaxUint64)

// restoreNotes adds to the state what the notes of requests say.
func (g *Group) restoreNotes(state *member.Member, noted [][]byte) {
	for _, n := range noted {
		counts, err := state.RestoreNote(n)
		if err != nil {
			g.Logger.Error("BUG: a note of stored requests cannot be read; their samples are looked for in the stores",
				"error", err)
		}
		if counts {
			g.restored.Notes++
		}
	}
}

// load returns the state of a checkpoint.
func (g *Group) load(file *checkpoint.File) (state *member.Member, err error) {
	return state, file.Read(func(s *checkpoint.Section) (err error) {
		switch s.Kind {
		case checkpoint.Group:
			state, err = member.Restore(g.Number, &g.tiles, s.Payload)
		case checkpoint.Shard:
			err = state.RestoreShard(s.Shard, s.Index, s.Payload)
		case checkpoint.Tenant:
			err = state.RestoreTenant(s.Tenant, s.Payload)
		case checkpoint.Decisions:
			err = state.RestoreDecisions(s.Payload)
		}
		return err
	})
}

// open opens the log, or begins the log of a new member.
func (g *Group) open(state *member.Member, first bool) error {
	config := replica.Config{
		ID: g.Member, Applied: max(state.Index(), identity.BaseIndex),
		Rand: rand.New(rand.NewPCG(g.Seed, g.Member)),
		Log:  entrylog.Options{Mark: g.Mark, SegmentBytes: g.Segment, Has: state.Reaches()},
	}
	if first {
		config.New = &entrylog.Base{
			Index: identity.BaseIndex, Term: identity.BaseTerm, Members: &raftpb.ConfState{Voters: g.Voters},
		}
	}
	r, log, err := replica.Open(g.FS, config)
	if err != nil {
		return err
	}
	if torn := log.Torn(); torn.Bytes > 0 {
		g.Logger.Warn("the last write to the log of the group was torn and is cut off: the process or the machine died "+
			"before it was acknowledged, or the disk damaged it",
			"file", torn.File, "bytes", torn.Bytes)
	}
	g.restored.New = first && log.Last() == identity.BaseIndex
	g.restored.Entries = int(log.Last() - config.Applied)
	g.log = log
	g.node = member.NewNode(r, state, member.Settings{
		Lateness: g.Config.Lateness, Tiles: g.tiles, MaxPending: g.MaxPending,
		MaxQueued: g.MaxQueued, MaxQueuedSum: g.MaxQueuedSum, MaxBehind: g.MaxBehind, MaxTenants: g.MaxTenants,
		Names: g.Options.Names, ReplaceAfter: g.ReplaceAfter, UpgradeAfter: g.UpgradeAfter,
		Self: entry.Node{Name: g.Node, Member: g.Member},
	})
	return nil
}

// replay applies the entries of the log that are known to be committed. The only voter of a group also
// elects itself, since it then knows that all entries are committed.
func (g *Group) replay() error {
	for {
		if err := g.replaySome(); err != nil {
			return err
		}
		if g.leads || !g.alone || g.sick != nil {
			return nil
		}
		g.node.Tick(g.now)
	}
}

// replaySome applies entries until the member needs another event.
func (g *Group) replaySome() error {
	for more := true; more; {
		out, err := g.node.Take()
		if err != nil {
			return err
		}
		for _, w := range out.Writes {
			if err := g.storeFirst(w); err != nil {
				return err
			}
		}
		for i := range out.Applied {
			g.replayed(&out.Applied[i])
		}
		if out.Members != nil {
			g.changed(out.Members)
		}
		g.follow(out.Leadership)
		g.restarted = append(g.restarted, out.Work...)
		more = len(out.Writes) > 0 || len(out.Applied) > 0
	}
	return nil
}

// storeFirst stores a write during the start. A full disk does not stop the start: Run then tries the
// write until there is space, and until then the member takes nothing else.
func (g *Group) storeFirst(w *replica.Write) error {
	if g.sick == nil {
		err := g.log.Append(&w.Write)
		if err == nil {
			g.node.Stored(w.Number)
			return nil
		}
		if !fulldisk.Is(err) {
			return err
		}
		g.sick = cannotWrite(err)
	}
	g.queue = append(g.queue, &logJob{write: w})
	return nil
}

// replayed counts the effects of an entry that an earlier process has applied and posted. Metadata of
// metrics are in memory only, so this process learns them again. The metadata of a request come with its
// work. If the stores are noted to have the request, its metadata come when the sender repeats them.
func (g *Group) replayed(done *member.Applied) {
	for _, f := range done.Windows.Folded {
		g.metrics.Count(f)
	}
	g.metrics.Replayed.Add(float64(done.Windows.Batches))
	g.damaged(done.Windows.Damaged)
	g.saySkipped(done.Skipped)
	if g.Told != nil && done.Deltas != nil {
		g.Told.Families(done.Deltas.Tenant, done.Deltas.Families)
	}
}

// LacksData reports whether the group was founded in a directory with data, and does not have these data
// yet: see identity.DataIndex. The data are then still in the journal, and the caller calls Found.
func LacksData(dir segment.FS) (bool, error) {
	names, err := dir.List()
	if err != nil {
		return false, fmt.Errorf("look for a checkpoint of the group: %w", err)
	}
	if len(checkpoint.Files(names)) > 0 {
		return false, nil
	}
	if begun, err := entrylog.OnlyBegun(dir); err != nil || !begun {
		return false, err
	}
	log, err := entrylog.Open(dir, entrylog.Options{})
	if err != nil {
		return false, err
	}
	return log.Base() == identity.DataIndex, log.Close()
}

// Found writes the first checkpoint of a group that goes on with the data of one machine: see member.Found. The
// group has either all of the state afterwards, or none of it. The stores must be synced, since the state lacks
// the samples that they have.
func Found(dir segment.FS, mark uint32, state *member.Member) error {
	w, err := checkpoint.Begin(dir, mark, state.Index())
	if err != nil {
		return err
	}
	defer w.Abort()
	c := newSaving(w, state)
	if err := c.addGroup(state); err != nil {
		return err
	}
	for len(c.shards) > 0 {
		if err := c.addShard(state); err != nil {
			return err
		}
	}
	for len(c.tenants) > 0 {
		if err := c.addTenant(state); err != nil {
			return err
		}
	}
	if err := c.addDecisions(state); err != nil {
		return err
	}
	return c.Commit()
}
