package entrylog

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

const testMark = 0x9d3fa8c1

var (
	testOptions = Options{Mark: testMark, SegmentBytes: 900}
	three       = &raftpb.ConfState{Voters: []uint64{1, 2, 3}}
	testBase    = Base{Index: 1, Term: 1, Members: three}
)

func mustCreate(t testing.TB, fs segment.FS) *Log {
	t.Helper()
	l, err := Create(fs, testOptions, testBase)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustOpen(t testing.TB, fs segment.FS) *Log {
	t.Helper()
	l, err := Open(fs, testOptions)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// entries returns entries of one term with the indexes from `from` to `to`. The data of each entry names
// the entry's term and index.
func entries(term, from, to uint64) (list []Entry) {
	for i := from; i <= to; i++ {
		list = append(list, Entry{Index: i, Term: term, Data: fmt.Appendf(nil, "%d of %d", i, term)})
	}
	return list
}

func mustAppend(t testing.TB, l *Log, list []Entry, state *State) {
	t.Helper()
	if err := l.Append(&Write{Entries: list, State: state}); err != nil {
		t.Fatal(err)
	}
}

// story prints all contents of a log, read from memory and from disk.
func story(t testing.TB, l *Log) string {
	t.Helper()
	var b strings.Builder
	hard, members, err := l.InitialState()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "term %d vote %d commit %d, %s:", hard.GetTerm(), hard.GetVote(), hard.GetCommit(), show(members))
	for i := l.Base() + 1; i <= l.Last(); i++ {
		one, err := l.Entries(i, i+1, 0)
		if err != nil || len(one) != 1 {
			t.Fatalf("entry %d: Entries returns %d entries, error %v, want 1", i, len(one), err)
		}
		term, err := l.Term(i)
		if err != nil || term != one[0].GetTerm() || one[0].GetIndex() != i {
			t.Fatalf("entry %d: Term returns %d, error %v, but Entries returns %v, want the same index and term",
				i, term, err, one[0])
		}
		if one[0].GetType() == raftpb.EntryConfChangeV2 {
			fmt.Fprintf(&b, " change")
		} else {
			fmt.Fprintf(&b, " %d/%d", i, term)
			if want := fmt.Sprintf("%d of %d", i, term); string(one[0].GetData()) != want && len(one[0].GetData()) > 0 {
				t.Fatalf("entry %d: data %q, want %q", i, one[0].GetData(), want)
			}
		}
	}
	return b.String()
}

func show(m *raftpb.ConfState) string {
	s := fmt.Sprint(m.GetVoters())
	if len(m.GetVotersOutgoing()) > 0 {
		s += fmt.Sprint(" from ", m.GetVotersOutgoing())
	}
	if len(m.GetLearners())+len(m.GetLearnersNext()) > 0 {
		s += fmt.Sprint(" learning ", m.GetLearners(), m.GetLearnersNext())
	}
	return s
}

func check(t *testing.T, l *Log, want string) {
	t.Helper()
	if got := story(t, l); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// Appended entries survive a restart and a power loss.
func TestAppendAndReopen(t *testing.T) {
	fs := memfs.New()
	l := mustCreate(t, fs)
	check(t, l, "term 1 vote 0 commit 1, [1 2 3]:")
	mustAppend(t, l, entries(1, 2, 3), &State{2, 3, 1})
	mustAppend(t, l, entries(2, 4, 4), &State{2, 3, 3})
	const want = "term 2 vote 3 commit 3, [1 2 3]: 2/1 3/1 4/2"
	check(t, l, want)
	mustAppend(t, l, nil, &State{2, 3, 4}) // not synced
	check(t, mustOpen(t, fs.Crash()), strings.Replace(want, "commit 3", "commit 4", 1))
	check(t, mustOpen(t, powerLoss(fs)), want)
	if err := l.Append(&Write{State: &State{3, 1, 4}, Sync: true}); err != nil {
		t.Fatal(err)
	}
	check(t, mustOpen(t, powerLoss(fs)), "term 3 vote 1 commit 4, [1 2 3]: 2/1 3/1 4/2")
	if err := l.Close(); err != nil || fs.Handles != 0 {
		t.Errorf("%v, %d open files", err, fs.Handles)
	}
}

// powerLoss returns the directory after a power loss that keeps only the synced bytes.
func powerLoss(fs *memfs.FS) *memfs.FS {
	c := memfs.New()
	for name, f := range fs.Durable {
		c.Files[name] = &memfs.File{Data: bytes.Clone(f.Data[:f.Synced]), Synced: f.Synced}
	}
	c.Durable = maps.Clone(c.Files)
	return c
}

// OnlyBegun is true from the creation of a log to its first write.
func TestOnlyBegun(t *testing.T) {
	fs := memfs.New()
	begun := func(want bool, when string) {
		t.Helper()
		if is, err := OnlyBegun(fs); err != nil || is != want {
			t.Errorf("%s: OnlyBegun returns %v, %v, want %v", when, is, err, want)
		}
	}
	begun(false, "an empty directory")
	l := mustCreate(t, fs)
	begun(true, "a new log")
	mustAppend(t, l, nil, &State{2, 1, 0})
	begun(false, "a vote")
}

// A new leader's entries replace the old ones from their first index on. The new entries go into a
// new segment, and the bytes of the old entries do not change.
func TestTruncate(t *testing.T) {
	fs := memfs.New()
	l := mustCreate(t, fs)
	mustAppend(t, l, entries(1, 2, 8), &State{1, 0, 3})
	before := bytes.Clone(fs.Files[format.Name(1)].Data)
	mustAppend(t, l, entries(2, 5, 6), &State{2, 2, 3})
	if len(fs.Files) != 2 || !bytes.Equal(fs.Files[format.Name(1)].Data, before) {
		t.Errorf("the log has %d files, first file changed: %v, want 2 files and false",
			len(fs.Files), !bytes.Equal(fs.Files[format.Name(1)].Data, before))
	}
	const want = "term 2 vote 2 commit 3, [1 2 3]: 2/1 3/1 4/1 5/2 6/2"
	check(t, l, want)
	if at := l.place(4); at.end-at.offset > 100 {
		t.Errorf("a read of entry 4 reads %d bytes, want at most 100, since it must leave out the replaced entries",
			at.end-at.offset)
	}
	check(t, mustOpen(t, fs.Crash()), want)

	// Each of the next two writes begins before the first entry of the last segment.
	mustAppend(t, l, entries(3, 4, 4), nil)
	mustAppend(t, l, entries(4, 4, 5), nil)
	check(t, l, "term 2 vote 2 commit 3, [1 2 3]: 2/1 3/1 4/4 5/4")
	check(t, mustOpen(t, fs.Crash()), "term 2 vote 2 commit 3, [1 2 3]: 2/1 3/1 4/4 5/4")
}

// Writes that Raft can never ask for are refused before anything is written.
func TestRefused(t *testing.T) {
	for name, list := range map[string][]Entry{
		"a gap":                 entries(2, 6, 6),
		"a committed entry":     entries(3, 3, 3),
		"a term that goes back": entries(1, 5, 5),
		"a gap between entries": append(entries(2, 5, 5), entries(2, 7, 7)...),
		"an entry too long":     {{Index: 5, Term: 2, Data: make([]byte, MaxEntry+1)}},
	} {
		fs := memfs.New()
		l := mustCreate(t, fs)
		mustAppend(t, l, entries(2, 2, 4), &State{2, 0, 3})
		size := l.Bytes()
		if err := l.Append(&Write{Entries: list}); !errors.Is(err, ErrDamaged) || l.Bytes() != size || l.Last() != 4 {
			t.Errorf("%s: %v, and the log has %d bytes, want ErrDamaged and %d bytes", name, err, l.Bytes(), size)
		}
	}
	if _, err := Create(memfs.New(), testOptions,
		Base{Index: 1, Term: 1, Members: &raftpb.ConfState{Voters: make([]uint64, 500)}}); !errors.Is(err, errMembers) {
		t.Errorf("Create with too many members: %v, want errMembers", err)
	}
	fs := memfs.New()
	if _, err := Open(fs, testOptions); !errors.Is(err, ErrNone) {
		t.Errorf("Open of an empty directory: %v, want ErrNone", err)
	}
	mustCreate(t, fs)
	if _, err := Create(fs, testOptions, testBase); err == nil {
		t.Error("Create succeeds in a directory that has a log, want an error")
	}
}

// A write is torn at each of its bytes, by a kill or a power loss. All earlier entries are left, and
// perhaps some of the new ones. The log is never damaged. Bytes behind a hole in the file do not count.
func TestTornAtEachByte(t *testing.T) {
	for _, last := range []struct {
		name string
		from uint64 // index of the first entry of the last write
	}{{"in the same segment", 4}, {"replacing an entry", 3}} {
		fs := memfs.New()
		l := mustCreate(t, fs)
		mustAppend(t, l, entries(1, 2, 3), &State{1, 2, 2})
		begin := map[string]int{}
		for name, f := range fs.Files {
			begin[name] = len(f.Data)
		}
		old := story(t, l)
		mustAppend(t, l, entries(2, last.from, 5), &State{2, 3, 2})
		all := story(t, l)
		name := format.Name(1)
		if len(fs.Files) > 1 {
			name = format.Name(l.segments[1].first)
		}
		seen := map[string]bool{}
		for cut := begin[name]; cut <= len(fs.Files[name].Data); cut++ {
			for _, hole := range []int{0, 1, 7} {
				torn := fs.Crash()
				f := torn.Files[name]
				if hole == 0 {
					f.Data = f.Data[:cut]
				} else if cut+hole <= len(f.Data) {
					// The disk keeps a hole of zeros and the bytes behind it. The header and the head of
					// a new segment are synced before the rest is written. So if the hole begins in
					// either of them, the file ends with the head.
					clear(f.Data[cut : cut+hole])
					if name != format.Name(1) && cut < beginBytes {
						f.Data = f.Data[:beginBytes]
					}
				}
				reopened, err := Open(torn, testOptions)
				if err != nil {
					t.Fatalf("%s, cut at %d, hole of %d: %v", last.name, cut, hole, err)
				}
				got := story(t, reopened)
				seen[got] = true
				mustAppend(t, reopened, entries(9, reopened.Last()+1, reopened.Last()+1), &State{9, 1, reopened.Last()})
				if again, want := story(t, mustOpen(t, torn)), story(t, reopened); again != want {
					t.Fatalf("%s, cut at %d: after another start the log has %s\nwant %s", last.name, cut, again, want)
				}
			}
		}
		want := map[string]bool{old: true, all: true}
		header, _, _ := strings.Cut(old, ":")
		kept := "2/1 3/1"
		if last.from == 3 {
			kept = "2/1"
			want[header+": 2/1"] = true
		}
		for i := last.from; i <= 5; i++ {
			kept += fmt.Sprintf(" %d/2", i)
			want[header+": "+kept] = true
		}
		for s := range seen {
			if !want[s] {
				t.Errorf("%s: %s", last.name, s)
			}
		}
		if len(seen) != len(want) {
			t.Errorf("%s: %d outcomes were seen, want %d: %v", last.name, len(seen), len(want), seen)
		}
	}
}

// Each flipped byte in the part that was synced before the last write is damage. Otherwise the member
// would go on as if it had never had those entries.
func TestDamageInTheMiddle(t *testing.T) {
	fs := memfs.New()
	l := mustCreate(t, fs)
	mustAppend(t, l, entries(1, 2, 4), &State{1, 2, 2})
	mustAppend(t, l, entries(2, 4, 5), &State{2, 2, 2})
	end := l.Bytes()
	mustAppend(t, l, entries(2, 6, 6), nil)
	for name, f := range fs.Files {
		synced := len(f.Data)
		if name != format.Name(1) {
			synced = int(end) - len(fs.Files[format.Name(1)].Data)
		}
		for i := range synced {
			damaged := fs.Crash()
			damaged.Files[name].Data[i] ^= 0x10
			_, err := Open(damaged, testOptions)
			if isVersion := i >= 8 && i < 12; err == nil || !errors.Is(err, ErrDamaged) && !isVersion {
				t.Fatalf("%s, byte %d: %v", name, i, err)
			} else if !strings.Contains(err.Error(), name) {
				t.Fatalf("%s, byte %d: the error does not name the file: %v", name, i, err)
			}
		}
	}
	missing := fs.Crash()
	delete(missing.Files, format.Name(1))
	if _, err := Open(missing, testOptions); err != nil {
		t.Errorf("without the first segment, which Compact may have removed: %v, want no error", err)
	}
}

// If a member's state has entries that its log lacks, the log has lost them.
func TestStart(t *testing.T) {
	fs := memfs.New()
	l := mustCreate(t, fs)
	mustAppend(t, l, entries(1, 2, 4), &State{1, 2, 4})
	mustAppend(t, l, entries(1, 5, 5), nil)
	f := fs.Files[format.Name(1)]
	last := segment.FrameBytes + segment.StampBytes + termBytes + len("5 of 1")
	f.Data = f.Data[:len(f.Data)-last]
	check(t, mustOpen(t, fs.Crash()), "term 1 vote 2 commit 4, [1 2 3]: 2/1 3/1 4/1")
	l = mustOpen(t, fs)
	if err := l.Start(5); !errors.Is(err, ErrDamaged) ||
		!strings.Contains(err.Error(), "the state of the member ends with entry 5") {
		t.Errorf("Start with a state that ends behind the log: %v, want ErrDamaged at entry 5", err)
	}
	if err := l.Start(4); err != nil {
		t.Error(err)
	}
}

// What the only voter has stored is committed, although its commit index may not be on the disk. That holds only for
// the voter itself, in its own term, and as long as no entry beyond the commit index changes the members.
func TestTheOnlyVoterDecides(t *testing.T) {
	for name, c := range map[string]struct {
		self    uint64
		commit  uint64
		term    uint64   // of the state; the entries have term 1
		changes []string // by memberChange, from entry 2
		want    uint64
	}{
		"the only voter":              {1, 3, 1, []string{"r2", "r3"}, 6},
		"another member":              {4, 3, 1, []string{"r2", "r3"}, 3},
		"one of two":                  {1, 3, 1, []string{"r2"}, 3},
		"not known to be alone":       {1, 2, 1, []string{"r2", "r3"}, 2},
		"a voter to come":             {1, 3, 1, []string{"r2", "r3", "v2"}, 3},
		"a voter is leaving":          {1, 3, 1, []string{"r2 r3"}, 3},
		"of the term before this one": {1, 3, 2, []string{"r2", "r3"}, 3},
	} {
		fs := memfs.New()
		l := mustCreate(t, fs)
		for i, change := range c.changes {
			mustAppend(t, l, []Entry{memberChange(t, uint64(2+i), 1, raftpb.ConfChangeTransitionAuto, change)}, nil)
		}
		mustAppend(t, l, entries(1, uint64(2+len(c.changes)), 6), &State{c.term, 1, c.commit})
		l = mustOpen(t, fs)
		if err := errors.Join(l.Start(1), l.CommitAlone(c.self)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if state, _, err := l.InitialState(); err != nil || state.GetCommit() != c.want {
			t.Errorf("%s: %v, %v, want commit index %d", name, state, err, c.want)
		}
	}
}

// A log that ends before an entry that it had is damaged. The error names the place, and the log stays as it is.
func TestLogEndsTooEarly(t *testing.T) {
	fs := memfs.New()
	l := mustCreate(t, fs)
	mustAppend(t, l, entries(1, 2, 4), &State{1, 2, 4})
	f := fs.Files[format.Name(1)]
	end := len(f.Data)
	mustAppend(t, l, entries(1, 5, 5), nil)
	f.Data[len(f.Data)-1] ^= 1
	size := len(f.Data)
	options := testOptions
	options.Has = 5
	_, err := Open(fs, options)
	want := fmt.Sprintf("%s, byte %d: it ends with entry 4, but the member had entry 5", format.Name(1), end)
	if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), want) {
		t.Errorf("Open: %v, want ErrDamaged, %q", err, want)
	}
	if len(f.Data) != size {
		t.Errorf("the damaged log was cut from %d to %d bytes", size, len(f.Data))
	}
	options.Has = 4
	if _, err := Open(fs, options); err != nil {
		t.Errorf("a log that has all entries: %v", err)
	}
	if _, err := Create(memfs.New(), options, Base{Index: 1, Term: 1}); !errors.Is(err, ErrDamaged) {
		t.Errorf("Create in place of a log that is gone: %v, want ErrDamaged", err)
	}
}

// No part of a failed write or sync counts, and the same write can be tried again. That holds even
// if the log cannot cut back the partial write, or if the disk forgets the bytes that it failed to
// sync.
func TestFailedWrite(t *testing.T) {
	for _, op := range []string{"write", "sync", "create", "syncdir", "truncate"} {
		for _, from := range []uint64{5, 4} { // after all entries, and in place of the last one
			fs := memfs.New()
			l := mustCreate(t, fs)
			mustAppend(t, l, entries(1, 2, 4), &State{1, 2, 2})
			mustAppend(t, l, nil, &State{1, 2, 3}) // an unsynced frame before the failed write
			fs.Fail = func(o, _ string) error {
				if o == op || o == "write" && op == "truncate" {
					return memfs.ErrInjected
				}
				return nil
			}
			w := &Write{Entries: entries(2, from, 6), State: &State{2, 3, 3}}
			err := l.Append(w)
			fs.Fail = nil
			fails := from == 4 || op != "create" && op != "syncdir" // entry 5 begins no segment
			if (err != nil) != fails || err != nil && !errors.Is(err, memfs.ErrInjected) {
				t.Errorf("%s of entry %d: %v", op, from, err)
			}
			if err != nil {
				if _, err := Open(fs.Crash(), testOptions); err != nil {
					t.Errorf("failed %s of entry %d, then a kill: error %v, want none", op, from, err)
				}
				if err := l.Append(w); err != nil {
					t.Errorf("failed %s of entry %d, the same write again: %v, want no error", op, from, err)
				}
			}
			want := "term 2 vote 3 commit 3, [1 2 3]: 2/1 3/1 4/1 5/2 6/2"
			if from == 4 {
				want = "term 2 vote 3 commit 3, [1 2 3]: 2/1 3/1 4/2 5/2 6/2"
			}
			check(t, l, want)
			check(t, mustOpen(t, fs.Crash()), want)
			check(t, mustOpen(t, powerLoss(fs)), want)
		}
	}
}

// After a kill, some entries in the files may not be synced, but the new process treats them as
// stored. So Open syncs them first.
func TestOpenSyncs(t *testing.T) {
	fs := memfs.New()
	l := mustCreate(t, fs)
	fs.Fail = func(op, _ string) error {
		if op == "sync" {
			panic("killed")
		}
		return nil
	}
	func() {
		defer func() { recover() }()
		_ = l.Append(&Write{Entries: entries(1, 2, 3)})
	}()
	fs.Fail = nil
	killed := fs.Crash()
	const want = "term 1 vote 0 commit 1, [1 2 3]: 2/1 3/1"
	check(t, mustOpen(t, killed), want)
	check(t, mustOpen(t, powerLoss(killed)), want)
}

// The kernel reports a failed sync once. Later syncs of the file succeed without saving its bytes. If
// the process is killed after a failed sync, the next process finds these bytes and treats them as
// stored. So Open writes them anew: into a new file, or in place if the disk is full.
func TestOpenAfterFailedSync(t *testing.T) {
	for _, space := range []int{memfs.Plenty, 0} {
		openAfterFailedSync(t, space)
	}
}

func openAfterFailedSync(t *testing.T, space int) {
	for _, cutBack := range []bool{true, false} { // if the log cannot cut back, the failed write stays
		for _, from := range []uint64{4, 3} { // after all entries, and in place of the last one
			fs := memfs.New()
			l := mustCreate(t, fs)
			mustAppend(t, l, entries(1, 2, 3), &State{1, 2, 1})
			mustAppend(t, l, nil, &State{1, 2, 2}) // not synced
			fs.Fail = failing("sync", "truncate")
			if cutBack {
				fs.Fail = failing("sync")
			}
			if err := l.Append(&Write{Entries: entries(2, from, 5)}); !errors.Is(err, memfs.ErrInjected) {
				t.Fatal(err)
			}
			killed := fs.Crash()
			killed.Space = space
			l = mustOpen(t, killed)
			killed.Space = memfs.Plenty
			if last := l.Last(); !cutBack && from == 4 && last != 5 {
				t.Errorf("after the kill, the log ends with entry %d, want 5", last)
			}
			check(t, mustOpen(t, powerLoss(killed)), story(t, l))
			mustAppend(t, l, entries(3, l.Last()+1, l.Last()+1), &State{3, 1, l.Last()})
			check(t, mustOpen(t, powerLoss(killed)), story(t, l))
		}
	}
}

func failing(ops ...string) func(op, name string) error {
	return func(op, _ string) error {
		if slices.Contains(ops, op) {
			return memfs.ErrInjected
		}
		return nil
	}
}

// Open is killed before any of its steps, and sometimes the power fails, too. No synced entry is lost.
// The next Open succeeds, and reports the torn bytes once more, unless they were already cut off.
func TestOpenKilled(t *testing.T) {
	openKilled(t, memfs.Plenty, "syncdir")
}

func TestOpenKilledOnAFullDisk(t *testing.T) {
	openKilled(t, 0, "syncdir", "sync "+format.Name(1))
}

// openKilled kills Open before each of its steps, on a disk with `space` bytes free. `cut` lists the
// steps before which the torn bytes are already cut off.
func openKilled(t *testing.T, space int, cut ...string) {
	fs := memfs.New()
	l := mustCreate(t, fs)
	mustAppend(t, l, entries(1, 2, 4), &State{1, 2, 3})
	want := story(t, l)
	fs.Fail = failing("sync", "truncate")
	if err := l.Append(&Write{Entries: entries(1, 5, 5)}); err == nil {
		t.Fatal("the write did not fail")
	}
	f := fs.Files[format.Name(1)]
	f.Data = append(f.Data, "torn"...)
	for step, opened := 0, false; !opened; step++ {
		image := fs.Crash()
		image.Space = space
		steps, at := 0, ""
		image.Fail = func(op, name string) error {
			if steps++; steps > step {
				at = op + " " + name
				panic("killed")
			}
			return nil
		}
		func() {
			defer func() { recover() }()
			_, err := Open(image, testOptions)
			opened = err == nil
		}()
		image.Fail = nil
		isCut := slices.ContainsFunc(cut, func(step string) bool { return strings.HasPrefix(at, step) })
		again := mustOpen(t, image.Crash())
		if got := story(t, again); !strings.HasPrefix(got, want) {
			t.Errorf("killed at %s: %s", at, got)
		}
		if torn := again.Torn(); torn.Bytes != 4 && !opened && !isCut {
			t.Errorf("killed at %s: %d torn bytes are reported, want 4", at, torn.Bytes)
		}
		for seed := range uint64(20) {
			lost := image.Crash().PowerLoss(rand.New(rand.NewPCG(seed, 0)))
			if got := story(t, mustOpen(t, lost)); !strings.HasPrefix(got, want) {
				t.Errorf("killed at %s, power loss: %s, want %s", at, got, want)
			}
		}
		if opened && step < 6 {
			t.Errorf("Open took %d steps", step)
		}
	}
}

// If Open cannot write the last segment anew, it fails, leaves the log as it was, and leaves no other
// file behind.
func TestOpenCannotSync(t *testing.T) {
	openCannotSync(t, memfs.Plenty, "create", "write", "sync", "rename", "syncdir")
	openCannotSync(t, 0, "overwrite", "truncate", "sync", "syncdir")
}

func openCannotSync(t *testing.T, space int, ops ...string) {
	for _, op := range ops {
		fs := memfs.New()
		l := mustCreate(t, fs)
		mustAppend(t, l, entries(1, 2, 4), nil)
		want := story(t, l)
		fs = fs.Crash()
		fs.Space, fs.Fail = space, failing(op)
		if _, err := Open(fs, testOptions); !errors.Is(err, memfs.ErrInjected) ||
			!strings.Contains(err.Error(), format.Name(1)) {
			t.Errorf("%s fails: %v", op, err)
		}
		if len(fs.Files) != 1 || fs.Handles != 0 {
			t.Errorf("Open with a failing %s leaves %d files and %d open handles, want 1 and 0",
				op, len(fs.Files), fs.Handles)
		}
		fs.Space, fs.Fail = memfs.Plenty, nil
		check(t, mustOpen(t, powerLoss(fs)), want)
		check(t, mustOpen(t, fs), want)
	}
}

// memberChange returns an entry that changes the members.
func memberChange(t testing.TB, index, term uint64, transition raftpb.ConfChangeTransition, what string) Entry {
	t.Helper()
	singles, err := raftpb.ConfChangesFromString(what)
	if err != nil {
		t.Fatal(err)
	}
	data, err := proto.Marshal(&raftpb.ConfChangeV2{Transition: transition.Enum(), Changes: singles})
	if err != nil {
		t.Fatal(err)
	}
	return Entry{Index: index, Term: term, Change: true, Data: data}
}

// The members at any index follow from the log. Once earlier segments are gone, they follow from
// the head of the first remaining segment and the log after it.
func TestMembers(t *testing.T) {
	fs := memfs.New()
	l := mustCreate(t, fs)
	mustAppend(t, l, []Entry{memberChange(t, 2, 1, raftpb.ConfChangeTransitionAuto, "l4")}, nil)
	mustAppend(t, l, entries(1, 3, 20), nil)
	mustAppend(t, l, []Entry{memberChange(t, 21, 1, raftpb.ConfChangeTransitionJointImplicit, "v4 l3")}, nil)
	mustAppend(t, l, entries(1, 22, 40), nil)
	mustAppend(t, l, []Entry{memberChange(t, 41, 1, raftpb.ConfChangeTransitionAuto, "")}, nil)
	want := map[uint64]string{1: "[1 2 3]", 2: "[1 2 3] learning [4] []", 20: "[1 2 3] learning [4] []",
		21: "[1 2 4] from [1 2 3] learning [] [3]", 40: "[1 2 4] from [1 2 3] learning [] [3]", 41: "[1 2 4] learning [3] []"}
	at := func(l *Log) {
		t.Helper()
		for index, want := range want {
			if index < l.Base() {
				continue
			}
			if err := l.Start(index); err != nil {
				t.Fatal(err)
			}
			if _, m, err := l.InitialState(); err != nil || show(m) != want {
				t.Errorf("at entry %d, base %d: members %s, %v, want %s", index, l.Base(), show(m), err, want)
			}
		}
	}
	at(l)
	at(mustOpen(t, fs.Crash()))
	if err := l.Compact(25, 0); err != nil || l.Base() < 21 {
		t.Fatalf("%v, base %d", err, l.Base())
	}
	at(l)
	at(mustOpen(t, fs.Crash()))
	l = mustOpen(t, fs)
	mustAppend(t, l, entries(2, 41, 41), nil) // replaces the last change
	want[41] = want[40]
	at(mustOpen(t, fs.Crash()))
	at(l)
}

// A member becomes the only one, whatever the members were: also in the middle of a change, and if it had no vote. All
// entries count as committed. A power loss on the way leaves a log from which the same works again.
func TestRecover(t *testing.T) {
	for name, c := range map[string]struct {
		changes []string // by memberChange, with its own transition
		self    uint64
	}{
		"one of three":         {nil, 2},
		"with a learner":       {[]string{"l4"}, 3},
		"a learner":            {[]string{"l4"}, 4},
		"in a change, stays":   {[]string{"v4 l3"}, 4},
		"in a change, is left": {[]string{"v4 l3"}, 3},
	} {
		fs := memfs.New()
		l := mustCreate(t, fs)
		at := uint64(2)
		for _, change := range c.changes {
			how := raftpb.ConfChangeTransitionAuto
			if len(change) > 2 {
				how = raftpb.ConfChangeTransitionJointImplicit
			}
			mustAppend(t, l, []Entry{memberChange(t, at, 1, how, change)}, nil)
			at++
		}
		mustAppend(t, l, entries(1, at, at+5), &State{Term: 4, Vote: 1, Commit: 1})
		if err := l.Recover(c.self); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, l := range []*Log{l, mustOpen(t, fs.Crash())} {
			if err := l.Start(l.Last()); err != nil {
				t.Fatal(err)
			}
			hard, members, err := l.InitialState()
			if want := fmt.Sprintf("[%d]", c.self); err != nil || show(members) != want || hard.GetCommit() != l.Last() ||
				hard.GetTerm() <= 4 || hard.GetVote() != 0 {
				t.Errorf("%s: members %s, want %s; %v, %v", name, show(members), want, hard, err)
			}
			if err := l.Recover(c.self); !errors.Is(err, ErrAlone) {
				t.Errorf("%s: another call is answered %v", name, err)
			}
		}
	}
}

// Compact removes whole segments up to an index, and only as many as the bound on bytes requires.
func TestCompact(t *testing.T) {
	fs := memfs.New()
	l := mustCreate(t, fs)
	for i := uint64(2); i <= 60; i++ {
		mustAppend(t, l, entries(1+i/20, i, i), &State{1 + i/20, 0, i - 1})
	}
	size, files := l.Bytes(), len(fs.Files)
	if err := l.Compact(40, size); err != nil || l.Base() != 1 || len(fs.Files) != files {
		t.Fatalf("Compact with a bound that the log keeps: %v, base %d, want no error, base 1", err, l.Base())
	}
	if err := l.Compact(40, size-1); err != nil || len(fs.Files) != files-1 || l.Bytes() >= size {
		t.Fatalf("Compact with a bound one byte below the log's size: %v, %d of %d files are left, want one file fewer",
			err, len(fs.Files), files)
	}
	left := len(fs.Files)
	fs.Fail = func(op, _ string) error {
		if op == "remove" {
			return memfs.ErrInjected
		}
		return nil
	}
	if err := l.Compact(40, 0); !errors.Is(err, memfs.ErrInjected) || len(fs.Files) != left {
		t.Fatalf("Compact while no file can be removed: %v, want the injected error", err)
	}
	mustOpen(t, fs.Crash())
	fs.Fail = nil
	if err := l.Compact(40, 0); err != nil || l.Base() > 40 || l.Base() < 35 || len(fs.Files) != len(l.segments) {
		t.Fatalf("Compact up to entry 40: %v, base %d, want no error and base 35 to 40; %d files are left",
			err, l.Base(), len(fs.Files))
	}
	base := l.Base()
	if _, err := l.Entries(base, base+2, 0); !errors.Is(err, raft.ErrCompacted) {
		t.Errorf("a removed entry: %v", err)
	}
	if term, err := l.Term(base); err != nil || term != 1+base/20 {
		t.Errorf("term of the base: %d, %v, want %d", term, err, 1+base/20)
	}
	if _, err := l.Term(base - 1); !errors.Is(err, raft.ErrCompacted) {
		t.Errorf("term of a removed entry: %v, want ErrCompacted", err)
	}
	if _, err := l.Entries(60, 62, 0); !errors.Is(err, raft.ErrUnavailable) {
		t.Errorf("an entry behind the end: %v, want ErrUnavailable", err)
	}
	want := story(t, l)
	check(t, mustOpen(t, fs.Crash()), want)
	check(t, mustOpen(t, powerLoss(fs)), want)

	// If one segment replaced all entries of the earlier segments, Compact removes the earlier segments,
	// and the log begins with the remaining one.
	fs = memfs.New()
	l = mustCreate(t, fs)
	mustAppend(t, l, entries(1, 2, 30), nil)
	mustAppend(t, l, entries(1, 31, 50), nil)
	mustAppend(t, l, entries(2, 10, 12), &State{2, 0, 12})
	if err := l.Compact(9, 0); err != nil || l.Base() != 9 || len(fs.Files) != 1 {
		t.Fatalf("after Compact: %v, base %d, %d files, want no error, base 9, 1 file", err, l.Base(), len(fs.Files))
	}
	check(t, l, "term 2 vote 0 commit 12, [1 2 3]: 10/2 11/2 12/2")
	check(t, mustOpen(t, fs), "term 2 vote 0 commit 12, [1 2 3]: 10/2 11/2 12/2")
}

// Entries that are no longer in memory are read from disk, at most as many bytes at once as Raft asks
// for. An entry that was damaged on disk is not returned.
func TestReadBack(t *testing.T) {
	fs := memfs.New()
	opts := testOptions
	opts.CacheBytes = 300
	l, err := Create(fs, opts, testBase)
	if err != nil {
		t.Fatal(err)
	}
	for i := uint64(2); i <= 50; i++ {
		mustAppend(t, l, entries(1, i, i), &State{1, 0, i - 1})
	}
	if len(l.cache) > 6 || l.cached > opts.CacheBytes {
		t.Errorf("%d entries and %d bytes are in memory, want at most 6 entries and %d bytes",
			len(l.cache), l.cached, opts.CacheBytes)
	}
	for lo := uint64(2); lo <= 50; lo++ {
		for _, bytes := range []uint64{0, 150, 1 << 40} {
			got, err := l.Entries(lo, 51, bytes)
			if err != nil || len(got) == 0 || bytes == 0 && len(got) > 1 || bytes == 150 && len(got) > 3 {
				t.Fatalf("from entry %d on, limit %d bytes: %d entries, %v, want entries within the limit",
					lo, bytes, len(got), err)
			}
			for i, e := range got {
				if want := fmt.Sprintf("%d of 1", lo+uint64(i)); string(e.GetData()) != want || e.GetIndex() != lo+uint64(i) {
					t.Fatalf("%q instead of %q", e.GetData(), want)
				}
			}
		}
	}
	f := fs.Files[format.Name(1)]
	f.Data[len(f.Data)-1] ^= 1
	var found error
	for i := uint64(2); i < 20 && found == nil; i++ {
		_, found = l.Entries(i, i+1, 0)
	}
	if found == nil {
		// The last frame of the segment is a state, so the test damages the entry before it.
		f.Data[l.segments[0].offsets[3]+40] ^= 1
		_, found = l.Entries(5, 6, 0)
	}
	if !errors.Is(found, ErrDamaged) || !strings.Contains(found.Error(), format.Name(1)) {
		t.Errorf("a changed byte: %v", found)
	}
}

// A writer appends while Raft reads stored entries, from memory and from disk, before and after a
// removal. The race detector must find nothing.
func TestReadsBesideWrites(t *testing.T) {
	fs := memfs.New()
	opts := testOptions
	opts.CacheBytes = 300
	l, err := Create(fs, opts, testBase)
	if err != nil {
		t.Fatal(err)
	}
	stored := make(chan uint64, 1) // the last stored index
	go func() {
		defer close(stored)
		for i := uint64(2); i <= 2000; i++ {
			if err := l.Append(&Write{Entries: entries(1, i, i), State: &State{1, 0, i - 1}}); err != nil {
				t.Error(err)
				return
			}
			if i%50 == 0 {
				if err := l.Compact(i-20, 4000); err != nil {
					t.Error(err)
				}
			}
			stored <- i
		}
	}()
	read := 0
	for last := range stored {
		base := l.Base()
		for _, index := range []uint64{last, (base + last) / 2, base + 1} {
			got, err := l.Entries(index, last+1, 200)
			if index > last || errors.Is(err, raft.ErrCompacted) && l.Base() >= index {
				continue // removed meanwhile
			}
			if err != nil || string(got[0].GetData()) != fmt.Sprintf("%d of 1", index) {
				t.Fatalf("entry %d: %v, %v", index, got, err)
			}
			if term, err := l.Term(index); err == nil && term != 1 {
				t.Fatalf("entry %d has term %d", index, term)
			}
			read++
		}
	}
	if read < 1000 {
		t.Errorf("%d reads", read)
	}
}
