package tsdb

import (
	"crypto/sha256"
	"errors"
	"io"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/freshet-io/freshet/internal/core/tenant"
)

// A staged block is there after a restart, under its new name, but no query sees it until it is shown.
func TestAStagedBlock(t *testing.T) {
	w := newWorld(t)
	w.imports("a@10=1")
	dir, was := w.block("b@10=2")
	id := ulid.Make()
	if _, err := w.stores.Stage(t.Context(), tenant.Default, id, was, copies(dir)); err != nil {
		t.Fatal(err)
	}
	w.close()
	w.open()
	if got := w.history(); got != "a@10=1" {
		t.Errorf("the history is %q while block b is staged", got)
	}
	if all, err := w.stores.AllStaged(); err != nil || len(all) != 1 || all[0] != (Staged{tenant.Default, id}) {
		t.Errorf("%v are staged, %v", all, err)
	}
	if _, err := w.stores.Stage(t.Context(), tenant.Default, id, was, copies(dir)); !errors.Is(err, ErrImported) {
		t.Errorf("it is staged again: %v", err)
	}
	if err := w.stores.Show(t.Context(), tenant.Default, id); err != nil {
		t.Fatal(err)
	}
	if got := w.history(); got != "a@10=1 b@10=2" {
		t.Errorf("the history is %q when block b is shown", got)
	}
	if shown, staged := w.stores.Imported(tenant.Default, id); !shown || staged {
		t.Errorf("shown: %v, staged: %v", shown, staged)
	}
}

// A block is shown only once queries see it, and not while it is moved and synced: until then, answers over its times
// must have a warning, and the import must not be acknowledged.
func TestABlockIsStagedUntilQueriesSeeIt(t *testing.T) {
	w := newWorld(t)
	w.imports("a@10=1")
	dir, was := w.block("b@10=2")
	id := ulid.Make()
	if _, err := w.stores.Stage(t.Context(), tenant.Default, id, was, copies(dir)); err != nil {
		t.Fatal(err)
	}
	sync, syncs := w.stores.fsync, 0
	w.stores.fsync = func(path string) error {
		syncs++
		shown, staged := w.stores.Imported(tenant.Default, id)
		if got := w.history(); got != "a@10=1" || shown || !staged {
			t.Errorf("sync of %s: the history is %q; shown: %v, staged: %v", path, got, shown, staged)
		}
		return sync(path)
	}
	if err := w.stores.Show(t.Context(), tenant.Default, id); err != nil || syncs == 0 {
		t.Fatalf("%d syncs, %v", syncs, err)
	}
	if shown, staged := w.stores.Imported(tenant.Default, id); !shown || staged {
		t.Errorf("shown: %v, staged: %v", shown, staged)
	}
}

// A block is staged once it survives a power loss: other nodes count on it then. If it cannot be synced, it is gone.
func TestABlockIsStagedOnceItIsSynced(t *testing.T) {
	w := newWorld(t)
	w.imports("a@10=1")
	dir, was := w.block("b@10=2")
	id := ulid.Make()
	sync, syncs := w.stores.fsync, 0
	sick := errors.New("sick disk")
	for _, last := range []error{sick, nil} {
		w.stores.fsync = func(path string) error {
			syncs++
			if shown, staged := w.stores.Imported(tenant.Default, id); shown || staged {
				t.Errorf("sync of %s: shown: %v, staged: %v, want neither", path, shown, staged)
			}
			if path == w.stores.dir && last != nil {
				return last
			}
			return sync(path)
		}
		if _, err := w.stores.Stage(t.Context(), tenant.Default, id, was, copies(dir)); !errors.Is(err, last) || syncs == 0 {
			t.Fatalf("%d syncs, of which the last returns %v: got %v", syncs, last, err)
		}
		if shown, staged := w.stores.Imported(tenant.Default, id); shown || staged != (last == nil) {
			t.Errorf("the last sync returned %v; shown: %v, staged: %v", last, shown, staged)
		}
	}
}

// Another node gets the files that the hashes are of, while the block is staged and when it is shown.
func TestFilesOfAStagedBlock(t *testing.T) {
	w := newWorld(t)
	dir, was := w.block("b@10=2")
	id := ulid.Make()
	if _, err := w.stores.Stage(t.Context(), tenant.Default, id, was, copies(dir)); err != nil {
		t.Fatal(err)
	}
	all, err := w.stores.StagedFiles(t.Context(), tenant.Default, id)
	if err != nil || len(all) < 3 {
		t.Fatalf("files %v, %v", all, err)
	}
	for range 2 {
		for _, f := range all {
			file, err := w.stores.OpenImported(tenant.Default, id, f.Name)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(file)
			if err != nil || int64(len(text)) != f.Size || sha256.Sum256(text) != f.SHA256 || f.Name == metaCopyFile {
				t.Errorf("file %s has %d bytes, or another hash; %v", f.Name, len(text), err)
			}
			if err := file.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := w.stores.Show(t.Context(), tenant.Default, id); err != nil && len(w.history()) == 0 {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"../" + was.String(), "nothing", ""} {
		if file, err := w.stores.OpenImported(tenant.Default, id, name); err == nil {
			t.Errorf("file %q is opened: %v", name, file.Name())
		}
	}
}
