package tsdb

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/tsdb"
)

// savesHeads makes the process save heads of any size.
func (w *world) savesHeads() {
	w.stores.CompactByHand() // a copy of a running process must have the same blocks as logs
	w.stores.heads.least = 0
}

// usesHead opens the raw store, and reports whether it did so with a saved head.
func (w *world) usesHead() bool {
	w.t.Helper()
	return w.rawDatabase().fromSavedHead
}

// An opening uses a saved head only if it is whole and fits to the other files of the store. Otherwise it reads the
// whole log, and counts that. The answers are the same.
func TestASavedHeadIsUsedIfItFits(t *testing.T) {
	head := func(w *world) string {
		n, found, err := readHeadNote(w.storeRaw())
		if err != nil || !found {
			t.Fatalf("no note: %v", err)
		}
		return savedHead(w.storeRaw(), n.segment, n.offset)
	}
	for _, c := range []struct {
		name   string
		change func(w *world) error // while the process does not run
		unused bool
		other  bool // beside the one that is used
	}{
		{name: "at once"},
		{"without its note", func(w *world) error {
			return os.Remove(filepath.Join(w.storeRaw(), headNoteFile))
		}, true, false},
		{"after a kill during the next save", func(w *world) error {
			return os.Mkdir(savedHead(w.storeRaw(), 99, 0)+".tmp", 0o750)
		}, false, true},
		{"with a damaged note", func(w *world) error {
			return os.WriteFile(filepath.Join(w.storeRaw(), headNoteFile), []byte(headNoteMagic), 0o640)
		}, true, false},
		{"without its directory", func(w *world) error { return os.RemoveAll(head(w)) }, true, false},
		{"with half a file", func(w *world) error {
			path := filepath.Join(head(w), "00000000")
			info, err := os.Stat(path)
			return errors.Join(err, os.Truncate(path, info.Size()/2))
		}, true, false},
		{"without the files with chunks", func(w *world) error {
			return os.RemoveAll(filepath.Join(w.storeRaw(), headChunksDir))
		}, true, false},
		{"with a log that was cut", func(w *world) error {
			return os.Truncate(w.lastSegment(), pageBytes)
		}, true, false},
		{"after an older release has opened the store", func(w *world) error {
			db, err := tsdb.Open(w.storeRaw(), nil, nil, w.cfg.options(Raw), nil)
			return errors.Join(err, db.Close())
		}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.savesHeads()
			for i := range 300 { // more than a chunk, and more than a page of the log
				w.writeRaw(&plain, fmt.Sprintf("a@%d=1 b@%d=h3 c%d@%d=1", 1000+i, 1000+i, i, 1000+i))
			}
			w.writeRaw(&plain, "a@999=7", "b@998=h9")
			want := w.raw()
			w.close()
			if c.change != nil {
				if err := c.change(w); err != nil {
					t.Fatal(err)
				}
			}
			w.open()
			w.savesHeads()
			if used := w.usesHead(); used == c.unused {
				t.Errorf("the saved head is used: %v, want %v", used, !c.unused)
			}
			if n := testutil.ToFloat64(w.stores.heads.unused.WithLabelValues(Raw)); n == 0 == (c.unused || c.other) {
				t.Errorf("%v unused saved heads are counted", n)
			}
			if c.name == "with a log that was cut" {
				return // and so lost samples, as without a saved head
			}
			if got := w.raw(); !maps.Equal(got, want) {
				t.Errorf("stored: %v\nwant %v", got, want)
			}
		})
	}
}

// A stop soon after a start saves no head, since little came into the log. The saved head from before stays.
func TestAStopKeepsASavedHead(t *testing.T) {
	w := newWorld(t)
	w.savesHeads()
	for i := range 300 {
		w.writeRaw(&plain, fmt.Sprintf("a@%d=1 c%d@%d=1", 1000+i, i, 1000+i))
	}
	w.close()
	for i := range 3 {
		w.open()
		w.savesHeads()
		if !w.usesHead() {
			t.Errorf("the opening after %d stops does not use the saved head", i+1)
		}
		w.stores.heads.least = leastLog
		w.writeRaw(&plain, fmt.Sprintf("a@%d=1", 2000+i))
		w.close()
	}
	w.open()
	if got := w.raw(); len(got) != 301 || !strings.HasSuffix(got["a"], " 1299=1 2000=1 2001=1 2002=1") {
		t.Errorf("%d series, and a has %s", len(got), got["a"])
	}
}

