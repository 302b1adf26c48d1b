package filler

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/files"
)

// writeWhole says that all files are there, safe on disk and checked.
func (f *Filler) writeWhole(last uint64) error {
	text, err := json.Marshal(whole{Last: last})
	if err != nil {
		return err
	}
	dir, err := files.Open(f.path())
	if err != nil {
		return err
	}
	const temp = doneName + ".tmp"
	w, err := dir.Create(temp)
	if err == nil {
		_, err = w.Write(append(text, '\n'))
		err = errors.Join(err, w.Sync(), w.Close())
	}
	if err == nil {
		err = dir.Rename(temp, doneName)
	}
	if err == nil {
		err = dir.SyncDir()
	}
	if err != nil {
		return fmt.Errorf("write that the node is filled: %w", err)
	}
	return nil
}

// Install moves the data of a whole fill to their places in the data directory, which must not be in use. It replaces
// what an earlier fill has left there. After an error or a crash, the next call goes on. Nothing of it counts yet,
// since the node has not joined.
func (f *Filler) Install() error {
	for _, root := range roots {
		from, to := f.path(dataName, root), filepath.Join(f.DataDir, root)
		if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) {
			continue // it is moved already, or the cluster has no such data
		}
		if err := os.RemoveAll(to); err != nil {
			return fmt.Errorf("install the data of another node: %w", err)
		}
		if err := os.Rename(from, to); err != nil {
			return fmt.Errorf("install the data of another node: %w", err)
		}
	}
	if err := files.SyncDir(f.DataDir); err != nil {
		return fmt.Errorf("install the data of another node: %w", err)
	}
	return nil
}

// clear begins a fill: it removes what an earlier one has installed. The order matters, since Install would go on
// with a part of that.
func (f *Filler) clear() error {
	if err := os.MkdirAll(f.path(), 0o750); err != nil {
		return err
	}
	if err := os.Remove(f.path(doneName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := files.SyncDir(f.path()); err != nil {
		return err
	}
	for _, root := range roots {
		if err := os.RemoveAll(filepath.Join(f.DataDir, root)); err != nil {
			return err
		}
	}
	return nil
}

// End removes what a fill has left, once the node has joined.
func (f *Filler) End() error {
	f.mu.Lock()
	f.begun = time.Time{}
	f.mu.Unlock()
	if err := os.RemoveAll(f.path()); err != nil {
		return fmt.Errorf("remove the directory of a fill that has ended: %w", err)
	}
	return nil
}
