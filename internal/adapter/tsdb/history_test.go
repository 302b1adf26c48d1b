package tsdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/freshet-io/freshet/internal/core/tenant"
)

// block writes a block as another TSDB does, with samples in the notation of the method samples.
func (w *world) block(text string) (dir string, id ulid.ULID) {
	w.t.Helper()
	root := w.t.TempDir()
	writer, err := tsdb.NewBlockWriter(slog.New(slog.DiscardHandler), root, blockDuration.Milliseconds())
	if err != nil {
		w.t.Fatal(err)
	}
	app := writer.Appender(context.Background())
	for _, s := range w.samples(text) {
		if s.H != nil {
			_, err = app.AppendHistogram(0, s.Series.Labels, s.T, nil, s.H)
		} else {
			_, err = app.Append(0, s.Series.Labels, s.T, s.V)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
	if err := app.Commit(); err != nil {
		w.t.Fatal(err)
	}
	if id, err = writer.Flush(context.Background()); err != nil {
		w.t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		w.t.Fatal(err)
	}
	return filepath.Join(root, id.String()), id
}

// importBlock imports a block from a directory.
func (w *world) importBlock(dir string, id ulid.ULID) error {
	_, err := w.stores.Import(context.Background(), tenant.Default, id, copies(dir))
	return err
}

// copies returns a function that copies a directory.
func copies(from string) func(to string) error {
	return func(to string) error { return os.CopyFS(to, os.DirFS(from)) }
}

// imports imports a block with these samples.
func (w *world) imports(text string) ulid.ULID {
	w.t.Helper()
	dir, id := w.block(text)
	if err := w.importBlock(dir, id); err != nil {
		w.t.Fatal(err)
	}
	return id
}

func (w *world) historyDir(name ...string) string {
	return filepath.Join(append([]string{w.dir, "tsdb", tenant.Default, History}, name...)...)
}

func (w *world) history() string { return w.stored(tenant.Default, History) }

// A client may leave when its block is in place already, and so nothing can end the import any more. The import once
// failed then although queries saw the block, and its tenant lost its place.
func TestAClientThatLeavesAtTheEndOfAnImport(t *testing.T) {
	w := newWorld(t)
	dir, id := w.block("a@10=1")
	ctx, leaves := context.WithCancel(t.Context())
	sync := w.stores.fsync
	w.stores.fsync = func(path string) error {
		if path == w.historyDir() { // the block was just moved there
			leaves()
		}
		return sync(path)
	}
	if _, err := w.stores.Import(ctx, tenant.Default, id, copies(dir)); err != nil || ctx.Err() == nil {
		t.Errorf("import: %v; the client: %v", err, ctx.Err())
	}
	if got := w.history(); got != "a@10=1" {
		t.Errorf("the history is %q", got)
	}
}

// If the place of a block cannot be synced, the history stays as it was, and the import may be tried again.
func TestAnImportThatCannotBeSynced(t *testing.T) {
	w := newWorld(t)
	w.imports("a@10=1")
	sync := w.stores.fsync
	for _, unsynced := range []string{w.historyDir(), w.historyDir(".."), w.stores.dir} {
		dir, id := w.block("b@10=1")
		w.stores.fsync = func(path string) error {
			if filepath.Clean(path) == unsynced {
				return errors.New("the disk is broken")
			}
			return sync(path)
		}
		if err := w.importBlock(dir, id); err == nil || errors.Is(err, ErrImported) {
			t.Errorf("%s cannot be synced, and the import says %v", unsynced, err)
		}
		if got := w.history(); got != "a@10=1" {
			t.Errorf("%s cannot be synced, and the history is %q", unsynced, got)
		}
		w.stores.fsync = sync
		if err := w.importBlock(dir, id); err != nil {
			t.Errorf("the second try: %v", err)
		}
		if err := w.stores.RemoveImported(t.Context(), tenant.Default, id); err != nil {
			t.Error(err)
		}
	}
}

// Imported samples are there at once and after a restart, whatever the retention and the other stores say, and the
// other stores go on as before.
func TestImport(t *testing.T) {
	w := newWorld(t)
	w.write("a@82000=1 b@82000=h1,2")
	const years = "a@-99999990=5 a@-99999980=6"
	w.imports(years)
	want := years
	if got := w.history(); got != want {
		t.Fatalf("imported %q, want %q", got, want)
	}
	w.imports("a@-99999985=5.5 b@-99999990=h3") // overlaps, while the store is open
	w.imports("a@82500=9")                      // newer than all that is stored
	want = "a@-99999990=5 a@-99999985=5.5 a@-99999980=6 a@82500=9 b@-99999990=h3"
	for range 2 {
		if got := w.history(); got != want {
			t.Errorf("imported %q, want %q", got, want)
		}
		if got := w.write("a@81000=3"); got != "stored 1" && got != "repeated 1" {
			t.Errorf("a late tile behind imported ones: %s", got)
		}
		if err := w.stores.SetRetention(w.cfg.Retention); err != nil {
			t.Fatal(err)
		}
		if err := w.stores.Tend(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(w.historyDir("..", partsDir)); err == nil {
			entries, _ := os.ReadDir(w.historyDir("..", partsDir))
			if len(entries) > 0 {
				t.Errorf("imports left %v", entries)
			}
		}
		w.close()
		w.open()
	}
	content := []Content{}
	dir, _ := w.snapshot()
	if err := Verify(t.Context(), dir, func(c Content) { content = append(content, c) }); err != nil {
		t.Fatal(err)
	}
	if len(content) != 2 || content[1].Store != History && content[0].Store != History {
		t.Errorf("a snapshot has %+v, want the tiles and the history", content)
	}
	if log := w.log.String(); strings.Contains(log, "Overlapping") {
		t.Errorf("blocks of a history may overlap, and the log warns of it:\n%s", log)
	}
}

// A day that is not over is read again by the next freshet import remote-read, as another block. Answers have each
// sample once, as samples and as chunks.
func TestSamplesOfTwoBlocksAreAnsweredOnce(t *testing.T) {
	w := newWorld(t)
	w.imports("a@-99999990=5 a@-99999980=6 b@-99999990=h3")
	w.imports("a@-99999990=5 a@-99999980=6 a@-99999970=7 b@-99999990=h3")
	if got, want := w.history(), "a@-99999990=5 a@-99999980=6 a@-99999970=7 b@-99999990=h3"; got != want {
		t.Errorf("answered %q, want %q", got, want)
	}
	q, err := w.stores.ChunkQuerier(tenant.Default, History, math.MinInt64, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	samples := 0
	set := q.Select(t.Context(), true, nil, labels.MustNewMatcher(labels.MatchRegexp, "__name__", ".+"))
	for set.Next() {
		it := set.At().Iterator(nil)
		for it.Next() {
			samples += it.At().Chunk.NumSamples()
		}
		if it.Err() != nil {
			t.Fatal(it.Err())
		}
	}
	if set.Err() != nil || samples != 4 {
		t.Errorf("the chunks have %d samples, want 4; %v", samples, set.Err())
	}
}

// A block says of which others it was made, and whether it may be deleted. tsdb would delete the others, or the block.
func TestImportedMetadataDeleteNothing(t *testing.T) {
	w := newWorld(t)
	first := w.imports("a@10=1")
	dir, id := w.block("b@10=1")
	path := filepath.Join(dir, metaFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var meta tsdb.BlockMeta
	if err := json.Unmarshal(text, &meta); err != nil {
		t.Fatal(err)
	}
	meta.Compaction.Level, meta.Compaction.Deletable = 3, true
	meta.Compaction.Parents = []tsdb.BlockDesc{{ULID: first}}
	if text, err = json.Marshal(meta); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := w.importBlock(dir, id); err != nil {
		t.Fatal(err)
	}
	if got, want := w.history(), "a@10=1 b@10=1"; got != want {
		t.Errorf("imported %q, want %q", got, want)
	}
}

// Whatever is wrong with a block, the error names it, and nothing of it stays.
func TestImportRefuses(t *testing.T) {
	w := newWorld(t)
	good := w.imports("a@10=1")
	for name, harm := range map[string]func(dir string) error{
		"a byte of the chunks": func(dir string) error { return flipIn(filepath.Join(dir, "chunks", "000001"), -3) },
		"a byte of the index":  func(dir string) error { return flipIn(filepath.Join(dir, "index"), 16) },
		"no index":             func(dir string) error { return os.Remove(filepath.Join(dir, "index")) },
		"no metadata":          func(dir string) error { return os.Remove(filepath.Join(dir, metaFile)) },
		"other counts": func(dir string) error {
			text, err := os.ReadFile(filepath.Join(dir, metaFile))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, metaFile),
				[]byte(strings.Replace(string(text), `"numSamples": 3`, `"numSamples": 4`, 1)), 0o644)
		},
		"a later beginning": func(dir string) error { return inMeta(dir, `"minTime": 1700006410000`, `"minTime": 1700006410001`) },
		"an earlier end":    func(dir string) error { return inMeta(dir, `"maxTime": 1700006420001`, `"maxTime": 1700006420000`) },
		"the year 10000":    func(dir string) error { return inMeta(dir, `"maxTime": 1700006420001`, `"maxTime": 253402300800001`) },
		"another block": func(dir string) error {
			text, err := os.ReadFile(filepath.Join(dir, metaFile))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, metaFile),
				[]byte(strings.Replace(string(text), filepath.Base(dir), good.String(), 1)), 0o644)
		},
		"no end": func(string) error { return errors.New("the sender is gone") },
	} {
		dir, id := w.block("b@10=1 b@20=2 c@10=3")
		_, err := w.stores.Import(t.Context(), tenant.Default, id, func(to string) error {
			// The harmed directory is the one that Import made, so that its name is that of the block.
			err := os.CopyFS(to, os.DirFS(dir))
			if err == nil {
				err = harm(to)
			}
			if err != nil && name != "no end" {
				t.Errorf("%s: %v", name, err)
			}
			return err
		})
		if _, bad := errors.AsType[BadBlockError](err); !bad || strings.Contains(err.Error(), w.dir) {
			t.Errorf("%s: the error is %v; want one of the block, without the server's directory", name, err)
		}
		if got := w.history(); got != "a@10=1" {
			t.Errorf("%s: the history is %q", name, got)
		}
		for _, path := range []string{w.historyDir(id.String()), w.historyDir("..", partsDir, id.String())} {
			if _, err := os.Stat(path); err == nil {
				t.Errorf("%s: %s is left", name, path)
			}
		}
	}
	if err := w.importBlock("/nowhere", good); !errors.Is(err, ErrImported) {
		t.Errorf("the same block again: %v", err)
	}
}

// inMeta replaces a text in the metadata of a block.
func inMeta(dir, old, text string) error {
	path := filepath.Join(dir, metaFile)
	was, err := os.ReadFile(path)
	if err == nil && !strings.Contains(string(was), old) {
		err = fmt.Errorf("%s has no %s", was, old)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(strings.Replace(string(was), old, text, 1)), 0o644)
}

// flipIn changes a byte of a file; a negative offset counts from its end.
func flipIn(path string, offset int) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if offset < 0 {
		offset += len(text)
	}
	text[offset] ^= 0xff
	return os.WriteFile(path, text, 0o644)
}

