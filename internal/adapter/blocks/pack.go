package blocks

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// member matches the files that a block has. Others, such as Thanos' marks, do not belong to it.
var member = regexp.MustCompile(`^(meta\.json|index|tombstones|chunks/[0-9]{6})$`)

// IsFile reports whether a block has a file of this name, which is relative to its directory and has slashes.
func IsFile(name string) bool { return member.MatchString(name) }

// filesOf returns the files of the block in a directory, with their sizes in bytes.
func filesOf(dir string) (names []string, sizes map[string]int64, err error) {
	sizes = map[string]int64{}
	if dir, err = filepath.EvalSymlinks(dir); err != nil { // WalkDir follows no links
		return nil, nil, err
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || !IsFile(filepath.ToSlash(name)) {
			return err
		}
		info, err := os.Stat(path) // a directory of blocks may be made of links
		if err != nil {
			return err
		}
		names, sizes[filepath.ToSlash(name)] = append(names, filepath.ToSlash(name)), info.Size()
		return nil
	})
	return names, sizes, err
}

// Bytes returns how many bytes the files of the block in a directory have.
func Bytes(dir string) (n int64, err error) {
	_, sizes, err := filesOf(dir)
	for _, size := range sizes {
		n += size
	}
	return n, err
}

// Pack writes the files of the block in a directory as a tar archive.
func Pack(w io.Writer, dir string) error {
	names, sizes, err := filesOf(dir)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(w)
	for _, name := range names {
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o640, Size: sizes[name]}); err != nil {
			return err
		}
		if err := copyFile(archive, filepath.Join(dir, filepath.FromSlash(name))); err != nil {
			return err
		}
	}
	return archive.Close()
}

func copyFile(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

// errTooLarge is the error of an archive with more bytes than its sender announced.
var errTooLarge = errors.New("the block has more bytes than were announced")

// Unpack writes the files of an archive that Pack made into a directory. Together they may have `most` bytes.
func Unpack(r io.Reader, dir string, most int64) error {
	if err := os.MkdirAll(filepath.Join(dir, "chunks"), 0o777); err != nil {
		return err
	}
	archive := tar.NewReader(r)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the archive with the block: %w", err)
		}
		if header.Typeflag != tar.TypeReg || !IsFile(header.Name) {
			return fmt.Errorf("the archive has %.80q, which is no file of a block", header.Name)
		}
		if most -= header.Size; most < 0 {
			return errTooLarge
		}
		if err := writeFile(filepath.Join(dir, filepath.FromSlash(header.Name)), archive); err != nil {
			return fmt.Errorf("write %s of the block: %w", header.Name, err)
		}
	}
}

func writeFile(path string, from io.Reader) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}
