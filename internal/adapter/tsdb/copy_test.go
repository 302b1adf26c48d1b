package tsdb

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"
)

// copyTo is a helper that copies the stores to a new data directory, as another machine would get them.
func (w *world) copyTo(dir string) {
	w.t.Helper()
	links := w.t.TempDir()
	all, err := w.stores.Copy(w.t.Context(), links)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range all {
		cut(w.t, filepath.Join(links, f.Name), filepath.Join(dir, "tsdb", f.Name), f.Size)
	}
	if err := CheckCopy(w.t.Context(), filepath.Join(dir, "tsdb")); err != nil {
		w.t.Fatal(err)
	}
}

// cut copies the first `size` bytes of a file.
func cut(t testing.TB, from, to string, size int64) {
	t.Helper()
	r, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(io.LimitReader(r, size))
	if err == nil && int64(len(b)) != size {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A member that begins with a copy of another member's stores, and with the log behind an earlier
// checkpoint, gives the same answers and stores the same samples as all others.
func TestAFilledMemberHasTheSameStores(t *testing.T) {
	seeds := []uint64{0, 2, 4, 6, 8, 10}
	switch {
	case os.Getenv("FRESHET_SOAK") != "":
		seeds = nil
		for seed := range uint64(200) {
			seeds = append(seeds, 2*seed)
		}
	case testing.Short():
		seeds = seeds[:1]
	}
	var mu sync.Mutex
	did := map[string]int{}
	t.Run("seeds", func(t *testing.T) {
		for _, seed := range seeds {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				window := []time.Duration{30 * time.Minute, 2 * time.Hour, 0}[seed/2%3]
				log := logOf(seed, 250)
				want := live(t, 0, window, log, nil)
				got := liveWith(t, seed+1, window, log, want, true)
				sameLife(t, want, got)
				mu.Lock()
				defer mu.Unlock()
				for what, n := range got.did {
					did[what] += n
				}
			})
		}
	})
	t.Logf("%d seeds: %v", len(seeds), did)
	if did["filled"] < len(seeds) || did["blocks written"] < len(seeds)/2 {
		t.Errorf("the lives had %v: too few fills or blocks for the test to show anything", did)
	}
}

// The links of a copy keep what was there. Later samples are not in it.
func TestACopyEndsAtItsMoment(t *testing.T) {
	w := newWorld(t)
	w.startInGroup("first", 0)
	w.writeRaw(&plain, "a@1000=1", "a@900=2")
	links := t.TempDir()
	all, err := w.stores.Copy(t.Context(), links)
	if err != nil {
		t.Fatal(err)
	}
	w.writeRaw(&plain, "a@2000=3", "a@950=4")
	dir := t.TempDir()
	for _, f := range all {
		if strings.Contains(f.Name, "chunks_head") {
			t.Errorf("the copy has %s", f.Name)
		}
		cut(t, filepath.Join(links, f.Name), filepath.Join(dir, "tsdb", f.Name), f.Size)
	}
	w.close()
	w.dir = dir
	w.open()
	w.stores.CutBack("first", map[string]uint64{"default": 1})
	if got := w.raw()["a"]; got != "900=2 1000=1" {
		t.Errorf("the copy has %s, want 900=2 1000=1", got)
	}
}

// A commit writes to one log after the other. The copy waits for its end, since it must not have a part of a request.
func TestACopyWaitsForACommit(t *testing.T) {
	w := newWorld(t)
	w.startInGroup("first", 0)
	w.writeRaw(&plain, "a@1000=1")
	committing := &w.rawStore().committing
	committing.Lock()
	done := make(chan error, 1)
	go func() {
		_, err := w.stores.Copy(t.Context(), t.TempDir())
		done <- err
	}()
	select {
	case err := <-done:
		t.Errorf("a copy was made during a commit, error %v", err)
		committing.Unlock()
		return
	case <-time.After(200 * time.Millisecond): // long enough for a copy that does not wait
	}
	committing.Unlock()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A store whose files may lack samples is not copied: another member has them.
func TestABrokenStoreIsNotCopied(t *testing.T) {
	w := newWorld(t)
	w.startInGroup("first", 0)
	w.writeRaw(&plain, "a@1000=1")
	w.rawStore().damaged.Store(true)
	_, err := w.stores.Copy(t.Context(), t.TempDir())
	if !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), "store raw of tenant default") {
		t.Errorf("the error is %v", err)
	}
}

