package tsdb

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"
)

// comeback is a world with a series that a compaction removed from memory, and that came back under
// a second number.
type comeback struct {
	*world
	kind string         // "h" if the samples of the series are histograms
	want map[int]string // the samples of the series, by second
	from int            // second of the oldest sample since it came back
	to   int            // second of the newest sample
	last int            // second of the sample that was written last
}

const hour = 3600 // seconds

func newComeback(t *testing.T, kind string) *comeback {
	c := &comeback{world: newWorld(t), kind: kind, want: map[int]string{}}
	c.stores.CompactByHand()
	c.put(hour)
	c.writeRaw(&plain, fmt.Sprintf("b@%d=1", hour))
	c.comesBack(7 * hour)
	return c
}

// comesBack compacts the series, and writes a sample of it, so that it comes back.
func (c *comeback) comesBack(second int) {
	c.writeRaw(&plain, fmt.Sprintf("b@%d=1", second))
	c.compactRaw()
	c.from, c.to = second, second
	c.put(second)
}

// put writes a sample of the series.
func (c *comeback) put(second int) {
	c.want[second], c.last = fmt.Sprintf("%d=%s2", second, c.kind), second
	c.writeRaw(&plain, fmt.Sprint("a@", c.want[second]))
}

// late writes late samples of the series. tsdb moves them to chunks, 32 at a time.
func (c *comeback) late(n int) {
	for range n {
		c.from--
		c.put(c.from)
	}
}

// inOrder writes newer samples of the series, in the order of time. tsdb begins a chunk after 120 floats
// or so.
func (c *comeback) inOrder(n int) {
	for range n {
		c.to++
		c.put(c.to)
	}
}

// restart stops the process and opens the store in the next one.
func (c *comeback) restart() {
	c.t.Helper()
	c.close()
	if n := len(c.keptNumbers()); n < 2 {
		c.t.Fatalf("the log has %d numbers that share a series, so the test shows nothing", n)
	}
	c.start()
}

// keptNumbers returns the series with several numbers.
func (c *comeback) keptNumbers() numbers {
	c.t.Helper()
	kept, err := keptNumbers(c.storeRaw())
	if err != nil {
		c.t.Fatal(err)
	}
	return kept
}

// start opens the store. The test runs the compactions itself, so that no file changes while the method
// kill copies it.
func (c *comeback) start() {
	c.open()
	c.stores.CompactByHand()
	c.rawDatabase()
}

// kill does what restart does, but with kill -9 in place of a stop.
func (c *comeback) kill() {
	c.t.Helper()
	dir := c.t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(c.dir)); err != nil {
		c.t.Fatal(err)
	}
	c.close()
	c.dir = dir
	c.start()
}

// check compares the stored samples of the series with the written ones.
func (c *comeback) check() {
	c.t.Helper()
	var want []string
	for _, second := range slices.Sorted(maps.Keys(c.want)) {
		want = append(want, c.want[second])
	}
	c.onlyOwn("a", strings.Join(want, " "))
}

// lateLog returns the paths of the segments of the log of late samples.
func (c *comeback) lateLog() []string {
	c.t.Helper()
	paths, err := filledSegments(filepath.Join(c.storeRaw(), "wbl"))
	if err != nil || len(paths) == 0 {
		c.t.Fatalf("the log of late samples has %d segments, error %v", len(paths), err)
	}
	return paths
}

