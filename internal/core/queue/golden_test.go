package queue

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// goldenDir was written once and stays as it is: each later program must open it, and one that
// does the same writes the same bytes.
const goldenDir = "testdata/golden"

// goldenStory is how goldenDir was written. The records 1 to 5 are done; after record 9 a write
// failed and could not be cut back; a bit flipped in record 11, and record 15 was torn by a kill.
func goldenStory(t *testing.T) *memFS {
	t.Helper()
	fs := newMemFS()
	q, _ := open(t, fs, Options{SegmentBytes: 500})
	appendIDs(t, q, upTo(9)...)
	for range 5 {
		take(t, q)
	}
	failing("truncate", segmentName(q.newest().first))(fs)
	fs.space = 100
	if _, err := q.Append(entries(91, 92, 93)...); err == nil {
		t.Fatal("the disk was not full")
	}
	fs.fail, fs.space = nil, plenty
	appendIDs(t, q, upTo(15)[9:]...)
	fs.files[segmentName(10)].data[headerBytes+frameBytes+len(entry(10).Payload)+frameBytes] ^= 1
	last := fs.files[segmentName(firstsOf(fs)[len(firstsOf(fs))-1])]
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

// A directory that an older program wrote opens: all records that waited come out but the
// damaged one, and the reports are those of then.
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
	"00000000000000000015.segment, byte 0: removed, since it holds no whole record: a torn write, which did not count unless power was lost (68 bytes, at most 0 records lost)",
	"00000000000000000007.segment, byte 264: no record that waits: one that is done, or a torn or failed write, which did not count unless power was lost (100 bytes, at most 0 records lost)",
	"00000000000000000010.segment, byte 124: records 11 to 11 are damaged or missing (99 bytes, at most 1 records lost)",
}