// The log decides when a head is saved again: while the server runs, later than at a stop.
func TestHeadsAreSavedAsLogsGrow(t *testing.T) {
	w := newWorld(t)
	w.savesHeads()
	for i := range 300 {
		w.writeRaw(&plain, fmt.Sprintf("a@%d=%d c%d@%d=1", 1000+i, i, i, 1000+i))
	}
	saved := func(share int64) bool {
		before := w.savedHeadCount()
		w.stores.saveHeads(t.Context(), share)
		return w.savedHeadCount() > before
	}
	if !saved(runningShare) || saved(stoppingShare) {
		t.Fatal("the head is not saved just once")
	}
	n, _, err := readHeadNote(w.storeRaw())
	if err != nil {
		t.Fatal(err)
	}
	at := 2000
	grow := func(share int64) {
		for {
			grown, err := n.log.behind(filepath.Join(w.storeRaw(), "wal"))
			if err != nil {
				t.Fatal(err)
			}
			if grown >= n.bytes/share {
				return
			}
			at++
			w.writeRaw(&plain, fmt.Sprintf("a@%d=%d", at, at%7))
		}
	}
	grow(stoppingShare)
	if saved(runningShare) {
		t.Error("a head is saved while the server runs, although the log has grown by a sixteenth only")
	}
	grow(runningShare)
	if !saved(runningShare) {
		t.Error("no head is saved while the server runs, although the log has grown by a quarter")
	}
}

func (w *world) savedHeadCount() float64 {
	return testutil.ToFloat64(w.stores.heads.saved.WithLabelValues(Raw))
}

// A saved head is synced together with all that it needs. So a start after a power loss uses it, and has what was
// stored when it was saved.
func TestASavedHeadSurvivesAPowerLoss(t *testing.T) {
	w := newWorld(t)
	w.savesHeads()
	k := w.underKernel(never)
	for i := range 300 { // more than a chunk
		w.writeRaw(&plain, fmt.Sprintf("a@%d=%d b@%d=h3 c%d@%d=1", 1000+i, i, 1000+i, i, 1000+i))
	}
	w.writeRaw(&plain, "a@999=7")
	w.stores.SaveHeadsNow(t.Context())
	want := w.raw()
	for i := range 300 {
		w.writeRaw(&plain, fmt.Sprintf("a@%d=%d b@%d=h3", 2000+i, i, 2000+i))
	}
	got := w.afterPowerLoss(k)
	if !w.usesHead() {
		t.Error("the saved head is not used")
	}
	if !maps.Equal(got, want) {
		t.Errorf("stored: %v\nwant %v", got, want)
	}
}

// The series with the highest number may be gone. A new series gets another number all the same, and each opening uses
// the saved head.
func TestNumbersOfSeriesThatAreGone(t *testing.T) {
	w := newWorld(t)
	w.savesHeads()
	minute := func(i int, more string) { w.writeRaw(&plain, fmt.Sprintf("a@%d=1 b@%d=1%s", i*60, i*60, more)) }
	minute(0, "")
	minute(1, " gone@60=1")
	const minutes = 6 * 60
	for i := 2; i < minutes; i++ {
		minute(i, "")
	}
	w.compactRaw()
	w.compactRaw()
	if n := w.rawDatabase().Head().NumSeries(); n != 2 {
		t.Fatalf("the head has %d series, want 2", n)
	}
	highest := w.rawDatabase().numbers.now()
	for i := range 3 {
		w.stores.SaveHeadsNow(t.Context())
		w.close()
		w.open()
		w.savesHeads()
		if !w.usesHead() {
			t.Errorf("opening %d does not use the saved head", i+1)
		}
		minute(minutes+i, "")
	}
	minute(minutes+3, fmt.Sprintf(" new@%d=1", 60*(minutes+3)))
	if got := headNumber(w.rawDatabase().Head()); got <= highest {
		t.Errorf("a new series has the number %d, and the numbers up to %d were given before", got, highest)
	}
}

