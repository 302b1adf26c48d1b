package tsdb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/freshet-io/freshet/internal/core/tenant"
)

// Snapshot copies every store on disk into dir/<tenant>/<store> as blocks, and calls `done` after
// each. Blocks are hard links, so dir must be on the same file system. The samples in memory become
// one more block. Each store is copied at a different moment, and writes go on meanwhile.
func (s *Stores) Snapshot(ctx context.Context, dir string, done func(Content)) error {
	s.mu.Lock()
	all := s.allStores()
	s.mu.Unlock()
	for _, st := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		blocks, err := st.snapshot(ctx, filepath.Join(dir, st.tenant, st.kind))
		if err != nil {
			return fmt.Errorf("snapshot store %s of tenant %s: %w", st.kind, st.tenant, err)
		}
		if blocks > 0 {
			done(Content{Tenant: st.tenant, Store: st.kind, Blocks: blocks})
		}
	}
	return nil
}

func (s *store) snapshot(ctx context.Context, dir string) (blocks int, err error) {
	db, err := s.read(ctx)
	if db == nil {
		return 0, err
	}
	defer s.release()
	// tsdb's snapshot of the head leaves out samples that came out of order.
	if err := db.CompactOOOHead(ctx); err != nil {
		return 0, err
	}
	if err := db.Snapshot(dir, true); err != nil {
		return 0, err
	}
	ids, err := blockDirs(dir)
	return len(ids), err
}

// Verify reads everything below dataDir/tsdb, and calls `done` after each store. The directory must be a
// snapshot that no process has used. Every index entry and every chunk has a checksum. An error names
// the block.
func Verify(ctx context.Context, dataDir string, done func(Content)) error {
	root := filepath.Join(dataDir, "tsdb")
	tenants, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("verify the stores: %w", err)
	}
	for _, t := range tenants {
		if tenant.Check(t.Name()) != nil {
			continue
		}
		for _, kind := range kinds {
			c := Content{Tenant: t.Name(), Store: kind}
			if err := c.read(ctx, filepath.Join(root, t.Name(), kind)); err != nil {
				return fmt.Errorf("verify store %s of tenant %s: %w", kind, t.Name(), err)
			}
			if c.Blocks > 0 {
				done(c)
			}
		}
	}
	return nil
}

// read adds up the contents of all blocks of a store.
func (c *Content) read(ctx context.Context, dir string) error {
	blocks, err := blockDirs(dir)
	if err != nil {
		return err
	}
	for _, block := range blocks {
		if err := c.readBlock(ctx, block); err != nil {
			return fmt.Errorf("block %s: %w", filepath.Base(block), err)
		}
	}
	return nil
}
