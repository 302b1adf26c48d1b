package tsdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freshet-io/freshet/internal/core/tile"
)

// store10s returns the directory of a tenant's 10 s tiles.
func (w *world) store10s(tenant string) string { return filepath.Join(w.dir, "tsdb", tenant, "10s") }

// writeTo does what the method write does, for any tenant.
func (w *world) writeTo(ctx context.Context, tenant, text string) error {
	w.t.Helper()
	_, err := w.stores.WriteTiles(ctx, tenant, ten, w.samples(text))
	return err
}

// segments writes each text in a process of its own, and so in a segment of its own: each opening begins
// a segment.
func (w *world) segments(tenant string, texts ...string) {
	w.t.Helper()
	for _, text := range texts {
		if err := w.writeTo(w.t.Context(), tenant, text); err != nil {
			w.t.Fatal(err)
		}
		w.close()
		w.open()
	}
}

func (w *world) broken(tenant, store string) float64 {
	return testutil.ToFloat64(w.stores.metrics.broken.WithLabelValues(tenant, store))
}

// TestAStoreThatCannotBeOpened: a broken store is found before it is needed, and its error says what
// to do. It affects no other store, is not retried at each write, and opens once it is repaired.
func TestAStoreThatCannotBeOpened(t *testing.T) {
	for _, c := range []struct {
		name        string
		brk, mend   func(w *world) error
		says        []string // STORE is replaced with the directory
		left, right string   // samples in the repaired store: those before and after a@50
	}{
		{
			"a segment of the log is gone, and put back",
			func(w *world) error {
				return os.Rename(filepath.Join(w.store10s("b"), "wal", "00000001"), filepath.Join(w.dir, "away"))
			},
			func(w *world) error {
				return os.Rename(filepath.Join(w.dir, "away"), filepath.Join(w.store10s("b"), "wal", "00000001"))
			},
			[]string{"segments are not sequential",
				"restore STORE/wal/00000001 from a copy (1 missing). If there is no copy, create empty " +
					"files with these names: this loses the samples of the missing files that are in no block"},
			"a@10=1 a@20=2 a@30=3", "",
		},
		{
			"a segment of the log is gone, and an empty one takes its place",
			func(w *world) error { return os.Remove(filepath.Join(w.store10s("b"), "wal", "00000001")) },
			func(w *world) error {
				return os.WriteFile(filepath.Join(w.store10s("b"), "wal", "00000001"), nil, 0o600)
			},
			[]string{"segments are not sequential", "STORE/wal/00000001"},
			"a@10=1 a@30=3", "",
		},
		{
			"a file has the name of the directory",
			func(w *world) error {
				if err := os.RemoveAll(w.store10s("b")); err != nil {
					return err
				}
				return os.WriteFile(w.store10s("b"), nil, 0o600)
			},
			func(w *world) error { return os.Remove(w.store10s("b")) },
			[]string{"not a directory", "move the file STORE away: a directory belongs there, and no sample is lost"},
			"", "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.segments("b", "a@10=1", "a@20=2", "a@30=3")
			if w.broken("b", "10s") != 0 || len(w.stores.Broken()) > 0 {
				t.Fatalf("broken stores before anything is broken: %v", w.stores.Broken())
			}
			if err := c.brk(w); err != nil {
				t.Fatal(err)
			}
			w.log.Reset()
			w.open()
			found := w.stores.Broken()
			if len(found) != 1 || found[0].Tenant != "b" || found[0].Store != "10s" || w.broken("b", "10s") != 1 {
				t.Fatalf("broken stores at the start: %v, metric %v", found, w.broken("b", "10s"))
			}
			says := found[0].Error() + w.log.String()
			for _, text := range c.says {
				if text = strings.ReplaceAll(text, "STORE", w.store10s("b")); !strings.Contains(found[0].Error(), text) ||
					!strings.Contains(w.log.String(), text) {
					t.Errorf("error and log do not both say %q:\n%s", text, says)
				}
			}

			var broken *BrokenError
			if err := w.writeTo(t.Context(), "b", "a@40=4"); !errors.As(err, &broken) {
				t.Errorf("a write to the broken store returns %v, want a BrokenError", err)
			}
			if _, err := w.stores.Querier("b", "10s", 0, base); !errors.As(err, &broken) ||
				!strings.HasPrefix(err.Error(), "read store 10s of tenant b: ") {
				t.Errorf("a query of the broken store returns %v, want a BrokenError that names the store", err)
			}
			if err := w.writeTo(t.Context(), "a", "a@40=4"); err != nil {
				t.Errorf("a write to another tenant: %v", err)
			}
			if _, err := w.stores.WriteTiles(t.Context(), "b", tile.Width1m, w.samples("a@60=6")); err != nil {
				t.Errorf("a write to another store of the tenant: %v", err)
			}

			if err := c.mend(w); err != nil {
				t.Fatal(err)
			}
			w.now = w.now.Add(openPause - time.Millisecond)
			if err := w.writeTo(t.Context(), "b", "a@50=5"); !errors.As(err, &broken) {
				t.Errorf("the store is opened again before the pause is over: %v", err)
			}
			w.now = w.now.Add(time.Millisecond)
			if err := w.writeTo(t.Context(), "b", "a@50=5"); err != nil {
				t.Errorf("a write after the pause: %v", err)
			}
			if got, want := w.stored("b", "10s"), strings.TrimSpace(c.left+" a@50=5"); got != want {
				t.Errorf("stored: %s, want %s", got, want)
			}
			if len(w.stores.Broken()) > 0 || w.broken("b", "10s") != 0 {
				t.Errorf("broken stores after the repair: %v", w.stores.Broken())
			}
		})
	}
}

