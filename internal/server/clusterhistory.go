package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
	prom "github.com/prometheus/prometheus/tsdb"

	"github.com/freshet-io/freshet/internal/adapter/peer"
	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/imports"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/lib/fault"
	"github.com/freshet-io/freshet/internal/lib/retry"
	"github.com/freshet-io/freshet/internal/role/group"
)

const (
	// importPoll is how often a request that imports asks which nodes have the block.
	importPoll = 200 * time.Millisecond

	// showTime bounds how long an import, or a removal, waits until the nodes that answer do as the log says.
	showTime = 5 * time.Second

	// tellTime is how long another node may take to say which blocks it has.
	tellTime = 2 * time.Second
)

// newClusterHistory must be called once the member is restored.
func (s *server) newClusterHistory(g *group.Group) *clusterHistory {
	h := &clusterHistory{
		node: s.config.Cluster.Node, others: s.otherNodes(), stores: s.stores, log: g, logger: s.logger,
		peers: func() importPeers { return s.nodes.peers },
		tell: func(ctx context.Context, node, tenant string) ([]byte, error) {
			return s.nodes.tell(ctx, node, peer.History, tenant)
		},
		voters: func() (names []string) {
			status := g.Status()
			for name, member := range status.Nodes {
				if slices.Contains(status.Members.Voters, member) {
					names = append(names, name)
				}
			}
			return names
		},
		older: func() bool { return g.Status().Version.Format < member.ImportsFormat },
		write: func(ctx context.Context, step *entry.Import) error {
			_, err := s.gateway.Write(ctx, &entry.Entry{Kind: entry.KindImport, Import: *step})
			return err
		},
		room: func(bytes int64) error { return roomFor(s.config.DataDir, bytes) },
		mine: map[ulid.ULID]bool{}, why: map[ulid.ULID]string{},
	}
	h.whole.Store(^uint64(0))
	h.register(s.registry)
	return h
}

// runImports keeps the imported blocks of this node until ctx is done.
func (s *server) runImports(ctx context.Context) error { return s.clusterHistory.run(ctx) }

// countMissing returns how many imported blocks this node lacks.
func (s *server) countMissing() uint64 { return uint64(len(s.clusterHistory.missing())) }

// openImported opens a file of an imported block for another node: TENANT/BLOCK/FILE.
func (s *server) openImported(name string) (io.ReadCloser, error) { return s.clusterHistory.open(name) }

// take imports a block into the cluster. When it returns, most nodes have the block, and survive a power loss with it.
//
// The node stages the block, and offers it to the others by an entry of the log. They get it and stage it, too. Once
// most have it, another entry makes all nodes show it.
func (h *clusterHistory) take(ctx context.Context, tenant string, id ulid.ULID, fill func(dir string) error) (
	done answer.HistoryBlock, err error,
) {
	if err := h.takeable(ctx, tenant, id); err != nil {
		return done, err
	}
	stored := ulid.Make()
	h.begin(stored)
	defer h.end(tenant, id, stored)
	meta, err := h.stores.Stage(ctx, tenant, stored, id, fill)
	if err != nil {
		return done, err
	}
	fault.Kill("staged")
	step := entry.Import{Step: entry.ImportOffered, Tenant: tenant, Block: id, Stored: stored}
	if err = h.offer(ctx, step, meta); err == nil {
		fault.Kill("offered")
		err = h.untilMostHave(ctx, tenant, id, stored)
	}
	if err == nil {
		fault.Kill("spread")
		step.Step = entry.ImportShown
		err = h.say(ctx, &step)
	}
	if err != nil {
		return done, err
	}
	h.untilShown(ctx, tenant, stored)
	b, _ := h.log.Imports().Get(tenant, id)
	return blockAnswer(b), nil
}

// takeable returns why the cluster does not take a block now.
func (h *clusterHistory) takeable(ctx context.Context, tenant string, id ulid.ULID) error {
	if h.older() {
		return refusal(id, member.ErrOlder)
	}
	if err := h.listable(ctx); err != nil {
		return err
	}
	b, known := h.log.Imports().Get(tenant, id)
	if founded, _ := h.stores.Imported(tenant, id); founded || known && b.Shown {
		return refusal(id, imports.ErrKnown)
	}
	return nil
}

func (h *clusterHistory) begin(stored ulid.ULID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mine[stored] = true
}

// end ends the import of a request. If the block is offered by then and not shown, settle withdraws the offer.
func (h *clusterHistory) end(tenant string, id, stored ulid.ULID) {
	h.mu.Lock()
	delete(h.mine, stored)
	h.mu.Unlock()
	if h.wanted(imports.Block{Tenant: tenant, Block: id, Stored: stored}) {
		return
	}
	if err := h.stores.RemoveStaged(tenant, stored); err != nil {
		h.logger.Error("a block whose import failed cannot be removed: the next start removes it", "error", err)
	}
}

// offer offers a staged block to the other nodes, and waits until this node knows of its own offer.
func (h *clusterHistory) offer(ctx context.Context, step entry.Import, meta prom.BlockMeta) error {
	all, err := h.stores.StagedFiles(ctx, step.Tenant, step.Stored)
	if err != nil {
		return err
	}
	step.Node = h.node
	step.MinTime, step.MaxTime = meta.MinTime, meta.MaxTime
	step.Series, step.Samples = meta.Stats.NumSeries, meta.Stats.NumSamples
	for i := range all {
		f := entry.ImportedFile(all[i])
		step.Files = entry.AppendImportedFile(step.Files, &f)
	}
	if err := h.say(ctx, &step); err != nil {
		return err
	}
	return h.listable(ctx)
}

