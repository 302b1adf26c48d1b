package recentseries

import (
	"bytes"
	"encoding/hex"
	"flag"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
)

var update = flag.Bool("update", false, "write testdata/golden")

// base is the time at which the tests' log begins, in Unix milliseconds: 1 h before the end of an epoch.
const base = (1_795_228_020_000/Epoch)*Epoch + Epoch/2

// naive keeps the epoch in which each series was last written to, and forgets nothing.
type naive struct {
	epoch int64
	last  map[Hash]int64
}

func (n *naive) clone() naive { return naive{n.epoch, maps.Clone(n.last)} }

func (n *naive) advance(arrival int64) { n.epoch = max(n.epoch, arrival/Epoch) }

func (n *naive) has(h Hash) bool {
	last, ok := n.last[h]
	return ok && last >= n.epoch-1
}

func (n *naive) size() (size int) {
	for h := range n.last {
		if n.has(h) {
			size++
		}
	}
	return size
}

// Two members apply the same requests in commits. One of them, the restless one, also applies commits
// that fail and are undone, and restarts at times from what it saved. A third member repeats the changes
// that the restless one records. All agree with a plain map, and save the same bytes.
func TestMembersAgree(t *testing.T) {
	undone, longer, jumps := 0, 0, 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		list := naive{last: map[Hash]int64{}}
		var steady, restless, repeats Set
		restless.Record()
		now := int64(base)
		hashes := make([]Hash, 60)
		for i := range hashes {
			hashes[i] = hashOf(r.Uint64())
		}
		apply := func(commit uint64, to *Set, on *naive) {
			r := rand.New(rand.NewPCG(seed, commit))
			at := now
			for range 1 + r.IntN(4) { // requests
				switch r.IntN(12) {
				case 0:
					at += r.Int64N(5 * Epoch)
				case 1:
					at -= r.Int64N(Epoch)
				default:
					at += r.Int64N(Epoch / 4)
				}
				before := on.epoch
				to.Advance(at)
				on.advance(at)
				if before > 0 && on.epoch > before+1 {
					jumps++
				}
				for range r.IntN(6) {
					h := hashes[r.IntN(len(hashes))]
					if to.Has(h) != on.has(h) {
						t.Fatalf("seed %d: Has(%x) = %v, want %v", seed, h, to.Has(h), on.has(h))
					}
					to.Note(h)
					on.last[h] = on.epoch
				}
				if limit := r.IntN(20); to.Full(limit) != (limit > 0 && on.size() >= limit) || to.Len() != on.size() {
					t.Fatalf("seed %d: %d series, want %d; full %v with the limit %d",
						seed, to.Len(), on.size(), to.Full(limit), limit)
				}
			}
		}
		for commit := range uint64(60) {
			if r.IntN(4) == 0 { // a commit that fails: its requests never come again
				undone++
				saved, scratch := restless.Append(nil), list.clone()
				apply(1000+commit, &restless, &scratch)
				if scratch.epoch > list.epoch+1 {
					longer++
				}
				if got := restless.AppendKept(nil); !bytes.Equal(got, saved) {
					t.Fatalf("seed %d: before an undo, the kept set is\n%x, want\n%x", seed, got, saved)
				}
				restless.Undo()
				if got := restless.Append(nil); !bytes.Equal(got, saved) || restless.Len() != list.size() {
					t.Fatalf("seed %d: after an undo, the set is\n%x, want\n%x", seed, got, saved)
				}
			}
			again := list.clone()
			apply(commit, &steady, &list)
			steady.Keep()
			apply(commit, &restless, &again)
			restless.Keep()
			if err := repeats.Repeat(restless.AppendRecorded(nil)); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			now = max(now, list.epoch*Epoch)
			saved := restless.Append(nil)
			if want := steady.Append(nil); !bytes.Equal(saved, want) || !bytes.Equal(repeats.Append(nil), want) {
				t.Fatalf("seed %d: the members have\n%x and\n%x, want\n%x", seed, saved, repeats.Append(nil), want)
			}
			if r.IntN(4) == 0 {
				restless = Set{}
				if err := restless.Parse(saved); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				restless.Record()
			}
		}
	}
	if undone < 1000 || longer < 100 || jumps < 1000 {
		t.Errorf("%d undone commits, %d of which skipped an epoch, and %d jumps, want at least 1000, 100, 1000",
			undone, longer, jumps)
	}
}

