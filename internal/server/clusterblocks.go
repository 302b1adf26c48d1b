package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/freshet-io/freshet/internal/adapter/peer"
	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/imports"
	"github.com/freshet-io/freshet/internal/core/partial"
	"github.com/freshet-io/freshet/internal/lib/fault"
	"github.com/freshet-io/freshet/internal/lib/retry"
)

const (
	// settleEvery is how often a node looks whether it has the imported blocks that the log names.
	settleEvery = 200 * time.Millisecond

	// fetchPause is the time between two tries to get a block.
	fetchPause = 5 * time.Second

	// barrierTime bounds the wait for the log.
	barrierTime = 10 * time.Second
)

// importLog is the log of the group, as imports use it.
type importLog interface {
	Imports() *imports.Kept
	Barrier(ctx context.Context, tenant string) error
}

// importPeers are the other nodes.
type importPeers interface {
	Fetch(ctx context.Context, from string, file peer.CopiedFile, take func(b []byte) error) error
}

// clusterHistory keeps the imported blocks of a node as the log says. A block is staged until the log says that
// queries see it. What the node lacks it gets from another one.
type clusterHistory struct {
	node   string
	others []string
	stores *tsdb.Stores
	log    importLog
	peers  func() importPeers                                             // they are opened later
	tell   func(ctx context.Context, node, tenant string) ([]byte, error) // asks another node for own, as JSON
	voters func() []string                                                // names of the nodes that vote
	older  func() bool                                                    // some node's program knows no imports
	write  func(context.Context, *entry.Import) error
	room   func(bytes int64) error
	logger *slog.Logger

	failed prometheus.Counter
	whole  atomic.Uint64 // imports.Kept.Folds, when this node last had all blocks

	mu   sync.Mutex
	mine map[ulid.ULID]bool   // blocks that requests to this process are importing
	why  map[ulid.ULID]string // why the node lacks blocks, after a try to get them
}

// register registers the metrics.
func (h *clusterHistory) register(registry prometheus.Registerer) {
	f := promauto.With(registry)
	h.failed = f.NewCounter(prometheus.CounterOpts{Name: "freshet_history_fetch_failures_total",
		Help: "Failed tries to get an imported block from another node of the cluster. Rising: the log of this process " +
			"names the cause."})
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "freshet_history_missing_blocks",
		Help: "Imported blocks that queries should see, and that this node does not have yet: it gets them from other " +
			"nodes, and answers over their times have a warning meanwhile. Above 0 for long: the log of this process names " +
			"the cause."}, func() float64 { return float64(len(h.missing())) })
}

// missing returns the blocks that queries should see, and that are not here.
func (h *clusterHistory) missing() (all []imports.Block) {
	every, folds := h.log.Imports().All()
	if h.whole.Load() == folds {
		return nil
	}
	for _, b := range every {
		if h.misses(b) {
			all = append(all, b)
		}
	}
	return all
}

func (h *clusterHistory) misses(b imports.Block) bool {
	if !b.Shown {
		return false
	}
	shown, _ := h.stores.Imported(b.Tenant, b.Stored)
	return !shown
}

// lacking is querier.Queryable.Lacking. Each select calls it, so it looks at the disk only for blocks of the tenant and
// the times.
func (h *clusterHistory) lacking(tenant string, mint, maxt int64) error {
	if h.whole.Load() == h.log.Imports().Folds() {
		return nil
	}
	for _, b := range h.log.Imports().Of(tenant) {
		if b.MinTime <= maxt && b.MaxTime > mint && h.misses(b) {
			return fmt.Errorf("imported samples of block %s are missing, until this node has got it from another one: %w",
				ulid.ULID(b.Block), partial.ErrElsewhere)
		}
	}
	return nil
}

// States of a block on a node. Any other state says why the node lacks the block.
const (
	blockStaged = "staged"
	blockShown  = "shown"
)

// own returns the state of each block of a tenant on this node, by the name under which nodes have it.
func (h *clusterHistory) own(tenant string) map[string]string {
	all := map[string]string{}
	for _, b := range h.log.Imports().Of(tenant) {
		switch shown, staged := h.stores.Imported(tenant, b.Stored); {
		case shown:
			all[ulid.ULID(b.Stored).String()] = blockShown
		case staged:
			all[ulid.ULID(b.Stored).String()] = blockStaged
		default:
			h.mu.Lock()
			all[ulid.ULID(b.Stored).String()] = h.why[b.Stored]
			h.mu.Unlock()
		}
	}
	return all
}