// TestLateSamplesOfASeriesThatComesBack: a series had a second number after a compaction. It got late
// samples after a start, and the next start lost 32 of them.
func TestLateSamplesOfASeriesThatComesBack(t *testing.T) {
	kinds := []string{"", "h"}
	if testing.Short() {
		kinds = kinds[1:]
	}
	for _, kind := range kinds {
		for _, story := range []struct {
			name string
			tell func(c *comeback)
		}{
			{"late samples after a start", func(c *comeback) {
				c.restart()
				c.late(40)
				c.restart()
			}},
			{"late samples in each of four processes", func(c *comeback) {
				for range 4 {
					c.late(40)
					c.restart()
					c.check()
				}
			}},
			{"half a chunk in each process", func(c *comeback) {
				for range 6 {
					c.late(16)
					c.restart()
				}
			}},
			// Each start writes the chunks of in-order samples once more. tsdb reports this as damage,
			// and removes the chunks of all series.
			{"samples in order, too", func(c *comeback) {
				c.restart()
				late, removed := "", 0
				for range 4 {
					c.inOrder(130)
					for range 40 {
						c.late(1)
						c.writeRaw(&plain, fmt.Sprintf("b@%d=1", c.from))
						late = fmt.Sprintf("%d=1 %s", c.from, late)
					}
					c.markChunks()
					c.restart()
					if !c.chunksAreMarked() {
						removed++
					}
					c.check()
					c.onlyOwn("b", fmt.Sprintf("%d=1 %s%d=1", hour, late, 7*hour))
				}
				// All histograms are the same, so one chunk has room for many of them.
				if c.kind == "" && removed == 0 {
					c.t.Error("no chunks were removed, so the test shows nothing")
				}
			}},
			{"kills", func(c *comeback) {
				for range 3 {
					c.late(40)
					c.kill()
				}
			}},
			{"late samples are compacted between two starts", func(c *comeback) {
				c.late(40)
				c.restart()
				c.late(40)
				if err := c.rawDatabase().CompactOOOHead(c.t.Context()); err != nil {
					c.t.Fatal(err)
				}
				c.late(40)
				c.restart()
			}},
			{"the series comes back again", func(c *comeback) {
				c.late(40)
				c.restart()
				c.comesBack(13 * hour)
				for range 3 {
					c.late(40)
					c.restart()
				}
			}},
			// A checkpoint leaves out the record of the second number, under which late samples came.
			{"a kill between the compactions of the head and of late samples", func(c *comeback) {
				c.late(10)
				for range 4 { // a checkpoint leaves out the newest segments
					c.restart()
				}
				c.writeRaw(&plain, fmt.Sprintf("b@%d=1", 13*hour))
				db := c.rawDatabase()
				head := tsdb.NewRangeHead(db.Head(), db.Head().MinTime(), base+8*hour*1000-1)
				if err := db.CompactHead(head); err != nil {
					c.t.Fatal(err)
				}
				if n := len(c.keptNumbers()); n > 0 {
					c.t.Fatalf("the log has %d numbers that share a series, want none", n)
				}
				c.kill()
			}},
		} {
			name := story.name
			if kind != "" {
				name += ", histograms"
			}
			t.Run(name, func(t *testing.T) {
				c := newComeback(t, kind)
				story.tell(c)
				c.check()
				before := c.lateLogFiles()
				c.close()
				c.open()
				c.check()
				for path, was := range before {
					if is, err := os.Stat(path); err != nil || !os.SameFile(was, is) {
						t.Errorf("an opening without new late samples replaced %s, error %v", path, err)
					}
				}
			})
		}
	}
}