// A series counts for 2 to 4 h after its last sample. An earlier arrival changes nothing.
func TestForgotten(t *testing.T) {
	const epoch = base - Epoch/2
	for _, c := range []struct {
		why      string
		wrote    int64 // milliseconds after the start of the epoch
		now      int64
		forgets  bool
		restored bool // the write was before the first request that is known here
	}{
		{"2 h after a sample at the end of an epoch", Epoch - 1, 2*Epoch - 1, false, false},
		{"and a moment later", Epoch - 1, 2 * Epoch, true, false},
		{"nearly 4 h after a sample at the beginning of an epoch", 0, 2*Epoch - 1, false, false},
		{"a day later", 0, 12 * Epoch, true, false},
		{"by a clock that is behind", 0, -9 * Epoch, false, false},
		{"from the store, however old that is", 0, 2*Epoch - 1, false, true},
	} {
		var s Set
		if !c.restored {
			s.Advance(epoch + c.wrote)
		}
		s.Note(1 << 32)
		s.Keep()
		s.Advance(epoch + c.now)
		if s.Has(1<<32) == c.forgets || s.Len() == 1 == c.forgets {
			t.Errorf("%s: series known: %v, %d series in all", c.why, s.Has(1<<32), s.Len())
		}
	}
}

// A Set has at most `Most` series. Noting one more is not an error, and takes no memory.
func TestBound(t *testing.T) {
	var s Set
	s.Advance(base)
	s.Note(1 << 32)
	s.Keep()
	s.size = Most // as if the set were full
	s.Note(2 << 32)
	if s.Has(2<<32) || s.Len() != Most || !s.Full(1<<30) || s.Full(0) {
		t.Errorf("one series beyond the bound: known %v, want false; %d series, want %d; full %v, want true",
			s.Has(2<<32), s.Len(), Most, s.Full(1<<30))
	}
	s.Note(1 << 32)
	s.Advance(base + Epoch)
	s.Note(1 << 32)
	s.Note(1 << 32)
	if s.Len() != Most || s.older != Most-1 {
		t.Errorf("after Note of a known series: %d series, %d of the epoch before, want %d, %d",
			s.Len(), s.older, Most, Most-1)
	}
}

// A series takes at most 16.5 bytes, or 20 while an epoch begins. That holds after many epochs, too.
func TestMemory(t *testing.T) {
	const n = 300_000
	of := func(i int) Hash { return hashOf(uint64(i+1) * 0x9e3779b97f4a7c15) }
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	var s Set
	for epoch := range int64(3) {
		s.Advance(base + epoch*Epoch)
		most := 0.0
		for i := range n {
			s.Note(of(i))
			if i%2000 == 0 {
				s.Keep()
			}
			if i%(n/8) == 0 && i > 0 {
				most = max(most, float64(heap()-before)/n)
			}
		}
		s.Keep()
		after := float64(heap()-before) / n
		t.Logf("epoch %d: %.1f bytes a series, at most %.1f meanwhile", epoch, after, most)
		if after > 16.5 || most > 20 {
			t.Errorf("epoch %d: %.1f bytes a series, and at most %.1f while it began; want at most 16.5 and 20",
				epoch, after, most)
		}
	}
	runtime.KeepAlive(&s)
}

// The hash is part of the saved form, so it never changes.
func TestHash(t *testing.T) {
	if h := Of(labels.FromStrings("__name__", "a", "host", "h")); h != 0x44260408bfbbdf42 {
		t.Errorf("%#x", h)
	}
	if h := hashOf(7); h != 1<<32|7 {
		t.Errorf("%#x", h)
	}
}

func golden() *Set {
	var s Set
	s.Advance(base)
	s.Note(3 << 32)
	s.Note(1<<63 | 1)
	s.Note(5 << 32)
	s.Advance(base + Epoch)
	s.Note(4<<32 | 2)
	s.Note(3 << 32)
	s.Keep()
	return &s
}

