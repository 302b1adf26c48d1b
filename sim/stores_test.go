package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/core/member"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
)

// stores are the databases of a node.
type stores struct {
	*tsdb.Stores
	dir string

	// synced has the sizes, at our last sync, of the files that tsdb does not sync. It is nil after a power
	// loss.
	synced map[string]int64

	atSync func(path string) // called before each sync, if not nil
}

func (n *node) openStores() {
	cfg := tsdb.DefaultConfig()
	cfg.OutOfOrder, cfg.Idle = n.window(), 3*time.Second
	now := func() time.Time { return time.UnixMilli(n.clock()) }
	all, err := tsdb.Open(cfg, n.stores.dir, now, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		n.sim.Fail("node %d: %v", n.n, err)
		return
	}
	all.CompactByHand()
	all.BeforeSync(func(path string) {
		if n.stores.atSync != nil {
			n.stores.atSync(path)
		}
	})
	n.stores.Stores = all
}

func (n *node) closeStores() {
	if n.stores.Stores != nil {
		if err := n.stores.Close(context.Background()); err != nil {
			n.sim.Fail("node %d: %v", n.n, err)
		}
		n.stores.Stores = nil
	}
}

// cutBack cuts the databases back to their last sync if the power failed since, as role/group does. It reports
// whether the process survived that.
func (n *node) cutBack(state *member.Member) (survives bool) {
	boot := n.boots
	if n.sim.mistakes.noCut {
		boot = 0
	}
	cut := func() { n.stores.CutBack(fmt.Sprint("boot", boot), state.Requests()) }
	if n.stores.synced != nil {
		cut()
		return true
	}
	n.allSynced() // what a power loss has left counts as synced
	if n.sim.cutOrDie(n, cut) {
		return false
	}
	n.allSynced()
	return true
}

// crashStores reduces the databases to the files that survive a crash. A kill leaves all files as they are. After a
// power loss, a file has its synced bytes and any part of the bytes written since, perhaps with a hole. The
// newest files of a directory may be missing.
func (n *node) crashStores(power bool) {
	lost := map[string]bool{} // directories that lack their newest files
	n.useStores(n.copyStores(func(name string, b []byte) []byte {
		if power && unsynced(name) {
			return n.torn(name, b, lost)
		}
		return b
	}))
	if power {
		n.stores.synced = nil
	}
}

// torn returns what a power loss leaves of a file, or nil if it leaves nothing. Call it with the files of a
// directory from the oldest to the newest.
func (n *node) torn(name string, b []byte, lost map[string]bool) []byte {
	synced, known := n.stores.synced[name]
	if dir := filepath.Dir(name); lost[dir] || !known && n.sim.Chance(30) {
		lost[dir] = true
		return nil
	}
	synced = min(synced, int64(len(b)))
	b = b[:n.sim.Between(synced, int64(len(b))+1)]
	if tail := b[synced:]; len(tail) > 0 && n.sim.Chance(30) {
		clear(tail[n.sim.Rand.IntN(len(tail)):])
	}
	return b
}

// unsynced reports whether tsdb leaves a file unsynced, so that only our own sync makes its bytes
// survive a power loss. tsdb itself syncs its blocks and the checkpoints of its log.
func unsynced(name string) bool {
	return !strings.Contains(name, "checkpoint.") &&
		(strings.Contains(name, "/wal/") || strings.Contains(name, "/wbl/") || strings.Contains(name, "/chunks_head/"))
}

// syncStores syncs the databases.
func (n *node) syncStores() {
	if err := n.stores.Sync(context.Background()); err != nil {
		n.sim.Fail("node %d: %v", n.n, err)
		return
	}
	n.allSynced()
}

// allSynced notes that all files are synced.
func (n *node) allSynced() {
	n.stores.synced = map[string]int64{}
	n.noteSynced(n.stores.dir)
}

// noteSynced notes that the files below a directory are synced.
func (n *node) noteSynced(dir string) {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if name := strings.TrimPrefix(path, n.stores.dir); err == nil && unsynced(name) {
			n.stores.synced[name] = info.Size()
		}
		return err
	})
	if err != nil {
		n.sim.Fail("node %d: look at the stores: %v", n.n, err)
	}
}

// writeTiles writes one width of a Work.
func (n *node) writeTiles(w *member.Work, width tile.Width) {
	samples := w.Samples(width)
	if len(samples) == 0 {
		return
	}
	written, err := n.stores.WriteTiles(context.Background(), w.Tenant, width, samples)
	if err != nil {
		n.sim.Fail("node %d: %v", n.n, err)
		return
	}
	for reason, refused := range written.Refused {
		if refused.Samples > 0 {
			n.sim.Fail("node %d: %d samples of tiles of tenant %s refused: %v", n.n, refused.Samples, w.Tenant,
				tile.Reason(reason))
		}
	}
}

// writeRequests writes the requests of a Work, in commits of any size.
func (n *node) writeRequests(w *member.Work) {
	left := w.Requests
	for len(left) > 0 {
		size := len(left)
		if n.sim.Chance(50) {
			size = int(n.sim.Between(1, int64(size)+1))
		}
		var commit []*write.Request
		for _, r := range left[:size] {
			commit = append(commit, &r.Write)
		}
		left = left[size:]
		if err := n.stores.WriteRequests(context.Background(), w.Tenant, w.State, commit); err != nil {
			n.sim.Fail("node %d: %v", n.n, err)
			return
		}
	}
}

// compact does what tsdb does each minute. A raw store is synced before tsdb puts a block into place.
func (n *node) compact() {
	n.noteEnds(func() {
		before := n.blocks()
		if err := n.stores.Compact(context.Background(), n.sim.Chance(30)); err != nil {
			n.sim.Fail("node %d: %v", n.n, err)
		}
		n.sim.covered.truncations += max(0, n.blocks()-before)
	})
}

