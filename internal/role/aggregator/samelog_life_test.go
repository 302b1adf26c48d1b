//go:build !race

package aggregator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/core/journal"
	"github.com/freshet-io/freshet/internal/core/ledger"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
	"github.com/freshet-io/freshet/internal/core/tenants"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/lib/wallclock"
	"github.com/freshet-io/freshet/internal/settings"
	"github.com/freshet-io/freshet/internal/tiling"
)

// entry is a frame of the log, with the frame's effect in the plain life.
type entry struct {
	frame  journal.Frame
	fates  [fates]float64    // number of samples of a batch by fate
	posted map[string]uint64 // samples posted in the ledger
	handed string            // the closed tiles as text
	state  uint64            // hash of the shard's state after the frame
}

const fates = 7

// fatesOf returns the fates of the samples of all batches that a process applied.
func fatesOf(m *tiling.Metrics) (all [fates]float64) {
	for i, c := range []prometheus.Counter{m.Folded, m.Late, m.Ahead, m.LateGauges, m.Refused, m.Repeated, m.Again} {
		all[i] = testutil.ToFloat64(c)
	}
	return all
}

// books are the sums of the transfers that a process posts about folded samples.
type books map[string]uint64

func (b books) Post(tenant string, transfers ...ledger.Transfer) {
	for _, x := range transfers {
		if x.Samples > 0 {
			b[fmt.Sprintf("%s %v>%v %s", tenant, x.From, x.To, x.Reason)] += x.Samples
		}
	}
}

func (b books) Note(tenant string, which ledger.OfWhich, samples uint64) {
	if samples > 0 {
		b[fmt.Sprintf("%s of which %d", tenant, which)] += samples
	}
}

// mood is how the stores of a tenant behave.
type mood int

const (
	takes mood = iota
	fails
	fails1m
	takesAndFails // the samples are stored, but the write returns an error, as after a timeout
	holds
	moods
)

// moody stands between a process and its stores. The moods of the life decide whether a write or a sync
// gets through.
type moody struct {
	life *life

	mu       sync.Mutex
	moods    map[string]mood
	released chan struct{} // closed and replaced when a tenant's mood changes
	holdSync bool
	dead     bool // the process is dead: nothing more reaches the stores
}

func (g *moody) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
	close(g.released)
	g.released = make(chan struct{})
}

var errMood = errors.New("the store takes no writes")

func (g *moody) WriteTiles(ctx context.Context, tenant string, w tile.Width,
	samples []tile.Sample) (written tile.Written, err error) {
	g.mu.Lock()
	for g.moods[tenant] == holds && !g.dead {
		released := g.released
		g.mu.Unlock()
		<-released
		g.mu.Lock()
	}
	m, dead := g.moods[tenant], g.dead
	g.mu.Unlock()
	if dead || m == fails || m == fails1m && w == tile.Width1m {
		return tile.Written{}, errMood
	}
	written, err = g.life.stores.WriteTiles(ctx, tenant, w, samples)
	if m == takesAndFails {
		return tile.Written{}, errMood
	}
	for reason, n := range written.Refused {
		if reason := tile.Reason(reason); n.Samples > 0 && reason != tile.Duplicate {
			g.life.t.Errorf("%s: the store refuses %d samples of tenant %s, width %v, as %v, want none",
				g.life, n.Samples, tenant, w, reason)
		}
	}
	return written, err
}

// Sync syncs the stores, and copies what would survive a power loss.
func (g *moody) Sync(ctx context.Context) error {
	g.mu.Lock()
	for g.holdSync && !g.dead {
		released := g.released
		g.mu.Unlock()
		<-released
		g.mu.Lock()
	}
	dead := g.dead
	g.mu.Unlock()
	if dead {
		return errMood
	}
	if err := g.life.stores.Sync(ctx); err != nil {
		return err
	}
	g.life.copySynced()
	return nil
}

// life is one directory, and the processes that use it one after the other. Its journal is in memory,
// where a power loss can cut it. Its stores are on disk.
type life struct {
	*Aggregator
	t     *testing.T
	name  string
	rnd   *rand.Rand
	story []string
	did   map[string]int

	fs      *memfs.FS
	dir     string // directory of the stores
	synced  string // a copy of the stores' logs at the last sync
	boot    int
	stores  *tsdb.Stores
	gate    *moody
	books   books
	faults  *faults
	config  settings.Aggregator
	pending int64
	now     atomic.Int64 // Unix ms; each life begins at a different time
	storeAt atomic.Int64 // Unix ms, the stores' clock

	log     []*entry
	placed  map[uint16][]place // by shard, in order of position
	effects []*effect          // effects that are not compared yet
	starts  []*effect          // what each start found: see life.restored

	differences int
}

