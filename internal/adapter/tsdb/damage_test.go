package tsdb

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestADamagedCheckpointCostsNoSegment: if a checkpoint is damaged, tsdb looks for the damage in the
// log. Its repair once deleted all segments behind the checkpoint, and then failed.
func TestADamagedCheckpointCostsNoSegment(t *testing.T) {
	w := newWorld(t)
	w.segments("b", "a@10=1 b@10=1", "a@20=2 b@20=2", "a@30=3 b@30=3")
	wal := filepath.Join(w.store10s("b"), "wal")
	checkpoint := filepath.Join(wal, "checkpoint.00000000", "00000000")
	if err := os.Mkdir(filepath.Dir(checkpoint), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(wal, "00000000"), checkpoint); err != nil {
		t.Fatal(err)
	}
	flip := func() {
		t.Helper()
		text, err := os.ReadFile(checkpoint)
		if err != nil {
			t.Fatal(err)
		}
		text[12] ^= 4
		if err := os.WriteFile(checkpoint, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	flip()
	before := listLogs(w.store10s("b"))
	w.open()
	err := w.writeTo(t.Context(), "b", "a@40=4")
	if err == nil || !strings.Contains(err.Error(), "corruption in segment "+checkpoint) ||
		!strings.Contains(err.Error(), "; restore the checkpoint from a copy. Or move "+wal+" away") {
		t.Errorf("a write: %v, want an error that names the checkpoint", err)
	}
	if cut := before.cutOff(listLogs(w.store10s("b"))); cut != 0 {
		t.Errorf("the log lost %d bytes", cut)
	}
	flip() // undamaged, as if restored from a copy
	w.now = w.now.Add(openPause)
	if got, want := w.stored("b", "10s"), "a@10=1 a@20=2 a@30=3 b@10=1 b@20=2 b@30=3"; got != want {
		t.Errorf("stored: %s, want %s", got, want)
	}
}

// TestALogThatCannotBeReadLosesNothing: tsdb's repair once deleted a segment that the disk could not
// read, and all segments behind it.
func TestALogThatCannotBeReadLosesNothing(t *testing.T) {
	w := newWorld(t)
	w.segments("b", "a@10=1 b@10=1", "a@20=2 b@20=2", "a@30=3 b@30=3")
	segment := filepath.Join(w.store10s("b"), "wal", "00000001")
	if err := cmp.Or(os.Rename(segment, segment+".away"), os.Mkdir(segment, 0o700)); err != nil {
		t.Fatal(err)
	}
	w.open()
	if err := w.writeTo(t.Context(), "b", "a@40=4"); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("a write: %v, want the error of the read", err)
	}
	if err := cmp.Or(os.Remove(segment), os.Rename(segment+".away", segment)); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(openPause)
	if got, want := w.stored("b", "10s"), "a@10=1 a@20=2 a@30=3 b@10=1 b@20=2 b@30=3"; got != want {
		t.Errorf("stored: %s, want %s", got, want)
	}
}

// TestATornLogHidesNoLateSamples: a power loss tore the last record of a log. tsdb repaired this log,
// but then did not read the other log, which has the out-of-order samples. Until the next start these
// samples were missing, and the store accepted a second value for the time of one of them.
func TestATornLogHidesNoLateSamples(t *testing.T) {
	w := newWorld(t)
	w.writeRaw(&plain, "a@1000=1", "a@900=2")
	w.close()
	wal := filepath.Join(w.dir, "tsdb", "default", Raw, "wal", "00000000")
	text, err := os.ReadFile(wal)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(wal, append(text, "torn"...), 0o600); err != nil {
		t.Fatal(err)
	}
	w.open()
	if got, want := w.raw()["a"], "900=2 1000=1"; got != want {
		t.Errorf("stored: %s, want %s", got, want)
	}
	w.close()
	w.open()
	if got, want := w.raw()["a"], "900=2 1000=1"; got != want {
		t.Errorf("stored at the next start: %s, want %s", got, want)
	}
	if !strings.Contains(w.log.String(), "log_bytes_cut_off=") {
		t.Errorf("log: %s", w.log.String())
	}
}

// TestCutOffWhereAnInodeIsUsedAgain: the file system may give a new segment the inode of the
// deleted one that it replaces.
func TestCutOffWhereAnInodeIsUsedAgain(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "wal", "00000001")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("a segment"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := listLogs(dir)
	if err := os.Truncate(path, 2); err != nil {
		t.Fatal(err)
	}
	if cut := before.cutOff(listLogs(dir)); cut != 7 {
		t.Errorf("cutOff reports %d bytes, want 7", cut)
	}
}

// TestAFileInPlaceOfATenant: a file has the name of a tenant's directory. The error must name the
// file.
func TestAFileInPlaceOfATenant(t *testing.T) {
	w := newWorld(t)
	tenant := filepath.Dir(w.store10s("b"))
	if err := os.WriteFile(tenant, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wayOut := "move the file " + tenant + " away: a directory belongs there"
	if err := w.writeTo(t.Context(), "b", "a@10=1"); err == nil || !strings.Contains(err.Error(), wayOut) {
		t.Errorf("a write: %v", err)
	}

	// A start reports the file, and ignores a hidden file.
	if err := os.WriteFile(filepath.Join(filepath.Dir(tenant), ".hidden"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.open()
	found := w.stores.Broken()
	if len(found) != len(kinds) {
		t.Fatalf("broken stores at the start: %v, want all", found)
	}
	for _, b := range found {
		if b.Tenant != "b" || !strings.Contains(b.Error(), wayOut) || w.broken("b", b.Store) != 1 {
			t.Errorf("broken at the start: store %s of tenant %s: %v", b.Store, b.Tenant, b)
		}
	}
	if err := os.Remove(tenant); err != nil {
		t.Fatal(err)
	}
	if err := w.stores.Tend(t.Context()); err != nil {
		t.Error(err)
	}
	if found := w.stores.Broken(); len(found) != 0 {
		t.Errorf("broken stores after the file was moved away: %v", found)
	}
}
