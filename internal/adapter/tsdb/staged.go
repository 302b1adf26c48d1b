package tsdb

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/freshet-io/freshet/internal/core/tenant"
)

// Stage does what Import does, but no query sees the block until Show. It survives restarts meanwhile. The block is
// called `id` from then on; `was` is its name in the metadata that came.
func (s *Stores) Stage(ctx context.Context, tenant string, id, was ulid.ULID, fill func(dir string) error) (
	meta tsdb.BlockMeta, err error,
) {
	return s.receive(ctx, tenant, id, was, fill, func(st *store, part string) error {
		home, staged := filepath.Dir(st.dir), s.stagedBlock(tenant, id)
		if err := os.MkdirAll(filepath.Dir(staged), 0o777); err != nil {
			return err
		}
		s.moving.Store(staged, nil)
		defer s.moving.Delete(staged)
		if err := os.Rename(part, staged); err != nil {
			return err
		}
		for _, dir := range []string{filepath.Dir(staged), home, s.dir} {
			if err := s.fsync(dir); err != nil {
				return errors.Join(err, os.RemoveAll(staged))
			}
		}
		return nil
	})
}

// Show makes queries see a block that was staged.
func (s *Stores) Show(ctx context.Context, tenant string, id ulid.ULID) error {
	st, err := s.forWrite(tenant, History)
	if err != nil {
		return err
	}
	whole := s.shownBlock(tenant, id)
	s.moving.Store(whole, nil)
	defer s.moving.Delete(whole)
	return s.putBlock(ctx, st, s.stagedBlock(tenant, id), whole)
}

func (s *Stores) stagedBlock(tenant string, id ulid.ULID) string {
	return filepath.Join(s.dir, tenant, stagedDir, id.String())
}

func (s *Stores) shownBlock(tenant string, id ulid.ULID) string {
	return filepath.Join(s.dir, tenant, History, id.String())
}

// Imported reports whether queries see an imported block, and whether it is staged. It is staged once it survives a
// power loss. A block that has its place is staged until the database has read it.
func (s *Stores) Imported(tenant string, id ulid.ULID) (shown, staged bool) {
	// Stage and Show may move the block meanwhile: in this order, the block is seen at one of its places.
	staged, moves := s.blockAt(s.stagedBlock(tenant, id))
	staged = staged && !moves
	if shown, moves = s.blockAt(s.shownBlock(tenant, id)); moves {
		return false, true
	}
	return shown, staged && !shown
}

// blockAt reports whether a block is at a path, and whether it is still being moved there.
func (s *Stores) blockAt(path string) (is, moves bool) {
	info, err := os.Stat(path)
	_, moves = s.moving.Load(path) // before Stat, it would miss a move that begins in between
	return err == nil && info.IsDir(), moves
}

// RemoveStaged removes a staged block, if it is there.
func (s *Stores) RemoveStaged(tenant string, id ulid.ULID) error {
	return os.RemoveAll(s.stagedBlock(tenant, id))
}

// Staged is a block that no query sees.
type Staged struct {
	Tenant string
	Block  ulid.ULID
}

// AllStaged returns the staged blocks of all tenants.
func (s *Stores) AllStaged() (all []Staged, err error) {
	found, err := fs.Glob(os.DirFS(s.dir), "*/"+stagedDir+"/*")
	for _, path := range found {
		id, bad := ulid.ParseStrict(filepath.Base(path))
		name := filepath.Dir(filepath.Dir(path))
		if bad == nil && tenant.Check(name) == nil {
			all = append(all, Staged{name, id})
		}
	}
	return all, err
}

// OpenImported opens a file of an imported block for another node. The name is one of ImportedFiles.
func (s *Stores) OpenImported(tenant string, id ulid.ULID, name string) (file *os.File, err error) {
	if !fs.ValidPath(name) {
		return nil, fmt.Errorf("the file %.80q is not in a block", name)
	}
	for _, dir := range []string{s.stagedBlock(tenant, id), s.shownBlock(tenant, id)} {
		if file, err = os.Open(filepath.Join(dir, filepath.FromSlash(name))); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNotImported
	}
	return file, err
}

// ImportedFile is a file of a block.
type ImportedFile struct {
	Name   string // below the directory of the block, with slashes
	Size   int64
	SHA256 [sha256.Size]byte
}

// StagedFiles returns the files of a staged block, with their hashes, by name. The copy of the metadata is not among
// them: each node makes its own.
func (s *Stores) StagedFiles(ctx context.Context, tenant string, id ulid.ULID) (all []ImportedFile, err error) {
	dir := s.stagedBlock(tenant, id)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err = errors.Join(err, context.Cause(ctx)); err != nil || d.IsDir() || d.Name() == metaCopyFile {
			return err
		}
		within, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		file, err := hashFile(path)
		file.Name = filepath.ToSlash(within)
		all = append(all, file)
		return err
	})
	slices.SortFunc(all, func(a, b ImportedFile) int { return cmp.Compare(a.Name, b.Name) })
	return all, err
}

func hashFile(path string) (file ImportedFile, err error) {
	f, err := os.Open(path)
	if err != nil {
		return file, err
	}
	defer f.Close()
	hash := sha256.New()
	if file.Size, err = io.Copy(hash, f); err == nil {
		hash.Sum(file.SHA256[:0])
	}
	return file, err
}
