package journal

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

// goldenStory repeats how testdata/golden was written. The directory must not change: every later
// program must open it, and a program that does the same writes the same bytes. The directory has
// checkpoints at 6 and 15, whose longer sections are cut; a write after frame 18 that failed and
// could not be cut back; a flipped bit in frame 17; and a kill in the middle of frame 27.
func goldenStory(t *testing.T) *memfs.FS {
	t.Helper()
	fs, s, id := memfs.New(), state{}, uint64(1)
	l, _, err := Open(fs, Options{Mark: testMark, SegmentBytes: 400, SectionBytes: 24})
	if err != nil {
		t.Fatal(err)
	}
	appendUpTo := func(last uint64) {
		for ; id <= last; id += 3 {
			frames := []Frame{entry(id), entry(id + 1), entry(id + 2)}
			if _, err := l.Append(frames); err != nil {
				t.Fatal(err)
			}
			for _, r := range frames {
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
	fs.Space = 100
	if _, err := l.Append([]Frame{entry(91), entry(92), entry(93)}); err == nil {
		t.Fatal("Append works on a full disk")
	}
	fs.Fail, fs.Space = nil, memfs.Plenty
	appendUpTo(27)
	fs.Files[segmentFormat.Name(16)].Data[segment.HeaderBytes+segment.FrameBytes+len(entry(16).Payload)+
		segment.FrameBytes] ^= 1
	last := fs.Files[segmentFormat.Name(25)]
	last.Data = last.Data[:len(last.Data)-5]
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

// A directory that an older program wrote opens with all its frames except the damaged one. The report
// is the same as when the directory was written.
func TestGoldenOpens(t *testing.T) {
	for _, without := range []string{"", checkpointFormat.Name(15)} {
		fs := goldenFiles(t)
		delete(fs.Files, without)
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
			t.Errorf("without %q: last %d, want 26; report:\n%s\nwant:\n%s",
				without, report.Last, strings.Join(said, "\n"), strings.Join(goldenReport, "\n"))
		}
	}
}

var goldenReport = []string{
	"00000000000000000016.segment, byte 68: checksum or position does not match (38 bytes, at most 1 frames lost)",
	"00000000000000000025.segment, byte 164: torn tail, cut off; it was never acknowledged, " +
		"unless power was lost (56 bytes)",
}
