package tsdb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// unsyncedDirs are the directories of a store whose files tsdb does not sync when it writes them. These
// are the logs, in which tsdb syncs a segment only when the next one begins, and the chunk files into
// which tsdb moves out-of-order samples.
var unsyncedDirs = []string{"wal", "wbl", "chunks_head"}

// syncFiles syncs the store's files. If tsdb removes files meanwhile, their samples are in blocks,
// which tsdb syncs itself. Syncing an unchanged file again costs nothing. After a failed sync,
// syncFiles fails until the file is rewritten: see the method renew.
func (s *store) syncFiles() error {
	if err := s.unsyncable(); err != nil {
		return err
	}
	for _, name := range unsyncedDirs {
		err := filepath.WalkDir(filepath.Join(s.dir, name), func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				err = s.fsync(path)
			}
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return s.failed.failed(s.dir, path, err)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// unsyncable returns an error if the sync of a file failed before, and the file is not rewritten yet.
func (s *store) unsyncable() error {
	failed := s.failed.all()
	if len(failed) == 0 {
		return nil
	}
	return fmt.Errorf("an earlier sync of %s failed, and the files are not rewritten yet: see the log",
		strings.Join(failed, ", "))
}

// unsyncedFile is the file in a store's directory that lists the store's unsynced files, one a line.
const unsyncedFile = "unsynced"

// unsyncedFiles are the files of a store whose sync failed. The kernel reports a failed sync only
// once: later syncs succeed without saving the bytes. So the files are rewritten before the store
// counts as synced. The list in the store's directory is for the next process on the same boot of the
// machine. It need not survive a power loss, because a process on another boot reads what the disk
// really has.
type unsyncedFiles struct {
	mu    sync.Mutex
	paths []string // below the store's directory
}

// all returns a copy of the list.
func (u *unsyncedFiles) all() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.paths)
}

// read adds the files that an earlier process listed.
func (u *unsyncedFiles) read(dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, unsyncedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for line := range bytes.Lines(b) {
		if path := strings.TrimSuffix(string(line), "\n"); filepath.IsLocal(path) {
			u.paths = append(u.paths, path)
		}
	}
	return err
}

// failed(dir, path, err) adds the file at `path` to the list if `err` says that its sync failed. A file
// that could not be opened has lost nothing, so it is not added. The method returns err, joined with any
// further error.
func (u *unsyncedFiles) failed(dir, path string, err error) error {
	var of *fs.PathError
	if errors.As(err, &of) && of.Op == "open" {
		return err
	}
	path, failed := filepath.Rel(dir, path)
	if failed != nil {
		return errors.Join(err, failed)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if slices.Contains(u.paths, path) {
		return err
	}
	u.paths = append(u.paths, path)
	return errors.Join(err, u.write(dir))
}

// replaced removes a file from the list. Its caller has just written that file anew.
func (u *unsyncedFiles) replaced(dir, path string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.paths = slices.DeleteFunc(u.paths, func(p string) bool { return p == path })
	return u.write(dir)
}

// write writes the list. It is called with mu held.
func (u *unsyncedFiles) write(dir string) error {
	name := filepath.Join(dir, unsyncedFile)
	if len(u.paths) == 0 {
		if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	return os.WriteFile(name, []byte(strings.Join(u.paths, "\n")+"\n"), 0o640)
}

// syncErrors is the log handler of a database. tsdb syncs a segment when the segment ends and when the
// database closes. If such a sync fails, tsdb only logs the error, so the handler looks for these
// errors.
type syncErrors struct {
	slog.Handler
	failed func(path string, err error)
}

// Handle implements slog.Handler.
func (h syncErrors) Handle(ctx context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		var of *fs.PathError
		if err, is := a.Value.Any().(error); is && errors.As(err, &of) && of.Op == "sync" {
			h.failed(of.Path, err)
		}
		return true
	})
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h syncErrors) WithAttrs(attrs []slog.Attr) slog.Handler {
	return syncErrors{h.Handler.WithAttrs(attrs), h.failed}
}

// WithGroup implements slog.Handler.
func (h syncErrors) WithGroup(name string) slog.Handler {
	return syncErrors{h.Handler.WithGroup(name), h.failed}
}

// replace rewrites a file of a store, and syncs it. If the path is a directory, replace instead makes
// and removes a file in it, so that the sync has something to save. The database must be closed. A
// missing file needs nothing: its samples are in a block.
func replace(dir, path string, fsync func(path string) error) error {
	path = filepath.Join(dir, path)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	temp := filepath.Join(dir, unsyncedFile+".tmp")
	defer os.Remove(temp)
	if info.IsDir() {
		within := filepath.Join(path, unsyncedFile+".tmp")
		if err := errors.Join(os.WriteFile(within, nil, 0o640), os.Remove(within)); err != nil {
			return err
		}
		return fsync(path)
	}
	if err := duplicate(path, temp); err != nil {
		return err
	}
	if err := fsync(temp); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return fsync(filepath.Dir(path))
}

// duplicate copies a file through the memory of this process. A copy in the kernel could share blocks
// that the failed sync did not save.
func duplicate(from, to string) error {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	_ = os.Remove(to) // left by a process that died; the copy must not reuse the old file's blocks
	w, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = io.Copy(struct{ io.Writer }{w}, struct{ io.Reader }{r})
	return errors.Join(err, w.Close())
}
