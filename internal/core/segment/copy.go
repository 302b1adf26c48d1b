package segment

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// copyAttempts bounds how often Copy starts over because a log has removed files that Copy was about
// to read.
const copyAttempts = 3

// Copy writes files of one directory to another one, which must be empty. `choose` returns the files to copy,
// in that order, among the names of the directory. A log may be in use meanwhile: if it removes one of
// the files, Copy starts over. A file that grows is copied with its present content, so a frame may be cut
// in two, which is a torn tail to a reader. Copy returns the number of bytes written. The copy survives a
// power loss.
func Copy(from, to FS, choose func(names []string) []File) (sizeBytes int64, err error) {
	for range copyAttempts {
		sizeBytes, err = copyOnce(from, to, choose)
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return 0, err
	}
	return sizeBytes, nil
}

func copyOnce(from, to FS, choose func(names []string) []File) (sizeBytes int64, err error) {
	if err := empty(to); err != nil {
		return 0, err
	}
	names, err := from.List()
	if err != nil {
		return 0, err
	}
	for _, f := range choose(names) {
		n, err := copyFile(from, to, f.Name)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", f.Name, err)
		}
		sizeBytes += n
	}
	return sizeBytes, to.SyncDir()
}

// empty removes what an earlier attempt copied: the log may have a gap between it and the files that the
// next attempt copies.
func empty(dir FS) error {
	names, err := dir.List()
	for _, name := range names {
		err = errors.Join(err, dir.Remove(name))
	}
	return err
}

func copyFile(from, to FS, name string) (n int64, err error) {
	r, size, err := from.Open(name)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	w, err := to.Create(name)
	if err != nil {
		return 0, err
	}
	n, err = io.Copy(w, io.NewSectionReader(r, 0, size))
	if err == nil {
		err = w.Sync()
	}
	return n, errors.Join(err, w.Close())
}
