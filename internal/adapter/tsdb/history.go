package tsdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/freshet-io/freshet/internal/lib/pagefault"
)

var (
	// ErrImported means that the history has the block already.
	ErrImported = errors.New("the block is imported already")

	// ErrImporting means that another import of the block is under way.
	ErrImporting = errors.New("another request is importing the block; try again when it is done")

	// ErrNotImported means that the history has no such block.
	ErrNotImported = errors.New("the history has no such block")
)

// BadBlockError says what is wrong with a block that was to be imported.
type BadBlockError struct {
	error
	dir string // of the block, which says nothing to its sender
}

// Error implements error.
func (e BadBlockError) Error() string { return strings.ReplaceAll(e.error.Error(), e.dir+"/", "") }

// Unwrap returns the cause.
func (e BadBlockError) Unwrap() error { return e.error }

// importError returns an error of the disk as it is, and any other as one of the block in the directory. A file that is
// missing, or there twice, is the sender's mistake.
func importError(dir string, err error) error {
	cause, failed := errors.AsType[syscall.Errno](err)
	_, unreadable := errors.AsType[*pagefault.Error](err)
	if unreadable || failed && cause != syscall.ENOENT && cause != syscall.EEXIST {
		return err
	}
	return BadBlockError{err, dir}
}

// Import adds a block to the history of a tenant: `fill` writes the block's files to a directory. Import then reads
// the whole block, and compares it with its checksums and with the counts in its metadata. When it returns, queries
// see the block, and it survives a power loss. After an error, the history is as before.
//
// The caller has admitted the tenant.
func (s *Stores) Import(ctx context.Context, tenant string, id ulid.ULID, fill func(dir string) error) (
	meta tsdb.BlockMeta, err error,
) {
	return s.receive(ctx, tenant, id, id, fill, func(st *store, part string) error {
		return s.putBlock(context.WithoutCancel(ctx), st, part, filepath.Join(st.dir, id.String()))
	})
}

// receive does what Import says, and hands the checked block to put, which gives it a place. The block is called `id`
// from then on; `was` is its name in the metadata that came.
func (s *Stores) receive(ctx context.Context, tenant string, id, was ulid.ULID, fill func(dir string) error,
	put func(st *store, part string) error,
) (meta tsdb.BlockMeta, err error) {
	st, err := s.forWrite(tenant, History)
	if err != nil {
		return meta, err
	}
	home := filepath.Dir(st.dir)
	part := filepath.Join(home, partsDir, id.String())
	if err := os.MkdirAll(filepath.Dir(part), 0o777); err != nil {
		return meta, err
	}
	if err := os.Mkdir(part, 0o777); errors.Is(err, fs.ErrExist) {
		return meta, ErrImporting
	} else if err != nil {
		return meta, err
	}
	defer os.RemoveAll(part) // does nothing once the block has its place
	for _, dir := range []string{st.dir, filepath.Join(home, stagedDir)} {
		if _, err := os.Stat(filepath.Join(dir, id.String())); err == nil {
			return meta, ErrImported
		}
	}
	if err = fill(part); err == nil {
		meta, err = st.adopt(ctx, part, id, was)
	}
	if err != nil {
		return meta, importError(part, fmt.Errorf("block %s: %w", id, err))
	}
	return meta, put(st, part)
}

// putBlock moves a block to its place in the history, and shows it to queries. If that fails, it moves the block back.
// A client that leaves meanwhile must not end it, so ctx has no end.
func (s *Stores) putBlock(ctx context.Context, st *store, part, whole string) error {
	if err := os.MkdirAll(st.dir, 0o777); err != nil {
		return err
	}
	if err := os.Rename(part, whole); err != nil {
		return err
	}
	err := s.syncBlock(st)
	if err == nil {
		err = st.reload(ctx)
	}
	if err != nil {
		return errors.Join(err, os.Rename(whole, part))
	}
	return nil
}