// place is where a life journalled a frame of the log.
type place struct {
	position journal.Position
	entry    int
}

// faults collects the log lines that report a bug.
type faults struct {
	slog.Handler
	mu    sync.Mutex
	lines []string
}

func (f *faults) Enabled(context.Context, slog.Level) bool { return true }
func (f *faults) WithAttrs([]slog.Attr) slog.Handler       { return f }
func (f *faults) WithGroup(string) slog.Handler            { return f }
func (f *faults) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "BUG") {
		line := r.Message
		r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
		f.mu.Lock()
		defer f.mu.Unlock()
		f.lines = append(f.lines, line)
	}
	return nil
}

const logStart = 1_700_006_400_000 // Unix ms, a multiple of the length of a block

func newLife(t *testing.T, name string, seed uint64, log []*entry) *life {
	l := &life{t: t, name: name, rnd: rand.New(rand.NewPCG(seed, 7)), log: log, pending: 1 << 40,
		fs: memfs.New(), dir: t.TempDir(), synced: t.TempDir(),
		faults: new(faults), placed: map[uint16][]place{}, did: map[string]int{}}
	l.now.Store(logStart + l.rnd.Int64N(4*3_600_000) - 2*3_600_000)
	l.storeAt.Store(logStart + 48*3_600_000)
	l.config = l.newConfig()
	l.start()
	return l
}

func (l *life) String() string { return l.name }

func (l *life) tell(format string, args ...any) {
	n := 0
	for _, places := range l.placed {
		n += len(places)
	}
	l.story = append(l.story, fmt.Sprintf("%d entries: ", n)+fmt.Sprintf(format, args...))
}

// newConfig returns settings that differ between lives. Only the settings that are in the log may change
// the results of a life.
func (l *life) newConfig() settings.Aggregator {
	some := func(of ...time.Duration) time.Duration { return of[l.rnd.IntN(len(of))] }
	c := settings.DefaultAggregator()
	c.CounterTTL = some(20*time.Second, 50*time.Second, 3*time.Minute)
	c.GaugeTTL = some(20*time.Second, time.Minute, 2*time.Minute)
	c.CheckTTL = some(30*time.Second, 4*time.Minute)
	c.UpDownTTL = some(40*time.Second, 4*time.Minute, time.Hour)
	c.TimedWindow = some(0, 30*time.Second, 10*time.Minute)
	return c
}