// A process that dies during an import leaves a directory that no query reads and the next start removes. Until then
// the block cannot be imported twice at once.
func TestImportOfADeadProcess(t *testing.T) {
	w := newWorld(t)
	w.imports("a@10=1")
	dir, id := w.block("b@10=1")
	part := w.historyDir("..", partsDir, id.String())
	if err := os.CopyFS(part, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.importBlock(dir, id); !errors.Is(err, ErrImporting) {
		t.Errorf("an import beside another one: %v", err)
	}
	w.close()
	w.open()
	if _, err := os.Stat(part); err == nil {
		t.Error("the start left a part of a block")
	}
	if err := w.importBlock(dir, id); err != nil {
		t.Fatal(err)
	}
	if got, want := w.history(), "a@10=1 b@10=1"; got != want {
		t.Errorf("imported %q, want %q", got, want)
	}
}

func TestRemoveImported(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.imports("a@10=1"), w.imports("b@10=1"), w.imports("c@10=1")
	w.history() // is open
	remove := func(id ulid.ULID) error { return w.stores.RemoveImported(t.Context(), tenant.Default, id) }
	if err := remove(a); err != nil {
		t.Fatal(err)
	}
	if got, want := w.history(), "b@10=1 c@10=1"; got != want {
		t.Errorf("left %q, want %q", got, want)
	}
	w.close()
	w.open()
	if err := remove(b); err != nil { // is closed
		t.Fatal(err)
	}
	if got, want := w.history(), "c@10=1"; got != want {
		t.Errorf("left %q, want %q", got, want)
	}
	w.close()
	w.open()
	// A block without an index breaks the store. Its removal mends it.
	d := w.imports("d@10=1")
	w.close()
	w.open()
	if err := os.Remove(w.historyDir(d.String(), "index")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.stores.Querier(tenant.Default, History, 0, 1); err == nil {
		t.Error("a store with half a block opens")
	}
	if err := remove(d); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(time.Minute) // when the store may be tried again
	if got, want := w.history(), "c@10=1"; got != want {
		t.Errorf("left %q, want %q", got, want)
	}
	for _, id := range []ulid.ULID{a, d} {
		if err := remove(id); !errors.Is(err, ErrNotImported) {
			t.Errorf("a block that is gone: %v", err)
		}
	}
	if err := w.stores.RemoveImported(t.Context(), "nobody", c); !errors.Is(err, ErrNotImported) {
		t.Errorf("a tenant without a history: %v", err)
	}
}

// History has no limits of senders: neither series of requests nor new series count its series.
func TestHistoryDoesNotCount(t *testing.T) {
	w := newWorld(t)
	w.imports("a@10=1")
	w.history()
	if got := w.stores.InMemory(History); got[tenant.Default] != 0 {
		t.Errorf("%v series are in memory", got)
	}
	for _, g := range w.stores.Growth() {
		t.Errorf("growth has %+v", g)
	}
	q, err := w.stores.Querier(tenant.Default, History, 0, base+1e6)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	values, _, err := q.LabelValues(t.Context(), model.MetricNameLabel, nil)
	if err != nil || len(values) != 1 || values[0] != "a" {
		t.Errorf("the names are %q, %v", values, err)
	}
}

// A machine with a history founds a cluster: nodes that are filled get it, and a start there finds no damage.
func TestHistoryOfAGroup(t *testing.T) {
	w := newWorld(t)
	const want = "a@-99999990=5 a@10=1"
	w.imports("a@10=1")
	w.imports("a@-99999990=5")
	w.startWithOthers("first")
	for _, boot := range []string{"first", "second"} {
		if got := w.history(); got != want {
			t.Errorf("the node that founds the cluster has %q, want %q", got, want)
		}
		w.sync()
		w.startWithOthers(boot)
	}
	dir := t.TempDir()
	w.copyTo(dir)
	w.close()
	w.dir = dir
	w.open()
	w.startWithOthers("third")
	if got := w.history(); got != want {
		t.Errorf("the filled node has %q, want %q", got, want)
	}
	for _, damage := range w.stores.Damaged() {
		t.Errorf("damaged: %v", damage)
	}
}