// TestBrokenNamesEachStore: the report of a store that cannot be opened names its tenant and the
// obstacle, at any time and for any tenant.
func TestBrokenNamesEachStore(t *testing.T) {
	for _, tenant := range []string{"default", "b"} {
		for _, kind := range []string{"10s", "1m", Raw} {
			for _, running := range []bool{false, true} {
				w := newWorld(t)
				inTheWay := filepath.Join(w.dir, "tsdb", tenant, kind)
				block := func() {
					if err := errors.Join(os.MkdirAll(filepath.Dir(inTheWay), 0o755), os.WriteFile(inTheWay, nil, 0o600)); err != nil {
						t.Fatal(err)
					}
				}
				if running {
					block()
					st, err := w.stores.forWrite(tenant, kind)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := st.write(t.Context()); err == nil {
						t.Fatal("a store was made although a file has its name")
					}
				} else {
					w.close()
					block()
					w.open()
				}
				found := w.stores.Broken()
				if len(found) != 1 || found[0].Tenant != tenant || found[0].Store != kind || found[0].Open ||
					!strings.Contains(found[0].WayOut, "move the file "+inTheWay+" away") {
					t.Errorf("tenant %s, store %s, obstacle made while running %t: reported %v",
						tenant, kind, running, found)
				}
			}
		}
	}
}