// syncBlock makes the place of a new block survive a power loss.
func (s *Stores) syncBlock(st *store) error {
	for _, dir := range []string{st.dir, filepath.Dir(st.dir), s.dir} {
		if err := s.fsync(dir); err != nil {
			return err
		}
	}
	return nil
}

// The bounds of an imported block's time, in Unix milliseconds. No query can name a time outside of them.
const (
	firstTime = -62135596800000 // 0001-01-01
	lastTime  = 253402300800000 // 10000-01-01, exclusive
)

// adopt checks a block, replaces its metadata, and syncs its files. Of the metadata it keeps the times and the counts:
// as soon as a block says that it was made of others, tsdb deletes these, and it deletes blocks that say they may be.
func (s *store) adopt(ctx context.Context, dir string, id, called ulid.ULID) (meta tsdb.BlockMeta, err error) {
	text, err := os.ReadFile(filepath.Join(dir, metaFile))
	if err != nil {
		return meta, err
	}
	if err := judgeMeta(called.String(), text, nil); err != nil {
		return meta, fmt.Errorf("%s: %w", metaFile, err)
	}
	var was tsdb.BlockMeta
	if err := json.Unmarshal(text, &was); err != nil {
		return meta, fmt.Errorf("%s: %w", metaFile, err)
	}
	if was.MinTime < firstTime || was.MaxTime > lastTime {
		return meta, fmt.Errorf("%s: minTime is %d and maxTime %d ms; they must be within the years 1 to 9999",
			metaFile, was.MinTime, was.MaxTime)
	}
	meta = tsdb.BlockMeta{ULID: id, MinTime: was.MinTime, MaxTime: was.MaxTime, Version: was.Version, Stats: was.Stats,
		Compaction: tsdb.BlockMetaCompaction{Level: 1, Sources: []ulid.ULID{id}}}
	if text, err = json.MarshalIndent(meta, "", "\t"); err != nil {
		return meta, err
	}
	if err := putFile(dir, metaFile, metaNewFile, text, s.fsync); err != nil {
		return meta, err
	}
	if err := (&Content{strict: true}).readBlock(ctx, dir); err != nil {
		return meta, err
	}
	if err := s.keepMeta(dir); err != nil {
		return meta, err
	}
	return meta, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return s.fsync(path)
	})
}

// RemoveImported removes a block from the history of a tenant. It waits for queries that read the block.
func (s *Stores) RemoveImported(ctx context.Context, tenant string, id ulid.ULID) error {
	st, err := s.forRead(tenant, History)
	if err != nil {
		return err
	}
	if st == nil {
		return ErrNotImported
	}
	dir := filepath.Join(st.dir, id.String())
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return ErrNotImported
	}
	st.unwanted.add(id)
	defer st.unwanted.remove(id)
	err = st.reload(ctx)
	if _, broken := errors.AsType[*BrokenError](err); !broken {
		return err
	}
	// The store cannot be opened, perhaps because of this block. No query reads it then.
	part := filepath.Join(filepath.Dir(st.dir), partsDir, id.String())
	if err := os.MkdirAll(filepath.Dir(part), 0o777); err != nil {
		return err
	}
	if err := os.Rename(dir, part); err != nil {
		return err
	}
	return errors.Join(s.fsync(st.dir), os.RemoveAll(part))
}

// ImportedBytes returns the size of the files of an imported block.
func (s *Stores) ImportedBytes(tenant string, id ulid.ULID) int64 {
	return treeBytes(filepath.Join(s.dir, tenant, History, id.String()))
}

// reload makes the database read the names in its directory again. It opens a database that is closed.
func (s *store) reload(ctx context.Context) error {
	db, err := s.read(ctx)
	if db == nil {
		return err
	}
	defer s.release()
	// There is nothing to compact. Afterwards tsdb reads its directory, which it else does once a minute.
	return db.CompactOOOHead(ctx)
}