// requestDirs returns the directories of a tenant's stores of requests. The store of results may not exist.
func (n *node) requestDirs(tenant string) []string {
	return []string{n.requestDir(tenant, false), n.requestDir(tenant, true)}
}

// requestDir returns the directory of a tenant's raw store, or of its store of results.
func (n *node) requestDir(tenant string, results bool) string {
	kind := tsdb.Raw
	if results {
		kind = tsdb.Rules
	}
	return filepath.Join(n.stores.dir, "tsdb", tenant, kind)
}

// ends is a helper that returns the saved ends of the logs of a store.
func (n *node) ends(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, "ends"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.sim.Fail("node %d: %v", n.n, err)
	}
	return string(b)
}

// tend does what the process does each minute.
func (n *node) tend() {
	if err := n.stores.Tend(context.Background()); err != nil {
		n.sim.Fail("node %d: %v", n.n, err)
	}
	if !n.noSync {
		n.syncStores()
	}
}

// blocks returns how many blocks the open databases have.
func (n *node) blocks() (blocks int) {
	for _, tenant := range tenants {
		for _, store := range stored {
			all, err := n.stores.Blocks(tenant, store)
			if err != nil {
				n.sim.Fail("node %d: %v", n.n, err)
			}
			blocks += len(all)
		}
	}
	return blocks
}

// all is a read of a whole store: it returns the samples by series, with the bits of each value.
func (n *node) all(tenant, store string) map[string]string {
	found := map[string]string{}
	n.read(tenant, store, math.MinInt64, math.MaxInt64, func(ls labels.Labels, it chunkenc.Iterator) {
		var b strings.Builder
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			if kind == chunkenc.ValFloat {
				t, v := it.At()
				fmt.Fprintf(&b, " %d=%x", t-base, math.Float64bits(v))
				continue
			}
			t, h := it.AtFloatHistogram(nil)
			h.CounterResetHint = 0
			fmt.Fprintf(&b, " %d=%s", t-base, h.Compact(0))
		}
		found[ls.String()] = b.String()
	}, labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+"))
	return found
}

// read is a loop that calls fn with each matching series of a store.
func (n *node) read(
	tenant, store string, mint, maxt int64, fn func(labels.Labels, chunkenc.Iterator), m ...*labels.Matcher,
) {
	var q storage.Querier
	var err error
	n.noteEnds(func() { q, err = n.stores.Querier(tenant, store, mint, maxt) }) // Querier may open the store
	if err != nil {
		n.sim.Fail("node %d: %v", n.n, err)
		return
	}
	set := q.Select(context.Background(), true, nil, m...)
	for set.Next() {
		it := set.At().Iterator(nil)
		fn(set.At().Labels(), it)
		if it.Err() != nil {
			n.sim.Fail("node %d: %v", n.n, it.Err())
		}
	}
	if err := cmp.Or(set.Err(), q.Close()); err != nil {
		n.sim.Fail("node %d: %v", n.n, err)
	}
}

func named(name string) *labels.Matcher {
	return labels.MustNewMatcher(labels.MatchEqual, "__name__", name)
}

// total returns the value of a counter, or the number of observations of a histogram, as a reader sees
// it: from the open tiles, or else from the newest stored sample.
func (n *node) total(tenant, name string) (total float64) {
	open := n.node.State().Shards().Live(tenant, tile.Width10s, base+n.sim.Now+10*60*second, math.MinInt64,
		math.MaxInt64, []*labels.Matcher{named(name)})
	if len(open) > 0 {
		last := open[0].Points[len(open[0].Points)-1]
		if last.H != nil {
			return last.H.Count
		}
		return last.V
	}
	n.read(tenant, tile.Width10s.String(), math.MinInt64, math.MaxInt64, func(_ labels.Labels, it chunkenc.Iterator) {
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			if v := sampleAt(it, kind); !value.IsStaleNaN(v) {
				total = v
			}
		}
	}, named(name))
	return total
}

// sampleAt returns a sample's value, or the number of observations of a histogram.
func sampleAt(it chunkenc.Iterator, kind chunkenc.ValueType) (v float64) {
	if kind == chunkenc.ValFloat {
		_, v = it.At()
		return v
	}
	_, h := it.AtFloatHistogram(nil)
	if value.IsStaleNaN(h.Sum) {
		return h.Sum
	}
	return h.Count
}

// intact is like sampleAt, but for a sample of a request: it also checks that a histogram is as
// histogramOf made it.
func (n *node) intact(it chunkenc.Iterator, kind chunkenc.ValueType) float64 {
	v := sampleAt(it, kind)
	if kind != chunkenc.ValFloat && !value.IsStaleNaN(v) {
		if _, h := it.AtFloatHistogram(nil); h.Sum != v*perValue || h.Validate() != nil {
			n.sim.Fail("node %d: a histogram is %v", n.n, h)
		}
	}
	return v
}

// has is a look-up: it returns the value of a sample of a request.
func (n *node) has(tenant, name string, t int64) (v float64, found bool) {
	n.read(tenant, tsdb.Raw, t, t, func(_ labels.Labels, it chunkenc.Iterator) {
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			if it.AtT() == t {
				v, found = n.intact(it, kind), true
			}
		}
	}, named(name))
	return v, found
}

// each is a loop that calls fn with all samples of a tenant's requests.
func (n *node) each(tenant string, fn func(name string, t int64, v float64)) {
	n.read(tenant, tsdb.Raw, math.MinInt64, math.MaxInt64, func(ls labels.Labels, it chunkenc.Iterator) {
		for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
			fn(ls.Get("__name__"), it.AtT(), n.intact(it, kind))
		}
	}, labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+"))
}
