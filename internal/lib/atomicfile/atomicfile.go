// Package atomicfile writes small files that a reader, even one after a power loss, finds either with all
// of their new content or with all of their old one.
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/freshet-io/freshet/internal/lib/fault"
)

// Write writes a file, by way of PATH.tmp. It returns when the content is on the disk.
func Write(path string, text []byte) error {
	temp := path + ".tmp"
	created, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	f := fault.File(created)
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return errors.Join(os.Rename(temp, path), syncDir(path))
}

// Remove removes a file. It returns when the file is gone from the disk.
func Remove(path string) error { return errors.Join(os.Remove(path), syncDir(path)) }

// syncDir makes the names in the directory of a file survive a power loss.
func syncDir(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
