package tsdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/freshet-io/freshet/internal/core/partial"
	"github.com/freshet-io/freshet/internal/lib/pagefault"
)

// selected returns the samples of the selected series of the raw store, as the engine would read them.
func (w *world) selected(matcher *labels.Matcher) (text string, err error) {
	q, err := w.stores.Querier("default", Raw, math.MinInt64, math.MaxInt64)
	if err != nil {
		return "", err
	}
	defer q.Close()
	var b strings.Builder
	set := q.Select(context.Background(), true, nil, matcher)
	for set.Next() {
		fmt.Fprintf(&b, "%s:", set.At().Labels())
		it := set.At().Iterator(nil)
		for it.Next() != chunkenc.ValNone {
			at, v := it.At()
			fmt.Fprintf(&b, " %d=%v", at, v)
		}
		if err := it.Err(); err != nil {
			return "", w.stores.Suspect("default", err)
		}
	}
	return b.String(), set.Err()
}

// blocks writes two blocks of several series to the raw store.
func (w *world) blocks() {
	w.t.Helper()
	w.stores.CompactByHand()
	for hour := range 8 {
		for minute := range 6 {
			at := hour*3600 + minute*600
			w.writeRaw(&plain, fmt.Sprintf("a@%d=%d", at, at), fmt.Sprintf("b@%d=%d", at, at+1),
				fmt.Sprintf("c%d@%d=3", hour, at))
		}
	}
	if err := w.stores.Compact(w.t.Context(), false); err != nil {
		w.t.Fatal(err)
	}
	metas, err := w.stores.Blocks("default", Raw)
	if err != nil || len(metas) < 2 {
		w.t.Fatalf("%d blocks, %v", len(metas), err)
	}
}

// A byte of a block flips at a random position, while the process runs or while it does not. Each query
// then answers as before, or fails and says that another node has the data. If it fails, the store is
// damaged, and answers nothing.
func TestAFlippedByteInABlockShortensNoAnswer(t *testing.T) {
	seeds := 100
	switch {
	case os.Getenv("FRESHET_SOAK") != "":
		seeds = 3000
	case testing.Short():
		seeds = 40
	}
	matchers := []*labels.Matcher{
		labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+"),
		labels.MustNewMatcher(labels.MatchEqual, "__name__", "a"),
		labels.MustNewMatcher(labels.MatchRegexp, "__name__", "c[0-3]"),
		labels.MustNewMatcher(labels.MatchNotEqual, "__name__", "b"),
	}
	w := newWorld(t)
	w.startWithOthers("first")
	w.blocks()
	var want []string
	for _, m := range matchers {
		text, err := w.selected(m)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, text)
	}
	home, found := w.dir, 0
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 2))
		w.dir = home
		dir := copyAside(t, w)
		runs := r.IntN(2) == 0
		w.startWithOthers("first")
		if _, err := w.selected(matchers[0]); err != nil {
			t.Fatal(err)
		}
		if !runs {
			w.close()
		}
		patterns := []string{"*/chunks/*"}
		if !runs { // tsdb checks the tables of an index when it opens the block, and trusts them from then on
			patterns = append(patterns, "*/index", "*/meta.json")
		}
		path := w.flip(r, dir, patterns...)
		if filepath.Base(path) == "meta.json" { // it has no checksum
			if err := os.Truncate(path, int64(r.IntN(100))); err != nil {
				t.Fatal(err)
			}
		}
		if !runs {
			w.open()
			w.stores.CutBack("first", nil)
			w.stores.NeverRepair(true)
		}
		failed := false
		for i, m := range matchers {
			got, err := w.selected(m)
			if err == nil && got != want[i] {
				t.Errorf("seed %d: byte of %s flipped, running %v: %s answers\n%s\nwant\n%s", seed, path, runs, m, got, want[i])
			}
			if failed = failed || err != nil; err != nil && !errors.Is(err, partial.ErrElsewhere) {
				t.Errorf("seed %d: byte of %s flipped, running %v: the error is %v, want that another node answers", seed, path,
					runs, err)
			}
		}
		w.stores.scrubAll(t.Context(), time.Second)
		damaged := w.stores.Damaged()
		if failed && len(damaged) != 1 {
			t.Errorf("seed %d: byte of %s flipped, running %v: a query failed, but damaged are %v", seed, path, runs, damaged)
		}
		if len(damaged) == 1 {
			found++
			if _, err := w.selected(matchers[1]); !errors.Is(err, partial.ErrElsewhere) {
				t.Errorf("seed %d: the damaged store answers: %v", seed, err)
			}
		}
		if t.Failed() {
			return
		}
	}
	if found < seeds*3/4 {
		t.Errorf("the damage was found %d times of %d", found, seeds)
	}
}