// TestAnOpenStoreBreaks: the directory of an open store is moved away or removed. The open files still
// take samples, and no write fails, but a restart loses these samples.
func TestAnOpenStoreBreaks(t *testing.T) {
	for _, c := range []struct {
		name string
		brk  func(w *world) error
		mend func(w *world) error
	}{
		{
			"the directory is moved, and back",
			func(w *world) error { return os.Rename(w.store10s("b"), filepath.Join(w.dir, "away")) },
			func(w *world) error { return os.Rename(filepath.Join(w.dir, "away"), w.store10s("b")) },
		},
		{
			"a file takes its place",
			func(w *world) error {
				return errors.Join(os.Rename(w.store10s("b"), filepath.Join(w.dir, "away")),
					os.WriteFile(w.store10s("b"), nil, 0o600))
			},
			func(w *world) error {
				return errors.Join(os.Remove(w.store10s("b")), os.Rename(filepath.Join(w.dir, "away"), w.store10s("b")))
			},
		},
		{
			"another log replaces its own",
			func(w *world) error {
				wal := filepath.Join(w.store10s("b"), "wal")
				return errors.Join(os.Rename(wal, filepath.Join(w.dir, "away")), os.Mkdir(wal, 0o755))
			},
			func(w *world) error {
				wal := filepath.Join(w.store10s("b"), "wal")
				return errors.Join(os.Remove(wal), os.Rename(filepath.Join(w.dir, "away"), wal))
			},
		},
	} {
		w := newWorld(t)
		if err := w.writeTo(t.Context(), "b", "a@10=1"); err != nil {
			t.Fatal(err)
		}
		w.stores.Look()
		if found := w.stores.Broken(); len(found) > 0 {
			t.Fatalf("%s: broken stores before the fault: %v", c.name, found)
		}
		if err := c.brk(w); err != nil {
			t.Fatal(err)
		}
		w.log.Reset()
		for range 2 {
			if err := w.stores.Tend(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		found := w.stores.Broken()
		if len(found) != 1 || !found[0].Open || found[0].Tenant != "b" || found[0].Store != "10s" ||
			!strings.Contains(found[0].WayOut, "move the directory back to "+w.store10s("b")) || w.broken("b", "10s") != 1 {
			t.Errorf("%s: %v, metric %v", c.name, found, w.broken("b", "10s"))
		}
		if n := strings.Count(w.log.String(), "an open store is broken"); n != 1 {
			t.Errorf("%s: the log reports the broken store %d times, want once", c.name, n)
		}
		if err := c.mend(w); err != nil {
			t.Fatal(err)
		}
		w.stores.Look()
		if found := w.stores.Broken(); len(found) > 0 || w.broken("b", "10s") != 0 {
			t.Errorf("%s: broken stores after the repair: %v, metric %v", c.name, found, w.broken("b", "10s"))
		}
	}
}

// TestTendMendsAStoreThatNobodyUses: a store is opened again without a request, so that its alert ends
// when the cause is gone.
func TestTendMendsAStoreThatNobodyUses(t *testing.T) {
	w := newWorld(t)
	w.segments("b", "a@10=1", "a@20=2")
	gone := filepath.Join(w.store10s("b"), "wal", "00000000")
	if err := os.Rename(gone, gone+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.store10s("b"), "wal", "00000002"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(w.store10s("b"), "wal", "00000001"), gone); err != nil {
		t.Fatal(err)
	}
	w.open()
	if w.broken("b", "10s") != 1 {
		t.Fatal("the store is not broken")
	}
	if err := os.Remove(filepath.Join(w.store10s("b"), "wal", "00000002")); err != nil {
		t.Fatal(err)
	}
	if err := w.stores.Tend(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.broken("b", "10s") != 0 {
		t.Errorf("broken stores after the cause was removed: %v", w.stores.Broken())
	}
}

// openNames returns the stores with an open database.
func (w *world) openNames() (names []string) {
	for _, st := range w.stores.allStores() {
		st.mu.Lock()
		if st.db != nil {
			names = append(names, st.name())
		}
		st.mu.Unlock()
	}
	return names
}

// TestOpenUsed: after a stop and after a crash, a start opens the stores that were written to or
// queried in the last hour of the previous process, at most max_open of them.
func TestOpenUsed(t *testing.T) {
	w := newWorld(t)
	w.cfg.Idle = 24 * time.Hour // so that unused stores stay open
	w.close()
	w.open()
	w.stores.OpenUsed(t.Context()) // there are no stores yet
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(w.writeTo(t.Context(), "old", "a@10=1"))
	must(w.writeTo(t.Context(), "asked", "a@10=1"))
	w.now = w.now.Add(inUse + time.Second)
	must(w.writeTo(t.Context(), "small", "a@10=1"))
	for i := range 200 { // this store gets a larger log
		must(w.writeTo(t.Context(), "large", fmt.Sprintf("s%d@10=1", i)))
	}
	q, err := w.stores.Querier("asked", "10s", 0, base)
	must(err)
	must(q.Close())
	must(w.stores.Tend(t.Context()))

	crashed := filepath.Join(t.TempDir(), "crashed")
	must(os.CopyFS(crashed, os.DirFS(w.dir))) // as after kill -9
	w.now = w.now.Add(48 * time.Hour)         // the downtime
	want := []string{"asked/10s", "large/10s", "small/10s"}
	for _, how := range []string{"stopped", "crashed"} {
		if how == "crashed" {
			w.close()
			w.dir = crashed
		} else {
			w.now = w.now.Add(-48 * time.Hour)
			w.close()
			w.now = w.now.Add(48 * time.Hour)
		}
		w.open()
		w.stores.OpenUsed(t.Context())
		if got := w.openNames(); !slices.Equal(got, want) {
			t.Errorf("%s: the open stores are %v, want %v", how, got, want)
		}
		if p := w.stores.Opening(); p.Done != 3 || p.Total != 3 || len(p.Now) != 0 {
			t.Errorf("%s: %+v", how, p)
		}
	}

	w.close()
	w.cfg.MaxOpen = 1
	w.open()
	w.stores.OpenUsed(t.Context())
	if got := w.openNames(); !slices.Equal(got, []string{"large/10s"}) {
		t.Errorf("with max_open 1, the open stores are %v, want large/10s", got)
	}

	// The data directory of an older version has no file of used stores.
	w.close()
	w.cfg.MaxOpen = 10
	must(os.Remove(filepath.Join(w.dir, usedFile)))
	long := time.Now().Add(-2 * inUse)
	for path := range listLogs(w.store10s("small")) {
		must(os.Chtimes(path, long, long))
	}
	w.open()
	w.stores.OpenUsed(t.Context())
	if got, want := w.openNames(), []string{"asked/10s", "large/10s", "old/10s"}; !slices.Equal(got, want) {
		t.Errorf("without the file, the open stores are %v, want %v", got, want)
	}
}

// TestAnOpeningThatHangs: a hanging opening holds up only requests that need the store, and only
// while they wait. In the test a segment is a pipe: reading it hangs, as on a broken file system.
func TestAnOpeningThatHangs(t *testing.T) {
	w := newWorld(t)
	w.segments("b", "a@10=1")
	w.segments("a", "a@10=1")
	pipe := filepath.Join(w.store10s("b"), "wal", "00000000")
	if err := os.Remove(pipe); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.stores.OpenUsed(t.Context())
	}()
	hung := Progress{Done: 1, Total: 2, Now: []string{"b/10s"}}
	for deadline := time.Now().Add(time.Minute); ; {
		if p := w.stores.Opening(); p.Done == hung.Done && p.Total == hung.Total && slices.Equal(p.Now, hung.Now) {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("the progress is %+v, want %+v", p, hung)
		}
		time.Sleep(time.Millisecond)
	}
	if err := w.writeTo(t.Context(), "a", "a@20=2"); err != nil {
		t.Errorf("a write to another tenant: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := w.writeTo(ctx, "b", "a@20=2"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a write to the hanging store: %v", err)
	}
	if err := w.stores.Tend(t.Context()); err != nil {
		t.Errorf("Tend: %v", err)
	}
	if err := w.stores.SetRetention(w.cfg.Retention); err != nil {
		t.Errorf("a reload: %v", err)
	}
	stop, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	stopping := w.stores
	w.open() // the cleanup of the test closes this world
	// Close returns, and says which store it left open.
	if err := stopping.Close(stop); err == nil || !strings.Contains(err.Error(), "tenant b") {
		t.Errorf("a stop: %v", err)
	}

	for opened := false; !opened; { // the opening reads the pipe twice, as an empty segment
		f, err := os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err == nil {
			err = f.Close()
		}
		if err != nil && !errors.Is(err, syscall.ENXIO) { // ENXIO: the opening does not read now
			t.Fatal(err)
		}
		select {
		case <-done:
			opened = true
		case <-time.After(time.Millisecond):
		}
	}
	for stopping.allStores()[3].openNow() { // until the goroutine of the opening ends
		time.Sleep(time.Millisecond)
	}
}

// openNow reports whether an opening is under way.
func (s *store) openNow() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opening != nil
}

// TestWhatARepairCutsOff: tsdb cuts a damaged log at the damage and deletes all later segments,
// and the database opens as if nothing had happened.
func TestWhatARepairCutsOff(t *testing.T) {
	for _, c := range []struct {
		name    string
		segment string // the damaged segment, one of three
		at      func(size int) int
		cut     []string // the missing segments
		left    string
	}{
		{"in the middle", "00000001", func(size int) int { return size / 2 }, []string{"00000001", "00000002"},
			"a@10=1 b@10=1"},
		{"in the newest", "00000002", func(int) int { return 12 }, []string{"00000002"}, "a@10=1 a@20=2 b@10=1 b@20=2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.segments("b", "a@10=1 b@10=1", "a@20=2 b@20=2", "a@30=3 b@30=3")
			path := filepath.Join(w.store10s("b"), "wal", c.segment)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			want := int64(0)
			logs := listLogs(w.store10s("b"))
			for _, name := range c.cut {
				want += logs[filepath.Join(w.store10s("b"), "wal", name)].written
			}
			text[c.at(int(logs[path].written))] ^= 4
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			w.log.Reset()
			w.open()
			got := w.stored("b", "10s")
			cut := int64(testutil.ToFloat64(w.stores.metrics.cut.WithLabelValues("b", "10s")))
			if got != c.left {
				t.Errorf("the store still has %s, want %s", got, c.left)
			}
			if cut != want || cut < 20 {
				t.Errorf("the metric reports %d bytes cut off, want %d", cut, want)
			}
			if says := fmt.Sprintf("log_bytes_cut_off=%d", cut); !strings.Contains(w.log.String(), says) {
				t.Errorf("the log does not say %s", says)
			}
			w.close()
			w.log.Reset()
			w.open()
			if again := w.stored("b", "10s"); again != got || strings.Contains(w.log.String(), "cut_off") {
				t.Errorf("the next opening cut again: stored %s, log\n%s", again, w.log.String())
			}
		})
	}
}

