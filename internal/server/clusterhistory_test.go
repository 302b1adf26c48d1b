package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/adapter/peer"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/imports"
)

// fakeLog has the blocks of a group whose log is always up to date.
type fakeLog struct{ kept *imports.Kept }

func (f fakeLog) Imports() *imports.Kept                { return f.kept }
func (f fakeLog) Barrier(context.Context, string) error { return nil }

// fakePeers answers each file with the same text.
type fakePeers struct{ text string }

func (f fakePeers) Fetch(_ context.Context, _ string, _ peer.CopiedFile, take func([]byte) error) error {
	return take([]byte(f.text))
}

// offered returns a clusterHistory whose log offers a block with one file, and the block.
func offered(t *testing.T, text string) (*clusterHistory, imports.Block) {
	t.Helper()
	kept := imports.NewKept()
	file := entry.ImportedFile{Name: "chunks/000001", Size: 4, SHA256: sha256.Sum256([]byte("good"))}
	err := kept.Fold(&entry.Import{Step: entry.ImportOffered, Tenant: "acme", Block: [16]byte{1}, Stored: [16]byte{2},
		Node: "a", MaxTime: 1, Files: entry.AppendImportedFile(nil, &file)})
	if err != nil {
		t.Fatal(err)
	}
	h := &clusterHistory{log: fakeLog{kept}, peers: func() importPeers { return fakePeers{text} },
		room: func(int64) error { return nil }}
	return h, kept.Of("acme")[0]
}

// A node takes only the files of which the log has the hashes.
func TestOnlyTheFilesOfTheLogAreTaken(t *testing.T) {
	for text, want := range map[string]string{"good": "", "evil": "another one than the log says"} {
		h, b := offered(t, text)
		dir := t.TempDir()
		err := h.fill(t.Context(), "a", b, dir)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
		got, err := os.ReadFile(filepath.Join(dir, "chunks", "000001"))
		if err != nil || string(got) != text {
			t.Errorf("the file has %q, %v", got, err)
		}
	}
}

// A large block is not fetched to its end once the log no longer names it, or if the disk has no room.
func TestAFetchEndsWithItsImport(t *testing.T) {
	h, b := offered(t, "good")
	if err := h.log.Imports().Fold(&entry.Import{Step: entry.ImportRemoved, Tenant: "acme", Block: b.Block}); err != nil {
		t.Fatal(err)
	}
	if err := h.fill(t.Context(), "a", b, t.TempDir()); !errors.Is(err, imports.ErrGivenUp) {
		t.Errorf("a block that was removed: %v, want ErrGivenUp", err)
	}
	full := errors.New("no room")
	h, b = offered(t, "good")
	h.room = func(bytes int64) error {
		if bytes != 4 {
			t.Errorf("room is needed for %d bytes, want 4", bytes)
		}
		return full
	}
	if err := h.fill(t.Context(), "a", b, t.TempDir()); !errors.Is(err, full) {
		t.Errorf("on a full disk: %v", err)
	}
}