// Every later program reads the file in testdata.
func TestGolden(t *testing.T) {
	const file = "testdata/golden"
	saved := golden().Append(nil)
	if *update {
		if err := os.WriteFile(file, []byte(hex.Dump(saved)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || hex.Dump(saved) != string(want) {
		t.Errorf("error %v: saved as\n%swant\n%s", err, hex.Dump(saved), want)
	}
	var s Set
	if err := s.Parse(saved); err != nil || s.Len() != 4 || s.older != 2 || !s.Has(5<<32) || s.Has(6<<32) {
		t.Error(err)
	}
}

func TestMalformed(t *testing.T) {
	whole := golden().Append(nil)
	head := len(whole) - 4*8
	present, before := whole[head:head+16], whole[head+16:]
	swapped := func(b []byte) []byte { return slices.Concat(b[8:], b[:8]) }
	for _, c := range []struct {
		why string
		b   []byte
	}{
		{"nothing", nil},
		{"cut in a hash", whole[:len(whole)-1]},
		{"fewer than in the present epoch", whole[:head+8]},
		{"present ones out of order", slices.Concat(whole[:head], swapped(present), before)},
		{"earlier ones out of order", slices.Concat(whole[:head], present, swapped(before))},
		{"one in both epochs", slices.Concat(whole[:head], present, present)},
		{"one twice", slices.Concat(whole[:head], present[:8], present[:8], before)},
		{"a hash that is too small", slices.Concat([]byte{1, 1}, []byte{1, 0, 0, 0, 0, 0, 0, 0})},
		{"an epoch before the first", slices.Concat([]byte{0, 0}, present)},
		{"a number that is not in its shortest form", slices.Concat([]byte{0x81, 0}, whole[head-1:])},
	} {
		s := golden()
		if err := s.Parse(c.b); err == nil || s.Len() != 4 {
			t.Errorf("%s: %v, %d series", c.why, err, s.Len())
		}
	}
}

// FuzzParse checks that each set has one encoding.
func FuzzParse(f *testing.F) {
	whole := golden().Append(nil)
	f.Add(whole)
	f.Add(whole[:len(whole)-8])
	f.Add([]byte{0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var s Set
		if s.Parse(b) != nil {
			return
		}
		if got := s.Append(nil); !bytes.Equal(got, b) {
			t.Fatalf("%x is saved as %x", b, got)
		}
		s.Advance(maxTime)
		s.Note(1 << 32)
		s.Undo()
		if got := s.Append(nil); !bytes.Equal(got, b) {
			t.Fatalf("the set was %x, but is %x after an undo", b, got)
		}
	})
}

// FuzzRepeat checks that malformed changes change nothing, and that others leave a set that can be saved.
func FuzzRepeat(f *testing.F) {
	s := golden()
	s.Record()
	s.Advance(base + 3*Epoch)
	s.Note(3 << 32)
	s.Keep()
	whole := s.AppendRecorded(nil)
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add(whole[8:])
	f.Add(bytes.Repeat(whole[len(whole)-8:], 2))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, before := golden(), golden().Append(nil)
		err := s.Repeat(b)
		saved := s.Append(nil)
		if err != nil && !bytes.Equal(saved, before) {
			t.Fatalf("after malformed changes, the set is %x, want %x", saved, before)
		}
		if err := new(Set).Parse(saved); err != nil {
			t.Fatalf("%x cannot be read: %v", saved, err)
		}
		s.Undo()
		if got := s.Append(nil); !bytes.Equal(got, saved) {
			t.Fatalf("after an undo, the repeated changes leave %x, want %x", got, saved)
		}
	})
}

// The benchmark notes each series once in each epoch. Bound: 300 ns, which includes the growth of the
// index. An epoch is 2 h, so a million series cost 0.3 s of a core in 2 h.
func BenchmarkNote(b *testing.B) {
	var s Set
	for i := 0; b.Loop(); i++ {
		if i%10_000 == 0 {
			s.Keep()
			s.Advance(base + int64(i/10_000)*Epoch)
		}
		s.Note(hashOf(uint64(i%10_000+1) * 0x9e3779b97f4a7c15))
	}
}

// While one goroutine changes the series, another saves them as they were at the last Keep. So a save
// can run while a store writes, or hangs in a write.
func TestSavedDuringChanges(t *testing.T) {
	var s Set
	s.Advance(base)
	for i := range Hash(100) {
		s.Note((i + 1) << 32)
	}
	s.Keep()
	want := s.Append(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range int64(3) {
			s.Advance(base + i*Epoch)
			for h := range Hash(1000) {
				s.Note((h + 1) << 33)
			}
		}
	}()
	for saved := 0; saved < 10; saved++ {
		if got := s.AppendKept(nil); !bytes.Equal(got, want) {
			t.Errorf("saved %x, want %x", got, want)
			break
		}
	}
	<-done
}
