package tsdb

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"
)

// lateWorld is a world with late samples of a series "a" and samples of 100 other series, which fill
// the buffer of chunk files: tsdb writes 64 KiB at a time, so a kill loses up to that many bytes of
// chunks.
type lateWorld struct {
	*world
	rnd  *rand.Rand
	want map[string]map[int]string // the samples of each series, by second
	from int                       // second of the oldest sample
}

func newLateWorld(t *testing.T) *lateWorld {
	w := &lateWorld{world: newWorld(t), rnd: rand.New(rand.NewPCG(1, 1)), want: map[string]map[int]string{}, from: 900}
	w.stores.CompactByHand()
	w.put("a@1000=1")
	return w
}

// put writes samples.
func (w *lateWorld) put(words ...string) {
	w.t.Helper()
	for _, word := range words {
		name, sample, _ := strings.Cut(word, "@")
		var second int
		if _, err := fmt.Sscan(strings.ReplaceAll(sample, "=", " "), &second); err != nil {
			w.t.Fatal(err)
		}
		if w.want[name] == nil {
			w.want[name] = map[int]string{}
		}
		w.want[name][second] = sample
	}
	w.writeRaw(&plain, strings.Join(words, " "))
}

// late writes n late samples of series a, each in a commit of its own. tsdb moves them to chunks, 32 at
// a time.
func (w *lateWorld) late(n int) {
	for range n {
		w.from--
		w.put(fmt.Sprintf("a@%d=%d", w.from, w.rnd.IntN(1000)))
	}
}

// others is the counterpart of late: it writes samples of the 100 other series in order of time,
// beginning at the second `from`.
func (w *lateWorld) others(from int) {
	for at := 0; at < 280; at += 20 {
		var words []string
		for s := range 100 {
			for i := range 20 {
				words = append(words, fmt.Sprintf("s%d@%d=%v", s, from+at+i, w.rnd.Float64()))
			}
		}
		w.put(words...)
	}
}

// die kills the process. The test goes on in a copy of its files.
func (w *lateWorld) die() {
	w.t.Helper()
	dir := w.t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(w.dir)); err != nil {
		w.t.Fatal(err)
	}
	w.close()
	w.dir = dir
}

func (w *lateWorld) kill() {
	w.t.Helper()
	w.die()
	w.start()
}

// losePower kills the process, and truncates each chunk file to half its size.
func (w *lateWorld) losePower() {
	w.t.Helper()
	w.die()
	files := w.chunkFiles()
	for path, info := range files {
		if err := os.Truncate(path, info.Size()/2); err != nil {
			w.t.Fatal(err)
		}
	}
	w.start()
}

// chunkFiles returns the chunk files by path.
func (w *world) chunkFiles() map[string]os.FileInfo {
	w.t.Helper()
	dir := filepath.Join(w.storeRaw(), "chunks_head")
	entries, err := os.ReadDir(dir)
	if err != nil {
		w.t.Fatal(err)
	}
	files := map[string]os.FileInfo{}
	for _, e := range entries {
		if files[filepath.Join(dir, e.Name())], err = e.Info(); err != nil {
			w.t.Fatal(err)
		}
	}
	return files
}

func (w *lateWorld) restart() {
	w.close()
	w.start()
}

func (w *lateWorld) start() {
	w.open()
	w.stores.CompactByHand()
	w.rawDatabase()
}

// check compares the stored samples with the written ones.
func (w *lateWorld) check() {
	w.t.Helper()
	got := w.raw()
	for _, name := range slices.Sorted(maps.Keys(w.want)) {
		var want []string
		for _, second := range slices.Sorted(maps.Keys(w.want[name])) {
			want = append(want, w.want[name][second])
		}
		if got[name] != strings.Join(want, " ") {
			w.t.Fatalf("%s has %d samples, want %d", name, len(strings.Fields(got[name])), len(want))
		}
	}
}

