package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Space is the size of a file system, in bytes.
type Space struct {
	Free uint64 // that this process may use
	Size uint64
}

// SpaceOf returns the space of the file system that has a file or directory. It waits for no disk, but may wait for
// the network if the file system is a remote one.
func SpaceOf(path string) (Space, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return Space{}, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	return Space{Free: s.Bavail * uint64(s.Bsize), Size: s.Blocks * uint64(s.Bsize)}, nil
}

// blockBytes is the unit of Stat_t.Blocks on every file system.
const blockBytes = 512

// DiskBytes returns what a tree of directories takes on its disk. Files that disappear meanwhile do not count.
func DiskBytes(root string) (total uint64, err error) {
	err = filepath.WalkDir(root, func(_ string, e fs.DirEntry, err error) error {
		if err == nil {
			var info fs.FileInfo
			if info, err = e.Info(); err == nil {
				total += allocated(info)
			}
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	})
	return total, err
}

func allocated(info fs.FileInfo) uint64 {
	if s, is := info.Sys().(*syscall.Stat_t); is {
		return uint64(s.Blocks) * blockBytes
	}
	return uint64(info.Size())
}
