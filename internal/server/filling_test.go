package server

import (
	"path/filepath"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
	"github.com/freshet-io/freshet/internal/role/filler"
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
