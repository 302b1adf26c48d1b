package server

import (
	"errors"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/adapter/tsdb"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
	"github.com/freshet-io/freshet/internal/role/filler"
	"github.com/freshet-io/freshet/internal/settings"
)

// A member whose log is replaced does not forget its vote, unless the other log is of a later term.
func TestAFillKeepsTheVote(t *testing.T) {
	for _, c := range []struct{ old, term, vote uint64 }{{5, 5, 17}, {3, 3, 17}, {2, 3, 0}} {
		path := t.TempDir()
		dir, err := files.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		log, err := entrylog.Create(dir, entrylog.Options{}, entrylog.Base{Index: 7, Term: 3,
			Members: &raftpb.ConfState{Voters: []uint64{1, 2, 3}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := log.Append(&entrylog.Write{Entries: []entrylog.Entry{{Index: 8, Term: 3}, {Index: 9, Term: 3}},
			State: &entrylog.State{Term: 3, Commit: 9}}); err != nil {
			t.Fatal(err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		for range 2 { // a start may be interrupted
			if err := keepVote(path, &filler.Old{Last: 6, Term: c.old, Vote: 17}); err != nil {
				t.Fatal(err)
			}
		}
		if log, err = entrylog.Open(dir, entrylog.Options{}); err != nil {
			t.Fatal(err)
		}
		state, _, err := log.InitialState()
		if err != nil || state.GetTerm() != c.term || state.GetVote() != c.vote || state.GetCommit() != 9 || log.Last() != 9 {
			t.Errorf("term %d before: the log has %v and ends with entry %d, want term %d and vote %d; error %v", c.old, state,
				log.Last(), c.term, c.vote, err)
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := keepVote(filepath.Join(t.TempDir(), "moved"), &filler.Old{}); err != nil {
		t.Errorf("the log is installed already: %v", err)
	}
}

// The log of a node that is to be filled again is damaged, so its vote is not known. The node heals like any other with
// a damaged log: it does not end with the same error at each start.
func TestANodeWithADamagedLogIsNotFilledAgain(t *testing.T) {
	s := &server{config: settings.Default(), logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
	s.config.DataDir = t.TempDir()
	s.config.Cluster.Nodes = []settings.NodeAddress{{Node: "a"}, {Node: "b"}, {Node: "c"}}
	s.filler = filler.New(filler.Options{DataDir: s.config.DataDir, Logger: s.logger})
	dir, err := files.Open(s.path(answer.GroupPath))
	if err != nil {
		t.Fatal(err)
	}
	log, err := entrylog.Create(dir, entrylog.Options{}, entrylog.Base{Index: 7, Term: 3,
		Members: &raftpb.ConfState{Voters: []uint64{1, 2, 3}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := dir.List()
	if err != nil {
		t.Fatal(err)
	}
	path := s.path(answer.GroupPath, entrylog.Files(names)[0].Name)
	if err := os.WriteFile(path, make([]byte, 4096), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := s.filler.FillAgain(); err != nil {
		t.Fatal(err)
	}
	if err := s.fillAgain(t.Context()); !errors.Is(err, entrylog.ErrDamaged) || !errors.Is(err, errHeals) {
		t.Errorf("the start ends with %v, want it to say that the node heals", err)
	}
	if h, err := s.readHealing(); h == nil || err != nil {
		t.Errorf("the next start does not heal the node: error %v", err)
	}
}

// A node that is filled loses what it has. Imported blocks that it had would be gone if the other node lacked them.
func TestANodeThatLacksAnImportedBlockGivesNoData(t *testing.T) {
	t.Chdir(t.TempDir())
	h, b := offered(t, "good")
	h.stores = new(tsdb.Stores) // in the working directory
	h.whole.Store(math.MaxUint64)
	s := &server{config: settings.Default(), clusterHistory: h}
	s.ready.Store(true)
	if err := s.canGive(); err != nil {
		t.Errorf("while a block is being imported: %v", err)
	}
	shown := &entry.Import{Step: entry.ImportShown, Tenant: b.Tenant, Block: b.Block, Stored: b.Stored}
	if err := h.log.Imports().Fold(shown); err != nil {
		t.Fatal(err)
	}
	want := "lacks 1, such as block " + ulid.ULID(b.Block).String()
	if err := s.canGive(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("without the block: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(b.Tenant, tsdb.History, ulid.ULID(b.Stored).String()), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := s.canGive(); err != nil {
		t.Errorf("with the block: %v", err)
	}
}
