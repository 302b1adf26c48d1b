package main

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/remoteload"
	"github.com/freshet-io/freshet/lab/report"
)

// A database that has stopped has blocks, whose index and chunks are measured.
func TestRawSamplesOnDisk(t *testing.T) {
	l := serverLab(t)
	l.results.Disk = new(report.Figures)
	load := remoteload.Standard()
	load.Name, load.Series, load.Begin = "disk", 100, time.Now().Truncate(day).Add(-day).UnixMilli()
	if err := l.rawDisk(t.Context(), l.ours(), load); err != nil {
		t.Fatal(err)
	}
	if n := len(l.results.Disk.Figures); n != 2 {
		t.Fatalf("got %d figures, want values and index", n)
	}
	for _, f := range l.results.Disk.Figures {
		if f.Runs[0] <= 0 || f.Runs[0] > 10 {
			t.Errorf("%s, %s: got %v, want a few bytes a sample", f.What, f.Unit, f.Runs)
		}
	}
}

// The samples of blocks count. Without blocks, as in VictoriaMetrics, all samples that were written do. Logs and
// chunks of the head do not count.
func TestFilesOf(t *testing.T) {
	for what, c := range map[string]struct {
		files map[string]string
		want  diskUse
	}{
		"blocks": {map[string]string{
			"data/A/meta.json": `{"stats":{"numSamples":3}}`, "data/A/index": "12", "data/A/chunks/000001": "1234",
			"data/B/meta.json": `{"stats":{"numSamples":4}}`, "data/B/index": "1", "data/B/chunks/000001": "12",
			"data/wal/00000000": "123456789", "data/chunks_head/000001": "123456789",
		}, diskUse{samples: 7, index: 3, chunks: 6}},
		"parts": {map[string]string{
			"data/data/small/2026_11/A/timestamps.bin": "123", "data/data/small/2026_11/A/values.bin": "12",
			"data/data/small/2026_11/A/index.bin": "1", "data/data/small/2026_11/A/metaindex.bin": "12",
			"data/data/small/2026_11/A/metadata.json": "{}", "data/indexdb/1/B/items.bin": "1234",
		}, diskUse{samples: 99, index: 7, chunks: 5}},
	} {
		dir := t.TempDir()
		for name, text := range c.files {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := filesOf(dir, 99); err != nil || got != c.want {
			t.Errorf("%s: got %+v (%v), want %+v", what, got, err, c.want)
		}
	}
	if _, err := filesOf(t.TempDir(), 99); err == nil {
		t.Error("no error for a database without blocks")
	}
}

// The lines of the benchmark become figures, and the index of a week has a bound.
func TestTilesOnDisk(t *testing.T) {
	l := &lab{results: &report.Results{Disk: new(report.Figures)}}
	if err := l.addTiles(`goos: linux
BenchmarkTilesOnDisk/1m_after_168_h-2  1  11085410150 ns/op  1.540 chunk-bytes/sample  0.1531 index-bytes/sample
PASS
`); err != nil {
		t.Fatal(err)
	}
	const what = "tiles of 1m after 168 h"
	want := []report.Figure{
		{What: what, Unit: "Freshet: bytes a sample, times and values", Runs: []float64{1.54}},
		{What: what, Unit: "Freshet: bytes a sample, index", Must: weekIndex, Runs: []float64{.1531}},
	}
	if got := l.results.Disk.Figures; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if err := l.addTiles("PASS\n"); err == nil {
		t.Error("no error for a benchmark without figures")
	}
}
