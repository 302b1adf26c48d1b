package segment

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"

	"github.com/freshet-io/freshet/internal/lib/fulldisk"
)

// copyAttempts bounds how often Copy starts over because a log has removed files that Copy was about
// to read.
const copyAttempts = 3

// Copy copies files of one directory to another one, which must be empty. `choose` gets the names in the
// directory, and returns the files to copy, in order. A log may use the directory meanwhile: if the log
// removes one of the files, Copy starts over. A file that grows is copied with its present content. So a
// frame may be cut in two, which a reader sees as a torn tail. Copy returns the number of bytes written.
// The copy survives a power loss.
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
		n, err := copyFile(from, f.Name, to, f.Name, math.MaxInt64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", f.Name, err)
		}
		sizeBytes += n
	}
	return sizeBytes, to.SyncDir()
}

// empty removes the files that an earlier attempt copied to `dir`: the log may have a gap between those
// files and the files that the next attempt copies.
func empty(dir FS) error {
	names, err := dir.List()
	for _, name := range names {
		err = errors.Join(err, dir.Remove(name))
	}
	return err
}

// rewriteTemp is the name of the new file until Rewrite has finished it.
const rewriteTemp = "segment.tmp"

// Rewrite makes the first sizeBytes bytes of a file survive a power loss, and removes the rest. To sync
// the file itself is not enough if an earlier process wrote it: the kernel reports a failed sync only
// once, and later syncs of the file succeed without saving the bytes. So Rewrite writes them to a new
// file, which takes the place of the old one.
//
// A full disk has no room for a new file. Then Rewrite writes the same bytes over the old ones. An
// interruption does no harm, since the old and the new bytes are equal. Rewrite still prefers a new
// file, since a disk that fails may damage the bytes that it replaces.
//
// After an error, or if the process dies, the file still has its first sizeBytes bytes, and may lack the
// rest.
func Rewrite(fs FS, name string, sizeBytes int64) error {
	n, err := copyFile(fs, name, fs, rewriteTemp, sizeBytes)
	if err == nil && n < sizeBytes {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = fs.Rename(rewriteTemp, name)
	}
	if err != nil {
		_ = fs.Remove(rewriteTemp) // to free the space; the next Rewrite replaces the file
		if !fulldisk.Is(err) {
			return err
		}
		if err := overwrite(fs, name, sizeBytes); err != nil {
			return fmt.Errorf("overwrite the file by the same bytes, since its disk is full: %w", err)
		}
	}
	return fs.SyncDir()
}

// overwrite writes the first sizeBytes bytes of a file over themselves, cuts off the rest, and syncs the
// file.
func overwrite(fs FS, name string, sizeBytes int64) error {
	r, size, err := fs.Open(name)
	if err != nil {
		return err
	}
	defer r.Close()
	if size < sizeBytes {
		return io.ErrUnexpectedEOF
	}
	w, err := fs.Overwrite(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, io.NewSectionReader(r, 0, sizeBytes))
	if err == nil {
		err = fs.Truncate(name, sizeBytes)
	}
	if err == nil {
		err = w.Sync()
	}
	return errors.Join(err, w.Close())
}

// copyFile copies at most maxBytes of a file, and syncs the copy. The bytes pass through this process:
// a copy in the kernel could share blocks that a failed sync did not save.
func copyFile(from FS, name string, to FS, newName string, maxBytes int64) (n int64, err error) {
	r, size, err := from.Open(name)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	w, err := to.Create(newName)
	if err != nil {
		return 0, err
	}
	n, err = io.Copy(w, io.NewSectionReader(r, 0, min(size, maxBytes)))
	if err == nil {
		err = w.Sync()
	}
	return n, errors.Join(err, w.Close())
}
