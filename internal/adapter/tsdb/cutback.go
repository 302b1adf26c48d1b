package tsdb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/tombstones"

	"github.com/freshet-io/freshet/internal/lib/pagefault"
)

// A raw store has two logs: `wal`, and `wbl` for samples out of order. After a power loss, any part of
// what was written to a log since its last sync may be missing, so the two logs may end at different
// requests. The store may then have samples of one request, but lack samples of an earlier one. If
// requests are written to such a store again, their fates may differ from those on other members.
//
// Therefore a group's stores are cut back after a power loss. Each sync saves where the logs ended. A
// start on another boot of the machine removes everything behind these ends, and the group writes the
// requests since then again, from its own log. A cut does not reach blocks, which also have samples of
// the logs. So before a block is put into place, the logs are synced and their ends saved.

// CutBack cuts the raw stores of a group back to their last sync, unless that sync was in the present
// boot of the machine. From now on, the stores save the ends of their logs. `boot` names the present
// boot; an empty name means that the boot is unknown, and it then counts as another one. `requests`
// has, by queue (write.QueueOf), how many requests the restored state has. All later requests must be written again.
// Call CutBack before the first use of a store.
//
// CutBack does not cut a store if the cut would remove requests of the restored state, as after a failed
// sync: the group would not write these requests again.
//
// A server outside of a group does not call CutBack, because no other log has its requests.
func (s *Stores) CutBack(boot string, requests map[string]uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.boot, s.requests = boot, requests
	s.inGroup = true
	for _, name := range slices.Sorted(maps.Keys(s.tenants)) { // sorted, so that a simulation repeats its run
		for _, st := range s.tenants[name] {
			st.ends.boot = boot
		}
		for _, kind := range requestKinds {
			st := s.tenants[name][kind]
			st.keepEnds(boot, requests[st.queue()])
			if err := st.cutBack(boot); err != nil {
				st.logger.Error("a store could not be cut back to its last sync: if the power was lost, this member may decide "+
					"differently from the other members", "err", err)
			}
		}
	}
}

// keepEnds makes the store save the ends of its logs.
func (s *store) keepEnds(boot string, requests uint64) {
	s.ends.kept, s.ends.boot = true, boot
	s.ends.requests.Store(requests)
}

// cutBack cuts the store back to its last sync, unless that sync was in the present boot.
func (s *store) cutBack(boot string) error {
	if info, err := os.Stat(s.dir); err != nil || !info.IsDir() {
		return nil // the opening reports an error
	}
	last, found, err := readEnds(s.dir)
	if err != nil || !found { // the store was not in a group before
		return errors.Join(err, s.saveEnds())
	}
	restored := s.ends.requests.Load()
	s.ends.has(last.requests)
	if boot != "" && last.boot == boot {
		return nil
	}
	wal, wbl := filepath.Join(s.dir, "wal"), filepath.Join(s.dir, "wbl")
	walFits, errWAL := last.wal.fits(wal)
	wblFits, errWBL := last.wbl.fits(wbl)
	walBytes, errWALBytes := last.wal.behind(wal)
	wblBytes, errWBLBytes := last.wbl.behind(wbl)
	behind := walBytes+wblBytes > 0 || last.wal.gapBehind(wal) || last.wbl.gapBehind(wbl)
	switch err := errors.Join(errWAL, errWBL, errWALBytes, errWBLBytes); {
	case err != nil:
		return err
	case !behind && (!walFits || !wblFits || last.requests < restored):
		s.ends.old = boot != "" && last.requests >= restored
		return nil
	case !walFits || !wblFits:
		return errors.New("its logs were repaired or replaced after the last sync")
	case last.requests < restored:
		return fmt.Errorf("the last sync has %d requests of the tenant, and the checkpoint has %d", last.requests, restored)
	}
	// The chunk files may have samples from behind the ends, even if the logs have none, so they are removed.
	// No sample is lost with them, because the logs have all samples that are in no block. The chunk files
	// go first: after a crash in between, the next start finds the ends of the old boot, and begins again.
	if err := removeChunks(s.dir); err != nil {
		return err
	}
	if err := s.fsync(s.dir); err != nil {
		return err
	}
	if !behind {
		s.ends.old = boot != ""
		return nil
	}
	if err := errors.Join(last.wal.cut(wal, s.fsync), last.wbl.cut(wbl, s.fsync)); err != nil {
		return err
	}
	s.ends.old = boot != ""
	s.logger.Info("after a power loss, a store was cut back to its last sync; the group's log has the later requests",
		"log_bytes", walBytes+wblBytes)
	return nil
}

