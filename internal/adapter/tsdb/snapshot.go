package tsdb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/index"

	"github.com/freshet-io/freshet/internal/core/tenant"
)

// Content counts the contents of a store's blocks.
type Content struct {
	Tenant, Store string
	Blocks        int
	Series        int // of all blocks: a series in three blocks counts three times
	Samples       uint64
}

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

// blockDirs returns the directories in a snapshot's store. All of them are blocks. It returns none
// if there is no such store.
func blockDirs(dir string) (all []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if e.IsDir() {
			all = append(all, filepath.Join(dir, e.Name()))
		}
	}
	return all, nil
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

func (c *Content) readBlock(ctx context.Context, dir string) (err error) {
	block, err := tsdb.OpenBlock(slog.New(slog.DiscardHandler), dir, nil, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, block.Close()) }()
	idx, err := block.Index()
	if err != nil {
		return err
	}
	defer idx.Close()
	data, err := block.Chunks()
	if err != nil {
		return err
	}
	defer data.Close()
	name, value := index.AllPostingsKey()
	postings, err := idx.Postings(ctx, name, value)
	if err != nil {
		return err
	}
	c.Blocks++
	var b labels.ScratchBuilder
	var metas []chunks.Meta
	series, samples := uint64(0), uint64(0)
	for ; postings.Next(); series++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := readSeries(idx, data, postings.At(), &b, &metas)
		if err != nil {
			return err
		}
		samples += n
	}
	if err := postings.Err(); err != nil {
		return err
	}
	if has := block.Meta().Stats; has.NumSeries != series || has.NumSamples != samples {
		return fmt.Errorf("has %d series and %d samples, and should have %d series and %d samples",
			series, samples, has.NumSeries, has.NumSamples)
	}
	c.Series += int(series)
	c.Samples += samples
	return nil
}

func readSeries(
	idx tsdb.IndexReader, data tsdb.ChunkReader, ref storage.SeriesRef, b *labels.ScratchBuilder, metas *[]chunks.Meta,
) (samples uint64, err error) {
	if err := idx.Series(ref, b, metas); err != nil {
		return 0, fmt.Errorf("series %d: %w", ref, err)
	}
	for _, meta := range *metas {
		chunk, _, err := data.ChunkOrIterable(meta) // checks its checksum, too
		if err != nil {
			return 0, fmt.Errorf("series %s: %w", b.Labels(), err)
		}
		samples += uint64(chunk.NumSamples())
	}
	return samples, nil
}