// markChunks marks the directory of the chunk files.
func (c *comeback) markChunks() {
	c.t.Helper()
	if err := os.WriteFile(c.chunkMark(), nil, 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// chunksAreMarked reports whether the directory is the one that markChunks marked. The inode number does
// not show this, because a new directory may get the number of the removed one.
func (c *comeback) chunksAreMarked() bool {
	_, err := os.Stat(c.chunkMark())
	return err == nil
}

func (c *comeback) chunkMark() string { return filepath.Join(c.storeRaw(), "chunks_head", "mark") }

// lateLogFiles returns the segments with late samples, by path.
func (c *comeback) lateLogFiles() map[string]os.FileInfo {
	c.t.Helper()
	files := map[string]os.FileInfo{}
	for _, path := range c.lateLog() {
		info, err := os.Stat(path)
		if err != nil {
			c.t.Fatal(err)
		}
		files[path] = info
	}
	return files
}

// TestAProcessDiesWhileItRenumbers: one segment was replaced, and another one is half written. The
// next opening does the rest.
func TestAProcessDiesWhileItRenumbers(t *testing.T) {
	c := newComeback(t, "")
	c.late(40)
	c.close()
	first := c.lateLog()[0]
	text, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	second := wlog.SegmentName(filepath.Dir(first), 1)
	if err := os.WriteFile(second, text, 0o600); err != nil { // the same samples once more
		t.Fatal(err)
	}
	temporary := filepath.Join(c.storeRaw(), "wbl.new")
	kept := c.keptNumbers()
	if err := kept.write(first, temporary, compression.Snappy); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(wlog.SegmentName(temporary, 0), text[:100], 0o600); err != nil {
		t.Fatal(err)
	}
	c.open()
	c.check()
	for _, path := range []string{first, second} {
		if err := readSegment(path, func(rec []byte) error {
			if _, changed, err := kept.change(rec); changed || err != nil {
				t.Errorf("a record of %s was not renumbered, error %v", path, err)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(temporary); !os.IsNotExist(err) {
		t.Errorf("%s was not removed: %v", temporary, err)
	}
}

// TestADamagedLogIsRenumbered: the end of the log is torn. The second opening, after tsdb's repair,
// renumbers it.
func TestADamagedLogIsRenumbered(t *testing.T) {
	c := newComeback(t, "")
	c.late(40)
	c.restart()
	c.late(40)
	c.close()
	paths := c.lateLog()
	last := paths[len(paths)-1]
	text, err := os.ReadFile(last)
	if err != nil {
		t.Fatal(err)
	}
	text[written(last, int64(len(text)))-1] ^= 4
	if err := os.WriteFile(last, text, 0o600); err != nil {
		t.Fatal(err)
	}
	delete(c.want, c.last)
	c.open()
	c.check()
}

// TestRenumberedRecords: a record of late samples keeps its samples and its format.
func TestRenumberedRecords(t *testing.T) {
	kept := numbers{1: 1, 3: 1}
	var v1 record.Encoder
	v2 := record.Encoder{EnableSTStorage: true}
	exponential := &histogram.Histogram{Schema: 1, Count: 2, Sum: 3, PositiveSpans: []histogram.Span{{Length: 1}},
		PositiveBuckets: []int64{2}}
	custom := &histogram.Histogram{Schema: histogram.CustomBucketsSchema, Count: 2, Sum: 3, CustomValues: []float64{1},
		PositiveSpans: []histogram.Span{{Length: 1}}, PositiveBuckets: []int64{2}}
	samples := func(ref chunks.HeadSeriesRef) []record.RefSample {
		return []record.RefSample{{Ref: 2, T: 10, V: 1}, {Ref: ref, T: 9, V: 2}, {Ref: 1, T: 8, V: 3}}
	}
	histograms := func(ref chunks.HeadSeriesRef, h *histogram.Histogram) []record.RefHistogramSample {
		return []record.RefHistogramSample{{Ref: 2, T: 10, H: h}, {Ref: ref, T: 9, H: h}, {Ref: 1, T: 8, H: h}}
	}
	floats := func(ref chunks.HeadSeriesRef, h *histogram.Histogram) []record.RefFloatHistogramSample {
		fh := h.ToFloat(nil)
		return []record.RefFloatHistogramSample{{Ref: 2, T: 10, FH: fh}, {Ref: ref, T: 9, FH: fh}, {Ref: 1, T: 8, FH: fh}}
	}
	hist := func(e record.Encoder, ref chunks.HeadSeriesRef) []byte {
		rec, _ := e.HistogramSamples(histograms(ref, exponential), nil)
		return rec
	}
	float := func(e record.Encoder, ref chunks.HeadSeriesRef) []byte {
		rec, _ := e.FloatHistogramSamples(floats(ref, exponential), nil)
		return rec
	}
	markers := func(refs ...chunks.HeadSeriesRef) []byte {
		var all []record.RefMmapMarker
		for _, ref := range refs {
			all = append(all, record.RefMmapMarker{Ref: ref, MmapRef: 7})
		}
		return v1.MmapMarkers(all, nil)
	}
	for _, c := range []struct {
		name      string
		rec, want []byte // nil: the record is removed
	}{
		{"samples", v1.Samples(samples(3), nil), v1.Samples(samples(1), nil)},
		{"samples with start times", v2.Samples(samples(3), nil), v2.Samples(samples(1), nil)},
		{"histograms", hist(v1, 3), hist(v1, 1)},
		{"histograms with start times", hist(v2, 3), hist(v2, 1)},
		{"histograms with custom buckets", v1.CustomBucketsHistogramSamples(histograms(3, custom), nil),
			v1.CustomBucketsHistogramSamples(histograms(1, custom), nil)},
		{"float histograms", float(v1, 3), float(v1, 1)},
		{"float histograms with start times", float(v2, 3), float(v2, 1)},
		{"float histograms with custom buckets", v1.CustomBucketsFloatHistogramSamples(floats(3, custom), nil),
			v1.CustomBucketsFloatHistogramSamples(floats(1, custom), nil)},
		{"markers of other series stay", markers(3, 2), markers(2)},
		{"no other markers are in the record", markers(1, 3), nil},
		{"other series", v1.Samples(samples(1), nil), v1.Samples(samples(1), nil)},
		{"markers of another series", markers(2), markers(2)},
		{"an unknown kind of record", []byte{99, 1, 2}, []byte{99, 1, 2}},
	} {
		got, changed, err := kept.change(c.rec)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if changed == (string(c.want) == string(c.rec)) {
			t.Errorf("%s: changed is %t", c.name, changed)
		}
		var want [][]byte
		if c.want != nil {
			want = [][]byte{c.want}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %x, want %x", c.name, got, want)
		}
	}
	if _, _, err := kept.change(v1.Samples(samples(3), nil)[:12]); err == nil {
		t.Error("half a record was accepted")
	}
}
