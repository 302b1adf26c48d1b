package tsdb

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
)

// entry is a request of the log, with everything that its outcome may depend on.
type entry struct {
	tenant  string
	arrival int64 // Unix milliseconds
	terms   *write.Terms
	limit   int // of the tenant's recent series; 0 for none
	samples []rawSample
}

func (e *entry) String() string {
	words := []string{fmt.Sprintf("%s, generation %d, at %d:", e.tenant, e.terms.Generation, (e.arrival-base)/1000)}
	for _, s := range e.samples {
		val := fmt.Sprint(s.v)
		if s.h {
			val = "h" + val
		}
		word := fmt.Sprintf("%s@%d=%s", s.series, (s.t-base)/1000, val)
		if s.start != 0 {
			word += fmt.Sprintf("/%d", (s.start-base)/1000)
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// logOf makes a log from a seed. Some of its requests are in the order of time; others are late, far
// ahead, repeated, or with other values. The requests have new series with start times, floats,
// histograms and stale markers. There are two tenants, one of which has a low limit of series, and the
// rules change.
func logOf(seed uint64, entries int) (all []*entry) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	generations := []*write.Terms{{Generation: 1, Rules: plain.Rules}, {Generation: 2, Rules: plain.Rules}}
	generations[1].Rules.Relabel = append(slices.Clone(plain.Rules.Relabel), &relabel.Config{
		Action: relabel.Replace, SourceLabels: []model.LabelName{"__name__"}, Regex: relabel.MustNewRegexp("b"),
		TargetLabel: "__name__", Replacement: "a", NameValidationScheme: model.UTF8Validation})
	now := int64(base)
	terms := generations[0]
	for range entries {
		switch rnd.IntN(80) {
		case 0:
			now += rnd.Int64N(6 * 3600_000)
		case 1:
			now += rnd.Int64N(2 * 3600_000)
		case 2, 3:
			now += rnd.Int64N(600_000)
		default:
			now += rnd.Int64N(30_000)
		}
		if rnd.IntN(20) == 0 {
			terms = generations[rnd.IntN(2)]
		}
		e := &entry{tenant: []string{"one", "two"}[rnd.IntN(5)/4], arrival: now, terms: terms}
		if e.tenant == "one" {
			e.limit = 40 // reached in most epochs
		}
		for range 1 + rnd.IntN(6) {
			e.samples = append(e.samples, sampleAt(rnd, now, all))
		}
		// Consecutive samples of one name share a message.
		slices.SortStableFunc(e.samples, func(x, y rawSample) int { return strings.Compare(x.series, y.series) })
		all = append(all, e)
	}
	return all
}

// sampleAt makes one sample of a request that arrives at `now`, after the entries in `before`.
func sampleAt(rnd *rand.Rand, now int64, before []*entry) rawSample {
	if len(before) > 0 && rnd.IntN(8) == 0 { // a repeat, or another value for a time that may be stored
		e := before[max(0, len(before)-1-rnd.IntN(60))]
		s := e.samples[rnd.IntN(len(e.samples))]
		if rnd.IntN(2) == 0 {
			s.v++
		}
		return s
	}
	s := rawSample{series: []string{"a", "a'", "b", "c", "d", "e", "f", "dropped", "refused"}[rnd.IntN(9)],
		v: float64(rnd.IntN(9)), h: rnd.IntN(6) == 0}
	if rnd.IntN(4) == 0 {
		s.series = fmt.Sprint("new", rnd.IntN(200))
	}
	switch rnd.IntN(10) {
	case 0:
		s.t = now - rnd.Int64N(3*3600_000)
	case 1, 2:
		s.t = now - rnd.Int64N(40*60_000)
	case 3:
		s.t = now + rnd.Int64N(20*60_000)
	default:
		s.t = now - rnd.Int64N(15_000)
	}
	if rnd.IntN(3) == 0 {
		s.start = s.t - rnd.Int64N(45*60_000)
	}
	if rnd.IntN(12) == 0 {
		s.v = math.Float64frombits(value.StaleNaN)
	}
	return s
}

// life applies a log in one of many ways. It groups entries into commits, some of which fail at first.
// Between commits it closes, opens or compacts stores, or kills the process and starts it again from
// the files on disk.
type life struct {
	*world
	rnd      *rand.Rand
	log      []*entry
	fails    bool // some writes fail, and are repeated
	outcomes []outcome.Outcome
	state    map[string]*write.State
	states   []map[string][]byte // states[i] is the saved state after i entries; nil inside a commit
	full     bool                // the tenant with a limit had no room for a series, and still has none
	did      map[string]int
	saves    *rand.Rand

	// These fields are only for a member of a group, which survives power losses.
	group  bool
	torn   *rand.Rand
	boot   int
	synced map[string]int64 // sizes, at our last sync, of files that tsdb does not sync itself
	sure   int              // how many entries were applied before that sync
}

// live returns a life that has applied the whole log. Seed 0 commits each entry alone, and does nothing
// between commits. Other seeds include replays, which begin in a state that `reference` had after some
// entry. Odd seeds include power losses.
func live(t testing.TB, seed uint64, window time.Duration, log []*entry, reference *life) *life {
	return liveWith(t, seed, window, log, reference, false)
}

// liveWith is live, but if `fills` is true, the life goes on in copies of its stores on other machines, instead of
// after kills and power losses.
func liveWith(t testing.TB, seed uint64, window time.Duration, log []*entry, reference *life, fills bool) *life {
	l := &life{world: newWorld(t), rnd: rand.New(rand.NewPCG(seed, 2)), log: log, did: map[string]int{}, fails: seed != 0,
		outcomes: make([]outcome.Outcome, len(log)), states: make([]map[string][]byte, len(log)+1),
		state: map[string]*write.State{}, group: seed%2 == 1, torn: rand.New(rand.NewPCG(seed, 3)),
		synced: map[string]int64{}, saves: rand.New(rand.NewPCG(seed, 4))}
	l.close()
	l.cfg.OutOfOrder = window
	l.start()
	l.states[0] = map[string][]byte{}
	for done := 0; done < len(log); {
		if seed == 0 {
			done = l.commit(done, 1)
			continue
		}
		n := 1
		if l.rnd.IntN(2) == 0 {
			n += l.rnd.IntN(6)
		}
		done = l.commit(done, n)
		if l.saves.IntN(8) == 0 {
			l.stores.SaveHeadsNow(t.Context())
		}
		switch l.rnd.IntN(25) {
		case 0:
			l.did["reopened"]++
			l.close()
			l.start()
		case 1:
			l.did["closed while idle"]++
			l.now = l.now.Add(2 * time.Hour)
			if err := l.stores.closeIdle(); err != nil {
				t.Fatal(err)
			}
		case 2:
			l.compact()
		case 3:
			last := done
			if fills {
				l.fill()
			} else if l.group && l.torn.IntN(2) == 0 {
				last = l.sure
				l.losePower()
			} else {
				l.die()
			}
			first := last - l.rnd.IntN(min(last, 40)+1)
			l.did["entries replayed"] += done - first
			done = first
			l.state = map[string]*write.State{}
			l.full = false
			for tenant, saved := range reference.states[done] {
				state, err := write.ParseState(saved)
				if err != nil {
					t.Fatal(err)
				}
				l.state[tenant] = state
			}
			l.start()
		case 4:
			l.sync(done)
		}
	}
	return l
}

// commit applies up to n entries, those of each tenant in one commit. It returns the number of entries
// applied so far.
func (l *life) commit(from, n int) int {
	to := min(from+n, len(l.log))
	requests := map[string][]*write.Request{}
	for i := from; i < to; i++ {
		e := l.log[i]
		r := requestOf(l.t, true, e.terms, e.samples)
		r.Tenant, r.Arrival, r.Window, r.MaxSeries = e.tenant, e.arrival, l.cfg.OutOfOrder, e.limit
		requests[e.tenant] = append(requests[e.tenant], r)
	}
	for _, tenant := range slices.Sorted(maps.Keys(requests)) { // so that a seed always gives the same schedule
		rs := requests[tenant]
		if l.state[tenant] == nil {
			l.state[tenant] = new(write.State)
		}
		db := l.database(tenant)
		db.DisableCompactions() // the method compact runs compactions at known moments
		if db.fromSavedHead {
			l.did["used a saved head"]++
		}
		if l.fails && l.rnd.IntN(8) == 0 {
			saved := l.state[tenant].Append(nil)
			canceled, cancel := context.WithCancel(l.t.Context())
			cancel()
			if l.stores.WriteRequests(canceled, tenant, l.state[tenant], rs) == nil {
				continue // the write did not fail, because it had nothing to look up
			}
			l.did["failed"]++
			if got := l.state[tenant].Append(nil); !bytes.Equal(got, saved) {
				l.t.Fatalf("a write that failed changed the state from %x to %x", saved, got)
			}
		}
		if err := l.stores.WriteRequests(l.t.Context(), tenant, l.state[tenant], rs); err != nil {
			l.t.Fatal(err)
		}
	}
	for i := from; i < to; i++ {
		tenant := l.log[i].tenant
		l.outcomes[i] = requests[tenant][0].Outcome
		if limit := l.log[i].limit; limit > 0 {
			switch {
			case l.outcomes[i].Refused[outcome.TooManySeries].Total() > 0:
				l.full = true
			case l.full && !l.state[tenant].Recent.Full(limit):
				l.full = false
				l.did["room again"]++
			}
		}
		requests[tenant] = requests[tenant][1:]
	}
	l.states[to] = map[string][]byte{}
	for tenant, state := range l.state {
		l.states[to][tenant] = state.Append(nil)
	}
	return to
}

// database returns a tenant's open raw database.
func (l *life) database(tenant string) *database {
	l.t.Helper()
	st, err := l.stores.forWrite(tenant, Raw)
	if err != nil {
		l.t.Fatal(err)
	}
	db, err := st.write(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	defer st.release()
	return db
}

// compact runs the compaction that tsdb runs by itself each minute.
func (l *life) compact() {
	for _, tenant := range slices.Sorted(maps.Keys(l.state)) {
		db := l.database(tenant)
		before := len(db.Blocks())
		ends, _, err := readEnds(db.Dir())
		if err != nil {
			l.t.Fatal(err)
		}
		if err := db.Compact(l.t.Context()); err != nil {
			l.t.Fatal(err)
		}
		if l.rnd.IntN(3) == 0 {
			if err := db.CompactOOOHead(l.t.Context()); err != nil {
				l.t.Fatal(err)
			}
		}
		if len(db.Blocks()) > before {
			l.did["blocks written"] += len(db.Blocks()) - before
		}
		if now, _, err := readEnds(db.Dir()); err != nil || now != ends {
			l.noteSynced(db.Dir())
		}
	}
}

// die kills the process. The life goes on in a copy of its files.
func (l *life) die() {
	l.did["killed"]++
	dir := l.t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(l.dir)); err != nil {
		l.t.Fatal(err)
	}
	l.close()
	l.dir = dir
	for _, tenant := range []string{"one", "two"} {
		l.hurtHead(filepath.Join(dir, "tsdb", tenant, Raw))
	}
}

// hurtHead does to a saved head what a kill while it is being saved does, or a bad disk.
func (l *life) hurtHead(dir string) {
	n, found, err := readHeadNote(dir)
	if err != nil {
		l.t.Fatal(err)
	}
	if !found {
		return
	}
	l.did["killed after a head was saved"]++
	file := filepath.Join(savedHead(dir, n.segment, n.offset), "00000000")
	switch l.saves.IntN(10) {
	case 0:
		err = os.Remove(filepath.Join(dir, headNoteFile))
	case 1:
		err = os.Remove(file)
	case 2:
		var b []byte
		if b, err = os.ReadFile(file); err == nil {
			b[l.saves.IntN(len(b))] ^= 1 << l.saves.IntN(8)
			err = os.WriteFile(file, b, 0o640)
		}
	case 3:
		err = os.Truncate(file, l.saves.Int64N(n.bytes))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // another saved head may have taken its place
		l.t.Fatal(err)
	}
}

// fill moves the life to another machine, which gets a copy of the stores.
func (l *life) fill() {
	l.did["filled"]++
	dir := l.t.TempDir()
	l.copyTo(dir)
	l.close()
	l.dir = dir
}

// start starts a process in the present state.
func (l *life) start() {
	l.open()
	l.stores.heads.least = 0
	if l.group {
		requests := map[string]uint64{}
		for tenant, state := range l.state {
			requests[tenant] = state.Requests
		}
		l.stores.CutBack(fmt.Sprint("boot", l.boot), requests)
	}
}

// sync syncs the stores after the first `done` entries.
func (l *life) sync(done int) {
	if !l.group {
		return
	}
	if err := l.stores.Sync(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
	l.synced, l.sure = map[string]int64{}, done
	l.noteSynced(l.dir)
}

// noteSynced notes that the files below a directory are synced.
func (l *life) noteSynced(dir string) {
	l.eachUnsynced(dir, func(path string, size int64) { l.synced[strings.TrimPrefix(path, l.dir)] = size })
}

// eachUnsynced calls fn with the files of logs and chunks below a directory.
func (l *life) eachUnsynced(dir string, fn func(path string, size int64)) {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !slices.Contains(unsyncedDirs, filepath.Base(filepath.Dir(path))) {
			return err
		}
		info, err := d.Info()
		if err == nil {
			fn(path, info.Size())
		}
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

// losePower kills the process. The life goes on in another boot, with the files that a power loss
// leaves: all synced bytes, and any part of the others, perhaps with a hole.
func (l *life) losePower() {
	l.die()
	l.did["power losses"]++
	l.boot++
	lost := map[string]bool{} // directories that lack their newest files
	l.eachUnsynced(l.dir, func(path string, size int64) {
		synced, known := l.synced[strings.TrimPrefix(path, l.dir)]
		var err error
		if lost[filepath.Dir(path)] || !known && l.torn.IntN(3) == 0 {
			lost[filepath.Dir(path)] = true
			if followsCheckpoint(l.t, path) {
				err = os.Truncate(path, 0)
			} else {
				err = os.Remove(path)
			}
		} else if tail := size - synced; tail > 0 {
			kept, hole := l.torn.Int64N(tail+1), l.torn.Int64N(tail)
			err = os.Truncate(path, synced+kept)
			if err == nil && hole < kept && l.torn.IntN(3) == 0 {
				err = os.Truncate(path, synced+hole)
				err = cmp.Or(err, os.Truncate(path, synced+kept)) // with zeros
			}
		}
		if err != nil {
			l.t.Fatal(err)
		}
	})
}

// followsCheckpoint reports whether a segment is the first one behind a checkpoint. tsdb syncs the directory of the
// log when it puts the checkpoint into place, so the segment is there after a power loss.
func followsCheckpoint(t testing.TB, path string) bool {
	found, err := segmentsOf(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	number, isSegment := segment(filepath.Base(path))
	return isSegment && found.checkpoint >= 0 && number == found.checkpoint+1
}

// all returns everything that queries see, by tenant and series, with the bits of each value.
func (l *life) all() map[string]string {
	all := map[string]string{}
	for tenant := range l.state {
		q, err := l.stores.Querier(tenant, Raw, math.MinInt64, math.MaxInt64)
		if err != nil {
			l.t.Fatal(err)
		}
		set := q.Select(l.t.Context(), true, nil, labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+"))
		for set.Next() {
			all[tenant+"/"+set.At().Labels().String()] = bitsOf(l.t, set.At().Iterator(nil))
		}
		if err := cmp.Or(set.Err(), q.Close()); err != nil {
			l.t.Fatal(err)
		}
	}
	return all
}

// bitsOf returns samples as text, exactly.
func bitsOf(t testing.TB, it chunkenc.Iterator) string {
	var words []string
	for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
		p := tile.Point{T: it.AtT()}
		if kind == chunkenc.ValFloat {
			_, p.V = it.At()
		} else {
			_, p.H = it.AtFloatHistogram(nil)
		}
		text := ""
		switch {
		case isStale(p): // tsdb turns stale floats into stale histograms, and back
			text = "stale"
		case p.H == nil:
			text = fmt.Sprintf("%x", math.Float64bits(p.V))
		default:
			p.H.CounterResetHint = 0
			text = p.H.Compact(0).String()
		}
		words = append(words, fmt.Sprintf("%d=%s", p.T-base, text))
	}
	if it.Err() != nil {
		t.Fatal(it.Err())
	}
	return strings.Join(words, " ")
}

// Members of a cluster apply one log. They group it into different commits, and restart and compact at
// different times, but must give the same answers and store the same samples. A replay after a crash
// is one of these ways to apply the log.
func TestTheSameLogGivesTheSameStores(t *testing.T) {
	const entries = 250
	// In seed 343, series that came back after a compaction lost late samples. In seed 122, a power loss leaves no
	// byte behind a checkpoint.
	seeds := []uint64{0, 1, 2, 3, 4, 5, 6, 7, 8, 122, 343}
	switch {
	case os.Getenv("FRESHET_SOAK") != "":
		seeds = nil
		for seed := range uint64(400) {
			seeds = append(seeds, seed)
		}
	case testing.Short():
		seeds = seeds[:2]
	}
	var mu sync.Mutex
	did, reasons := map[string]int{}, map[outcome.Reason]int{}
	t.Run("seeds", func(t *testing.T) {
		for _, seed := range seeds {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				window := []time.Duration{30 * time.Minute, 2 * time.Hour, 0}[seed%3]
				log := logOf(seed, entries)
				want := live(t, 0, window, log, nil)
				got := live(t, seed+1, window, log, want)
				sameLife(t, want, got)
				mu.Lock()
				defer mu.Unlock()
				for what, n := range got.did {
					did[what] += n
				}
				for _, o := range want.outcomes {
					for reason, parts := range o.Refused {
						reasons[outcome.Reason(reason)] += parts.Total()
					}
				}
			})
		}
	})
	t.Logf("%d seeds: %v, refused %v", len(seeds), did, reasons)
	for _, what := range []string{"reopened", "closed while idle", "blocks written", "killed", "entries replayed",
		"room again", "failed", "power losses", "killed after a head was saved", "used a saved head"} {
		if did[what] < len(seeds)/2 {
			t.Errorf("%d times %q in all lives: too few for the test to show anything", did[what], what)
		}
	}
	for _, reason := range []outcome.Reason{outcome.TooOld, outcome.Duplicate, outcome.TooFarAhead,
		outcome.TooManySeries} {
		if reasons[reason] < len(seeds)*10 {
			t.Errorf("%d samples were refused as %v, so the test shows nothing", reasons[reason], reason)
		}
	}
}

// sameLife compares outcomes, states and stored samples.
func sameLife(t *testing.T, want, got *life) {
	t.Helper()
	for i := range want.log {
		if want.outcomes[i] != got.outcomes[i] {
			t.Errorf("entry %d, %v\nwant %+v written; %s\ngot  %+v written; %s", i, want.log[i],
				want.outcomes[i].Written, want.outcomes[i].Text(), got.outcomes[i].Written, got.outcomes[i].Text())
		}
		if got.states[i] != nil && !maps.EqualFunc(want.states[i], got.states[i], bytes.Equal) {
			t.Errorf("state after %d entries: got %x, want %x", i, got.states[i], want.states[i])
		}
		if t.Failed() {
			break
		}
	}
	a, b := want.all(), got.all()
	for _, series := range slices.Sorted(maps.Keys(a)) {
		if a[series] != b[series] {
			t.Errorf("%s\nwant %s\ngot  %s", series, a[series], b[series])
		}
		delete(b, series)
	}
	for series, samples := range b {
		t.Errorf("series %s is stored, and should not be: %s", series, samples)
	}
}
