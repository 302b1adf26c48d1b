package tsdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/freshet-io/freshet/internal/core/changes"
	"github.com/freshet-io/freshet/internal/core/mutant"
	"github.com/freshet-io/freshet/internal/lib/pagefault"
)

const (
	// openPause is the shortest time between two tries to open a broken store.
	openPause = 5 * time.Second

	// After a slow try, the pause is openShare times as long as the try, so that tries take at most
	// a tenth of a processor.
	openShare = 10
)

// read returns the database for a reader, which must release the store when it is done. It returns nil
// if there is no database on disk, because a query creates no store.
func (s *store) read(ctx context.Context) (*database, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || s.renewing {
		return nil, ErrClosed
	}
	if hurt := s.hurt.Load(); hurt != nil && hurt.Damaged && !mutant.DamageRead {
		return nil, hurt
	}
	if s.db == nil && s.opening == nil {
		if _, err := os.Stat(s.dir); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
	}
	return s.use(ctx)
}

// write returns the database for a writer, which must release the store when it is done.
func (s *store) write(ctx context.Context) (*database, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || s.renewing {
		return nil, ErrClosed
	}
	if s.damaged.Load() {
		if err := s.repair(ctx); err != nil {
			return nil, err
		}
	}
	return s.use(ctx)
}

// use returns the database, and opens it if needed. The caller holds s.mu; use releases it
// while the database opens.
func (s *store) use(ctx context.Context) (*database, error) {
	for s.db == nil {
		if s.opening == nil {
			if broken := s.broken.Load(); broken != nil && s.now().Before(s.again) {
				return nil, broken
			}
			s.opening = make(chan struct{})
			s.users++ // so that the store is not closed meanwhile
			go s.open()
		}
		opened := s.opening
		s.mu.Unlock()
		select {
		case <-opened:
		case <-ctx.Done():
		}
		s.mu.Lock()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("wait until the store is open: %w", context.Cause(ctx))
		}
		if s.closing || s.renewing {
			return nil, ErrClosed
		}
		if broken := s.broken.Load(); broken != nil {
			return nil, broken
		}
	}
	s.users++
	return s.db, nil
}

// open opens the database for the goroutines that wait in the method use. It runs in a goroutine of
// its own, so that a request that gives up does not end an opening that others wait for, and a hanging
// file system blocks only the waiters.
func (s *store) open() {
	s.mu.Lock()
	options, byHand := s.options, s.byHand
	s.mu.Unlock()
	s.marks() // from now on, the store has metrics
	with := *options
	isWide := s.takeStripes()
	if isWide {
		with.StripeSize = manyStripes
	}
	if byHand {
		with.MaxBlockChunkSegmentSize = 1 << 20
	}
	with.NewCompactorFunc = s.newCompactor
	if s.kind == History {
		with.BlocksToDelete = s.unwantedBlocks
	}
	begun := s.now()
	s.ends.opening.Lock()
	db, used, cut, err := s.openFiles(with)
	if err == nil && (used > 0 || cut > 0) {
		// If tsdb repaired its log, it has not read the log of out-of-order samples. A power loss may
		// tear the last record of both logs, so the database is opened again to read the second log,
		// too.
		err = db.close()
		if err == nil && used > 0 {
			err = reserve(s.dir, used)
		}
		if err == nil {
			db, _, _, err = s.openFiles(with)
		}
	}
	s.ends.opening.Unlock()
	s.logs.forget()
	if err == nil {
		if err := s.syncCommit(); err != nil {
			s.logger.Error("a store is open, but its logs cannot be synced: requests are refused until they can", "err", err)
		}
	}
	if err == nil && (byHand || s.kind == History) {
		db.DisableCompactions()
	}
	took := s.now().Sub(begun)
	s.tellCut(cut) // even if the opening failed afterwards
	if err == nil {
		s.note(s.name()) // the opening still counts as a user, so a stop waits for this call
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.opening)
	s.opening = nil
	s.users--
	defer s.let()
	if err != nil {
		if isWide {
			s.wide.Add(-1)
		}
		s.again = s.now().Add(max(openPause, openShare*took))
		s.breaks(err)
		return
	}
	s.isWide = isWide
	s.used = s.now()
	s.openedAt = s.used
	s.db = db
	s.changes.Note(changes.All)
	s.log, _ = os.Stat(filepath.Join(s.dir, "wal")) // no error: the log was just opened
	s.opened.Inc()
	s.mends()
	if s.options != options { // the options changed meanwhile
		if err := s.applyOptions(); err != nil {
			s.logger.Warn("the new retention applies when the store is opened again", "err", err)
		}
	}
}

