package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/adapter/promapi"
	"github.com/freshet-io/freshet/internal/adapter/rulesets"
	"github.com/freshet-io/freshet/internal/core/identity"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/role/aggregator"
	"github.com/freshet-io/freshet/internal/role/group"
)

// takeOver gives the data of this directory to its group. It does so at the first start after the
// command freshet cluster init has run in a directory with data. It writes the first checkpoint of the
// group, from the journal and from the stores' knowledge of earlier requests. If it fails before the
// checkpoint is in place, the next start begins again, since the journal still has everything. Once the
// checkpoint is in place, removeJournal removes the journal.
func (s *server) takeOver(dir segment.FS) (tookOver bool, err error) {
	if !s.founded() {
		return false, nil
	}
	lacks, err := group.LacksData(dir)
	if err != nil || !lacks {
		return false, err
	}
	journal, err := files.Open(s.path("journal"))
	if err == nil {
		err = s.takeOverFrom(journal, dir)
	}
	if err != nil {
		return false, fmt.Errorf("take over the data of this directory into its new cluster: %w; once that is mended, the "+
			"next start begins again", err)
	}
	return true, nil
}

// founded reports whether this directory founded its cluster.
func (s *server) founded() bool {
	i := s.identity.Load()
	return i != nil && i.Joined() && i.Founder == i.Member
}

// takeOverFrom does what takeOver does, for given directories of the journal and the group.
func (s *server) takeOverFrom(from, to segment.FS) error {
	begun := time.Now()
	log, report, err := s.openLog(from)
	if err != nil {
		return err
	}
	defer log.Close()
	shards, err := aggregator.Restore(aggregator.Options{
		Config: s.config.Aggregator, Log: log, Boot: boot(), Now: time.Now, Logger: s.logger,
	})
	if err != nil {
		return err
	}
	// CutBack makes the stores save where their logs end, as in every group. It must run before their
	// first use.
	s.stores.CutBack(boot(), nil)
	states, err := s.statesOf(shards)
	if err != nil {
		return err
	}
	// Sync the stores, since the shards do not have the stores' samples.
	if err := s.stores.Sync(context.Background()); err != nil {
		return err
	}
	var mark [4]byte
	if _, err := rand.Read(mark[:]); err != nil {
		return err
	}
	names, err := s.catalogueFile.Load()
	if err != nil {
		return err
	}
	var config tile.Config // left empty: only queries use it, and nothing queries this state
	state := member.Found(groupNumber, identity.DataIndex, &config, shards, states, names)
	if err := s.takeOverRules(state); err != nil {
		return err
	}
	if err := group.Found(to, binary.LittleEndian.Uint32(mark[:]), state); err != nil {
		return err
	}
	s.logger.Info("the data of this directory belong to the cluster from now on", "frames", report.Frames,
		"tenants", len(states), "took", time.Since(begun).Round(time.Millisecond))
	return nil
}

// statesOf returns, for each tenant that has stores or tiles, the state that the tenant's requests left
// in its raw store, and results of rules in theirs: see write.QueueOf.
func (s *server) statesOf(shards *tile.Shards) (map[string]*write.State, error) {
	states := map[string]*write.State{}
	for _, tenant := range slices.Concat(s.stores.Tenants(), slices.Collect(maps.Keys(shards.Unstored()))) {
		state, err := s.stores.State(context.Background(), tenant)
		if err != nil {
			return nil, err
		}
		states[tenant] = state
		results, err := s.stores.ResultsState(context.Background(), tenant)
		if err != nil {
			return nil, err
		}
		if results.Newest > 0 {
			states[write.QueueOf(tenant, true)] = results
		}
	}
	return states, nil
}

// takeOverRules adds the rules that one machine has kept to the state with which its group begins.
func (s *server) takeOverRules(state *member.Member) error {
	kept, err := rulesets.Open(s.path("rules"), promapi.NewParser(s.config.Query, func() {}), s.logger)
	if err != nil {
		return err
	}
	for _, tenant := range kept.Tenants() {
		all := kept.List(tenant, "")
		for _, namespace := range slices.Sorted(maps.Keys(all)) {
			left, err := rulesets.Fold(state.RuleSets(), tenant, namespace, all[namespace])
			if err != nil {
				return fmt.Errorf("take over the rules set by the API: %w; to do so, remove cluster.json and groups", err)
			}
			for _, group := range left {
				s.logger.Warn("a group of rules set by the API has no rules or no name: the cluster leaves it out",
					"tenant", tenant, "namespace", namespace, "group", group)
			}
		}
	}
	return nil
}

// removeJournal removes the journal of a directory that founded its cluster, and the files of rules set by the API,
// once the group is restored.
// After a crash or an error, the next start removes the rest, and does not read it.
func (s *server) removeJournal() {
	path := s.path("journal")
	if _, err := os.Stat(path); !s.founded() || errors.Is(err, os.ErrNotExist) {
		return
	}
	var err error
	if g, is := s.aggregator.(*group.Group); is && !g.RuleSets().Empty() { // an earlier version left the rules out
		err = rulesets.Remove(s.path("rules"))
	}
	if err := cmp.Or(err, os.RemoveAll(path)); err != nil {
		s.logger.Warn("the journal could not be removed; the cluster has its data, and the next start tries again",
			"error", err)
		return
	}
	s.logger.Info("the journal is removed, since the cluster has its data", "journal", path)
}
