package checkpoint

import (
	"bytes"
	"flag"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

var update = flag.Bool("update", false, "write the golden file")

const mark = 0x46524553

// sections returns the sections of a small state.
func sections(base uint64) []Section {
	return []Section{
		{Kind: Group, Index: base, Payload: []byte("the group")},
		{Kind: Shard, Shard: 0, Index: base, Payload: nil},
		{Kind: Shard, Shard: 1023, Index: base + 3, Payload: bytes.Repeat([]byte("tile "), 20)},
		{Kind: Tenant, Tenant: "a", Index: base + 4, Payload: []byte("the tenant a")},
		{Kind: Tenant, Tenant: strings.Repeat("b", 40), Index: base + 5, Payload: nil},
	}
}

// save writes a checkpoint. Its longer sections are split into several frames.
func save(t testing.TB, fs segment.FS, base, keep uint64) {
	t.Helper()
	w, err := Begin(fs, mark, base)
	if err != nil {
		t.Fatal(err)
	}
	w.piece = 50
	for _, s := range sections(base) {
		if err := w.Add(&s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(keep); err != nil {
		t.Fatal(err)
	}
}

// read returns the sections of the newest whole checkpoint, and the number of newer checkpoints
// that are damaged.
func read(t testing.TB, fs segment.FS) (all []Section, damaged int) {
	t.Helper()
	f, damage, err := Newest(fs, math.MaxUint64)
	if err != nil {
		t.Fatal(err)
	}
	if f == nil {
		return nil, len(damage)
	}
	if err := f.Read(func(s *Section) error {
		one := *s
		one.Payload = bytes.Clone(s.Payload)
		all = append(all, one)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all, len(damage)
}

func same(got, want []Section) bool {
	return slices.EqualFunc(got, want, func(a, b Section) bool { return fmt.Sprintf("%+v", a) == fmt.Sprintf("%+v", b) })
}

func TestTwoCheckpointsAreKept(t *testing.T) {
	fs := memfs.New()
	if all, damaged := read(t, fs); all != nil || damaged != 0 {
		t.Errorf("an empty directory: read %v, %d damaged, want none", all, damaged)
	}
	for i, base := range []uint64{0, 7, 7, 90} {
		save(t, fs, base, []uint64{0, 0, 7, 7}[i])
		if all, damaged := read(t, fs.PowerLoss(rand.New(rand.NewPCG(1, 1)))); !same(all, sections(base)) || damaged != 0 {
			t.Errorf("checkpoint at %d: read %+v, %d damaged; want all, none damaged", base, all, damaged)
		}
	}
	if names, _ := fs.List(); fmt.Sprint(names) != "[00000000000000000007.checkpoint 00000000000000000090.checkpoint]" {
		t.Error(names)
	}
	if fs.Handles != 0 {
		t.Errorf("%d files are open", fs.Handles)
	}
}

// If the newest checkpoint is cut off at any byte, or any of its bytes is changed, it does not count, and the one
// before counts.
func TestADamagedCheckpointDoesNotCount(t *testing.T) {
	fs := memfs.New()
	save(t, fs, 7, 0)
	save(t, fs, 90, 7)
	const name = "00000000000000000090.checkpoint"
	for i := range fs.Files[name].Data {
		for _, how := range []string{"cut", "changed", "longer"} {
			broken := fs.Crash()
			switch f := broken.Files[name]; how {
			case "cut":
				f.Data = f.Data[:i]
			case "changed":
				f.Data[i] ^= 1
			case "longer":
				f.Data = append(f.Data, byte(i))
			}
			if i >= 8 && i < 12 && how == "changed" {
				continue // the version; its checksum would be wrong, too: TestANewerVersion covers it
			}
			if all, damaged := read(t, broken); !same(all, sections(7)) || damaged != 1 {
				t.Fatalf("%s at byte %d: read %+v, %d damaged; want checkpoint 7, 1 damaged", how, i, all, damaged)
			}
		}
	}
}

// A checkpoint of a newer program is an error, not damage: an older checkpoint in its place would take the state
// back in time.
func TestANewerVersion(t *testing.T) {
	fs := memfs.New()
	save(t, fs, 7, 0)
	newer := segment.AppendHeader(nil, format.Magic, mark, 90)
	newer[8]++
	newer = appendSum(newer[:24])
	fs.Files[format.Name(90)] = &memfs.File{Data: newer}
	if _, _, err := Newest(fs, math.MaxUint64); err == nil || !strings.Contains(err.Error(), "version") {
		t.Error(err)
	}
}

// Wherever a write fails, or the machine loses power, the earlier checkpoint counts until the new one
// is whole.
func TestAFailedCheckpoint(t *testing.T) {
	for fail := 0; ; fail++ {
		fs := memfs.New()
		save(t, fs, 7, 0)
		n := 0
		fs.Fail = func(op, _ string) error {
			if n++; n > fail && op != "remove" {
				return memfs.ErrInjected
			}
			return nil
		}
		w, err := Begin(fs, mark, 90)
		for _, s := range sections(90) {
			if err == nil {
				err = w.Add(&s)
			}
		}
		if err == nil {
			err = w.Commit(7)
		} else if w != nil {
			w.Abort()
		}
		fs.Fail = nil
		if err == nil {
			if fail < 5 {
				t.Errorf("%d operations can fail, want at least 5", fail)
			}
			return
		}
		all, damaged := read(t, fs.PowerLoss(rand.New(rand.NewPCG(uint64(fail), 1))))
		if !same(all, sections(7)) && !same(all, sections(90)) || damaged != 0 {
			t.Errorf("after %d operations: read %+v, want the checkpoint at 7 or 90; %d damaged", fail, all, damaged)
		}
		if fs.Handles != 0 {
			t.Errorf("after %d operations: %d files are open", fail, fs.Handles)
		}
	}
}

// Every later program must read the file in testdata. A program that writes this layout writes the same bytes.
func TestGolden(t *testing.T) {
	const file = "testdata/00000000000000000007.checkpoint"
	fs := memfs.New()
	save(t, fs, 7, 0)
	got := fs.Files[format.Name(7)].Data
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v: %x\nwant %x", err, got, want)
	}
	fs.Files[format.Name(7)].Data = want
	if all, damaged := read(t, fs); !same(all, sections(7)) || damaged != 0 {
		t.Errorf("the golden file is read as %+v; %d damaged, want 0", all, damaged)
	}
}

// Whatever bytes a file has, it counts as a whole or not at all. A file that counts has the same
// sections after they are written again.
func FuzzRead(f *testing.F) {
	fs := memfs.New()
	save(f, fs, 7, 0)
	data := fs.Files[format.Name(7)].Data
	f.Add(data)
	f.Add(data[segment.HeaderBytes:])
	f.Add(data[:len(data)-1])
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b)%2 == 0 { // otherwise few inputs would have a good header
			b = append(segment.AppendHeader(nil, format.Magic, mark, 7), b...)
		}
		fs := memfs.New()
		fs.Files[format.Name(7)] = &memfs.File{Data: b}
		file, _, err := Newest(fs, math.MaxUint64)
		if err != nil || file == nil {
			return
		}
		all, _ := read(t, fs)
		w, err := Begin(fs, mark, 7)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			if err := w.Add(&s); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Commit(0); err != nil {
			t.Fatal(err)
		}
		if again, _ := read(t, fs); !same(again, all) {
			t.Errorf("read %+v, but %+v after these sections were written again", all, again)
		}
	})
}

func appendSum(b []byte) []byte {
	return order.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// The file "unsynced" says from which checkpoint a start after a power loss begins. Wherever a power
// loss interrupts the writing of this file, the file is whole or absent.
func TestUnsynced(t *testing.T) {
	for calls := 0; ; calls++ {
		fs := memfs.New()
		if err := (&Unsynced{Base: 7, Boot: "old \"boot\""}).Write(fs); err != nil {
			t.Fatal(err)
		}
		type loss struct{}
		left := calls
		fs.Fail = func(string, string) error {
			if left--; left < 0 {
				panic(loss{})
			}
			return nil
		}
		broken := func() (broken bool) {
			defer func() { broken = recover() != nil }()
			_ = (&Unsynced{Base: 9, Boot: "new"}).Write(fs)
			return false
		}()
		fs.Fail = nil
		after := fs.PowerLoss(rand.New(rand.NewPCG(uint64(calls), 1)))
		u, err := ReadUnsynced(after)
		before, next := Unsynced{7, "old \"boot\""}, Unsynced{9, "new"}
		if err != nil || u == nil || *u != before && *u != next || !broken && *u != next {
			t.Fatalf("write broken off at call %d: read %+v, error %v", calls, u, err)
		}
		if !broken {
			break
		}
	}
	fs := memfs.New()
	if u, err := ReadUnsynced(fs); u != nil || err != nil {
		t.Errorf("without the file: read %v, error %v, want neither", u, err)
	}
	if err := EndUnsynced(fs); err != nil {
		t.Error(err)
	}
}
