package tsdb

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/internal/core/partial"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// startWithOthers restarts the process as a member of a group with other members.
func (w *world) startWithOthers(boot string) {
	w.t.Helper()
	w.startInGroup(boot, w.state.Requests)
	w.stores.NeverRepair(true)
}

// answer returns all samples of the raw store and the 10 s store, or the error of the first store that does not answer.
func (w *world) answer() (map[string]string, error) {
	w.t.Helper()
	all := map[string]string{}
	for _, store := range []string{Raw, ten.String()} {
		db, release, err := w.stores.read(w.t.Context(), "default", store)
		if err != nil {
			return nil, err
		}
		if db != nil {
			release()
		}
	}
	for name, samples := range w.raw() {
		all["raw "+name] = samples
	}
	all["tiles"] = w.stored("default", ten.String())
	return all, nil
}

// A byte of a log flips at a random position, while the process does not run, or after it was killed. The store then
// answers as before, or not at all, and says why: it never leaves out what tsdb's repair would remove. Without the
// others, it would.
func TestAFlippedByteInALogShortensNoAnswer(t *testing.T) {
	seeds := 60
	switch {
	case os.Getenv("FRESHET_SOAK") != "":
		seeds = 3000
	case testing.Short():
		seeds = 15
	}
	damaged := 0
	for seed := range uint64(seeds) {
		func() {
			w := newWorld(t)
			defer func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			}()
			r := rand.New(rand.NewPCG(seed, 1))
			if r.IntN(3) == 0 {
				w.cfg.WALCompression = "none"
			}
			w.startWithOthers("first")
			for i := range 1 + r.IntN(30) {
				second := 1000 + 10*i
				texts := []string{fmt.Sprintf("a@%d=%d", second, i), fmt.Sprintf("b%d@%d=h%d", i, second, i)}
				if i%3 == 2 {
					texts = append(texts, fmt.Sprintf("a@%d=%d", second-25, i)) // late
				}
				w.writeRaw(&plain, texts...)
				w.write(fmt.Sprintf("t@%d=%d u@%d=%d", second, i, second, i+1))
				if r.IntN(4) == 0 {
					w.sync()
				}
			}
			want, err := w.answer()
			if err != nil {
				t.Fatal(err)
			}
			if r.IntN(2) == 0 {
				w.startWithOthers("first") // stops in order
			}
			files, path := copyAside(t, w), ""
			path = w.flip(r, files, "wal/*", "wbl/*")
			w.startWithOthers("first")
			got, err := w.answer()
			if broken := (*BrokenError)(nil); err != nil {
				damaged++
				if !errors.As(err, &broken) || !broken.Damaged || !errors.Is(err, partial.ErrElsewhere) {
					t.Errorf("the error is %v, want that the store is damaged", err)
				}
				if !strings.Contains(err.Error(), filepath.Base(filepath.Dir(path))) || len(w.stores.Damaged()) != 1 {
					t.Errorf("the error is %v, want that it names %s; damaged are %v", err, path, w.stores.Damaged())
				}
				return
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("a byte of %s flipped: the answer is\n%v\nwant\n%v", path, got, want)
			}
		}()
		if t.Failed() {
			return
		}
	}
	if damaged < seeds/2 {
		t.Errorf("%d of %d stores were found damaged", damaged, seeds)
	}
}

// copyAside ends the process and leaves its files as they are: as after a kill if it was running.
func copyAside(t *testing.T, w *world) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(w.dir)); err != nil {
		t.Fatal(err)
	}
	w.close()
	w.dir = dir
	w.open()
	return dir
}

// flip changes a byte, at a random position, of a random file that matches one of the patterns below a
// store. It returns the path of the file.
func (w *world) flip(r *rand.Rand, dir string, patterns ...string) (path string) {
	w.t.Helper()
	var files []string
	for _, store := range []string{Raw, ten.String()} {
		for _, pattern := range patterns {
			found, err := filepath.Glob(filepath.Join(dir, "tsdb", "default", store, pattern))
			if err != nil {
				w.t.Fatal(err)
			}
			files = append(files, found...)
		}
	}
	for {
		path = files[r.IntN(len(files))]
		text, err := os.ReadFile(path)
		if err != nil {
			w.t.Fatal(err)
		}
		if filled := len(bytes.TrimRight(text, "\x00")); filled > 0 {
			text[r.IntN(filled)] ^= byte(1 + r.IntN(255))
			if err := os.WriteFile(path, text, 0o600); err != nil {
				w.t.Fatal(err)
			}
			return path
		}
	}
}

// A kill tears the last write to a log at any byte. That is no damage: the store opens without that write.
func TestATornWriteIsNoDamage(t *testing.T) {
	w := newWorld(t)
	w.startWithOthers("first")
	w.writeRaw(&plain, "a@1000=1", "a@990=1")
	w.write("t@1000=1")
	w.sync()
	before, err := w.answer()
	if err != nil {
		t.Fatal(err)
	}
	sizes := func() (all map[string]int64) { // of the logs; a stop in order pads them
		all = map[string]int64{}
		for _, store := range []string{Raw, ten.String()} {
			for _, log := range logDirs {
				path := filepath.Join("tsdb", "default", store, log, "00000000")
				if info, err := os.Stat(filepath.Join(w.dir, path)); err == nil {
					all[path] = info.Size()
				}
			}
		}
		return all
	}
	synced := sizes()
	w.writeRaw(&plain, "a@2000=2", "a@1990=2")
	w.write("t@2000=2")
	after, err := w.answer()
	if err != nil || reflect.DeepEqual(before, after) {
		t.Fatal(err)
	}
	home := w.dir
	for path, size := range sizes() {
		for at := synced[path] + 1; at < size; at += 5 {
			w.dir = home
			if err := os.Truncate(filepath.Join(copyAside(t, w), path), at); err != nil {
				t.Fatal(err)
			}
			w.startWithOthers("first")
			if _, err := w.answer(); err != nil {
				t.Errorf("%s is torn at byte %d: %v", path, at, err)
			}
		}
	}
}

// After a power loss, the end of a log may have any bytes behind the last sync. A store of tiles then opens, and
// has all samples that were synced.
func TestAPowerLossDamagesNothingThatWasSynced(t *testing.T) {
	w := newWorld(t)
	w.startWithOthers("first")
	w.write("t@1000=1")
	w.sync()
	path := filepath.Join(w.dir, "tsdb", "default", tile.Width10s.String(), "wal", "00000000")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	w.write("t@1010=2")
	w.write("t@1020=3")
	for _, c := range []struct {
		at   int64
		boot string
		want string // empty if the store is damaged
	}{
		{info.Size() + 9, "second", "t@1000=1"},
		{info.Size() + 9, "first", ""},
		{info.Size() - 9, "second", ""},
	} {
		home := w.dir
		dir := copyAside(t, w)
		path := filepath.Join(dir, "tsdb", "default", tile.Width10s.String(), "wal", "00000000")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text[c.at] ^= 1
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		w.startWithOthers(c.boot)
		_, err = w.answer()
		switch {
		case c.want == "" && err == nil:
			t.Errorf("byte %d of %d, boot %s: the store opens", c.at, info.Size(), c.boot)
		case c.want != "" && err != nil:
			t.Errorf("byte %d of %d, boot %s: %v", c.at, info.Size(), c.boot, err)
		case c.want != "":
			if got := w.stored("default", ten.String()); got != c.want {
				t.Errorf("stored: %s, want %s", got, c.want)
			}
		}
		w.close()
		w.dir = home
		w.open()
	}
}
