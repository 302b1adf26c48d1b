package tsdb

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestASeriesGetsNoSamplesOfALostOne: tsdb gives each series a number. After a start, it continued
// behind the highest number in the log. If the log had lost its end, a new series got the number of a
// lost one. At the next start it also got the late samples of the lost series, which the log of late
// samples and the chunk files still had.
func TestASeriesGetsNoSamplesOfALostOne(t *testing.T) {
	for _, c := range []struct {
		name, gone string
		late       int // samples; tsdb moves 32 to a chunk file
	}{
		{"only the log of late samples has the samples", "chunks_head", 10},
		{"only a chunk file has the samples", "wbl", 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.writeRaw(&plain, "a@1000=1")
			w.close()
			w.open() // a segment begins
			w.writeRaw(&plain, "lost@1000=1")
			for i := range c.late {
				w.writeRaw(&plain, fmt.Sprintf("lost@%d=2", 900-i))
			}
			w.close()
			if err := os.Truncate(w.lastSegment(), 0); err != nil { // between two records
				t.Fatal(err)
			}
			if err := os.RemoveAll(filepath.Join(w.storeRaw(), c.gone)); err != nil {
				t.Fatal(err)
			}
			w.open()
			w.writeRaw(&plain, "new@1000=3")
			for range 3 {
				w.close()
				w.open()
				before := len(listLogs(w.storeRaw()))
				w.rawDatabase()
				if n := len(listLogs(w.storeRaw())); n > before+2 { // an opening begins a segment of each log
					t.Errorf("%d segments after an opening, %d before: the store opened twice", n, before)
				}
				w.onlyOwn("a", "1000=1")
				w.onlyOwn("new", "1000=3")
				w.onlyOwn("lost", "")
			}
		})
	}
}

// TestASeriesGetsNoSamplesOfACompactedOne: the same happens without a power loss if the log drops a
// compacted series before a chunk file with its late samples is deleted.
func TestASeriesGetsNoSamplesOfACompactedOne(t *testing.T) {
	w := newWorld(t)
	const hour = 3600
	w.writeRaw(&plain, fmt.Sprintf("a@%d=1", hour))
	w.writeRaw(&plain, fmt.Sprintf("compacted@%d=1", hour))
	w.writeRaw(&plain, fmt.Sprintf("compacted@%d=2", hour-900))
	if err := w.rawDatabase().CompactOOOHead(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := 2; i < 12; i++ {
		w.writeRaw(&plain, fmt.Sprintf("a@%d=1", i*hour))
		w.compactRaw()
	}
	w.close()
	w.open()
	w.writeRaw(&plain, fmt.Sprintf("new@%d=3", 11*hour))
	w.close()
	w.open()
	w.onlyOwn("new", fmt.Sprintf("%d=3", 11*hour))
	w.onlyOwn("compacted", fmt.Sprintf("%d=2 %d=1", hour-900, hour))
}

// onlyOwn checks that a raw series has only its own samples.
func (w *world) onlyOwn(series, want string) {
	w.t.Helper()
	if got := w.raw()[series]; got != want {
		w.t.Errorf("series %s has %q, want %q", series, got, want)
	}
}

func (w *world) storeRaw() string { return filepath.Join(w.dir, "tsdb", "default", Raw) }

// lastSegment returns the last segment of the raw store's log that has any record.
func (w *world) lastSegment() (path string) {
	w.t.Helper()
	dir := filepath.Join(w.storeRaw(), "wal")
	entries, err := os.ReadDir(dir)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && !e.IsDir() && info.Size() > 0 {
			path = filepath.Join(dir, e.Name())
		}
	}
	return path
}
