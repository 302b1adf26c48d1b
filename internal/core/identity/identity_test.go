package identity

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/freshet-io/freshet/internal/core/checkpoint"
	"github.com/freshet-io/freshet/internal/core/replica/entrylog"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

// A founded directory is a node of a new cluster, whose group has one member and an empty log.
func TestFound(t *testing.T) {
	dir, log := memfs.New(), memfs.New()
	if _, err := Read(dir); !errors.Is(err, ErrNone) {
		t.Fatalf("empty directory: %v, want ErrNone", err)
	}
	i, err := Found(dir, log, "a", BaseIndex)
	if err != nil {
		t.Fatal(err)
	}
	read, err := Read(dir)
	if err != nil || *read != *i || !read.Joined() || len(read.Cluster) != 32 {
		t.Errorf("read %+v, error %v; want %+v", read, err, i)
	}
	l, err := entrylog.Open(log, entrylog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, members, _ := l.InitialState()
	if v := members.GetVoters(); len(v) != 1 || v[0] != i.Member || l.Last() != BaseIndex {
		t.Errorf("the log has the voters %v and ends with entry %d, want the voter %d and entry %d",
			v, l.Last(), i.Member, BaseIndex)
	}
	_, err = Found(dir, log, "b", BaseIndex)
	if err == nil || !strings.Contains(err.Error(), "node a of cluster "+i.Cluster) {
		t.Errorf("founded twice: %v", err)
	}
	other, err := Found(memfs.New(), memfs.New(), "a", BaseIndex)
	if err != nil || other.Cluster == i.Cluster || other.Member == i.Member {
		t.Errorf("another cluster is %+v, error %v; want it to differ from the first, %+v", other, err, i)
	}
}

// A node that joins is the member that Prepare chose for it, and begins with the founder's log.
func TestJoin(t *testing.T) {
	dir, log := memfs.New(), memfs.New()
	i, err := Prepare(dir, "b")
	if err != nil {
		t.Fatal(err)
	}
	again, err := Read(dir)
	if err != nil || again.Joined() || again.Member != i.Member {
		t.Fatalf("prepared %+v, but read %+v; error %v", i, again, err)
	}
	to := Invitation{Cluster: strings.Repeat("ab", 16), Epoch: 3, Founder: 17}
	if err := again.Join(dir, log, to, false); err != nil {
		t.Fatal(err)
	}
	read, err := Read(dir)
	if err != nil || !read.Joined() || read.Epoch != 3 || read.Member != i.Member || *read != *again {
		t.Errorf("joined as %+v, but read %+v; error %v", again, read, err)
	}
	l, err := entrylog.Open(log, entrylog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, members, _ := l.InitialState(); members.GetVoters()[0] != 17 {
		t.Errorf("the log begins with %v, want voter 17", members)
	}
}

// A prepared directory founds a cluster as the member that Prepare chose, with a log of its own.
func TestAPreparedDirectoryFounds(t *testing.T) {
	dir, log := memfs.New(), memfs.New()
	i, err := Prepare(dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Found(dir, log); err != nil {
		t.Fatal(err)
	}
	read, err := Read(dir)
	if err != nil || *read != *i || !read.Joined() || read.Founder != read.Member {
		t.Errorf("founded %+v, but read %+v; error %v", i, read, err)
	}
	l, err := entrylog.Open(log, entrylog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, members, _ := l.InitialState(); !slices.Equal(members.GetVoters(), []uint64{i.Member}) || l.Last() != BaseIndex {
		t.Errorf("the log has the voters %v and ends with entry %d", members.GetVoters(), l.Last())
	}
}

// A byte of the file changes: then it says the same as before, or is damaged. A node with a wrong epoch would end the
// other nodes of its cluster.
func TestAChangedByteChangesNoIdentity(t *testing.T) {
	dir := memfs.New()
	want, err := Found(dir, memfs.New(), "a", BaseIndex)
	if err != nil {
		t.Fatal(err)
	}
	text := dir.Files[File].Data
	for at, was := range text {
		for change := 1; change < 256; change++ {
			text[at] = was ^ byte(change)
			i, err := Read(dir)
			if err == nil && !same(i, want) {
				t.Errorf("byte %d is %q, and the identity is %+v, want %+v or an error", at, text[at], i, want)
			}
			if err != nil && !errors.Is(err, ErrDamaged) {
				t.Errorf("byte %d is %q: %v, want ErrDamaged", at, text[at], err)
			}
		}
		text[at] = was
	}
	if i, err := Read(dir); err != nil || *i != *want {
		t.Fatalf("read %+v, error %v; want %+v", i, err, want)
	}
	for size := range len(text) - 1 {
		dir.Files[File].Data = text[:size]
		if i, err := Read(dir); !errors.Is(err, ErrDamaged) {
			t.Errorf("%d of %d bytes are there: %+v, error %v; want ErrDamaged", size, len(text), i, err)
		}
	}
}

// same reports whether two identities say the same, with or without a checksum.
func same(a, b *Identity) bool {
	x, y := *a, *b
	x.summed, y.summed = false, false
	return x == y
}

// The file of an older program has no checksum. It is read, and gets one.
func TestAnIdentityWithoutAChecksum(t *testing.T) {
	dir := memfs.New()
	old := `{
  "version": 1,
  "cluster": "5f0c36bd9d1f4a0c8d4f5be0f3c5c0a1",
  "epoch": 1,
  "node": "a",
  "member": "4611686018427387904",
  "founder": "4611686018427387904"
}
`
	want := Identity{Version: 1, Cluster: "5f0c36bd9d1f4a0c8d4f5be0f3c5c0a1", Epoch: 1, Node: "a",
		Member: 4611686018427387904, Founder: 4611686018427387904}
	f, err := dir.Create(File)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte(old)); err != nil {
		t.Fatal(err)
	}
	i, err := Read(dir)
	if err != nil || *i != want {
		t.Fatalf("read %+v, error %v; want %+v", i, err, want)
	}
	if err := i.Protect(dir); err != nil {
		t.Fatal(err)
	}
	drawn := strings.TrimSuffix(old, "\n}\n") + ",\n  \"crc32c\": \"f48e9c7d\"\n}\n" // as docs/format/cluster.md draws it
	if text := string(dir.Files[File].Data); text != drawn {
		t.Errorf("the file is\n%s, want\n%s", text, drawn)
	}
	if i, err = Read(dir); err != nil || !i.summed || !same(i, &want) {
		t.Errorf("read %+v with a checksum %v, error %v; want %+v", i, i.summed, err, want)
	}
}

// A power loss may interrupt the founding at any call of a file system. Found can then be called again,
// and no incomplete identity is left.
func TestBrokenOff(t *testing.T) {
	for calls := 0; ; calls++ {
		dir, log, broken := foundBrokenOff(calls)
		i, err := Read(dir)
		if errors.Is(err, ErrNone) {
			i, err = Found(dir, log, "a", BaseIndex)
		}
		if err != nil {
			t.Fatalf("interrupted at call %d: %v", calls, err)
		}
		l, err := entrylog.Open(log, entrylog.Options{})
		if err != nil {
			t.Fatalf("interrupted at call %d: %v", calls, err)
		}
		if _, members, _ := l.InitialState(); members.GetVoters()[0] != i.Member {
			t.Errorf("interrupted at call %d: the log has the voters %v, but the node is member %d", calls, members, i.Member)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if !broken {
			return
		}
	}
}

// foundBrokenOff founds a cluster in two directories, and loses power after some calls of the file
// systems.
func foundBrokenOff(calls int) (dir, log *memfs.FS, broken bool) {
	dir, log = memfs.New(), memfs.New()
	type loss struct{}
	fail := func(string, string) error {
		if calls--; calls < 0 {
			panic(loss{})
		}
		return nil
	}
	dir.Fail, log.Fail = fail, fail
	func() {
		defer func() { broken = recover() != nil }()
		_, _ = Found(dir, log, "a", BaseIndex)
	}()
	rng := rand.New(rand.NewPCG(uint64(calls), 1))
	return dir.PowerLoss(rng), log.PowerLoss(rng), broken
}

// The log of a directory with data begins after the entry DataIndex. A log with a checkpoint beside it
// is never replaced, since the checkpoint may be all that is left of the data.
func TestFoundWithData(t *testing.T) {
	dir, log := memfs.New(), memfs.New()
	if _, err := Found(dir, log, "a", DataIndex); err != nil {
		t.Fatal(err)
	}
	l, err := entrylog.Open(log, entrylog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if l.Base() != DataIndex || l.Last() != DataIndex {
		t.Errorf("the log begins after entry %d and ends with entry %d, want %d for both", l.Base(), l.Last(), DataIndex)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	w, err := checkpoint.Begin(log, 1, DataIndex)
	if err == nil {
		err = w.Add(&checkpoint.Section{Kind: checkpoint.Group, Index: DataIndex})
	}
	if err == nil {
		err = w.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Found(memfs.New(), log, "a", DataIndex); err == nil || !strings.Contains(err.Error(), File) {
		t.Errorf("founding beside a checkpoint: error %v", err)
	}
}

// A log with entries is never replaced, even if the directory has lost its identity.
func TestALogWithEntriesStays(t *testing.T) {
	dir, log := memfs.New(), memfs.New()
	if _, err := Found(dir, log, "a", BaseIndex); err != nil {
		t.Fatal(err)
	}
	l, err := entrylog.Open(log, entrylog.Options{})
	if err == nil {
		err = l.Start(BaseIndex)
	}
	if err == nil {
		err = l.Append(&entrylog.Write{Sync: true, Entries: []entrylog.Entry{{Index: BaseIndex + 1, Term: 1}}})
	}
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Found(memfs.New(), log, "a", BaseIndex); err == nil || !strings.Contains(err.Error(), File) {
		t.Errorf("founding with a log that has entries: error %v", err)
	}
}

// A recovered node is the only one, in a later epoch. If it fails at any write, the epoch is later before the node
// decides alone, and the same call works again.
func TestRecover(t *testing.T) {
	for fails := range 4 {
		dir, logDir := memfs.New(), memfs.New()
		i, err := Found(dir, logDir, "a", BaseIndex)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range []uint64{7, 8} {
			addVoter(t, logDir, other)
		}
		writes := 0
		fail := func(op, _ string) error {
			if op != "write" && op != "rename" {
				return nil
			}
			if writes++; writes == fails {
				return errors.New("the disk fails")
			}
			return nil
		}
		recovers := func() error {
			l, err := entrylog.Open(logDir, entrylog.Options{})
			if err != nil {
				t.Fatal(err)
			}
			dir.Fail, logDir.Fail = fail, fail
			defer func() { dir.Fail, logDir.Fail = nil, nil; l.Close() }()
			return i.Recover(dir, l)
		}
		if err := recovers(); (err != nil) != (fails > 0) {
			t.Errorf("with %d failing: %v", fails, err)
		}
		if fails > 0 {
			if alone(t, logDir, i.Member) {
				t.Errorf("after write %d failed, the node decides alone", fails)
			}
			if err := recovers(); err != nil {
				t.Errorf("another call after write %d failed: %v", fails, err)
			}
		}
		if read, err := Read(dir); err != nil || read.Epoch < firstEpoch+1 || !read.Recovered || !alone(t, logDir, i.Member) {
			t.Errorf("the node is %+v, %v", read, err)
		}
		if err := recovers(); !errors.Is(err, entrylog.ErrAlone) {
			t.Errorf("a second call: %v", err)
		}
		if err := i.TakePart(dir); err != nil {
			t.Fatal(err)
		}
		if read, err := Read(dir); err != nil || read.Recovered || *read != *i {
			t.Errorf("once it takes part, the node is %+v, %v", read, err)
		}
	}
}

// The log of a backup becomes that of a new cluster, whose only member is another one than before.
func TestRestored(t *testing.T) {
	dir, logDir := memfs.New(), memfs.New()
	old, err := Found(memfs.New(), logDir, "a", BaseIndex)
	if err != nil {
		t.Fatal(err)
	}
	addVoter(t, logDir, 7)
	l, err := entrylog.Open(logDir, entrylog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	i, err := Restored(dir, l, "b")
	if err := errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	read, err := Read(dir)
	if err != nil || *read != *i || i.Node != "b" || i.Cluster == old.Cluster || len(i.Cluster) != 32 ||
		i.Member == old.Member || i.Founder != i.Member || !alone(t, logDir, i.Member) {
		t.Errorf("restored %+v from %+v, read %+v, %v", i, old, read, err)
	}
}

// addVoter appends a change to a log after which the group has one voter more.
func addVoter(t *testing.T, dir *memfs.FS, member uint64) {
	t.Helper()
	l, err := entrylog.Open(dir, entrylog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	data, err := proto.Marshal(&raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{
		{Type: raftpb.ConfChangeAddNode.Enum(), NodeId: new(member)}}})
	if err != nil {
		t.Fatal(err)
	}
	e := entrylog.Entry{Index: l.Last() + 1, Term: BaseTerm, Change: true, Data: data}
	if err := l.Append(&entrylog.Write{Entries: []entrylog.Entry{e}}); err != nil {
		t.Fatal(err)
	}
}

// alone reports whether a member is the only voter by what is committed in a log.
func alone(t *testing.T, dir *memfs.FS, member uint64) bool {
	t.Helper()
	l, err := entrylog.Open(dir, entrylog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	hard, _, err := l.InitialState()
	if err == nil {
		err = l.Start(max(hard.GetCommit(), BaseIndex))
	}
	if err != nil {
		t.Fatal(err)
	}
	_, members, err := l.InitialState()
	if err != nil {
		t.Fatal(err)
	}
	return hard.GetCommit() == l.Last() && slices.Equal(members.GetVoters(), []uint64{member})
}
