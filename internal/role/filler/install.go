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
func (f *Filler) writeWhole(last uint64, life string) error {
	return f.writeJSON(doneName, whole{Last: last, Life: life})
}

// writeJSON writes a small file in the directory of the fill. It is whole or absent, even after a power loss.
func (f *Filler) writeJSON(name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	dir, err := files.Open(f.path())
	if err != nil {
		return err
	}
	temp := name + ".tmp"
	w, err := dir.Create(temp)
	if err == nil {
		_, err = w.Write(append(text, '\n'))
		err = errors.Join(err, w.Sync(), w.Close())
	}
	if err == nil {
		err = dir.Rename(temp, name)
	}
	if err == nil {
		err = dir.SyncDir()
	}
	if err != nil {
		return fmt.Errorf("write how far the node is filled: %w", err)
	}
	return nil
}

// Install moves the data of a whole fill to their places in the data directory, which must not be in use. It replaces
// what an earlier fill has left there. After an error or a crash, the next call goes on. Nothing of it counts
// before the node joins, or takes part again.
func (f *Filler) Install() error {
	for _, root := range roots {
		from, to := f.path(dataName, root), filepath.Join(f.DataDir, root)
		if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) {
			continue // it is moved already
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

// clear begins a fill: from now on, nothing is whole.
func (f *Filler) clear() error {
	if err := os.MkdirAll(f.path(), 0o750); err != nil {
		return err
	}
	if err := os.Remove(f.path(doneName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return files.SyncDir(f.path())
}

// Old is what a member must not forget when its log is replaced.
type Old struct {
	Last uint64 `json:"last"` // the last entry in its log; 0 if it is not known yet
	Term uint64 `json:"term"`
	Vote uint64 `json:"vote"`
}

// Again returns what FillAgain or KeepOld wrote, nil if there is nothing.
func (f *Filler) Again() (*Old, error) {
	o := new(Old)
	err := files.ReadJSON(f.path(againName), o)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read whether the node is filled again: %w", err)
	}
	return o, nil
}

// FillAgain says that the next start fills the node again, although it has joined.
func (f *Filler) FillAgain() error { return f.KeepOld(Old{}) }

// KeepOld keeps what the member must not forget, until End.
func (f *Filler) KeepOld(o Old) error {
	if err := os.MkdirAll(f.path(), 0o750); err != nil {
		return err
	}
	return f.writeJSON(againName, o)
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