// beginEnds prepares the saved ends before the store opens. In a group, a new store gets ends at the
// beginning of its logs. After a cut, beginEnds saves the ends for the present boot, so that no later
// start in this boot cuts the store again: the group notes which requests the store takes, and does not
// write them again. Outside of a group, beginEnds removes the saved ends. A cut there would lose
// requests, because nothing would write them again.
func (s *store) beginEnds() error {
	_, err := os.Stat(s.dir)
	isNew := errors.Is(err, fs.ErrNotExist)
	switch {
	case err != nil && !isNew:
		return nil // the opening reports an error
	case !s.hasRequests() && s.others.Load() && isNew:
		if err := os.MkdirAll(s.dir, 0o777); err != nil {
			return err
		}
		return s.noteEnds(ends{wal: logEnd{checkpoint: -1, segment: -1}, wbl: logEnd{checkpoint: -1, segment: -1}})
	case !s.hasRequests():
		return nil
	case s.ends.kept && isNew:
		if err := os.MkdirAll(s.dir, 0o777); err != nil {
			return err
		}
		return s.saveEnds()
	case s.ends.kept && s.ends.old:
		if err := s.saveEnds(); err != nil {
			return err
		}
		s.ends.old = false
		return nil
	case s.ends.kept || isNew:
		return nil
	}
	if err := os.Remove(filepath.Join(s.dir, endsFile)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return s.fsync(s.dir)
}

// fitEnds saves the ends again if renumber has replaced the segment in which the log of late samples
// ended. If the process dies before fitEnds has saved the ends, the next opening saves them. If the
// power fails before, CutBack reports the store. If a sync fails, the next Sync saves the ends.
func (s *store) fitEnds() {
	if !s.hasRequests() || !s.ends.kept {
		return
	}
	last, found, err := readEnds(s.dir)
	if err != nil || !found {
		return // CutBack has reported an error
	}
	fits, err := last.wbl.fits(filepath.Join(s.dir, "wbl"))
	if err == nil && !fits {
		err = s.saveEnds()
	}
	if err != nil {
		s.unsynced.Store(true)
		s.logger.Warn("a store whose log of late samples was rewritten could not be synced: until a sync succeeds, "+
			"a start after a power loss cannot cut the store back", "err", err)
	}
}

// saveEnds syncs the logs, and saves where they ended before the sync.
func (s *store) saveEnds() error {
	s.ends.saving.Lock() // a save must not replace the ends of a later save
	defer s.ends.saving.Unlock()
	s.committing.Lock() // tsdb writes a commit to both logs, one after the other
	now, err := endsNow(s.dir)
	now.boot, now.requests = s.ends.boot, s.ends.requests.Load()
	s.committing.Unlock()
	if err != nil {
		return err
	}
	if err := s.syncFiles(); err != nil {
		return err
	}
	return now.write(s.dir, s.fsync)
}

// syncEnds syncs the store's files and saves the ends of the logs. While an opening is under way,
// syncEnds saves no ends; the next sync does.
func (s *store) syncEnds() error {
	if s.others.Load() && !s.hasRequests() {
		return s.syncJudged()
	}
	if !s.ends.kept {
		return s.syncFiles()
	}
	if !s.ends.opening.TryLock() {
		s.unsynced.Store(true)
		return s.syncFiles()
	}
	defer s.ends.opening.Unlock()
	if _, err := os.Stat(s.dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return s.saveEnds()
}

// syncJudged syncs a store of tiles, and notes where its logs ended before. checkLogs needs that after a
// power loss. The note is not synced itself: an older note only excuses more of what the power loss may
// have done.
func (s *store) syncJudged() error {
	s.committing.Lock()
	now, err := endsNow(s.dir)
	s.committing.Unlock()
	if err := errors.Join(err, s.syncFiles()); err != nil {
		return err
	}
	if _, err := os.Stat(s.dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return s.noteEnds(now)
}

func (s *store) noteEnds(now ends) error {
	now.boot = s.ends.boot
	return now.write(s.dir, func(string) error { return nil })
}

// newCompactor returns tsdb's compactor, which in a group saves the ends of the logs before it puts a block into
// place. It also keeps copies of the metadata of blocks.
func (s *store) newCompactor(ctx context.Context, reg prometheus.Registerer, logger *slog.Logger, ranges []int64,
	pool chunkenc.Pool, o *tsdb.Options) (tsdb.Compactor, error) {
	inner, err := tsdb.NewLeveledCompactorWithOptions(ctx, reg, logger, ranges, pool, tsdb.LeveledCompactorOptions{
		MaxBlockChunkSegmentSize:    o.MaxBlockChunkSegmentSize,
		EnableOverlappingCompaction: o.EnableOverlappingCompaction,
		PD:                          o.PostingsDecoderFactory,
		UseUncachedIO:               o.UseUncachedIO,
		BlockExcludeFilter:          o.BlockCompactionExcludeFunc,
		FloatChunkEncoding:          func() chunkenc.Encoding { return o.FloatChunkEncoding },
	})
	return compactor{inner, s, ctx}, err
}

type compactor struct {
	tsdb.Compactor
	store *store
	ctx   context.Context // done when the database closes
}

// Plan is called after new blocks are in place, and before blocks are compacted.
func (c compactor) Plan(dir string) ([]string, error) {
	if err := c.store.keepMetas(); err != nil {
		if _, damaged := errors.AsType[*damageError](err); damaged {
			c.store.noteDamage(err)
		}
		return nil, err
	}
	return c.Compactor.Plan(dir)
}

// Write writes samples of the head into a block.
func (c compactor) Write(
	dest string, head tsdb.BlockReader, mint, maxt int64, base *tsdb.BlockMeta,
) ([]ulid.ULID, error) {
	var turn turn // none for a snapshot, which should not wait, nor hold up heads
	if dest == c.store.dir {
		turn = c.store.turns.heads
		if c.store.ends.kept {
			head = savesEnds{head, c.store}
		}
	}
	return c.guard(turn, func() ([]ulid.ULID, error) { return c.Compactor.Write(dest, head, mint, maxt, base) })
}

// Compact merges blocks into one.
func (c compactor) Compact(dest string, dirs []string, open []*tsdb.Block) ([]ulid.ULID, error) {
	return c.guard(c.store.turns.merges, func() ([]ulid.ULID, error) { return c.Compactor.Compact(dest, dirs, open) })
}

// guard calls `compact` in a goroutine of tsdb, in its turn. If the disk cannot read a part of a file, the compaction
// fails, and all files are read, to find which one it is.
func (c compactor) guard(turn turn, compact func() ([]ulid.ULID, error)) ([]ulid.ULID, error) {
	blocks, err := c.inTurn(turn, compact)
	if _, unreadable := errors.AsType[*pagefault.Error](err); unreadable {
		c.store.check(func(int64) error { return nil }) // outside of the turn, since it may read terabytes
	}
	return blocks, err
}

// inTurn waits for its turn, and gives it back.
func (c compactor) inTurn(turn turn, compact func() ([]ulid.ULID, error)) (blocks []ulid.ULID, err error) {
	giveBack, err := turn.take(c.ctx)
	if err != nil {
		return nil, err
	}
	defer giveBack()
	err = pagefault.Guard(func() (err error) {
		blocks, err = compact()
		return err
	})
	return blocks, err
}

// savesEnds reads the samples of a block, and saves the ends when its reader of tombstones is closed.
// The compactor closes its readers when it has read all samples, and before it puts the block into
// place.
type savesEnds struct {
	tsdb.BlockReader
	store *store
}

func (b savesEnds) Tombstones() (tombstones.Reader, error) {
	t, err := b.BlockReader.Tombstones()
	return closing{t, b.store}, err
}

type closing struct {
	tombstones.Reader
	store *store
}

func (c closing) Close() error { return errors.Join(c.Reader.Close(), c.store.saveEnds()) }
