package tsdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/freshet-io/freshet/internal/core/tenant"
)

// CheckCopy reads everything in a copy that Copy made, below `root`, which no process may have used. Everything in
// the stores has a checksum. An error names the file that is damaged, and so does DamagedCopyError.
func CheckCopy(ctx context.Context, root string) error {
	tenants, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("check the copy of the stores: %w", err)
	}
	for _, t := range tenants {
		if err := tenant.Check(t.Name()); err != nil {
			return fmt.Errorf("check the copy of the stores: %w", err)
		}
		for _, kind := range kinds {
			if err := checkStore(ctx, filepath.Join(root, t.Name(), kind)); err != nil {
				return fmt.Errorf("store %s of tenant %s: %w", kind, t.Name(), err)
			}
		}
	}
	return nil
}

// DamagedCopyError says which part of a copy is damaged: a block, or a log.
type DamagedCopyError struct {
	Path  string
	Cause error
}

// Error names the path.
func (e *DamagedCopyError) Error() string { return fmt.Sprintf("%s: %v", e.Path, e.Cause) }

func (e *DamagedCopyError) Unwrap() error { return e.Cause }

func checkStore(ctx context.Context, dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	names, err := namesIn(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if len(name) != blockName {
			continue
		}
		var c Content
		meta, err := readMeta(filepath.Join(dir, name))
		if err := cmp.Or(err, meta.damage, c.readBlock(ctx, filepath.Join(dir, name))); err != nil {
			return errors.Join(ctx.Err(), &DamagedCopyError{filepath.Join(dir, name), err})
		}
	}
	if err := examine(dir); err != nil {
		return &DamagedCopyError{filepath.Join(dir, "wal"), err}
	}
	for _, log := range logDirs {
		if err := checkLog(filepath.Join(dir, log)); err != nil {
			return &DamagedCopyError{filepath.Join(dir, log), err}
		}
	}
	return nil
}

// checkLog reads all records of a log. It finds a record that says wrongly how it is compressed, which tsdb would leave
// out. The last record of the log of late samples may be torn, since a compaction writes markers to it at any time.
func checkLog(log string) error {
	found, err := segmentsOf(log)
	if err == nil && found.checkpoint >= 0 {
		err = checkCheckpoint(filepath.Join(log, fmt.Sprintf(checkpointPrefix+"%08d", found.checkpoint)))
	}
	if err != nil {
		return err
	}
	return checkSegments(log, found.numbers, filepath.Base(log) == "wbl")
}
