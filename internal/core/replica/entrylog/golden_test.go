package entrylog

import (
	"bytes"
	"cmp"
	"os"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

// goldenStory repeats the calls that wrote testdata/golden. The directory must not change: every later
// program must open it, and a program that makes the same calls writes the same bytes. The calls lead to
// a change of the members, entries that a new leader replaced, a restart, removed segments, a failed
// write that could not be cut back, and a kill in the middle of the last write.
func goldenStory(t *testing.T) *memfs.FS {
	t.Helper()
	fs := memfs.New()
	l, err := Create(fs, Options{Mark: testMark, SegmentBytes: 800}, testBase)
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, append(entries(2, 2, 4), memberChange(t, 5, 2, raftpb.ConfChangeTransitionAuto, "l4")),
		&State{2, 1, 2})
	mustAppend(t, l, entries(2, 6, 12), &State{2, 1, 5})
	mustAppend(t, l, entries(3, 9, 10), &State{3, 2, 8})
	if err := l.Compact(6, 0); err != nil {
		t.Fatal(err)
	}
	if l, err = Open(fs, Options{Mark: testMark + 1, SegmentBytes: 800}); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, nil, &State{3, 2, 10})
	fs.Fail = func(op, _ string) error {
		if op == "write" || op == "truncate" {
			return memfs.ErrInjected
		}
		return nil
	}
	if err := l.Append(&Write{Entries: entries(3, 11, 12)}); err == nil {
		t.Fatal("the write did not fail")
	}
	fs.Fail = nil
	mustAppend(t, l, []Entry{{Index: 11, Term: 4}}, &State{4, 3, 10})
	mustAppend(t, l, entries(4, 12, 13), &State{4, 3, 11})
	last := fs.Files[format.Name(l.segments[len(l.segments)-1].first)]
	last.Data = last.Data[:len(last.Data)-60]
	return fs
}

func goldenFiles(t *testing.T) *memfs.FS {
	t.Helper()
	fs, err := memfs.From(os.DirFS("testdata/golden"))
	if err != nil {
		t.Fatal(err)
	}
	return fs
}

// The same calls write the same bytes as when the directory was written.
func TestGoldenBytes(t *testing.T) {
	got, want := goldenStory(t).Files, goldenFiles(t).Files
	for name := range want {
		if g := cmp.Or(got[name], &memfs.File{}); !bytes.Equal(g.Data, want[name].Data) {
			t.Errorf("%s: %x\nwant %x", name, g.Data, want[name].Data)
		}
	}
	if len(want) == 0 || len(got) != len(want) {
		t.Errorf("%d files, want %d", len(got), len(want))
	}
}

// Open opens a directory that an older program wrote, with all entries that counted.
func TestGoldenOpens(t *testing.T) {
	check(t, mustOpen(t, goldenFiles(t)), goldenContents)
}

const goldenContents = "term 4 vote 3 commit 10, [1 2 3] learning [4] []: 6/2 7/2 8/2 9/3 10/3 11/4 12/4"
