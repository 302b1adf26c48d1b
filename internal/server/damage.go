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
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/marks"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/skip"
	"github.com/freshet-io/freshet/internal/lib/conf"
	"github.com/freshet-io/freshet/internal/role/filler"
	"github.com/freshet-io/freshet/internal/role/group"
)

// checkNotes refuses a node's data directory in which a file about damage or healing cannot be read: without it, the
// node would trust data that it must not trust.
func (s *server) checkNotes() error {
	if s.config.Cluster.Node == "" {
		return nil
	}
	for _, note := range []struct {
		name string
		into any
	}{
		{answer.DamageFile, new(answer.Damage)},
		{lostEventsFile, new(answer.Damage)},
		{answer.HealFile, new(answer.Healing)},
		{filler.AgainFile, new(filler.Old)},
	} {
		path := s.path(filepath.FromSlash(note.name))
		if err := files.ReadJSON(path, note.into); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return conf.Mistake(fmt.Errorf("%s is damaged, so this node does not know which of its data are. If the other "+
				"nodes of its cluster are well, empty the data directory, run `freshet cluster replace %s` at another one, and "+
				"start with --cluster-join; if not, restore the file from a backup of the directory: %w", path,
				s.config.Cluster.Node, err))
		}
	}
	return nil
}

// readDamage reads whether an earlier process found this node's state damaged.
func (s *server) readDamage() error {
	text, err := os.ReadFile(s.path(answer.DamageFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read whether this node is damaged: %w", err)
	}
	var d answer.Damage
	if err := json.Unmarshal(text, &d); err != nil {
		return fmt.Errorf("read whether this node is damaged: %s: %w", s.path(answer.DamageFile), err)
	}
	s.damaged.Store(&d)
	return nil
}

// damage returns what of this node's data is damaged and must come from other nodes, nil if nothing is.
func (s *server) damage() *answer.Damage {
	if !s.othersVote() {
		return nil
	}
	return s.foundDamage()
}

// othersVote reports whether other nodes vote, which have the data of this node. Until this node knows its group, one
// whose state was outvoted goes by that, and any other goes on as if it were alone.
func (s *server) othersVote() bool {
	outvoted := s.damaged.Load() != nil
	if s.handler.Load() == nil { // the roles are not built
		return outvoted
	}
	g, is := s.aggregator.(*group.Group)
	if !is || len(g.Status().Members.Voters) == 0 { // the member does not run yet
		return outvoted
	}
	return g.Others()
}

// doubt returns why answers of this node may be wrong; nil if nothing is known to be. A node whose state was outvoted
// answers only if no other node votes: after freshet cluster recover, or once the others are removed.
func (s *server) doubt() error {
	d := s.damaged.Load()
	if d == nil {
		return nil
	}
	return fmt.Errorf("answers may lack samples, or have wrong values: this node is damaged, and no other one votes: %s",
		d.What)
}

// foundDamage returns what of this process' data is damaged, nil if nothing is known to be. Without other nodes, the
// process goes on all the same.
func (s *server) foundDamage() *answer.Damage {
	d := s.firstDamage()
	if why := s.stays.Load(); d != nil && why != nil {
		return &answer.Damage{Since: d.Since, What: d.What + "; the node stays as it is: " + *why}
	}
	return d
}

func (s *server) firstDamage() *answer.Damage {
	if d := cmp.Or(s.damaged.Load(), s.logDamage.Load(), s.eventDamage.Load()); d != nil {
		return d
	}
	if s.handler.Load() == nil || s.stores == nil {
		return nil
	}
	stores := s.stores.Damaged()
	if len(stores) == 0 {
		return nil
	}
	first := stores[0]
	d := &answer.Damage{Since: first.Since.UTC(), What: fmt.Sprintf("store %s of tenant %s: %v", first.Store, first.Tenant,
		first.Cause)}
	if others := len(stores) - 1; others > 0 {
		d.What += fmt.Sprintf("; and %d other stores", others)
	}
	return d
}

// runScrub looks for damage in the files of the stores, in the log of the group and in the events, until ctx is done.
func (s *server) runScrub(ctx context.Context) error {
	if !s.inGroup() {
		return s.stores.Scrub(ctx, s.config.Store.Scrub)
	}
	dir, err := files.Open(s.path(answer.GroupPath))
	if err != nil {
		return err
	}
	damaged := promauto.With(s.registry).NewGauge(prometheus.GaugeOpts{Name: "freshet_group_log_damaged",
		Help: "1 if the scrub has found damage in the log of the group. The next start of this process would find it, too, " +
			"and end. The log of the process names the file."})
	others := []tsdb.Others{{
		Bytes: func() (sum int64) {
			for _, f := range completeSegments(dir) {
				sum += s.logBytes(f)
			}
			return sum
		},
		Check: func(pace func(int64) error) {
			d, whole := s.checkLog(dir, pace)
			if !whole {
				return
			}
			if d != nil && s.logDamage.Load() == nil {
				s.logger.Error("the log of the group is damaged", "error", d.What)
			}
			s.logDamage.Store(d)
			damaged.Set(0)
			if d != nil {
				damaged.Set(1)
			}
		},
	}}
	if s.inCluster() {
		others = append(others, s.scrubEvents())
	}
	return s.stores.Scrub(ctx, s.config.Store.Scrub, others...)
}

// completeSegments returns the segments of the log that no longer change.
func completeSegments(dir files.Dir) []segment.File {
	names, err := dir.List()
	if err != nil {
		return nil // writes to the log fail, too, and say so
	}
	all := entrylog.Files(names)
	return all[:max(0, len(all)-1)]
}

// logBytes returns the size of a segment of the log; 0 if it was removed meanwhile.
func (s *server) logBytes(f segment.File) int64 {
	info, err := os.Stat(s.path(answer.GroupPath, f.Name))
	if err != nil {
		return 0
	}
	return info.Size()
}

// checkLog reads the complete segments of the log. `whole` says that it has read all of them.
func (s *server) checkLog(dir files.Dir, pace func(bytes int64) error) (d *answer.Damage, whole bool) {
	for _, f := range completeSegments(dir) {
		err := entrylog.Check(dir, f)
		size := s.logBytes(f)
		if size == 0 {
			continue
		}
		if errors.Is(err, entrylog.ErrDamaged) {
			return &answer.Damage{Since: time.Now().UTC(), What: err.Error()}, true
		}
		if pace(size) != nil { // the process stops
			return nil, false
		}
	}
	return nil, true
}

// scrubbed returns how far this node has read its stores in search of damage, or nil before it begins.
func (s *server) scrubbed() *answer.Scrub {
	if s.handler.Load() == nil || s.stores == nil {
		return nil
	}
	p := s.stores.Scrubbed()
	if p.Begun.IsZero() {
		return nil
	}
	a := &answer.Scrub{Bytes: p.Bytes, OfBytes: p.OfBytes, Begun: p.Begun.UTC()}
	if !p.Last.IsZero() {
		a.Last = new(p.Last.UTC())
	}
	return a
}

// followDamage tells the stores whether other nodes have their data, and keeps this node from leading while it is
// damaged.
func (s *server) followDamage() {
	if g, is := s.aggregator.(*group.Group); is {
		if len(g.Status().Members.Voters) > 0 { // the member runs, and knows its group
			s.stores.NeverRepair(g.Others())
			s.followEvents(g.Others())
		}
		g.Demote(s.damage() != nil)
	}
}

// judgeState finds this node damaged if most nodes agree on a state that it does not have.
func (s *server) judgeState(v marks.Verdict) error {
	d := s.damaged.Load()
	if d == nil && v.Outvoted == 0 {
		return nil
	}
	if d == nil {
		d = &answer.Damage{Since: time.Now().UTC(), What: fmt.Sprintf("its state is not that of most nodes since entry %d, "+
			"or up to %d entries before", v.Outvoted, marks.Every)}
		s.damaged.Store(d)
		s.logger.Error("the state of this node is damaged: it answers no queries and does not lead. Report this bug, or "+
			"the machine computes wrongly", "first_entry", v.Outvoted)
	}
	if _, err := os.Stat(s.path(answer.DamageFile)); err == nil {
		return nil
	}
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return s.writeOnce(answer.DamageFile, append(text, '\n'))
}

// skippable adds advice for the user to the error of an entry that this node cannot apply.
func (s *server) skippable(err error) error {
	var of *member.EntryError
	if !errors.As(err, &of) || errors.Is(err, entry.ErrNewer) || !s.inCluster() {
		return err
	}
	return fmt.Errorf("this node cannot go on beyond entry %d of its log. If the other nodes cannot either, and no newer "+
		"version can, stop all nodes, and run on each `freshet cluster skip --index %[1]d --data-dir %s`, which loses what "+
		"is in the entry: %w", of.Index, s.config.DataDir, err)
}

// readSkips reads which entries of the log this node leaves out.
func (s *server) readSkips() (all skip.List, err error) {
	err = files.ReadJSON(s.path(skip.File), &all)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return all, err
}

// readHealing returns nil if this node does not heal.
func (s *server) readHealing() (*answer.Healing, error) {
	h := new(answer.Healing)
	err := files.ReadJSON(s.path(answer.HealFile), h)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read how far this node has healed: %w", err)
	}
	return h, nil
}

// heals reports whether this node joins to replace itself.
func (s *server) heals() bool { return s.healedMember() != 0 }

// healedMember returns the old member of this node, whose data are set aside; 0 if there is none.
func (s *server) healedMember() uint64 {
	h, err := s.readHealing()
	if err != nil || h == nil || h.Aside == "" {
		return 0
	}
	return h.Member
}
