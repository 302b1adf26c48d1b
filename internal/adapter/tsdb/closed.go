package tsdb

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// closedFile is a file that does not change any more, or the last file with chunks of the head.
type closedFile struct {
	path  string
	bytes int64
	check func(pace func(bytes int64) error) error
}

// closedFiles lists the blocks, the complete segments and the chunks of the head of a store.
func (s *store) closedFiles() (all []closedFile) {
	dirs, _ := blockDirs(s.dir) // the opening reports an error
	for _, dir := range dirs {
		if len(filepath.Base(dir)) == blockName {
			all = append(all, closedFile{dir, treeBytes(dir), func(pace func(int64) error) error {
				if err := s.keepMeta(dir); err != nil {
					return err
				}
				return (&Content{pace: pace}).readBlock(context.Background(), dir)
			}})
		}
	}
	whole := func(path string, check func() error) {
		info, err := os.Stat(path)
		if err != nil {
			return // a compaction has removed it
		}
		all = append(all, closedFile{path, info.Size(), func(pace func(int64) error) error {
			if err := check(); err != nil {
				return err
			}
			return pace(info.Size())
		}})
	}
	for _, log := range logDirs {
		dir := filepath.Join(s.dir, log)
		found, _ := segmentsOf(dir)
		for _, number := range found.numbers[:max(0, len(found.numbers)-1)] {
			path := segmentPath(dir, number)
			whole(path, func() error { return checkSegment(path, false) })
		}
	}
	chunks := headFiles(s.dir)
	for i, path := range chunks {
		whole(path, func() error { return checkHeadFile(path, i+1 == len(chunks)) })
	}
	return all
}

func treeBytes(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // the reader reports the error
		}
		if info, err := e.Info(); err == nil && !e.IsDir() {
			n += info.Size()
		}
		return nil
	})
	return n
}

// check reads the closed files of a store, and notes whether one of them is damaged. pace is called with the number of
// bytes that were read; an error of it ends the check.
func (s *store) check(pace func(bytes int64) error) {
	var damage error
	for _, f := range s.closedFiles() {
		err := f.check(pace)
		if _, ended := errors.AsType[endedError](err); ended {
			return
		}
		if _, gone := os.Stat(f.path); err == nil || errors.Is(gone, fs.ErrNotExist) || environment(err) != nil {
			continue // a compaction has removed the file, or the disk has an error
		}
		if damaged := (*damageError)(nil); !errors.As(err, &damaged) {
			err = &damageError{f.path, -1, err}
		}
		damage = err
		break
	}
	s.noteDamage(damage)
}

// endedError says that the scrub ended before it had read a file.
type endedError struct{ error }

func ended(err error) error {
	if err == nil {
		return nil
	}
	return endedError{err}
}
