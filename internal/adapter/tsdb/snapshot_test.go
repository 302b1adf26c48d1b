package tsdb

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/tenant"
)

// snapshot takes a snapshot into a new data directory. `told` has the arguments of all calls of
// `done`.
func (w *world) snapshot() (dir string, told []string) {
	w.t.Helper()
	dir = w.t.TempDir()
	err := w.stores.Snapshot(context.Background(), filepath.Join(dir, "tsdb"), func(c Content) {
		told = append(told, fmt.Sprintf("%s/%s blocks=%d", c.Tenant, c.Store, c.Blocks))
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return dir, told
}

func TestSnapshot(t *testing.T) {
	w := newWorld(t)
	aDay(t, w) // in blocks, except the last hours, which are in memory
	w.write("b@82800=h1,2 c@82700=stale")
	w.write("a@82000=7") // out of order
	want := w.stored(tenant.Default, "10s")
	dir, told := w.snapshot()
	if len(told) != 1 || !strings.HasPrefix(told[0], "default/10s blocks=") {
		t.Errorf("the progress is %q", told)
	}
	w.write("a@82900=8") // not in the snapshot

	var content []Content
	if err := Verify(context.Background(), dir, func(c Content) { content = append(content, c) }); err != nil {
		t.Fatal(err)
	}
	if len(content) != 1 || content[0].Samples != uint64(len(strings.Fields(want))) || content[0].Series < 3 {
		t.Errorf("verified %+v, want one store with %d samples", content, len(strings.Fields(want)))
	}
	w.close()
	w.dir = dir
	w.open()
	if got := w.stored(tenant.Default, "10s"); got != want {
		t.Errorf("restored %s\nwant     %s", got, want)
	}
	// Restored samples that are written again are repeats. Newer samples are stored.
	if got := w.write("a@82000=7 a@82810=1 d@82810=1"); got != "stored 2, repeated 1" {
		t.Errorf("write to restored stores: %s", got)
	}
}

// Stores that were never written to, or that lost all their series, cause no error.
func TestSnapshotOfNothing(t *testing.T) {
	w := newWorld(t)
	if _, told := w.snapshot(); len(told) > 0 {
		t.Errorf("the progress is %q", told)
	}
	if err := os.MkdirAll(filepath.Join(w.dir, "tsdb", tenant.Default, "raw"), 0o777); err != nil {
		t.Fatal(err)
	}
	w.close()
	w.open()
	if _, told := w.snapshot(); len(told) > 0 {
		t.Errorf("the progress is %q", told)
	}
}

// Verify finds missing or changed parts of a block, and names the block.
func TestVerifyFindsDamage(t *testing.T) {
	w := newWorld(t)
	aDay(t, w)
	dir, _ := w.snapshot()
	blocks, err := blockDirs(filepath.Join(dir, "tsdb", tenant.Default, "10s"))
	if err != nil || len(blocks) == 0 {
		t.Fatal(blocks, err)
	}
	block := blocks[0]
	verify := func() error { return Verify(context.Background(), dir, func(Content) {}) }
	// The index is damaged in a name, because nothing reads its padding.
	for name, at := range map[string]string{"chunks/000001": "", "index": "__name__"} {
		file := filepath.Join(block, name)
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(file); err != nil { // the file is a hard link: a write would change the original
			t.Fatal(err)
		}
		if err := verify(); err == nil || !strings.Contains(err.Error(), filepath.Base(block)) {
			t.Errorf("without %s: %v", name, err)
		}
		bad := bytes.Clone(whole)
		if at == "" {
			bad[len(bad)/2] ^= 1
		} else {
			bad[bytes.Index(bad, []byte(at))] ^= 1
		}
		for why, content := range map[string][]byte{"a bit flipped in": bad, "cut short": whole[:len(whole)-5]} {
			if err := os.WriteFile(file, content, 0o666); err != nil {
				t.Fatal(err)
			}
			if err := verify(); err == nil || !strings.Contains(err.Error(), filepath.Base(block)) {
				t.Errorf(
					"%s %s: Verify returned %v, want an error naming block %s", why, name, err, filepath.Base(block))
			}
		}
		if err := os.WriteFile(file, whole, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := verify(); err != nil {
		t.Errorf("mended: %v", err)
	}
}
