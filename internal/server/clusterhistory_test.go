package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/adapter/peer"
	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/imports"
	"github.com/freshet-io/freshet/internal/core/partial"
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

// A node keeps no reason why it lacks a block that is given up: it would keep the reasons of all that ever were.
func TestNoReasonIsKeptOfABlockThatIsGone(t *testing.T) {
	h, b := offered(t, "good")
	stores, err := tsdb.Open(tsdb.DefaultConfig(), t.TempDir(), time.Now, prometheus.NewRegistry(),
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer stores.Close(context.Background())
	h.stores, h.others, h.why, h.logger = stores, []string{"a"}, map[ulid.ULID]string{}, slog.New(slog.DiscardHandler)
	h.try(b, errors.New("node a does not answer"))
	if len(h.why) != 1 {
		t.Fatalf("the reasons are %v, want one", h.why)
	}
	h.peers = func() importPeers { // the block is removed while it is fetched
		removed := &entry.Import{Step: entry.ImportRemoved, Tenant: b.Tenant, Block: b.Block}
		if err := h.log.Imports().Fold(removed); err != nil {
			t.Error(err)
		}
		return fakePeers{"good"}
	}
	h.settle(t.Context())
	if len(h.why) != 1 {
		t.Errorf("while the block is wanted, the reasons are %v", h.why)
	}
	h.fetchAll(t.Context())
	h.settle(t.Context())
	if len(h.why) != 0 {
		t.Errorf("the block is gone, but the reasons are %v", h.why)
	}
	h.fetchAll(t.Context())
}

// A query looks at the disk only for blocks that it should see: a select of another tenant or time costs no more if a
// tenant has many blocks and one of them is being imported.
func TestAQueryLooksOnlyForItsOwnBlocks(t *testing.T) {
	h, b := offered(t, "good") // without stores: a look at the disk would panic
	h.whole.Store(math.MaxUint64)
	if err := h.lacking("acme", 0, 10); err != nil {
		t.Errorf("a block that is being imported: %v", err)
	}
	shown := &entry.Import{Step: entry.ImportShown, Tenant: "acme", Block: b.Block, Stored: b.Stored}
	if err := h.log.Imports().Fold(shown); err != nil {
		t.Fatal(err)
	}
	for _, other := range []error{h.lacking("other", 0, 10), h.lacking("acme", 1, 10)} {
		if other != nil {
			t.Errorf("another tenant or time: %v", other)
		}
	}
	h.stores = new(tsdb.Stores)
	if err := h.lacking("acme", 0, 10); !errors.Is(err, partial.ErrElsewhere) {
		t.Errorf("a block that is not here: error %v, want one that leads to another node", err)
	}
}

// A snapshot that lacks an imported block fails: a server that is restored from it could get the block from no node.
func TestASnapshotHasTheImportedBlocks(t *testing.T) {
	h, b := offered(t, "good")
	dir := t.TempDir()
	if err := hasImports(dir, []imports.Block{b}); err != nil {
		t.Errorf("a block that is being imported: %v", err)
	}
	shown := &entry.Import{Step: entry.ImportShown, Tenant: "acme", Block: b.Block, Stored: b.Stored}
	if err := h.log.Imports().Fold(shown); err != nil {
		t.Fatal(err)
	}
	all := h.log.Imports().Of("acme")
	if err := hasImports(dir, all); err == nil || !strings.Contains(err.Error(), "ask another node") {
		t.Errorf("a copy without the block: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "acme", "history", ulid.ULID(b.Stored).String()), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := hasImports(dir, all); err != nil {
		t.Errorf("a copy with the block: %v", err)
	}
}