// TestLateSamplesSurviveKills: samples were lost in two ways. One way: a marker in the log of late
// samples named a chunk that a kill had lost. The first opening ignored the marker. The second opening
// trusted it, because other chunks had reached the same position by then, and lost 32 samples. The other
// way: a marker without a position said that a compaction had put the samples before the marker into a
// chunk, but a kill had lost this chunk, too.
func TestLateSamplesSurviveKills(t *testing.T) {
	stories := []string{"kill kill", "kill kill kill", "kill restart", "restart kill kill",
		"kill late kill late kill", "kill late restart kill", "others late kill others kill",
		"compaction late kill", "compaction late kill kill", "compaction late restart late kill",
		"restart compaction few kill",
		"kill compaction late kill compaction late kill", "restart restart restart kill",
		"power", "power kill", "others power others kill late kill"}
	if testing.Short() {
		stories = []string{"compaction late restart late kill", "others power others kill late kill"}
	}
	for _, story := range stories {
		t.Run(story, func(t *testing.T) {
			w := newLateWorld(t)
			w.late(41)
			w.others(1001)
			begin := 1300
			for _, step := range strings.Fields(story) {
				switch step {
				case "kill":
					w.kill()
				case "power":
					w.losePower()
				case "restart":
					w.restart()
				case "compaction": // the process dies while the compaction is under way
					if _, err := tsdb.NewOOOCompactionHead(t.Context(), w.rawDatabase().Head()); err != nil {
						t.Fatal(err)
					}
				case "late":
					w.late(41)
				case "few":
					w.late(5)
				case "others":
					w.others(begin)
					begin += 300
				}
				w.check()
			}
			db := w.rawDatabase()
			if err := db.CompactOOOHead(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.check()
			compacted := 0
			for _, b := range db.Blocks() {
				compacted += int(b.Meta().Stats.NumSamples)
			}
			if late := len(w.want["a"]) - 1; compacted != late {
				t.Errorf("a compaction stored %d samples, want %d", compacted, late)
			}
		})
	}
}

// If a store is closed and opened again, its markers, its log and its chunks stay the same.
func TestAClosedStoreKeepsItsMarkers(t *testing.T) {
	w := newLateWorld(t)
	w.late(41)
	w.restart()
	w.late(41)
	w.others(1001)
	w.close()
	var before lateFiles
	for i := range 3 {
		now, err := readLate(w.storeRaw())
		if err != nil || len(now.there) != 2 || len(now.markers) != 2 || now.chunked != 64 || now.logged != 82 {
			t.Errorf("after %d openings: late files %+v, error %v", i, now, err)
		}
		if i > 0 && !reflect.DeepEqual(now, before) {
			t.Errorf("after %d openings: late files %+v, before %+v", i, now, before)
		}
		before = now
		w.start()
		w.check()
		w.close()
	}
	w.open()
}

// An opening removes a damaged chunk file, and reuses its number. A marker of a chunk in the old file
// must not name a chunk in the new one.
func TestADamagedChunkFileHasNoChunks(t *testing.T) {
	w := newLateWorld(t)
	w.late(41)
	w.restart()
	w.late(80)
	w.close()
	last := slices.Max(slices.Collect(maps.Keys(w.chunkFiles())))
	text, err := os.ReadFile(last)
	if err != nil {
		t.Fatal(err)
	}
	text[len(bytes.TrimRight(text, "\x00"))-1] ^= 1
	if err := os.WriteFile(last, text, 0o600); err != nil {
		t.Fatal(err)
	}
	late, err := readLate(w.storeRaw())
	if err != nil || len(late.markers) != 3 || len(late.there) != 1 || late.chunked != 32 {
		t.Errorf("late files %+v, want 3 markers, 1 chunk file and 32 samples in it; error %v", late, err)
	}
	if files := w.chunkFiles(); files[last] != nil {
		t.Errorf("%s was not removed", last)
	}
	w.start()
	w.check()
	w.kill()
	w.check()
}

// If late samples have no markers, each opening puts them into new chunks again. When there are too many
// copies, the chunk files are removed.
func TestCopiesOfLateSamplesAreBounded(t *testing.T) {
	w := newLateWorld(t)
	for at := range 401 {
		var words []string
		for s := range 25 {
			words = append(words, fmt.Sprintf("s%d@%d=1", s, 1000-at))
		}
		w.put(words...)
	}
	w.die()
	for path := range w.chunkFiles() { // without them, the next start removes all markers
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	w.start()
	largest, fell := 0, false
	for range 16 {
		w.restart()
		w.close()
		late, err := readLate(w.storeRaw())
		if err != nil {
			t.Fatal(err)
		}
		if late.logged != 10_000 || len(late.markers) > 0 {
			t.Fatalf("the log has %d late samples and %d markers, so the test shows nothing", late.logged, len(late.markers))
		}
		fell = fell || late.chunked < largest
		largest = max(largest, late.chunked)
		w.open()
	}
	if bound := (mostCopies+1)*10_000 + spareCopies; largest > bound || !fell {
		t.Errorf("the chunks have up to %d late samples, want at most %d", largest, bound)
	}
	w.check()
}

// A process that dies while it removes chunk files leaves only some of them. tsdb cannot open such a
// directory, so the next start must remove the rest.
func TestAProcessDiesWhileItRemovesChunks(t *testing.T) {
	w := newLateWorld(t)
	w.late(41)
	w.restart()
	w.late(41)
	w.restart()
	w.late(41)
	w.close()
	if n := len(w.chunkFiles()); n < 2 {
		t.Fatalf("the store has %d chunk files, so the test shows nothing", n)
	}
	old := filepath.Join(w.storeRaw(), oldChunks)
	if err := os.Rename(filepath.Join(w.storeRaw(), "chunks_head"), old); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.check()
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("%s was not removed: %v", old, err)
	}
	w.kill()
	w.check()
}

// TestAStoreIsCutBackAfterItsMarkersWent: an opening replaced a segment of the log of late samples.
// The saved ends did not fit the new segment, so after a power loss the store was not cut back.
func TestAStoreIsCutBackAfterItsMarkersWent(t *testing.T) {
	w := newLateWorld(t)
	w.startInGroup("first", 0)
	w.late(41)
	w.others(1001)
	w.sync()
	w.die()
	w.open()
	w.stores.CutBack("first", map[string]uint64{"default": w.state.Requests})
	w.rawDatabase()
	if late, err := readLate(w.storeRaw()); err != nil || len(late.markers) > 0 {
		t.Fatalf("%d markers are left, error %v, so the test shows nothing", len(late.markers), err)
	}
	w.writeRaw(&plain, "a@10000=1", "a@1=1")
	w.startInGroup("second", w.state.Requests-2)
	w.check()
}

// TestAFailedSyncHoldsUpNoOpening: the ends of a rewritten log cannot be saved at the opening; the
// next sync saves them.
func TestAFailedSyncHoldsUpNoOpening(t *testing.T) {
	w := newLateWorld(t)
	w.startInGroup("first", 0)
	w.late(41)
	w.others(1001)
	w.sync()
	w.die()
	w.open()
	w.stores.CutBack("first", map[string]uint64{"default": w.state.Requests})
	st := w.rawStore()
	fsync := st.fsync
	st.unsynced.Store(false) // as after a sync of the closed store
	st.fsync = func(string) error { return syscall.EIO }
	w.check()
	st.fsync = fsync
	if e, _, err := readEnds(st.dir); err != nil {
		t.Fatal(err)
	} else if fits, err := e.wbl.fits(filepath.Join(st.dir, "wbl")); fits || err != nil {
		t.Fatalf("the ends fit: %t, error %v, so the test shows nothing", fits, err)
	}
	w.sync()
	if e, _, err := readEnds(st.dir); err != nil {
		t.Fatal(err)
	} else if fits, err := e.wbl.fits(filepath.Join(st.dir, "wbl")); !fits || err != nil {
		t.Errorf("after a sync, the saved ends fit the log: %t, want true; error %v", fits, err)
	}
}

// TestAStoreOpensWhenItsDiskHasRoomAgain: an opening that cannot replace a segment of the log of late samples
// leaves all files as they are.
func TestAStoreOpensWhenItsDiskHasRoomAgain(t *testing.T) {
	if !alone(t) {
		return
	}
	w := newLateWorld(t)
	w.late(41)
	for at := range 100 {
		var words []string
		for s := range 100 {
			words = append(words, fmt.Sprintf("s%d@%d=%v", s, 1000-at, w.rnd.Float64()))
		}
		w.put(words...)
	}
	w.die()
	hasRoom := limitFiles(t)
	w.open()
	_, err := w.rawStore().read(t.Context())
	half := filepath.Join(w.storeRaw(), "wbl.new")
	if err == nil || !strings.Contains(err.Error(), half) {
		t.Errorf("error %v, want one that names %s", err, half)
	}
	if _, err := os.Stat(half); !os.IsNotExist(err) {
		t.Errorf("the half-written segment was not removed: %v", err)
	}
	hasRoom()
	w.now = w.now.Add(time.Hour)
	w.check()
}

func TestAFullDiskSaysHowMuchItNeeds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "00000000")
	if err := os.WriteFile(path, make([]byte, 365_001), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		err := fmt.Errorf("open: %w", needsRoom(path, fmt.Errorf("write: %w", full)))
		want := fmt.Sprintf("open: rewrite %s, which needs 366 kB more on its disk for a moment: write: %v", path, full)
		if err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		want = "free some space on its disk, at least 366 kB: nothing is lost"
		if got := wayOut("/store", err); got != want {
			t.Errorf("way out: %s, want %s", got, want)
		}
	}
	if err := needsRoom(path, syscall.EIO); err != syscall.EIO {
		t.Errorf("needsRoom did not return EIO unchanged, but %v", err)
	}
}