// start begins a process.
func (l *life) start() {
	l.openStores()
	log, report, err := journal.Open(l.fs, journal.Options{Mark: 1, SegmentBytes: 20_000})
	if err != nil {
		l.t.Fatal(err)
	}
	watched := &watchedJournal{Log: log}
	l.gate = &moody{life: l, moods: map[string]mood{}, released: make(chan struct{})}
	l.books = books{}
	gate := tenants.NewGate(len(logTenants) + l.rnd.IntN(3))
	gate.Restore(l.stores.Tenants()...)
	l.Aggregator, err = New(Options{
		Config: l.config, MaxPending: l.pending, Log: watched, Writer: l.gate, Tenants: gate, Ledger: l.books,
		Boot: fmt.Sprint("boot", l.boot), Now: func() time.Time { return time.UnixMilli(l.now.Load()) },
		Registry: prometheus.NewRegistry(), Logger: slog.New(l.faults),
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.writes = l.t.Context()
	l.wall = wallclock.New(l.Aggregator.now, l.logger)
	l.restored(watched.replayed, report.Checkpoint != "")
	l.resumeWrites()
}

// watchedJournal remembers which frames are replayed and appended.
type watchedJournal struct {
	*journal.Log
	replayed []journal.Position
	appended []journal.Frame // kept if keep is set
	keep     bool
}

func (w *watchedJournal) Replay(fn func(journal.Position, journal.Frame) error) error {
	return w.Log.Replay(func(at journal.Position, f journal.Frame) error {
		w.replayed = append(w.replayed, at)
		return fn(at, f)
	})
}

func (w *watchedJournal) Append(frames []journal.Frame) (journal.Position, error) {
	at, err := w.Log.Append(frames)
	if err == nil && w.keep {
		for _, f := range frames {
			f.Payload = slices.Clone(f.Payload)
			w.appended = append(w.appended, f)
		}
	}
	return at, err
}

// restored remembers what a start has found: the states of the shards, and the fates of the replayed
// samples.
func (l *life) restored(replayed []journal.Position, checkpoint bool) {
	e := &effect{states: map[uint16]uint64{}, fates: fatesOf(l.metrics)}
	byPosition := map[journal.Position]int{}
	for shard, places := range l.placed {
		for len(places) > 0 && places[len(places)-1].position > l.positions[shard] {
			places = places[:len(places)-1]
			l.did["frames lost and appended again"]++
		}
		l.placed[shard] = places
		for _, p := range places {
			byPosition[p.position] = p.entry
		}
		if len(places) > 0 {
			e.states[shard] = l.stateOf(shard)
		}
		e.last = append(e.last, l.lastOf(shard))
	}
	for _, at := range replayed {
		n, known := byPosition[at]
		if !known {
			l.t.Fatalf("%s: frame %d was replayed, want only frames that were appended", l, at)
		}
		e.entries = append(e.entries, n)
	}
	l.starts = append(l.starts, e)
	if len(replayed) > 0 {
		l.did["replays"]++
		if checkpoint {
			l.did["replays behind a checkpoint"]++
		}
		if len(l.stored.All()) > 0 {
			l.did["replays with notes"]++
		}
	}
	l.tell("starts, replays %d frames, checkpoint %t, notes %v", len(replayed), checkpoint, l.stored.All())
}

// compareStart compares what a start has found with the states and fates in the plain life.
func (l *life) compareStart(e *effect) {
	var want [fates]float64
	for _, n := range e.entries {
		for i, v := range l.log[n].fates {
			want[i] += v
		}
	}
	if e.fates != want {
		l.wrong("a replay of entries %v has the fates %v, want %v", e.entries, e.fates, want)
	}
	for _, n := range e.last {
		if n < 0 {
			continue
		}
		if shard := l.log[n].frame.Shard; e.states[shard] != l.log[n].state {
			l.wrong("a start restores a wrong state of shard %d after entry %d", shard, n)
		}
	}
}

func (l *life) openStores() {
	c := tsdb.DefaultConfig()
	c.Exemplars = 0
	c.MaxTenants = 1 // the stores ignore this limit
	stores, err := tsdb.Open(c, l.dir, func() time.Time { return time.UnixMilli(l.storeAt.Load()) },
		prometheus.NewRegistry(), slog.New(l.faults))
	if err != nil {
		l.t.Fatal(err)
	}
	stores.CompactByHand()
	l.stores = stores
}

func (l *life) closeStores() {
	if err := l.stores.Close(context.Background()); err != nil {
		l.t.Fatal(err)
	}
}

// unsynced are the directories of a store that a power loss can cut: see adapter/tsdb.
var unsynced = []string{"wal", "wbl", "chunks_head"}

// blocks counts the blocks of all stores of tiles.
func (l *life) blocks() int {
	blocks, err := filepath.Glob(filepath.Join(l.dir, "tsdb", "*", "*", "*", "meta.json"))
	if err != nil {
		l.t.Fatal(err)
	}
	return len(blocks)
}

func copyDir(t *testing.T, to, from string) {
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

func (l *life) eachUnsynced(from string, fn func(name string)) {
	stores, err := filepath.Glob(filepath.Join(from, "tsdb", "*", "*"))
	if err != nil {
		l.t.Fatal(err)
	}
	for _, store := range stores {
		for _, name := range unsynced {
			dir := filepath.Join(store, name)
			if info, err := os.Stat(dir); err == nil && info.IsDir() {
				rel, _ := filepath.Rel(from, dir)
				fn(rel)
			}
		}
	}
}

// copySynced copies the logs of the stores, which were just synced.
func (l *life) copySynced() {
	if err := os.RemoveAll(l.synced); err != nil {
		l.t.Error(err)
	}
	l.eachUnsynced(l.dir, func(name string) {
		copyDir(l.t, filepath.Join(l.synced, name), filepath.Join(l.dir, name))
	})
}

// kill ends the process as kill -9 does.
func (l *life) kill() {
	fs := l.fs.Crash()
	dir := l.t.TempDir()
	copyDir(l.t, dir, l.dir)
	l.end()
	l.fs, l.dir = fs, dir
	l.did["kills"]++
}

// losePower cuts the journal and the stores back to what is synced. By chance, some stores keep more.
func (l *life) losePower() {
	fs := l.fs.PowerLoss(l.rnd)
	dir := l.t.TempDir()
	copyDir(l.t, dir, l.dir)
	keeps := map[string]bool{}
	l.eachUnsynced(dir, func(name string) {
		store := filepath.Dir(name)
		if _, decided := keeps[store]; !decided {
			keeps[store] = l.rnd.IntN(3) == 0
		}
		if !keeps[store] {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				l.t.Fatal(err)
			}
		}
	})
	l.eachUnsynced(l.synced, func(name string) {
		if !keeps[filepath.Dir(name)] {
			copyDir(l.t, filepath.Join(dir, name), filepath.Join(l.synced, name))
		}
	})
	l.end()
	l.fs, l.dir, l.boot = fs, dir, l.boot+1
	l.copySynced()
	l.did["power losses"]++
}

// end ends the goroutines of a dead process.
func (l *life) end() {
	l.gate.set(func() { l.gate.dead = true })
	for _, b := range l.backlogs {
		if b.onItsWay {
			<-l.written
		}
	}
	if c := l.checkpoint; c != nil && c.commit != nil {
		<-c.commit
	}
	l.closeStores()
}

// terminate ends the process in the regular way.
func (l *life) terminate() {
	l.gate.set(func() {
		l.gate.holdSync = false
		for tenant, m := range l.gate.moods {
			if m == holds {
				l.gate.moods[tenant] = takes
			}
		}
	})
	if err := l.stop(); err != nil {
		l.t.Fatal(err)
	}
	l.closeStores()
	l.did["stops"]++
}

// resumeWrites calls resume, and then takes back the writes that do not hang.
func (l *life) resumeWrites() {
	l.resume()
	l.takeBack()
}

// write lets all tenants try to write to their stores.
func (l *life) write() {
	for _, b := range l.backlogs {
		b.retryAt = time.Time{}
	}
	l.writeDue()
	l.takeBack()
}

// takeBack waits for the writes that do not hang, and settles them in the order of their tenants. These
// tenants write again only when the method write is called.
func (l *life) takeBack() {
	var back []*write
	for tenant, b := range l.backlogs {
		if b.onItsWay && l.gate.moods[tenant] != holds {
			back = append(back, nil)
		}
	}
	for i := range back {
		back[i] = <-l.written
	}
	slices.SortFunc(back, func(a, b *write) int { return cmp.Compare(a.tenant, b.tenant) })
	for _, w := range back {
		l.settle(w)
		w.backlog.retryAt = time.Now().Add(time.Hour)
	}
}

// storeAll writes all waiting tiles.
func (l *life) storeAll() {
	l.gate.set(func() { clear(l.gate.moods) })
	l.takeBack()
	for len(l.backlogs) > 0 {
		l.write()
	}
}

// apply appends entries of the log to the journal in one go, and folds them.
func (l *life) apply(entries []int) {
	frames := make([]journal.Frame, len(entries))
	for i, n := range entries {
		frames[i] = l.log[n].frame
	}
	clear(l.books)
	before := fatesOf(l.metrics)
	for l.append(frames) != nil {
		l.did["failed appends"]++
	}
	l.fold(frames)
	l.applied(entries, before)
}

// effect is the effect of the entries of one append, or what a start found.
type effect struct {
	entries []int
	fates   [fates]float64
	posted  map[string]uint64
	handed  []string          // the tiles that each entry closed
	states  map[uint16]uint64 // hashes of the states of the entries' shards, after the last entry
	last    []int             // only at a start: the newest entry of each shard
}

// applied remembers the effect of the entries of the last append.
func (l *life) applied(entries []int, before [fates]float64) {
	first := l.last - journal.Position(len(entries)) + 1
	e := &effect{entries: entries, fates: fatesOf(l.metrics), posted: maps.Clone(l.books), states: map[uint16]uint64{}}
	for i, v := range before {
		e.fates[i] -= v
	}
	for i, n := range entries {
		at, shard := first+journal.Position(i), l.log[n].frame.Shard
		l.placed[shard] = append(l.placed[shard], place{at, n})
		e.handed = append(e.handed, l.handedBy(at))
		e.states[shard] = 0
	}
	for shard := range e.states {
		e.states[shard] = l.stateOf(shard)
	}
	l.effects = append(l.effects, e)
}

// compare compares the effect of entries in this life and in the plain life.
func (l *life) compare(e *effect) {
	var want [fates]float64
	posted, states := map[string]uint64{}, map[uint16]uint64{}
	for i, n := range e.entries {
		plain := l.log[n]
		for n, v := range plain.fates {
			want[n] += v
		}
		for what, n := range plain.posted {
			posted[what] += n
		}
		states[plain.frame.Shard] = plain.state
		if e.handed[i] != plain.handed {
			l.wrong("entry %d closes the tiles\n%swant\n%s", n, e.handed[i], plain.handed)
		}
	}
	if e.fates != want {
		l.wrong("entries %v have the fates %v, want %v", e.entries, e.fates, want)
	}
	if !maps.Equal(e.posted, posted) {
		l.wrong("entries %v post %v, want %v", e.entries, e.posted, posted)
	}
	if !maps.Equal(e.states, states) {
		l.wrong("the states after entries %v are %v, want %v", e.entries, e.states, states)
	}
}

// wrong reports a difference, but only the first few.
func (l *life) wrong(format string, args ...any) {
	if l.differences++; l.differences <= 3 {
		l.t.Errorf(l.name+": "+format, args...)
	}
}

// lastOf returns the last entry of the log that a shard has, or -1 if it has none.
func (l *life) lastOf(shard uint16) int {
	places := l.placed[shard]
	if len(places) == 0 {
		return -1
	}
	return places[len(places)-1].entry
}

// handedBy returns the tiles that the frame at a position closed, as text.
func (l *life) handedBy(at journal.Position) string {
	var out strings.Builder
	for _, tenant := range slices.Sorted(maps.Keys(l.backlogs)) {
		tiles := l.backlogs[tenant].tiles
		from := len(tiles)
		for from > 0 && tiles[from-1].Index >= uint64(at) {
			from--
		}
		for _, t := range tiles[from:] {
			if t.Index != uint64(at) {
				continue
			}
			fmt.Fprintf(&out, "%s, shard %d, %d:\n", tenant, t.shard, (t.Boundary-logStart)/1000)
			for w, samples := range t.Samples {
				for _, s := range samples {
					fmt.Fprintf(&out, "  %v %s %d=%s raw %d, timed %t\n", tile.Width(w), s.Series.Labels, s.T-logStart,
						bitsOf(tile.Point{V: s.V, H: s.H}), s.Raw, s.Timed)
				}
			}
		}
	}
	return out.String()
}

var hashSeed = maphash.MakeSeed()

// stateOf returns a hash of the state of a shard, as if everything were stored.
func (l *life) stateOf(shard uint16) uint64 {
	s, err := tile.ParseState(&tile.Config{}, l.shards.AppendState(shard, nil))
	if err != nil {
		l.t.Fatal(err)
	}
	s.AllStored()
	return maphash.Bytes(hashSeed, s.AppendState(nil)) | 1
}

// samples returns everything that queries of the tiles see, by tenant, store and series.
func (l *life) samples() map[string]string {
	all := map[string]string{}
	for _, tenant := range slices.Concat(logTenants, strangers) {
		for _, w := range []tile.Width{tile.Width10s, tile.Width1m} {
			q, err := l.stores.Querier(tenant, w.String(), math.MinInt64, math.MaxInt64)
			if err != nil {
				l.t.Fatal(err)
			}
			set := q.Select(l.t.Context(), true, nil, labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+"))
			for set.Next() {
				var words []string
				it := set.At().Iterator(nil)
				for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
					p := tile.Point{T: it.AtT()}
					if kind == chunkenc.ValFloat {
						_, p.V = it.At()
					} else {
						_, p.H = it.AtFloatHistogram(nil)
					}
					words = append(words, fmt.Sprintf("%d=%s", p.T-logStart, bitsOf(p)))
				}
				all[fmt.Sprint(tenant, " ", w, " ", set.At().Labels())] = strings.Join(words, " ")
				if it.Err() != nil {
					l.t.Fatal(it.Err())
				}
			}
			if err := cmp.Or(set.Err(), q.Close()); err != nil {
				l.t.Fatal(err)
			}
		}
	}
	return all
}

// bitsOf returns a value as text without loss. It ignores differences that tsdb makes: tsdb turns
// stale floats into stale histograms and back, and may add empty buckets.
func bitsOf(p tile.Point) string {
	switch {
	case p.H == nil && value.IsStaleNaN(p.V), p.H != nil && value.IsStaleNaN(p.H.Sum):
		return "stale"
	case p.H == nil:
		return fmt.Sprintf("%x", math.Float64bits(p.V))
	}
	h := p.H.Copy()
	h.CounterResetHint = 0
	return fmt.Sprintf("%s %x", h.Compact(0), math.Float64bits(h.Sum))
}
