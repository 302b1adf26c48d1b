package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ExplainDenied adds to the error of a file in a directory, which this process may not use because it belongs to
// another user: whose file it is, and the command that gives all files of the directory to this process. Other errors
// stay as they are.
func ExplainDenied(dir string, err error) error {
	at := (*fs.PathError)(nil)
	if !errors.Is(err, fs.ErrPermission) || !errors.As(err, &at) {
		return err
	}
	path, self := at.Path, uint32(os.Geteuid())
	info, statErr := os.Lstat(path)
	for statErr != nil && path != filepath.Dir(path) { // it does not exist, or a directory above it hides it
		path = filepath.Dir(path)
		info, statErr = os.Lstat(path)
	}
	if statErr != nil || path != filepath.Clean(dir) && !strings.HasPrefix(path, filepath.Clean(dir)+"/") {
		return err
	}
	owner, is := info.Sys().(*syscall.Stat_t)
	if !is || owner.Uid == self {
		return err
	}
	name := userName(self)
	return fmt.Errorf("%w; %s belongs to user %s, and this process runs as %s; as root, run chown -R %s:%s %s", err, path,
		userName(owner.Uid), name, name, groupName(uint32(os.Getegid())), dir)
}

// userName returns the name of a user, or the number if it has no name.
func userName(id uint32) string {
	number := strconv.FormatUint(uint64(id), 10)
	if u, err := user.LookupId(number); err == nil {
		return u.Username
	}
	return number
}

func groupName(id uint32) string {
	number := strconv.FormatUint(uint64(id), 10)
	if g, err := user.LookupGroupId(number); err == nil {
		return g.Name
	}
	return number
}