// run keeps the blocks of this node until ctx is done.
func (h *clusterHistory) run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for retry.Wait(ctx, settleEvery) == nil {
			h.fetchAll(ctx)
		}
	})
	swept := false
	for retry.Wait(ctx, settleEvery) == nil {
		swept = swept || h.sweep(ctx)
		h.settle(ctx)
	}
	return nil
}

// sweep removes staged blocks that the log does not know: a process was killed before it had offered them. It reports
// whether it is done.
func (h *clusterHistory) sweep(ctx context.Context) bool {
	staged, err := h.stores.AllStaged()
	if err != nil || len(staged) == 0 {
		return err == nil
	}
	if err := h.current(ctx); err != nil { // entries of before the start may know them
		return false
	}
	every, _ := h.log.Imports().All()
	for _, x := range staged {
		known := slices.ContainsFunc(every, func(b imports.Block) bool {
			return b.Tenant == x.Tenant && b.Stored == x.Block
		})
		if !known && !h.imports(x.Block) {
			err = errors.Join(err, h.stores.RemoveStaged(x.Tenant, x.Block))
		}
	}
	return err == nil
}

// current waits until this node has every step of imports that was acknowledged before the call.
func (h *clusterHistory) current(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, barrierTime)
	defer cancel()
	return h.log.Barrier(ctx, "")
}

// imports reports whether a request to this process imports a block.
func (h *clusterHistory) imports(stored ulid.ULID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mine[stored]
}

// settle shows and removes blocks as the log says, unless nothing has changed since.
func (h *clusterHistory) settle(ctx context.Context) {
	every, folds := h.log.Imports().All()
	if h.whole.Load() == folds {
		return
	}
	done := true
	for _, b := range every {
		done = h.settleBlock(ctx, b) && done
	}
	for _, g := range h.log.Imports().Gone() {
		done = h.drop(ctx, g) && done
	}
	if done {
		h.whole.Store(folds)
	}
}

// settleBlock shows a block, if the log says so and it is here. It reports whether nothing is left to be done.
func (h *clusterHistory) settleBlock(ctx context.Context, b imports.Block) bool {
	shown, staged := h.stores.Imported(b.Tenant, b.Stored)
	switch {
	case shown:
		return b.Shown
	case !b.Shown && b.Node == h.node && !h.imports(b.Stored): // the process that imported it was killed, or gave up
		// After an error, the next call tries again.
		_ = h.write(ctx, &entry.Import{Step: entry.ImportWithdrawn, Tenant: b.Tenant, Block: b.Block, Stored: b.Stored})
		return false
	case !b.Shown || !staged:
		return false
	}
	fault.Kill("shows")
	return h.try(b, h.stores.Show(ctx, b.Tenant, b.Stored))
}

// drop removes a block that is gone by the log. It reports whether this node has nothing of it any more.
func (h *clusterHistory) drop(ctx context.Context, g imports.Gone) bool {
	shown, staged := h.stores.Imported(g.Tenant, g.Stored)
	var err error
	if staged {
		err = h.stores.RemoveStaged(g.Tenant, g.Stored)
	}
	if shown {
		err = errors.Join(err, h.stores.RemoveImported(ctx, g.Tenant, g.Stored))
	}
	if err != nil && ctx.Err() == nil {
		h.logger.Error("an imported block cannot be removed", "tenant", g.Tenant, "block", ulid.ULID(g.Stored), "error", err)
	}
	h.mu.Lock()
	delete(h.why, g.Stored)
	h.mu.Unlock()
	return err == nil
}

// try keeps the error of a step as the reason why this node lacks a block, or forgets the reason if err is nil. It
// reports whether err is nil.
func (h *clusterHistory) try(b imports.Block, err error) bool {
	h.mu.Lock()
	before := h.why[b.Stored]
	if err == nil {
		delete(h.why, b.Stored)
	} else {
		h.why[b.Stored] = err.Error()
	}
	h.mu.Unlock()
	if err != nil && err.Error() != before {
		h.logger.Warn("an imported block is not here yet", "tenant", b.Tenant, "block", ulid.ULID(b.Block), "error", err)
	}
	return err == nil
}