// A byte of an index flips under an open store. Queries trust the tables and the symbols that tsdb checked when it
// opened the block, so an answer may be wrong until the scrub comes. The scrub finds each such byte.
func TestTheScrubFindsEachFlipInAnIndex(t *testing.T) {
	seeds := 100
	switch {
	case os.Getenv("FRESHET_SOAK") != "":
		seeds = 3000
	case testing.Short():
		seeds = 20
	}
	all := labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+")
	w := newWorld(t)
	w.startWithOthers("first")
	w.blocks()
	home, found := w.dir, 0
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 5))
		w.dir = home
		dir := copyAside(t, w)
		w.startWithOthers("first")
		want, err := w.selected(all)
		if err != nil {
			t.Fatal(err)
		}
		path := w.flip(r, dir, "*/index", "*/tombstones")
		got, err := w.selected(all)
		w.stores.scrubAll(t.Context(), time.Second)
		damaged := len(w.stores.Damaged()) == 1
		if damaged {
			found++
		}
		if (got != want || err != nil) && !damaged {
			t.Errorf("seed %d: byte of %s flipped: the scrub finds nothing, and the store answers\n%s; %v\nwant\n%s", seed,
				path, got, err, want)
		}
	}
	t.Logf("the scrub found %d of %d flips", found, seeds)
	if found < seeds*9/10 {
		t.Errorf("the scrub found only %d flips of %d", found, seeds)
	}
}

// A byte of a chunk of the head flips. While the process runs, the scrub finds that. At a start, tsdb makes these
// chunks anew from the logs, and the store answers as before.
func TestAFlippedByteInAChunkOfTheHeadShortensNoAnswer(t *testing.T) {
	all := labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+")
	w := newWorld(t)
	w.startWithOthers("first")
	for i := range 500 {
		texts := []string{fmt.Sprintf("a@%d=%d", 2000+10*i, i)}
		if i%2 == 1 {
			texts = append(texts, fmt.Sprintf("a@%d=%d", 2000+10*i-25, i)) // late
		}
		w.writeRaw(&plain, texts...)
	}
	want, err := w.selected(all)
	if err != nil {
		t.Fatal(err)
	}
	w.startWithOthers("first") // writes all chunks
	seeds := 30
	if testing.Short() {
		seeds = 9
	}
	home, found := w.dir, 0
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 4))
		w.dir = home
		dir := copyAside(t, w)
		w.startWithOthers("first")
		if got, err := w.selected(all); err != nil || got != want {
			t.Fatalf("before the flip, the store answers %s; %v", got, err)
		}
		path := w.flip(r, dir, headChunksDir+"/*")
		w.stores.scrubAll(t.Context(), time.Second)
		if damaged := w.stores.Damaged(); len(damaged) == 1 && strings.Contains(damaged[0].Error(), path) {
			found++
		}
		w.startWithOthers("first")
		if got, err := w.selected(all); err != nil || got != want {
			t.Errorf("seed %d: after a restart with a flipped byte in %s, the store answers\n%s; %v\nwant\n%s", seed, path, got,
				err, want)
		}
	}
	if found < seeds*2/3 {
		t.Errorf("the scrub found the damage %d times of %d", found, seeds)
	}
}

