package server

import (
	"os"
	"path/filepath"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/lib/atomicfile"
)

// openDirectory locks the data directory, so that no other process uses it.
func (s *server) openDirectory() error {
	lock, err := files.LockDir(s.config.DataDir)
	if err != nil {
		return err
	}
	s.lock = &lock
	return nil
}

// path returns a path below the data directory.
func (s *server) path(elements ...string) string {
	return filepath.Join(append([]string{s.config.DataDir}, elements...)...)
}

// writeOnce writes a file that is either complete or absent, even after a power loss.
func (s *server) writeOnce(name string, text []byte) error {
	return atomicfile.Write(s.path(name), text)
}

// replace writes a file that other processes read, among them the next image of this process. A reader
// sees either the old or the new content. The file is not synced, since a restart in place must not
// wait for a disk. So a power loss may lose the file.
func (s *server) replace(name string, text []byte) error {
	temp := s.path(name + ".tmp")
	if err := os.WriteFile(temp, text, 0o640); err != nil {
		return err
	}
	return os.Rename(temp, s.path(name))
}

// absolute returns the absolute path of a path. An empty path stays empty.
func absolute(path string) string {
	if whole, err := filepath.Abs(path); err == nil && path != "" {
		return whole
	}
	return path // empty, or the working directory is gone
}
