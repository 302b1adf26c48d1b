package files

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// SyncDir makes the names in a directory survive a power loss.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// SyncDirs calls SyncDir for a directory and all directories below it.
func SyncDirs(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return SyncDir(path)
	})
}

// CopyFile copies a file to a new path. The copy survives a power loss.
func CopyFile(from, to string) error { return CopyFirst(from, to, math.MaxInt64) }

// CopyFirst is CopyFile for the first bytes of a file.
func CopyFirst(from, to string, bytes int64) error {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return err
	}
	_, err = w.ReadFrom(io.LimitReader(r, bytes))
	if err == nil {
		err = w.Sync()
	}
	return errors.Join(err, w.Close())
}

// CopyTree makes the directory `to`, and copies the contents of `from` into it.
func CopyTree(from, to string) error {
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		if d.IsDir() {
			return os.MkdirAll(target, 0o750)
		}
		return CopyFile(path, target)
	})
	if err != nil {
		return err
	}
	return SyncDirs(to)
}