// takeStripes reports whether the database gets many stripes at this opening: if its log is large, or if few other
// databases have them.
func (s *store) takeStripes() bool {
	if s.kind == History { // it has no series in memory
		return false
	}
	if s.wide.Add(1) <= mostWide || walBytes(s.dir) > largeWAL {
		return true
	}
	s.wide.Add(-1)
	return false
}

// openFiles opens the database. If the database would give a new series a number that its files
// already have, openFiles returns that number as `used`, otherwise 0. `cut` is how many bytes tsdb's
// repair removed from the logs.
func (s *store) openFiles(with tsdb.Options) (db *database, used chunks.HeadSeriesRef, cut int64, err error) {
	head := s.headToOpen()
	if err := cmp.Or(s.unreadable, examine(s.dir), s.readMetas(), s.readLogs(head), s.beginEnds()); err != nil {
		return nil, 0, 0, err
	}
	late, err := renumber(s.dir, with.WALCompression)
	if err != nil {
		return nil, 0, 0, fmt.Errorf("open %s: %w", s.dir, err)
	}
	if head != nil && head.contradicts(s.dir, &late) {
		s.dropHead(errors.New("late samples or chunks do not fit to it"))
		if head, err = nil, s.readLogs(nil); err != nil {
			return nil, 0, 0, err
		}
	}
	used, read := late.highest, walRanges(s.dir)
	if head != nil {
		read = head.ranges(s.dir)
		with.EnableMemorySnapshotOnShutdown = true // tsdb's setting for reading a saved head
	}
	s.fitEnds()
	tells := s.newcomers()
	var raw *rawCache
	if s.hasRequests() {
		raw = newRawCache(tells, s.sparePages)
	}
	before := listLogs(s.dir)
	db, err = openDatabase(s.dir, with, raw, tells, &registrations{Registerer: s.reg, sums: s.sums}, s.watchedLogger())
	cut = before.cutOff(listLogs(s.dir))
	if _, unreadable := errors.AsType[*pagefault.Error](err); unreadable {
		s.unreadable = s.unreadableBlock(err)
		return nil, 0, cut, s.unreadable
	}
	if err != nil {
		return nil, 0, cut, err
	}
	if head != nil {
		if err := db.continues(head); err != nil {
			return nil, 0, cut, errors.Join(fmt.Errorf("open %s: %w", s.dir, err), db.close())
		}
		if used <= head.highest {
			used = 0
		}
	}
	switch again, err := givesAgain(read, db.Head(), used); {
	case err != nil:
		return nil, 0, cut, errors.Join(fmt.Errorf("open %s: %w", s.dir, err), db.close())
	case again:
		return db, used, cut, nil
	}
	return db, 0, cut, nil
}

// unreadableBlock returns an error that names the block that could not be read while the database was opened.
func (s *store) unreadableBlock(cause error) error {
	dirs, _ := blockDirs(s.dir) // the cause is the better error
	for _, dir := range dirs {
		if len(filepath.Base(dir)) != blockName {
			continue
		}
		err := pagefault.Guard(func() error {
			block, err := tsdb.OpenBlock(slog.New(slog.DiscardHandler), dir, nil, nil)
			if err == nil {
				err = block.Close()
			}
			return err
		})
		if err != nil {
			cause = &damageError{dir, -1, err}
			break
		}
	}
	return fmt.Errorf("%w; the next start of the process tries again", cause)
}

// readLogs reads the logs before tsdb does. tsdb would treat errors of the disk like damage. With a saved head, tsdb
// does not read the beginning of the log.
func (s *store) readLogs(head *headNote) error {
	switch {
	case s.others.Load():
		return s.checkLogs()
	case head != nil:
		return readLog(s.dir, head.segment)
	}
	return cmp.Or(examineCheckpoint(s.dir), readLog(s.dir, 0))
}

// headToOpen returns the note of the saved head with which the database can open, nil for none. It removes all others.
func (s *store) headToOpen() *headNote {
	head, why := findHead(s.dir)
	if why != nil {
		s.dropHead(why)
		return nil
	}
	others, err := keepHead(s.dir, head)
	if err != nil {
		s.logger.Warn("an old saved head cannot be removed", "err", err)
		return nil
	}
	if others {
		s.savedHeads.unused.WithLabelValues(s.kind).Inc()
		s.logger.Info("a saved head was not complete when its process ended; the store opens from the previous one")
	}
	return head
}