// CheckCopy finds any changed byte of a block and of the logs.
func TestCheckCopyFindsDamage(t *testing.T) {
	w := newWorld(t)
	w.startInGroup("first", 0)
	w.writeRaw(&plain, "a@1000=1", "a@900=2", "b@1100=h3")
	if err := w.rawStore().db.CompactOOOHead(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.stores.Compact(t.Context(), false); err != nil { // copies the metadata of the block
		t.Fatal(err)
	}
	w.writeRaw(&plain, "a@950=5")
	links := t.TempDir()
	all, err := w.stores.Copy(t.Context(), links)
	if err != nil {
		t.Fatal(err)
	}
	damage := 0
	for _, f := range all {
		name := filepath.Base(f.Name)
		if name == endsFile || name == metaCopyFile || name == "tombstones" || f.Size == 0 {
			continue
		}
		dir := t.TempDir()
		for _, other := range all {
			cut(t, filepath.Join(links, other.Name), filepath.Join(dir, other.Name), other.Size)
		}
		path := filepath.Join(dir, f.Name)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		at := len(b) - 8 // the table of contents of an index
		switch {
		case strings.Contains(f.Name, "/w"):
			at = 9 // behind the head of the first record
		case strings.Contains(f.Name, "chunks"):
			at = len(b) - 5
		case name == metaFile:
			at = bytes.Index(b, []byte(`"maxTime": `)) + len(`"maxTime": `)
		}
		b[at] ^= 1
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		damaged := (*DamagedCopyError)(nil)
		if err := CheckCopy(t.Context(), dir); !errors.As(err, &damaged) {
			t.Errorf("%s, byte %d of %d changed: %v", f.Name, at, len(b), err)
			continue
		}
		if !strings.HasPrefix(path, damaged.Path) {
			t.Errorf("%s is damaged, and the error names %s", path, damaged.Path)
		}
		damage++
	}
	if damage < 5 {
		t.Errorf("only %d files were damaged", damage)
	}
}

// The checksum of a record does not cover how it is compressed. If that changes, tsdb leaves the record out.
func TestCheckCopyFindsAChangedCompression(t *testing.T) {
	root := t.TempDir()
	wal := filepath.Join(root, "default", Raw, "wal")
	log, err := wlog.New(slog.New(slog.DiscardHandler), nil, wal, compression.Snappy)
	if err != nil {
		t.Fatal(err)
	}
	var encoder record.Encoder
	if err := errors.Join(log.Log(encoder.Samples(make([]record.RefSample, 1000), nil)), log.Close()); err != nil {
		t.Fatal(err)
	}
	if err := CheckCopy(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	path := segmentPath(wal, 0)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[0] ^= snappyBit
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if damaged := (*DamagedCopyError)(nil); !errors.As(CheckCopy(t.Context(), root), &damaged) {
		t.Error("the record is not compressed any more, and that is not found")
	}
}

// While samples are written and compactions run, each copy is whole: it has all samples that were
// acknowledged before, and the samples of a prefix of the requests.
func TestACopyUnderLoad(t *testing.T) {
	w := newWorld(t)
	w.startInGroup("first", 0)
	const requests = 300
	done := make(chan struct{})
	var acked sync.Mutex
	n := 0
	go func() {
		defer close(done)
		for i := range requests {
			late := fmt.Sprintf("b@%d=%d", 1001+2*(i^1), i) // each other one is late
			w.writeRaw(&plain, fmt.Sprintf("a@%d=%d", 1000+2*i, i), late)
			acked.Lock()
			n = i + 1
			acked.Unlock()
			if i%20 == 0 {
				if err := w.rawStore().db.CompactOOOHead(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	copies := 0
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		acked.Lock()
		least := n
		acked.Unlock()
		if least == 0 {
			continue
		}
		copies++
		dir := t.TempDir()
		w.copyTo(dir)
		c := &world{t: t, cfg: w.cfg, dir: dir, now: w.now}
		c.open()
		c.stores.CutBack("first", nil)
		raw := c.raw()
		a, b := len(strings.Fields(raw["a"])), len(strings.Fields(raw["b"]))
		if a < least || a != b {
			t.Errorf("a copy has %d and %d samples of the series, want as many of both, and at least %d", a, b, least)
		}
		c.close()
	}
	t.Logf("%d copies", copies)
}