// TestOpenUsedAfterAnEarlyCrash: a store counts as used from the moment when a write or a query first
// opens it. Formerly, the file of used stores was written only every minute, so after a crash in the
// first minute the next start did not know the store.
func TestOpenUsedAfterAnEarlyCrash(t *testing.T) {
	w := newWorld(t)
	w.segments("asked", "a@10=1")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(filepath.Join(w.dir, usedFile), []byte("{}"), 0o600)) // no store was used
	must(w.writeTo(t.Context(), "before", "a@10=1"))
	w.stores.OpenUsed(t.Context())
	want := []string{"asked/10s", "before/10s"}
	var group sync.WaitGroup
	for i := range 8 { // all stores open at the same time
		name := fmt.Sprintf("new%d", i)
		want = append(want, name+"/10s")
		group.Go(func() {
			if _, err := w.stores.WriteTiles(t.Context(), name, ten, nil); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	q, err := w.stores.Querier("asked", "10s", 0, base)
	must(err)
	must(q.Close())

	crashed := filepath.Join(t.TempDir(), "crashed")
	must(os.CopyFS(crashed, os.DirFS(w.dir))) // as after kill -9
	w.close()
	w.dir = crashed
	w.open()
	w.stores.OpenUsed(t.Context())
	if got := w.openNames(); !slices.Equal(got, want) {
		t.Errorf("the open stores are %v, want %v", got, want)
	}
}

// TestWhatARepairCutsOffThatFails: tsdb's repair first deletes the segments behind the damage, and
// a later step may fail. The next try cannot tell that those segments existed.
func TestWhatARepairCutsOffThatFails(t *testing.T) {
	w := newWorld(t)
	w.segments("b", "a@10=1 b@10=1", "a@20=2 b@20=2", "a@30=3 b@30=3")
	path := filepath.Join(w.store10s("b"), "wal", "00000001")
	logs := listLogs(w.store10s("b"))
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[logs[path].written/2] ^= 4
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	obstacle := path + ".repair" // the repair renames the segment to this
	if err := os.Mkdir(obstacle, 0o700); err != nil {
		t.Fatal(err)
	}
	cut := func(want int64) {
		t.Helper()
		if got := int64(testutil.ToFloat64(w.stores.metrics.cut.WithLabelValues("b", "10s"))); got != want {
			t.Errorf("the metric reports %d bytes cut off, want %d", got, want)
		}
	}
	w.log.Reset()
	w.open()
	var broken *BrokenError
	if err := w.writeTo(t.Context(), "b", "a@40=4"); !errors.As(err, &broken) {
		t.Fatalf("a write: %v", err)
	}
	behind := logs[filepath.Join(filepath.Dir(path), "00000002")].written
	cut(behind)
	if !strings.Contains(w.log.String(), fmt.Sprintf("log_bytes_cut_off=%d", behind)) {
		t.Errorf("the log does not report the cut:\n%s", w.log.String())
	}
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(openPause)
	if got, want := w.stored("b", "10s"), "a@10=1 b@10=1"; got != want {
		t.Errorf("the store still has %s, want %s", got, want)
	}
	cut(behind + logs[path].written)
}

// A restart in place leaves the lock files of all stores. The next process warns of none of them.
func TestALockFileThatWasLeftIsNoWarning(t *testing.T) {
	w := newWorld(t)
	w.writeRaw(&plain, "a@10=1")
	w.close()
	lock := filepath.Join(w.dir, "tsdb", "default", Raw, "lock")
	if err := os.WriteFile(lock, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.open()
	w.writeRaw(&plain, "a@20=1")
	if said := w.log.String(); strings.Contains(said, "lock") {
		t.Errorf("the log has\n%s", said)
	}
}
