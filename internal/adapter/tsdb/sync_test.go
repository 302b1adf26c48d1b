package tsdb

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/core/checkpoint"
)

// syncs calls Sync and returns the synced files, as STORE/LOG/FILE.
func (w *world) syncs() (files []string, err error) {
	var mu sync.Mutex // several stores sync at once
	w.stores.fsync = func(path string) error {
		mu.Lock()
		defer mu.Unlock()
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			name, _ := filepath.Rel(filepath.Join(w.dir, "tsdb", "default"), path)
			files = append(files, name)
		}
		return nil
	}
	err = w.stores.Sync(w.t.Context())
	slices.Sort(files)
	return files, err
}

func TestSyncCoversWhatWasWritten(t *testing.T) {
	w := newWorld(t)
	w.writeRaw(&plain, "a@20=1")
	w.writeRaw(&plain, "a@10=1") // out of order, so in the other log
	w.write("b@10=1")
	got, err := w.syncs()
	want := "10s/wal/00000000 10s/wbl/00000000 raw/wal/00000000 raw/wbl/00000000"
	if strings.Join(got, " ") != want || err != nil {
		t.Errorf("synced %v, error %v; want %s", got, err, want)
	}
	if got, _ := w.syncs(); got != nil {
		t.Errorf("synced %v, though nothing was written since the last sync", got)
	}
	w.write("b@20=2")
	if got, _ := w.syncs(); strings.Join(got, " ") != "10s/wal/00000000 10s/wbl/00000000" {
		t.Errorf("synced %v, though only one store was written to", got)
	}
}

// Files that the last process wrote may not have reached the disk.
func TestTheFirstSyncCoversTheLastProcess(t *testing.T) {
	w := newWorld(t)
	w.write("b@10=1")
	w.close()
	w.open()
	if got, _ := w.syncs(); strings.Join(got, " ") != "10s/wal/00000000 10s/wbl/00000000" {
		t.Errorf("synced %v", got)
	}
}

func TestAFailedSyncIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	w.write("b@10=1")
	disk := errors.New("the disk is gone")
	w.stores.fsync = func(string) error { return disk }
	if err := w.stores.Sync(t.Context()); !errors.Is(err, disk) ||
		!strings.Contains(err.Error(), "store 10s of tenant default") {
		t.Errorf("error %v", err)
	}
	if got, err := w.syncs(); len(got) == 0 || err != nil {
		t.Errorf("after a failed sync, the next one synced %v, error %v", got, err)
	}
}

// One tenant's broken store must not keep other tenants from a checkpoint.
func TestABrokenStoreHoldsUpNoSync(t *testing.T) {
	w := newWorld(t)
	w.write("b@10=1")
	st, err := w.stores.forWrite("default", "10s")
	if err != nil {
		t.Fatal(err)
	}
	st.breaks(errors.New("unreadable"))
	w.stores.fsync = func(string) error { return os.ErrPermission }
	w.leavesOut("default/10s")
}

// leavesOut expects that the next sync leaves out the store and syncs the others.
func (w *world) leavesOut(store string) {
	w.t.Helper()
	err := w.stores.Sync(w.t.Context())
	var leftOut *checkpoint.LeftOutError
	if !errors.As(err, &leftOut) || !slices.Equal(leftOut.Stores, []string{store}) {
		w.t.Errorf("a sync that must leave out %s returns %v", store, err)
	}
}

func TestAHangingDiskHoldsUpNoSync(t *testing.T) {
	w := newWorld(t)
	w.write("b@10=1")
	hangs, goes := context.WithCancel(t.Context())
	w.stores.fsync = func(string) error { <-hangs.Done(); return nil }
	w.stores.syncTime = time.Millisecond
	for range 2 {
		w.leavesOut("default/10s")
	}
	if n := strings.Count(w.log.String(), "its disk has not finished a sync"); n != 2 {
		t.Errorf("%d lines report that the disk hangs, want 2: %s", n, w.log.String())
	}
	goes()
	w.stores.syncTime = syncTime
	for st, _ := w.stores.forWrite("default", "10s"); st.syncing.Load(); {
		runtime.Gosched()
	}
	if got, err := w.syncs(); len(got) == 0 || err != nil {
		t.Errorf("after the disk works again: synced %v, error %v", got, err)
	}
}

func TestSyncingFiles(t *testing.T) {
	w := newWorld(t)
	w.write("b@10=1")
	if err := w.stores.Sync(t.Context()); err != nil { // uses the real fsync
		t.Error(err)
	}
}

// Samples of requests are not in the journal, so perhaps no checkpoint ever asks for their sync. Tend
// syncs them.
func TestTendSyncs(t *testing.T) {
	w := newWorld(t)
	w.writeRaw(&plain, "a@20=1")
	if err := w.stores.Tend(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := w.syncs(); got != nil || err != nil {
		t.Errorf("Tend left %v unsynced, error %v", got, err)
	}
}

// A checkpoint and Tend may call Sync at the same time. Neither call may return while the other is
// still syncing a store.
func TestASyncWaitsForTheOneUnderWay(t *testing.T) {
	w := newWorld(t)
	w.write("b@10=1")
	began, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w.stores.fsync = func(string) error {
		once.Do(func() { close(began) })
		<-goOn
		return nil
	}
	first := make(chan error)
	go func() { first <- w.stores.Sync(context.Background()) }()
	<-began
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := w.stores.Sync(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Sync returned %v while another Sync was under way", err)
	}
	close(goOn)
	if err := errors.Join(<-first, w.stores.Sync(t.Context())); err != nil {
		t.Error(err)
	}
}
