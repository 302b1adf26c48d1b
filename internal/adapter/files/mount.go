package files

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Elsewhere returns the first path to which no file of a directory can be renamed or linked, since another file system
// is mounted there, or the same one once more. It skips paths that do not exist, and returns "" if there is none.
func Elsewhere(dir string, paths []string) (string, error) {
	home, err := placeOf(dir)
	if err != nil {
		return "", err
	}
	for _, path := range paths {
		p, err := placeOf(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return "", err
		case p != home:
			return path, nil
		}
	}
	return "", nil
}

// place says on which file system a file is, and by which mount.
type place struct {
	major, minor uint32
	mount        uint64 // 0 before Linux 5.8
}

func placeOf(path string) (place, error) {
	var s unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &s); err != nil {
		return place{}, &fs.PathError{Op: "statx", Path: path, Err: err}
	}
	p := place{major: s.Dev_major, minor: s.Dev_minor}
	if s.Mask&unix.STATX_MNT_ID != 0 {
		p.mount = s.Mnt_id
	}
	return p, nil
}
