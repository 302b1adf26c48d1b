package server

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/freshet-io/freshet/internal/adapter/files"
	"github.com/freshet-io/freshet/internal/answer"
	"github.com/freshet-io/freshet/internal/lib/atomicfile"
	"github.com/freshet-io/freshet/internal/lib/conf"
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

// checkMounts refuses a node's data directory in which stores or logs are on a mount of their own. Nodes give, take and
// set aside data by links and renames, which would fail on the day on which they are needed.
func (s *server) checkMounts() error {
	if s.config.Cluster.Node == "" {
		return nil
	}
	var paths []string
	for _, pattern := range []string{"tsdb", "tsdb/*", "tsdb/*/*", filepath.Dir(answer.GroupPath), answer.GroupPath,
		"events.db", "fill", copiesPath} {
		found, err := filepath.Glob(s.path(filepath.FromSlash(pattern)))
		if err != nil {
			return err
		}
		paths = append(paths, found...)
	}
	path, err := files.Elsewhere(s.config.DataDir, paths)
	if err == nil && path != "" {
		err = conf.Mistake(fmt.Errorf("%s is on another mount than the data directory %s, but a node of a cluster renames "+
			"and links files between them: stop the server, copy the data to one file system, and mount it at %[2]s",
			path, s.config.DataDir))
	}
	return err
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
