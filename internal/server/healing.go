package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/adapter/peer"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/identity"
	"github.com/freshet-io/freshet/internal/core/replica"
	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
	"github.com/freshet-io/freshet/internal/lib/fault"
	"github.com/freshet-io/freshet/internal/lib/retry"
	"github.com/freshet-io/freshet/internal/role/group"
)

// A node with damaged data heals by itself: it ends, and its next start sets its data aside and joins as a new member,
// which replaces the old one and is filled. The old data are removed once the new member votes or is a spare: then as
// many members vote as before, since another spare may have taken the place of the old member.

const (
	healEvery = 2 * time.Second

	// healTime bounds how long a start asks for the replacement of a member that can still vote.
	healTime = 30 * time.Second

	// leastVoters is how many other voters must be well before a member leaves.
	leastVoters = 2
)

// setAsideNames are the data that a member cannot keep when another member takes its place.
var setAsideNames = []string{"tsdb", filepath.Dir(answer.GroupPath), eventsFile, damagedEventsFile, lostEventsFile,
	answer.DamageFile}

var errHeals = errors.New("data of this node are damaged: start it again, and it gets the data of another node")

func (s *server) writeHealing(h *answer.Healing) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	return s.writeOnce(answer.HealFile, append(text, '\n'))
}

// wayOut adds advice for the user to the error of a damaged log.
func (s *server) wayOut(err error) error {
	err = s.skippable(err)
	if !errors.Is(err, entrylog.ErrDamaged) && !errors.Is(err, entrylog.ErrNone) && !errors.Is(err, replica.ErrDamaged) {
		return err
	}
	if s.healLog() {
		return fmt.Errorf("%w; %w", err, errHeals)
	}
	if s.inCluster() && len(s.config.Cluster.Nodes) > 1 {
		return fmt.Errorf("%w; if the other nodes go on, they have all data: replace this node, since nothing in %s can "+
			"mend it", err, s.path(answer.GroupPath))
	}
	return fmt.Errorf("%w; restore a backup by freshet restore, or move %s away and start without it: what is stored "+
		"stays, but totals of counters restart at 0, totals of up/down counters are wrong from then on, and samples that "+
		"only this directory has are lost", err, s.path(answer.GroupPath))
}

// healLog makes the next start heal this node, whose log is damaged. It reports whether it will: a healed member whose
// log is damaged before the old data are removed does not heal again.
func (s *server) healLog() bool {
	if s.config.Cluster.HealAfter == 0 || !s.inCluster() || len(s.config.Cluster.Nodes) <= leastVoters {
		return false
	}
	h, err := s.readHealing()
	if err == nil && h == nil {
		err = s.writeHealing(new(answer.Healing))
	}
	if err != nil {
		s.logger.Error("this node cannot heal by itself", "error", err)
	}
	return err == nil && (h == nil || h.Aside == "")
}

// watchHealing ends the process once data of this node are damaged for cluster.heal_after and the other nodes can do
// without it. Once a healed member votes or is a spare, watchHealing removes the old data.
func (s *server) watchHealing(ctx context.Context) error {
	for {
		if retry.Wait(ctx, healEvery) != nil {
			return nil
		}
		h, err := s.readHealing()
		g, is := s.aggregator.(*group.Group)
		d := s.damage()
		switch {
		case err != nil || !is:
		case h != nil && h.Aside != "":
			if g.Settled() {
				err = s.removeAside(h.Aside)
			}
		case d == nil || time.Since(d.Since) < s.config.Cluster.HealAfter || s.config.Cluster.HealAfter == 0:
			s.stays.Store(nil)
		default:
			voters := s.otherVoters(g.Status())
			if why := s.mayLeave(ctx, voters); why != nil {
				if s.stay(why) {
					s.logger.Error("data of this node are damaged, but it stays as it is", "error", why)
				}
				continue
			}
			if err = s.writeHealing(&answer.Healing{Voters: voters}); err == nil {
				fault.Kill("noted")
				return errHeals
			}
		}
		if err != nil {
			s.logger.Error("this node cannot heal by itself", "error", err)
		}
	}
}

// removeAside removes the old data of a healed node.
func (s *server) removeAside(dir string) error {
	fault.Kill("votes")
	if err := os.RemoveAll(s.path(dir)); err != nil {
		return err
	}
	fault.Kill("removed")
	s.logger.Info("this node has healed; its old data are removed", "directory", dir)
	return os.Remove(s.path(answer.HealFile))
}

// mayLeave returns why this node must not set its data aside; nil if it may.
func (s *server) mayLeave(ctx context.Context, others []string) error {
	if s.countReady(ctx, others) < leastVoters {
		return fmt.Errorf("fewer than %d other nodes that vote are ready", leastVoters)
	}
	return s.hasRoom()
}

// hasRoom returns an error unless the data of another node fit on the disk beside the damaged data, which are about as
// large.
func (s *server) hasRoom() error {
	var bytes uint64
	for _, name := range setAsideNames {
		n, err := files.DiskBytes(s.path(name))
		if err != nil {
			return err
		}
		bytes += n
	}
	space, err := files.SpaceOf(s.config.DataDir)
	if err != nil {
		return err
	}
	if need := bytes + uint64(s.config.Cluster.MinFree); space.Free < need {
		return fmt.Errorf("its disk has no room for the data of another node beside its own: it needs %d MiB of free space, "+
			"cluster.min_free included, and has %d MiB", need>>20+1, space.Free>>20)
	}
	return nil
}