// TestAnErrorOfTheDiskIsNoDamage: to repair damage, an opening removes what it cannot read. After an
// error of the disk, it must remove nothing.
func TestAnErrorOfTheDiskIsNoDamage(t *testing.T) {
	for _, c := range []struct {
		err      error
		isDamage bool
	}{
		{nil, true},
		{errors.New("unexpected checksum"), true},
		{io.ErrUnexpectedEOF, true},
		{&fs.PathError{Op: "open", Path: "wbl", Err: syscall.ENOENT}, true},
		{fmt.Errorf("read: %w", &fs.PathError{Op: "read", Path: "wbl", Err: syscall.EIO}), false},
		{&fs.PathError{Op: "open", Path: "wbl", Err: syscall.EMFILE}, false},
		{syscall.ENOSPC, false},
	} {
		for _, err := range []error{c.err, &wlog.CorruptionErr{Err: c.err}} {
			if err := environment(err); (err == nil) != c.isDamage {
				t.Errorf("for the error %v, environment returns %v; want damage: %t", c.err, err, c.isDamage)
			}
		}
	}
	for _, log := range []string{"wal", "wbl"} {
		w := newLateWorld(t)
		w.late(41)
		w.restart() // begins other segments
		w.late(41)
		w.close()
		segment := filepath.Join(w.storeRaw(), log, "00000000")
		if err := cmp.Or(os.Rename(segment, segment+".away"), os.Mkdir(segment, 0o777)); err != nil {
			t.Fatal(err)
		}
		if _, err := renumber(w.storeRaw(), compression.None); !errors.Is(err, syscall.EISDIR) {
			t.Errorf("with a log %s that cannot be read: got the error %v, want EISDIR", log, err)
		}
		if err := cmp.Or(os.Remove(segment), os.Rename(segment+".away", segment)); err != nil {
			t.Fatal(err)
		}
		w.start()
		w.check()
	}
}
