package tsdb

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// kernel syncs files as Linux does: a failed sync loses bytes, and later syncs of the file succeed
// without saving these bytes.
type kernel struct {
	mu     sync.Mutex
	fails  func(path string) bool
	lost   map[uint64]bool  // files whose sync failed, by inode
	synced map[uint64]int64 // bytes of a file that survive a power loss, by inode
}

func inodeOf(info os.FileInfo) uint64 { return info.Sys().(*syscall.Stat_t).Ino }

func (w *world) underKernel(fails func(path string) bool) *kernel {
	k := &kernel{fails: fails, lost: map[uint64]bool{}, synced: map[uint64]int64{}}
	w.stores.fsync = k.fsync
	return k
}

func (k *kernel) fsync(path string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	info, err := os.Stat(path)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: syscall.ENOENT}
	}
	if k.fails(path) {
		k.lost[inodeOf(info)] = true
		return &fs.PathError{Op: "sync", Path: path, Err: syscall.EIO}
	}
	if !k.lost[inodeOf(info)] {
		k.synced[inodeOf(info)] = info.Size()
	}
	return nil
}

// powerLoss returns a copy of a directory that has only the synced bytes.
func (k *kernel) powerLoss(t *testing.T, dir string) (image string) {
	t.Helper()
	image = t.TempDir()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		if e.IsDir() {
			return os.MkdirAll(filepath.Join(image, name), 0o777)
		}
		b, err := os.ReadFile(path)
		if err != nil || e.Type()&fs.ModeType != 0 {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		n := min(k.synced[inodeOf(info)], int64(len(b)))
		return os.WriteFile(filepath.Join(image, name), b[:n], 0o666)
	})
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// once(end) returns a function that is true for the first path with the suffix `end`, and false for all
// later ones.
func once(end string) func(path string) bool {
	done := false
	return func(path string) bool {
		hit := !done && strings.HasSuffix(path, end)
		done = done || hit
		return hit
	}
}

// After a checkpoint, the journal drops what the stores have synced. If a sync of a store's log fails,
// the next sync succeeds, but does not save what the first one should have saved. A power loss after
// that must not lose samples that were stored before.
func TestASyncAfterAFailedOneSavesEverything(t *testing.T) {
	for _, end := range []string{"10s/wal/00000000", "10s/wbl/00000000", "10s/wal"} {
		t.Run(end, func(t *testing.T) {
			w := newWorld(t)
			w.write("b@20=1")
			w.write("b@10=1") // out of order, so in the other log
			k := w.underKernel(once(end))
			if err := w.stores.Sync(t.Context()); !errors.Is(err, syscall.EIO) {
				t.Fatalf("sync: %v", err)
			}
			w.write("b@30=2")
			if err := w.stores.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := w.stored("default", "10s")
			if got := w.write("b@40=3"); got != "stored 1" {
				t.Errorf("a write after the syncs: got %s, want stored 1", got)
			}
			if _, err := os.Stat(filepath.Join(w.store10s("default"), unsyncedFile)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the list of unsynced files was not removed: %v", err)
			}
			image := k.powerLoss(t, w.dir)
			w.close()
			w.dir = image
			w.open()
			if got := w.stored("default", "10s"); got != want {
				t.Errorf("after a power loss, the stored samples are %s, want %s", got, want)
			}
		})
	}
}

// While a file cannot be rewritten, syncs fail, but the store still takes samples.
func TestSyncsFailUntilTheFileIsWrittenAnew(t *testing.T) {
	w := newWorld(t)
	w.write("b@10=1")
	w.underKernel(func(path string) bool {
		return strings.HasSuffix(path, "wal/00000000") || strings.HasSuffix(path, unsyncedFile+".tmp")
	})
	for range 3 {
		if err := w.stores.Sync(t.Context()); !errors.Is(err, syscall.EIO) {
			t.Fatalf("sync: %v", err)
		}
	}
	if got := w.write("b@20=1"); got != "stored 1" {
		t.Errorf("a write: %s", got)
	}
	hangs, goes := context.WithCancel(t.Context())
	w.stores.fsync = func(string) error { <-hangs.Done(); return syscall.EIO }
	w.stores.syncTime = time.Millisecond
	if err := w.stores.Sync(t.Context()); err == nil { // Sync may leave out only a store whose disk just hangs
		t.Error("the disk hangs after a failed sync: Sync returned nil, want an error")
	}
	goes()
	w.stores.syncTime = syncTime
	for st, _ := w.stores.forWrite("default", "10s"); st.syncing.Load(); {
		runtime.Gosched()
	}
	w.underKernel(func(string) bool { return false })
	if err := w.stores.Sync(t.Context()); err != nil {
		t.Error(err)
	}
}

// The next process knows which syncs failed, unless the machine has restarted since.
func TestTheNextProcessWritesUnsyncedFilesAnew(t *testing.T) {
	w := newWorld(t)
	w.write("b@10=1")
	log := filepath.Join(w.store10s("default"), "wal", "00000000")
	k := w.underKernel(func(path string) bool { return path == log })
	if err := w.stores.Sync(t.Context()); !errors.Is(err, syscall.EIO) {
		t.Fatalf("sync: %v", err)
	}
	list := filepath.Join(w.store10s("default"), unsyncedFile)
	b, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(list, append(b, "wal/gone\n../foreign\n"...), 0o666); err != nil {
		t.Fatal(err)
	}
	w.close()
	w.open()
	k.fails = func(string) bool { return false }
	w.stores.fsync = k.fsync
	if err := w.stores.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(log)
	if err != nil || k.synced[inodeOf(after)] != after.Size() || after.Size() == 0 {
		t.Errorf("%d bytes of %v survive a power loss, want all; error %v", k.synced[inodeOf(after)], after, err)
	}
}

// tsdb syncs a segment at its end, and logs an error without returning it.
func TestAFailedSyncOfTSDBIsNoticed(t *testing.T) {
	w := newWorld(t)
	w.write("b@10=1")
	k := w.underKernel(func(string) bool { return false })
	if err := w.stores.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	st, err := w.stores.forWrite("default", "10s")
	if err != nil {
		t.Fatal(err)
	}
	segment := filepath.Join(st.dir, "wal", "00000000")
	info, err := os.Stat(segment)
	if err != nil {
		t.Fatal(err)
	}
	k.lost[inodeOf(info)] = true
	delete(k.synced, inodeOf(info))
	failed := &fs.PathError{Op: "sync", Path: segment, Err: syscall.EIO}
	block := &fs.PathError{Op: "sync", Path: filepath.Join(st.dir, "01J", "index"), Err: syscall.EIO}
	logger := st.watchedLogger().With("component", "db").WithGroup("x")
	logger.Error("write a block", "err", block)
	logger.Error("sync previous segment", "err", failed)
	if got := st.failed.all(); len(got) != 1 {
		t.Errorf("unsynced files: %v", got)
	}
	if err := w.stores.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if info, err = os.Stat(segment); err != nil || k.synced[inodeOf(info)] != info.Size() {
		t.Errorf("%d bytes of %v survive a power loss, want all; error %v", k.synced[inodeOf(info)], info, err)
	}
}
