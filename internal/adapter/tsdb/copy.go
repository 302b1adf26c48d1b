package tsdb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/oklog/ulid/v2"
)

// Copied is a file of a copy.
type Copied struct {
	Name string // path below the directory of the copy, with slashes
	Size int64  // in bytes; the file may have grown since
}

// CopyBlocks sets aside the blocks of all stores in dir/<tenant>/<store>, as hard links. So dir must be on the same
// file system.
func (s *Stores) CopyBlocks(ctx context.Context, dir string) ([]Copied, error) {
	return s.copyAll(ctx, dir, (*store).copyBlocks)
}

// Copy sets aside everything that a start needs of the stores of a group, in dir/<tenant>/<store>, as hard links.
// It leaves out the chunk files, since the logs have all samples that are in no block. A raw store in the copy has
// the samples of a prefix of its tenant's requests: at its start, CutBack cuts the store back to the end of the copy.
//
// Each store is copied at a different moment, and commits to it wait for as long as the links take. A store that is
// broken cannot be copied.
func (s *Stores) Copy(ctx context.Context, dir string) ([]Copied, error) {
	return s.copyAll(ctx, dir, (*store).copyWhole)
}

func (s *Stores) copyAll(
	ctx context.Context, dir string, one func(*store, context.Context, *linker) error,
) (all []Copied, err error) {
	s.mu.Lock()
	stores := s.allStores()
	s.mu.Unlock()
	for _, st := range stores {
		if _, err := os.Stat(st.dir); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		l := &linker{from: st.dir, to: filepath.Join(dir, st.tenant, st.kind), name: path.Join(st.tenant, st.kind)}
		if err := l.untilWhole(ctx, func() error { return one(st, ctx, l) }); err != nil {
			return nil, fmt.Errorf("copy store %s of tenant %s: %w", st.kind, st.tenant, err)
		}
		all = append(all, l.linked...)
	}
	return all, nil
}

func (s *store) copyBlocks(_ context.Context, l *linker) error { return l.blocks() }

// copyWhole holds up commits, so that the blocks have no sample of a request that the logs in the copy lack.
func (s *store) copyWhole(ctx context.Context, l *linker) error {
	if err := s.copyable(); err != nil {
		return err
	}
	if err := s.lockOpening(ctx); err != nil {
		return err
	}
	defer s.ends.opening.Unlock()
	now, err := s.linkAll(l)
	if err != nil || !s.ends.kept {
		return err
	}
	if err := now.write(l.to, s.fsync); err != nil {
		return err
	}
	return l.note(endsFile)
}

// copyable returns an error if the files on disk may lack samples that the store took.
func (s *store) copyable() error {
	for _, fault := range []*BrokenError{s.broken.Load(), s.ill.Load()} {
		if fault != nil {
			return fault
		}
	}
	if s.damaged.Load() {
		return errDamaged
	}
	if failed := s.failed.all(); len(failed) > 0 {
		return fmt.Errorf("a sync of %s failed, and the file is not rewritten yet", strings.Join(failed, ", "))
	}
	return nil
}

// lockOpening waits until no opening replaces files of the logs.
func (s *store) lockOpening(ctx context.Context) error {
	locked := make(chan struct{})
	go func() {
		s.ends.opening.Lock()
		close(locked)
	}()
	select {
	case <-locked:
		return nil
	case <-ctx.Done():
		go func() {
			<-locked
			s.ends.opening.Unlock()
		}()
		return fmt.Errorf("wait until the store is open: %w", context.Cause(ctx))
	}
}

// linkAll links the logs, and then the blocks: meanwhile, a compaction may move samples from the logs into a block.
// It returns where the logs ended, for a boot that no machine has.
func (s *store) linkAll(l *linker) (now ends, err error) {
	s.committing.Lock()
	defer s.committing.Unlock()
	if s.damaged.Load() {
		return now, errDamaged
	}
	// The ends come before the sizes of the links: a compaction may write markers to the log of late samples.
	if now, err = endsNow(s.dir); err != nil {
		return now, err
	}
	now.requests = s.ends.requests.Load()
	for _, log := range logDirs {
		if err := l.log(log); err != nil {
			return now, err
		}
	}
	return now, l.blocks()
}

// linker links the files of a store into a directory.
type linker struct {
	from, to string
	name     string // of the store, in names of the copy
	linked   []Copied
}

// copyTries bounds how often a copy of a store begins again because compactions removed files meanwhile.
const copyTries = 20

var errCompacting = errors.New("its files changed while they were copied")

// untilWhole begins again as long as files disappear.
func (l *linker) untilWhole(ctx context.Context, try func() error) (err error) {
	for range copyTries {
		if err := errors.Join(context.Cause(ctx), os.RemoveAll(l.to), os.MkdirAll(l.to, 0o750)); err != nil {
			return err
		}
		l.linked = l.linked[:0]
		if err = try(); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errCompacting) {
			return err
		}
	}
	return err
}

// log links one of the logs, with its checkpoint. tsdb removes old segments once a checkpoint has their records, so
// the same files must be there before and after.
func (l *linker) log(log string) error {
	before, err := namesIn(filepath.Join(l.from, log))
	if err != nil {
		return err
	}
	for _, name := range before {
		_, isSegment := segment(name)
		number, isCheckpoint := strings.CutPrefix(name, checkpointPrefix)
		if _, ok := segment(number); isSegment || isCheckpoint && ok {
			if err := l.tree(path.Join(log, name)); err != nil {
				return err
			}
		}
	}
	after, err := namesIn(filepath.Join(l.from, log))
	if err == nil && !slices.Equal(before, after) {
		err = errCompacting
	}
	return err
}

// blocks links all blocks.
func (l *linker) blocks() error {
	names, err := namesIn(l.from)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := ulid.ParseStrict(name); err != nil {
			continue // a log, or a block that is being written or removed
		}
		if err := l.tree(name); err != nil {
			return err
		}
	}
	return nil
}

// tree links a file, or all files of a directory.
func (l *linker) tree(name string) error {
	return filepath.WalkDir(filepath.Join(l.from, filepath.FromSlash(name)),
		func(file string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			within, err := filepath.Rel(l.from, file)
			if err != nil {
				return err
			}
			target := filepath.Join(l.to, within)
			if d.IsDir() {
				return os.MkdirAll(target, 0o750)
			}
			if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
				return err
			}
			if err := os.Link(file, target); err != nil {
				return err
			}
			return l.note(filepath.ToSlash(within))
		})
}

// note adds a file to the list, with its present size.
func (l *linker) note(name string) error {
	info, err := os.Lstat(filepath.Join(l.to, filepath.FromSlash(name)))
	if err == nil {
		l.linked = append(l.linked, Copied{path.Join(l.name, name), info.Size()})
	}
	return err
}