// stay notes why this damaged node does not heal. It reports whether that is new.
func (s *server) stay(why error) (changed bool) {
	text := why.Error()
	before := s.stays.Swap(&text)
	return before == nil || *before != text
}

// otherVoters returns the names of the other nodes that vote.
func (s *server) otherVoters(status group.Status) (names []string) {
	for name, member := range status.Nodes {
		if name != s.config.Cluster.Node && slices.Contains(status.Members.Voters, member) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// countReady counts the nodes that are ready: not damaged, and caught up.
func (s *server) countReady(ctx context.Context, names []string) (n int) {
	for _, name := range names {
		if status, err := s.nodes.peers.Status(ctx, name); err == nil && status.Ready {
			n++
		}
	}
	return n
}

// heal sets the data of this node aside if the process before has found them damaged. The node then joins as a new
// member. A member that can vote stays if the others need it meanwhile.
func (s *server) heal(ctx context.Context) error {
	h, err := s.readHealing()
	i := s.identity.Load()
	if h == nil || err != nil || i == nil || h.Aside != "" && i.Member != h.Member {
		return err
	}
	if h.Aside == "" {
		if len(h.Voters) == 0 {
			s.logDamage.Store(&answer.Damage{Since: time.Now().UTC(), What: "the log of the group: see the log of the process"})
		}
		agreed, err := s.askToLeave(ctx, h)
		if err != nil {
			return err
		}
		if !agreed {
			s.logger.Warn("this node is damaged, and stays as it is", "error", *s.stays.Load())
			return os.Remove(s.path(answer.HealFile))
		}
		fault.Kill("agreed")
		h.Member, h.Aside = i.Member, time.Now().UTC().Format("damaged-20060102T150405Z")
		if err := s.writeHealing(h); err != nil {
			return err
		}
		fault.Kill("leaves")
	}
	if i, err = s.setAside(h.Aside, i); err != nil {
		return fmt.Errorf("set the damaged data of this node aside: %w", err)
	}
	fault.Kill("renewed")
	s.identity.Store(i)
	s.damaged.Store(nil)
	s.logDamage.Store(nil)
	s.eventDamage.Store(nil)
	s.stays.Store(nil)
	s.logger.Warn("the damaged data of this node are set aside; it joins as a new member", "directory", h.Aside)
	return nil
}

// askToLeave asks the leader to let a new member replace this one. It reports whether the leader agreed.
func (s *server) askToLeave(ctx context.Context, h *answer.Healing) (agreed bool, err error) {
	names := h.Voters
	if len(names) == 0 {
		names = s.otherNodes()
	}
	for begun := time.Now(); len(h.Voters) == 0 || time.Since(begun) < healTime; {
		err := s.mayLeave(ctx, names)
		if err == nil {
			err = s.replaceSelf(ctx, names)
		}
		if err == nil {
			return true, nil
		}
		if s.stay(err) {
			s.logger.Info("not ready yet: the damaged data of this node cannot be set aside", "error", err)
		}
		if err := retry.Wait(ctx, healEvery); err != nil {
			return false, context.Cause(ctx)
		}
	}
	return false, nil
}

// otherNodes returns the names of all nodes but this one.
func (s *server) otherNodes() (names []string) {
	for _, a := range s.config.Cluster.Nodes {
		if a.Node != s.config.Cluster.Node {
			names = append(names, a.Node)
		}
	}
	return names
}

// replaceSelf asks the leader, which is one of the nodes, to let another member take the name of this node.
func (s *server) replaceSelf(ctx context.Context, names []string) (err error) {
	for _, name := range names {
		said := s.nodes.peers.Change(ctx, name, peer.Change{Kind: peer.Replace, Node: s.config.Cluster.Node})
		if said == nil {
			return nil
		}
		if err == nil || !errors.Is(said, replica.ErrNotLeader) { // the leader says more
			err = said
		}
	}
	return err
}

// setAside moves the data of this node into a directory, and gives the node a new member. It may be repeated until
// the node has the new member.
func (s *server) setAside(aside string, i *identity.Identity) (*identity.Identity, error) {
	if err := os.MkdirAll(s.path(aside), 0o750); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(s.path(identity.File))
	if err == nil {
		err = os.WriteFile(s.path(aside, identity.File), text, 0o640)
	}
	for _, name := range setAsideNames {
		moved := os.Rename(s.path(name), s.path(aside, name))
		if !errors.Is(moved, fs.ErrNotExist) {
			err = cmp.Or(err, moved)
		}
		fault.Kill("moved " + name)
	}
	if err = errors.Join(err, files.SyncDir(s.path(aside)), files.SyncDir(s.config.DataDir)); err != nil {
		return nil, err
	}
	if err := s.filler.End(); err != nil { // what an earlier fill has left is not of this member
		return nil, err
	}
	dir, err := files.Open(s.config.DataDir)
	if err != nil {
		return nil, err
	}
	return identity.Prepare(dir, i.Node)
}
