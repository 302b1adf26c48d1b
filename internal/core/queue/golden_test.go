package queue

import (
	"bytes"
	"cmp"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/segment"
	"github.com/freshet-io/freshet/internal/core/segment/memfs"
)

// goldenStory repeats the calls that wrote testdata/golden. The directory must not change: every later
// program must open it, and a program that makes the same calls writes the same bytes. Frames 1 to 5 are
// done. After frame 9 a write failed and could not be cut back. A bit flipped in frame 11, and a
// kill tore frame 15.
func goldenStory(t *testing.T) *memfs.FS {
	t.Helper()
	fs := memfs.New()
	q, _ := open(t, fs, Options{SegmentBytes: 500})
	appendIDs(t, q, upTo(9)...)
	for range 5 {
		take(t, q)
	}
	failing("truncate", segmentFormat.Name(q.newest().first))(fs)
	fs.Space = 100
	if _, err := q.Append(entries(91, 92, 93)...); err == nil {
		t.Fatal("the disk was not full")
	}
	fs.Fail, fs.Space = nil, memfs.Plenty
	appendIDs(t, q, upTo(15)[9:]...)
	fs.Files[segmentFormat.Name(10)].Data[segment.HeaderBytes+headBytes+len(entry(10).Payload)+headBytes] ^= 1
	last := fs.Files[segmentFormat.Name(firstsOf(fs)[len(firstsOf(fs))-1])]
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

// The queue opens a directory that an older program wrote. All waiting frames come out except the
// damaged one, and the reports are the same as when the directory was written.
func TestGoldenOpens(t *testing.T) {
	q, damage := open(t, goldenFiles(t), Options{SegmentBytes: 500})
	appendIDs(t, q, 16) // so that the reader passes the end of the torn segment
	if got, want := takeAll(t, q), []uint64{6, 7, 8, 9, 10, 12, 13, 14, 16}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	var said []string
	for _, d := range *damage {
		said = append(said, d.String())
	}
	if !slices.Equal(said, goldenReport) {
		t.Errorf("report:\n%s\nwant:\n%s", strings.Join(said, "\n"), strings.Join(goldenReport, "\n"))
	}
}

var goldenReport = []string{
	"00000000000000000015.segment, byte 0: removed, since it holds no whole frame: a torn write, " +
		"never acknowledged unless power was lost (68 bytes)",
	"00000000000000000007.segment, byte 264: no waiting frame: a frame that is done, or a torn or failed write, " +
		"never acknowledged unless power was lost (100 bytes)",
	"00000000000000000010.segment, byte 124: frames 11 to 11 are damaged or missing (99 bytes, at most 1 frames lost)",
}