// readMetas reads the metadata of all blocks before tsdb does. tsdb would trust damaged metadata, or leave out the
// block. If no other node has the data, the store opens all the same, and its answers carry a warning.
func (s *store) readMetas() error {
	err := s.keepMetas()
	if _, damaged := errors.AsType[*damageError](err); damaged && !s.others.Load() {
		s.noteDamage(err)
		return nil
	}
	return err
}

// breaks records why the store cannot be opened.
func (s *store) breaks(cause error) {
	now := &BrokenError{Tenant: s.tenant, Store: s.kind, Since: s.now(), Cause: cause, WayOut: wayOut(s.dir, cause)}
	if s.others.Load() && environment(cause) == nil {
		now.Damaged, now.WayOut = true, otherMember
		s.marks().damaged.Set(1)
	}
	before := s.broken.Load()
	if before != nil {
		now.Since = before.Since
	}
	s.broken.Store(now)
	s.marks().broken.Set(1)
	if before == nil || before.Error() != now.Error() { // log only a new error
		s.logger.Error("a store cannot be opened: it answers no queries and takes no samples; the other stores go on",
			"err", cause, "way_out", now.WayOut)
	}
}

// mends clears the recorded cause of a broken store: see the method breaks. It is called after the store
// was opened.
func (s *store) mends() {
	if before := s.broken.Swap(nil); before != nil {
		s.marks().broken.Set(0)
		if before.Damaged {
			s.marks().damaged.Set(0)
		}
		s.logger.Info("a broken store is open again", "broken_for", s.now().Sub(before.Since).Round(time.Second))
	}
}

// tellCut reports how many bytes tsdb's repair of a damaged log removed.
func (s *store) tellCut(bytes int64) {
	if bytes == 0 {
		return
	}
	s.marks().cut.Add(float64(bytes))
	s.logger.Error("a log of the store was damaged, and the repair removed everything behind the damage: the removed "+
		"samples are lost, unless a block has them",
		"log_bytes_cut_off", bytes, "dir", s.dir, "way_out", "check the disk, and restore a backup if the samples matter")
}

// tryBroken tries to open a broken store again, unless a try is under way.
func (s *store) tryBroken(ctx context.Context) {
	if s.broken.Load() == nil {
		return
	}
	if _, err := os.Stat(s.dir); os.IsNotExist(err) {
		s.mends() // no error and no database: the whole store was moved away
		return
	}
	if db, err := s.read(ctx); err == nil && db != nil {
		s.release()
	}
}

// largeWAL is the size of a log, in bytes, from which a database opens with many stripes. Such a log may have many
// series.
const largeWAL = 4 << 20

// look checks an open store for faults that came after the opening. The store's directory may have been
// removed or replaced, so that samples go into open files that no later process finds. Or the store's
// disk may take no writes.
func (s *store) look() {
	s.mu.Lock()
	open, log := s.db != nil, s.log
	s.mu.Unlock()
	var now *BrokenError
	if open {
		now = s.ails(log)
	}
	before := s.ill.Load()
	if now != nil && before != nil {
		now.Since = before.Since
	}
	s.ill.Store(now)
	switch {
	case now != nil && (before == nil || before.Error() != now.Error()):
		s.marks().broken.Set(1)
		s.logger.Error("an open store is broken", "err", now.Cause, "way_out", now.WayOut)
	case now == nil && before != nil:
		s.logger.Info("a broken store works again", "broken_for", s.now().Sub(before.Since).Round(time.Second))
		if s.broken.Load() == nil {
			s.marks().broken.Set(0)
		}
	}
}

// ails returns the fault of an open store, or nil. `log` is the directory of its log, as it was at the
// opening.
func (s *store) ails(log os.FileInfo) *BrokenError {
	broken := BrokenError{Tenant: s.tenant, Store: s.kind, Since: s.now(), Open: true}
	if now, err := os.Stat(filepath.Join(s.dir, "wal")); log != nil && (err != nil || !os.SameFile(now, log)) {
		broken.Cause = errGone
		broken.WayOut = fmt.Sprintf("move the directory back to %s, replacing what is there now; if it was deleted, stop "+
			"and start Freshet and restore a backup: samples that the store takes until then are lost", s.dir)
		return &broken
	}
	if s.damaged.Load() {
		if err := probe(s.dir); err != nil {
			broken.Cause, broken.WayOut = fmt.Errorf("%w: %w", errNotTaking, err), wayOut(s.dir, err)
			return &broken
		}
	}
	return nil
}