// say hands a step to the leader, and waits until it is in the log.
func (h *clusterHistory) say(ctx context.Context, step *entry.Import) error {
	if err := h.write(ctx, step); err != nil {
		return refusal(step.Block, err)
	}
	return nil
}

// refusal returns the answer to an error of a step: a conflict if the same step would meet the same error again.
func refusal(id ulid.ULID, err error) error {
	switch {
	case errors.Is(err, imports.ErrKnown), errors.Is(err, imports.ErrGivenUp), errors.Is(err, imports.ErrTooMany):
		return conflict(fmt.Errorf("block %s: %w", id, err))
	case errors.Is(err, member.ErrOlder):
		return conflict(fmt.Errorf("block %s: %w: upgrade all nodes, and wait for cluster.upgrade_after", id, err))
	}
	return notNow(err)
}

// untilMostHave waits until most of the nodes that vote have a block. An error says that most of them cannot get it.
func (h *clusterHistory) untilMostHave(ctx context.Context, tenant string, id, stored ulid.ULID) error {
	for {
		if b, known := h.log.Imports().Get(tenant, id); !known || b.Stored != stored {
			return refusal(id, imports.ErrGivenUp)
		}
		states, voters := h.states(ctx, tenant), h.voters()
		have, lack, fail := 0, 0, error(nil)
		for _, node := range voters {
			switch state := states[node][stored.String()]; state {
			case blockShown, blockStaged:
				have++
			case "": // the node does not answer, or has not tried yet
			default:
				lack++
				fail = errors.Join(fail, fmt.Errorf("node %s: %s", node, state))
			}
		}
		switch most := len(voters)/2 + 1; {
		case have >= most:
			return nil
		case lack > len(voters)-most:
			return notNow(fmt.Errorf("block %s: most nodes cannot get it from node %s: %w", id, h.node, fail))
		}
		if err := retry.Wait(ctx, importPoll); err != nil {
			return err
		}
	}
}

// states returns the states of a tenant's blocks on all nodes that answer: see own.
func (h *clusterHistory) states(ctx context.Context, tenant string) map[string]map[string]string {
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	all := map[string]map[string]string{h.node: h.own(tenant)}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, node := range h.others {
		wg.Go(func() {
			text, err := h.tell(ctx, node, tenant)
			var states map[string]string
			if err != nil || json.Unmarshal(text, &states) != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			all[node] = states
		})
	}
	wg.Wait()
	return all
}

// untilShown waits until all nodes that have a block show it: the next query may go to any of them.
func (h *clusterHistory) untilShown(ctx context.Context, tenant string, stored ulid.ULID) {
	ctx, cancel := context.WithTimeout(ctx, showTime)
	defer cancel()
	for {
		staged := false
		for _, states := range h.states(ctx, tenant) {
			staged = staged || states[stored.String()] == blockStaged
		}
		if !staged || retry.Wait(ctx, importPoll) != nil {
			return
		}
	}
}

// remove removes a block from the history of a tenant, at all nodes.
func (h *clusterHistory) remove(ctx context.Context, tenant string, id ulid.ULID) error {
	if err := h.listable(ctx); err != nil {
		return err
	}
	b, known := h.log.Imports().Get(tenant, id)
	stored := ulid.ULID(b.Stored)
	if !known {
		if founded, _ := h.stores.Imported(tenant, id); !founded {
			return tsdb.ErrNotImported
		}
		stored = id
	}
	if err := h.say(ctx, &entry.Import{Step: entry.ImportRemoved, Tenant: tenant, Block: id}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, showTime)
	defer cancel()
	for {
		if shown, _ := h.stores.Imported(tenant, stored); !shown || retry.Wait(ctx, importPoll) != nil {
			return nil
		}
	}
}

// listable returns an error if this node may not know every block.
func (h *clusterHistory) listable(ctx context.Context) error {
	if err := h.current(ctx); err != nil {
		return notNow(fmt.Errorf("imports of a moment ago may be missing, since this node lags behind the others or "+
			"knows no leader: %w", err))
	}
	return nil
}

// list returns the blocks of a tenant, in the order of time.
func (h *clusterHistory) list(ctx context.Context, tenant string) (answer.History, error) {
	all := answer.History{Tenant: tenant, Blocks: []answer.HistoryBlock{}}
	if err := h.listable(ctx); err != nil {
		return all, err
	}
	metas, err := h.stores.Blocks(tenant, tsdb.History)
	if err != nil {
		return all, err
	}
	states, named := h.states(ctx, tenant), map[ulid.ULID]bool{}
	for _, b := range h.log.Imports().Of(tenant) {
		named[b.Stored] = true
		if !b.Shown {
			all.Importing = append(all.Importing, ulid.ULID(b.Block).String())
			continue
		}
		one := blockAnswer(b)
		for node, states := range states {
			if states[ulid.ULID(b.Stored).String()] == blockShown {
				one.Nodes = append(one.Nodes, node)
			}
		}
		slices.Sort(one.Nodes)
		all.Blocks = append(all.Blocks, one)
	}
	for _, m := range metas {
		if !named[m.ULID] { // the founder of the cluster had it
			all.Blocks = append(all.Blocks, answerOf(m, h.stores.ImportedBytes(tenant, m.ULID)))
		}
	}
	slices.SortStableFunc(all.Blocks, func(x, y answer.HistoryBlock) int { return cmp.Compare(x.MinTime, y.MinTime) })
	return all, nil
}

func blockAnswer(b imports.Block) answer.HistoryBlock {
	return answer.HistoryBlock{Block: ulid.ULID(b.Block).String(), MinTime: b.MinTime, MaxTime: b.MaxTime,
		Series: b.Series, Samples: b.Samples, Bytes: bytesOf(b.Files)}
}
