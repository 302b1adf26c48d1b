//go:build linux

package sockets

import (
	"io/fs"
	"os"
)

// socketFile is the file of a bound Unix socket.
type socketFile struct {
	path string
	info fs.FileInfo
}

// own sets the mode of a new socket file at `path`, and remembers which file it is.
func own(path string, mode fs.FileMode) (socketFile, error) {
	f := socketFile{path: path}
	err := os.Chmod(path, mode)
	if err == nil {
		f.info, err = os.Lstat(path)
	}
	if err != nil {
		_ = os.Remove(path)
	}
	return f, err
}

// boundFile returns the file of a bound socket. If the file no longer exists, a later call of remove
// does nothing.
func boundFile(path string) socketFile {
	f := socketFile{path: path}
	f.info, _ = os.Lstat(path)
	return f
}

// remove removes the file unless a successor has put its own there. It compares the inode and the
// time, because file systems may give a freed inode to the next file.
func (f socketFile) remove() {
	info, err := os.Lstat(f.path)
	if err == nil && os.SameFile(info, f.info) && info.ModTime().Equal(f.info.ModTime()) {
		_ = os.Remove(f.path)
	}
}