// The disk cannot read a part of a block: reading it through its map raises SIGBUS, as reading a file that was cut
// short does. Nothing ends the process. One store is damaged, whether a query, a compaction, a write, the scrub or an
// opening meets the part first, and the error names the block.
func TestAnUnreadableBlockDamagesOneStore(t *testing.T) {
	all := labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+")
	for _, file := range []string{"index", "chunks/000001"} {
		for what, meet := range map[string]func(w *world){
			"a query": func(w *world) {
				off := pagefault.On() // as the engine does
				defer off()
				defer func() {
					p := recover()
					fault := pagefault.Of(p)
					if fault == nil {
						panic(p)
					}
					if err := w.stores.Suspect("default", fault); !errors.Is(err, partial.ErrElsewhere) {
						t.Errorf("the query ends with %v", err)
					}
				}()
				text, err := w.selected(all)
				t.Errorf("the query answers %s and the error %v", text, err)
			},
			"the scrub": func(w *world) { w.stores.scrubAll(t.Context(), time.Second) },
			"a write": func(w *world) {
				series := labels.FromStrings("__name__", "a", "host", "h")
				if _, _, err := w.rawStore().db.last(t.Context(), series, math.MinInt64); err == nil {
					t.Error("the look-up finds a sample")
				}
				w.stores.scrubAll(t.Context(), time.Second)
			},
			"a compaction": func(w *world) {
				dirs, err := blockDirs(w.rawStore().dir)
				if err != nil {
					t.Fatal(err)
				}
				dirs = slices.DeleteFunc(dirs, func(dir string) bool { return len(filepath.Base(dir)) != blockName })
				ranges := []int64{7_200_000, 21_600_000}
				inner, err := tsdb.NewLeveledCompactor(t.Context(), nil, slog.New(slog.DiscardHandler), ranges, nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				c := compactor{inner, w.rawStore(), t.Context()}
				if _, err := c.Compact(t.TempDir(), dirs, w.rawStore().db.Blocks()); err == nil {
					t.Error("the compaction succeeds")
				}
			},
			"an opening, which finds an empty file": func(w *world) {
				w.startWithOthers("first")
				if _, err := w.selected(all); !errors.Is(err, partial.ErrElsewhere) {
					t.Errorf("the query ends with %v", err)
				}
			},
		} {
			t.Run(file+"/"+what, func(t *testing.T) {
				w := newWorld(t)
				w.startWithOthers("first")
				w.blocks()
				if _, err := w.selected(all); err != nil {
					t.Fatal(err)
				}
				found, err := filepath.Glob(filepath.Join(w.rawStore().dir, "01*", file))
				if err != nil || len(found) == 0 {
					t.Fatal(found, err)
				}
				if err := os.Truncate(found[0], 0); err != nil {
					t.Fatal(err)
				}
				meet(w)
				for begun := time.Now(); len(w.stores.Damaged()) == 0 && time.Since(begun) < time.Minute; {
					time.Sleep(time.Millisecond)
				}
				damaged := w.stores.Damaged()
				if block := filepath.Base(strings.TrimSuffix(found[0], file)); len(damaged) != 1 ||
					!strings.Contains(damaged[0].Error(), block) {
					t.Errorf("damaged are %v, want block %s", damaged, block)
				}
			})
		}
	}
}

// onceLogged does something when a message is logged.
type onceLogged struct {
	slog.Handler
	message string
	do      func()
}

func (o onceLogged) Enabled(context.Context, slog.Level) bool { return true }

func (o onceLogged) Handle(_ context.Context, r slog.Record) error {
	if r.Message == o.message {
		o.do()
	}
	return nil
}

func (o onceLogged) WithAttrs([]slog.Attr) slog.Handler { return o }

// A part of a mapped file cannot be read while tsdb opens a store. The store is damaged. It is not opened again, since
// tsdb still has its lock of the directory.
func TestAnOpeningMeetsAnUnreadablePart(t *testing.T) {
	all := labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+")
	w := newWorld(t)
	w.startWithOthers("first")
	for i := range 500 {
		w.writeRaw(&plain, fmt.Sprintf("a@%d=%d", 2000+10*i, i))
	}
	w.startWithOthers("first")
	if _, err := w.selected(all); err != nil { // writes all chunks
		t.Fatal(err)
	}
	w.startWithOthers("first")
	files := headFiles(w.rawStore().dir)
	if len(files) == 0 {
		t.Fatal("the head has no file")
	}
	tries := 0
	w.rawStore().logger = slog.New(onceLogged{w.stores.logger.Handler(), "Replaying on-disk memory mappable chunks if any",
		func() {
			tries++
			for _, path := range files {
				if err := os.Truncate(path, 0); err != nil {
					t.Error(err)
				}
			}
		}})
	for range 2 {
		w.rawStore().again = time.Time{}
		if _, err := w.selected(all); !errors.Is(err, partial.ErrElsewhere) {
			t.Errorf("the query ends with %v", err)
		}
	}
	if damaged := w.stores.Damaged(); len(damaged) != 1 || tries != 1 {
		t.Errorf("damaged are %v, after %d tries", damaged, tries)
	}
}

// On a single machine, no other has the data: the scrub says what is damaged, and everything else answers. Once the
// damaged file is gone, so is the alert.
func TestTheScrubOfASingleMachineOnlySays(t *testing.T) {
	w := newWorld(t)
	w.blocks()
	path := w.flip(rand.New(rand.NewPCG(1, 3)), w.dir, "*/chunks/*")
	w.stores.scrubAll(t.Context(), time.Second)
	gauge := w.stores.metrics.damaged.WithLabelValues("default", Raw)
	if testutil.ToFloat64(gauge) != 1 || !strings.Contains(w.log.String(), filepath.Dir(filepath.Dir(path))) {
		t.Errorf("the log does not name %s:\n%s", path, w.log.String())
	}
	if len(w.stores.Damaged()) != 1 || len(w.stores.Broken()) != 0 {
		t.Error("the store counts as broken")
	}
	q, err := w.stores.Querier("default", Raw, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	set := q.Select(t.Context(), true, nil, labels.MustNewMatcher(labels.MatchEqual, "__name__", "a"))
	if notes := fmt.Sprint(set.Warnings().AsErrors()); !strings.Contains(notes, "may lack samples") {
		t.Errorf("the answer has the warnings %s, want one that samples may be missing", notes)
	}
	if err := q.Close(); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(filepath.Dir(filepath.Dir(path))); err != nil {
		t.Fatal(err)
	}
	if w.stores.scrubAll(t.Context(), time.Second); testutil.ToFloat64(gauge) != 0 {
		t.Error("the store still counts as damaged")
	}
}

// The scrub spreads its work over the period, and reads at least slowestScrub.
func TestTheScrubIsSlow(t *testing.T) {
	w := newWorld(t)
	w.blocks()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w.stores.scrubAll(ctx, 1000*time.Hour)
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("a small store took %v", took)
		}
	})
	if p := w.stores.Scrubbed(); p.Last.IsZero() || p.Bytes == 0 || p.OfBytes < p.Bytes {
		t.Errorf("%+v", p)
	}
}