// Writes go on while a head is saved. A kill at any moment, during a save or after it, and another one during the
// opening that follows, take nothing that was written before.
func TestAKillWhileHeadsAreSaved(t *testing.T) {
	kills := 4
	if os.Getenv("FRESHET_SOAK") != "" {
		kills = 50
	}
	w := newWorld(t)
	w.savesHeads()
	want, step, used, killed := map[string]string{}, 0, 0, 0
	write := func() {
		step++
		at := 1000 + step
		text := ""
		for i := range 5 {
			text += fmt.Sprintf(" s%d@%d=%d", i, at, step%(i+2))
			want[fmt.Sprint("s", i)] += fmt.Sprintf(" %d=%d", at, step%(i+2))
		}
		text += fmt.Sprintf(" h@%d=h%d", at, step%5)
		want["h"] += fmt.Sprintf(" %d=h%d", at, step%5)
		if step%3 == 0 { // a new series, of which some get a number while the head is saved
			text += fmt.Sprintf(" new%d@%d=1", step, at)
			want[fmt.Sprint("new", step)] += fmt.Sprintf(" %d=1", at)
		}
		w.writeRaw(&plain, text[1:])
	}
	for kill := range kills {
		saving, ends := make(chan struct{}), make(chan struct{})
		stores := w.stores
		go func() {
			defer close(ends)
			for {
				stores.SaveHeadsNow(t.Context())
				select {
				case <-saving:
					return
				default:
				}
			}
		}()
		for range 200 {
			write()
		}
		if kill%2 == 0 {
			close(saving)
			<-ends
			for range 200 { // whose chunks are written only in part
				write()
			}
		}
		dir := t.TempDir()
		if err := copyRunning(dir, w.dir); err != nil {
			t.Fatal(err)
		}
		if kill%2 == 1 {
			close(saving)
			<-ends
		}
		w.close()
		w.dir = dir
		w.open()
		w.savesHeads()
		opened := make(chan struct{})
		go func() {
			defer close(opened)
			w.rawDatabase()
		}()
		again, early := killedWhile(t, opened, dir)
		if early {
			killed++
		}
		if w.usesHead() {
			used++
		}
		w.close()
		w.dir = again
		w.open()
		w.savesHeads()
		for series, samples := range w.raw() {
			if samples != want[series][1:] {
				t.Fatalf("after %d writes, series %s has %s\nwant %s", step, series, samples, want[series][1:])
			}
			delete(want, series)
		}
		if len(want) > 0 {
			t.Fatalf("series are missing: %v", want)
		}
		for series, samples := range w.raw() {
			want[series] = " " + samples
		}
	}
	t.Logf("%d of %d openings were killed before they ended; %d used a saved head", killed, kills, used)
	if used < kills/2 {
		t.Errorf("%d of %d openings used a saved head: too few for the test to show anything", used, kills)
	}
}

// killedWhile copies the files of a running process again and again until `done` is closed. It returns a random one of
// the copies, and whether that was complete before `done`.
func killedWhile(t *testing.T, done <-chan struct{}, dir string) (at string, early bool) {
	t.Helper()
	for copies := 1; ; copies++ {
		next := t.TempDir()
		if err := copyRunning(next, dir); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
			if copies == 1 {
				at = next
			}
			return at, early
		default:
			if rand.N(copies) == 0 {
				at, early = next, true
			}
		}
	}
}

// copyRunning copies the files of a running process, as a kill leaves them. Files that disappear meanwhile are left
// out.
func copyRunning(to, from string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		within, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, within), 0o750)
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return errors.Join(err, os.WriteFile(filepath.Join(to, within), b, 0o640))
	})
}
