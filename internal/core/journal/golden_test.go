package journal

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// goldenDir was written once and stays as it is: each later program must open it, and one that
// does the same writes the same bytes.
const goldenDir = "testdata/golden"

// goldenStory is how goldenDir was written. Checkpoints at 6 and 15, whose longer sections are
// cut; a write after record 18 that failed and could not be cut back; a bit that flipped in
// record 17; and a kill in the middle of record 27.
func goldenStory(t *testing.T) *memFS {
	t.Helper()
	fs, s, id := newMemFS(), state{}, uint64(1)
	l, _, err := Open(fs, Options{Mark: testMark, SegmentBytes: 400, SectionBytes: 24})
	if err != nil {
		t.Fatal(err)
	}
	appendUpTo := func(last uint64) {
		for ; id <= last; id += 3 {
			records := []Record{entry(id), entry(id + 1), entry(id + 2)}
			if _, err := l.Append(records); err != nil {
				t.Fatal(err)
			}
			for _, r := range records {
				s.fold(t, r)
			}
		}
	}
	appendUpTo(6)
	checkpointAll(t, l, s)
	appendUpTo(15)
	checkpointAll(t, l, s)
	appendUpTo(18)
	failing("truncate")(fs)
	fs.space = 100
	if _, err := l.Append([]Record{entry(91), entry(92), entry(93)}); err == nil {
		t.Fatal("the disk was not full")
	}
	fs.fail, fs.space = nil, plenty
	appendUpTo(27)
	fs.files[segmentName(16)].data[headerBytes+frameBytes+len(entry(16).Payload)+frameBytes] ^= 1
	last := fs.files[segmentName(25)]
	last.data = last.data[:len(last.data)-5]
	return fs
}

func goldenFiles(t *testing.T) *memFS {
	t.Helper()
	fs := newMemFS()
	entries, err := os.ReadDir(goldenDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(goldenDir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		fs.files[e.Name()] = &memFile{data: data}
	}
	return fs
}

// The same calls write the same bytes as when the directory was written.
func TestGoldenBytes(t *testing.T) {
	got, want := goldenStory(t), goldenFiles(t)
	if names, wanted := listed(t, got), listed(t, want); !slices.Equal(names, wanted) {
		t.Fatalf("files %v, want %v", names, wanted)
	}
	for name, f := range want.files {
		if !bytes.Equal(got.files[name].data, f.data) {
			t.Errorf("%s:\n%x\nwant\n%x", name, got.files[name].data, f.data)
		}
	}
}

func listed(t *testing.T, fs *memFS) []string {
	t.Helper()
	names, err := fs.List()
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// A directory that an older program wrote opens, with all its records but the damaged one, and
// says what it said then.
func TestGoldenOpens(t *testing.T) {
	for _, without := range []string{"", checkpointName(15)} {
		fs := goldenFiles(t)
		delete(fs.files, without)
		l, report := mustOpen(t, fs, 250)
		want := state{}
		for id := range uint64(26) {
			if id+1 != 17 {
				want.fold(t, entry(id+1))
			}
		}
		if got := recovered(t, l); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("without %q: recovered %v\nwant %v", without, got, want)
		}
		var said []string
		for _, d := range report.Damage {
			said = append(said, d.String())
		}
		if !slices.Equal(said, goldenReport) || report.Last != 26 {
			t.Errorf("without %q: last %d, report:\n%s\nwant:\n%s", without, report.Last, strings.Join(said, "\n"), strings.Join(goldenReport, "\n"))
		}
	}
}

var goldenReport = []string{
	"00000000000000000016.segment, byte 68: checksum or position does not match (38 bytes, at most 1 records lost)",
	"00000000000000000025.segment, byte 164: torn tail, cut off; it was never acknowledged, unless power was lost (56 bytes)",
}
