package sim

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/freshet-io/freshet/internal/core/checkpoint"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/notes"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// saving is a checkpoint that is being written. It has the same files in the same order as a checkpoint
// that role/group writes.
type saving struct {
	*checkpoint.Writer
	shards  []uint16 // not written yet
	tenants []string // not written yet
	commits bool     // all sections are written
	copies  []func(base, reaches uint64, failure error)
}

// saveLater plans the next checkpoint.
func (s *sim) saveLater(n *node, from, to int64) {
	n.plans++
	plan := n.plans
	s.At(s.Between(from, to), &n.Process, func() {
		if n.plans == plan && n.saving == nil {
			s.beginSaving(n)
		}
	})
}

// beginSaving begins to save the state, some sections at a time.
func (s *sim) beginSaving(n *node) {
	if s.ending {
		return
	}
	m := n.node.State()
	if m.Index() < 2 {
		s.saveLater(n, second, second+1)
		return
	}
	w, err := checkpoint.Begin(n.disk, n.mark, m.Index())
	if err != nil {
		s.savingFailed(n, err)
		return
	}
	n.noted.Begin()
	n.saving = &saving{Writer: w, tenants: m.Tenants(), copies: n.copies}
	n.copies = nil
	for _, number := range s.Rand.Perm(series.Shards) {
		n.saving.shards = append(n.saving.shards, uint16(number))
	}
	s.addSection(n, checkpoint.Section{Kind: checkpoint.Group, Index: m.Index(), Payload: m.AppendGroup(nil)})
	s.At(s.Between(10, 200), &n.Process, func() { s.goOnSaving(n) })
}

var errNoSync = errors.New("the stores cannot be synced")

// savingFailed ends a checkpoint that could not be written. The checkpoint before it still counts.
func (s *sim) savingFailed(n *node, err error) {
	if !errors.Is(err, memfs.ErrInjected) && !errors.Is(err, memfs.ErrNoSpace) && !errors.Is(err, errNoSync) {
		s.Fail("node %d: save a checkpoint: %v", n.n, err)
	}
	if c := n.saving; c != nil {
		c.Abort()
		n.saving = nil
		for _, copied := range c.copies {
			copied(0, 0, err)
		}
	}
	n.noted.Abort()
	s.covered.checkpointErrors++
	s.saveLater(n, 3*second, 8*second)
}

func (s *sim) addSection(n *node, section checkpoint.Section) {
	if n.saving == nil {
		return
	}
	if err := n.saving.Add(&section); err != nil {
		s.savingFailed(n, err)
	}
}

func (s *sim) goOnSaving(n *node) {
	m, c := n.node.State(), n.saving
	if c == nil {
		return
	}
	some := min(len(c.shards), int(s.Between(1, 400)))
	for _, number := range c.shards[:some] {
		if b, index, has := m.AppendShard(nil, number); has {
			s.addSection(n, checkpoint.Section{Kind: checkpoint.Shard, Shard: number, Index: index, Payload: b})
		}
	}
	c.shards = c.shards[some:]
	if len(c.tenants) > 0 && s.Chance(50) {
		i := s.Rand.IntN(len(c.tenants))
		name := c.tenants[i]
		c.tenants = slices.Delete(c.tenants, i, i+1)
		s.addSection(n, checkpoint.Section{Kind: checkpoint.Tenant, Tenant: name, Index: m.Index(),
			Payload: m.AppendTenant(nil, name, c.Base())})
	}
	if n.saving == nil {
		return
	}
	if len(c.shards)+len(c.tenants) > 0 {
		s.At(s.Between(10, 200), &n.Process, func() { s.goOnSaving(n) })
		return
	}
	s.addSection(n, checkpoint.Section{Kind: checkpoint.Decisions, Index: m.Index(),
		Payload: m.AppendDecisions(nil, c.Base())})
	if n.saving == nil {
		return
	}
	if n.noSync {
		s.savingFailed(n, errNoSync)
		return
	}
	if !s.mistakes.noSync {
		n.syncStores()
	}
	c.commits = true
	s.At(s.Between(1, 100), &n.Process, func() { s.endSaving(n) })
}

func (s *sim) endSaving(n *node) {
	c := n.saving
	if err := c.Commit(n.base); err != nil {
		s.savingFailed(n, err)
		return
	}
	n.saving = nil
	n.rewriteNotes(c.Base())
	if err := n.entries.Compact(n.needed(), n.keeps()); err != nil && !n.sick() {
		s.Fail("node %d: %v", n.n, err)
	}
	n.base = c.Base()
	s.covered.checkpoints++
	for _, copied := range c.copies {
		copied(n.base, max(n.node.State().Index(), n.node.State().Reaches()), nil)
	}
	s.saveLater(n, 3*second, 8*second)
	if len(n.copies) > 0 {
		s.beginSaving(n)
	}
}

// rewriteNotes writes the notes anew, once a checkpoint is in place. Notes that cannot be written only cost
// time at the next start.
func (n *node) rewriteNotes(base uint64) {
	_ = n.stored.Rewrite(base, n.tilesWait)
	_ = n.noted.Commit()
}

// restore returns the state of the last checkpoint, and the highest index of an entry that is in any
// section.
func (n *node) restore(config *tile.Config) (state *member.Member, last uint64, err error) {
	boot := fmt.Sprint("boot ", n.boots)
	ofTiles, ofRequests := notes.In(n.disk, notes.OfTiles), notes.In(n.disk, notes.OfRequests)
	if n.stored, err = notes.ReadStored(&ofTiles, boot); err != nil {
		return nil, 0, err
	}
	var noted [][]byte
	if n.noted, noted, err = notes.ReadSince(&ofRequests, boot); err != nil {
		return nil, 0, err
	}
	found, damage, err := checkpoint.Newest(n.disk, math.MaxUint64)
	if err = errors.Join(append(damage, err)...); err != nil {
		return nil, 0, err
	}
	state = member.New(group, config)
	if found != nil {
		n.sim.covered.restored++
		err = found.Read(func(s *checkpoint.Section) (err error) {
			last = max(last, s.Index)
			switch s.Kind {
			case checkpoint.Group:
				state, err = member.Restore(group, config, s.Payload)
			case checkpoint.Shard:
				err = state.RestoreShard(s.Shard, s.Index, s.Payload)
			case checkpoint.Tenant:
				err = state.RestoreTenant(s.Tenant, s.Payload)
			case checkpoint.Decisions:
				err = state.RestoreDecisions(s.Payload)
			}
			return err
		})
		if err != nil {
			return nil, 0, err
		}
	}
	for _, note := range noted {
		counts, err := state.RestoreNote(note)
		if err != nil {
			return nil, 0, err
		}
		if counts {
			n.sim.covered.noted++
		}
	}
	state.Restored(n.stored.All())
	for _, tenant := range tenants {
		n.sim.covered.waited += state.Waiting(tenant).Tiles
	}
	return state, last, n.stored.Rewrite(0, nil)
}

// tilesWait reports whether tiles wait for a tenant's stores.
func (n *node) tilesWait(tenant string) bool { return n.node.State().Waiting(tenant).Tiles > 0 }