// fetchAll gets all blocks that this node lacks.
func (h *clusterHistory) fetchAll(ctx context.Context) {
	every, folds := h.log.Imports().All()
	if h.whole.Load() == folds {
		return
	}
	failed := false
	for _, b := range every {
		shown, staged := h.stores.Imported(b.Tenant, b.Stored)
		if shown || staged || b.Node == h.node && !b.Shown || ctx.Err() != nil {
			continue
		}
		err := h.fetch(ctx, b)
		if errors.Is(err, imports.ErrGivenUp) || h.try(b, err) {
			continue
		}
		failed = true
		h.failed.Inc()
	}
	if failed {
		_ = retry.Wait(ctx, fetchPause) // fails only if ctx is done
	}
}

// fetch gets a block from one of the other nodes.
func (h *clusterHistory) fetch(ctx context.Context, b imports.Block) (err error) {
	from := slices.Clone(h.others)
	slices.SortStableFunc(from, func(x, y string) int { return cmp.Compare(number(y == b.Node), number(x == b.Node)) })
	for _, node := range from {
		_, said := h.stores.Stage(ctx, b.Tenant, b.Stored, b.Stored, func(dir string) error {
			return h.fill(ctx, node, b, dir)
		})
		if said == nil && !h.wanted(b) {
			said = errors.Join(imports.ErrGivenUp, h.stores.RemoveStaged(b.Tenant, b.Stored))
		}
		if said == nil || errors.Is(said, tsdb.ErrImported) {
			return nil
		}
		if errors.Is(said, imports.ErrGivenUp) {
			return said
		}
		err = errors.Join(err, fmt.Errorf("get block %s from node %s: %w", ulid.ULID(b.Block), node, said))
	}
	return err
}

// wanted reports whether the log still names a block.
func (h *clusterHistory) wanted(b imports.Block) bool {
	now, known := h.log.Imports().Get(b.Tenant, b.Block)
	return known && now.Stored == b.Stored
}

// fill gets the files of a block from a node.
func (h *clusterHistory) fill(ctx context.Context, node string, b imports.Block, dir string) error {
	if err := h.room(bytesOf(b.Files)); err != nil {
		return err
	}
	for item := range b.Files.All() {
		if err := h.fillFile(ctx, node, b, dir, entry.ParseImportedFile(item)); err != nil {
			return err
		}
	}
	return nil
}

func bytesOf(files entry.List) (sum int64) {
	for item := range files.All() {
		if f := entry.ParseImportedFile(item); f.Size <= math.MaxInt64-sum {
			sum += f.Size
		}
	}
	return sum
}

// fillFile gets a file of a block. It ends early if the block is given up or removed meanwhile.
func (h *clusterHistory) fillFile(ctx context.Context, node string, b imports.Block, dir string,
	f entry.ImportedFile) error {
	path := filepath.Join(dir, filepath.FromSlash(f.Name))
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	to, err := os.Create(path)
	if err != nil {
		return err
	}
	hash := sha256.New()
	both := io.MultiWriter(to, hash)
	name := historyPrefix + strings.Join([]string{b.Tenant, ulid.ULID(b.Stored).String(), f.Name}, "/")
	err = h.peers().Fetch(ctx, node, peer.CopiedFile{Name: name, Size: f.Size}, func(piece []byte) error {
		if !h.wanted(b) {
			return imports.ErrGivenUp
		}
		_, err := both.Write(piece)
		return err
	})
	if err = errors.Join(err, to.Close()); err == nil && [sha256.Size]byte(hash.Sum(nil)) != f.SHA256 {
		err = fmt.Errorf("file %s is another one than the log says, or damaged", f.Name)
	}
	return err
}

// open opens a file of a block for another node: TENANT/BLOCK/FILE.
func (h *clusterHistory) open(name string) (io.ReadCloser, error) {
	tenant, rest, _ := strings.Cut(name, "/")
	block, file, _ := strings.Cut(rest, "/")
	id, err := ulid.ParseStrict(block)
	if err != nil {
		return nil, fmt.Errorf("block %.80q: %w", block, err)
	}
	if h.stores.Changes(tenant) == nil { // there is no such tenant; its name may be a path, such as ".."
		return nil, tsdb.ErrNotImported
	}
	return h.stores.OpenImported(tenant, id, file)
}
