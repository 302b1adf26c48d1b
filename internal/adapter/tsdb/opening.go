package tsdb

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	// openPause is the shortest time between two tries to open a store that is broken.
	openPause = 5 * time.Second

	// openShare makes the pause longer where a try takes long, as a multiple of its time:
	// tries then take a tenth of a processor at most.
	openShare = 10
)

// use returns the database, and opens it before if it is not open. It needs s.mu and
// lets go of it while the database is opened.
func (s *store) use(ctx context.Context) (*database, error) {
	for s.db == nil {
		if s.opening == nil {
			if broken := s.broken.Load(); broken != nil && s.now().Before(s.again) {
				return nil, broken
			}
			s.opening = make(chan struct{})
			s.users++ // so that nobody closes the store meanwhile
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
		if s.closing {
			return nil, ErrClosed
		}
		if broken := s.broken.Load(); broken != nil {
			return nil, broken
		}
	}
	s.users++
	return s.db, nil
}

// open opens the database for those that wait in use. It has a goroutine of its own, so
// that a request which gives up does not end an opening that others wait for, and a
// file system that hangs holds nobody but them.
func (s *store) open() {
	s.mu.Lock()
	options, large := s.options, s.large
	s.mu.Unlock()
	tells := s.newcomers()
	var raw *rawCache
	if s.kind == Raw {
		raw = newRawCache(tells)
	}
	with := *options
	if large = large || walBytes(s.dir) > largeWAL; large {
		with.StripeSize = manyStripes
	}
	begun, before := s.now(), listLogs(s.dir)
	var db *database
	err := examine(s.dir)
	if err == nil {
		err = examineCheckpoint(s.dir)
	}
	if err == nil {
		db, err = openDatabase(s.dir, with, raw, tells, s.reg, s.logger)
	}
	took := s.now().Sub(begun)
	s.tellCut(before.cutOff(listLogs(s.dir))) // also of a repair that failed half-way
	if err == nil {
		s.note(s.name()) // while the opening is a user, whom a stop waits for
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.large = large
	close(s.opening)
	s.opening = nil
	s.users--
	defer s.let()
	if err != nil {
		s.again = s.now().Add(max(openPause, openShare*took))
		s.breaks(err)
		return
	}
	s.used = s.now()
	s.db = db
	s.log, _ = os.Stat(filepath.Join(s.dir, "wal")) // it was just opened
	s.opened.Inc()
	s.mends()
	if s.options != options { // they changed meanwhile
		if err := s.applyOptions(); err != nil {
			s.logger.Warn("the new retention holds from the next opening of the store on", "err", err)
		}
	}
}

// breaks notes that the store cannot be opened.
func (s *store) breaks(cause error) {
	now := &BrokenError{Tenant: s.tenant, Store: s.kind, Since: s.now(), Cause: cause, WayOut: wayOut(s.dir, cause)}
	before := s.broken.Load()
	if before != nil {
		now.Since = before.Since
	}
	s.broken.Store(now)
	s.fault.Set(1)
	if before == nil || before.Error() != now.Error() { // each try says the same
		s.logger.Error("a store cannot be opened: it answers nothing and takes nothing, the other stores go on", "err", cause, "way_out", now.WayOut)
	}
}

// mends notes that it could be.
func (s *store) mends() {
	if before := s.broken.Swap(nil); before != nil {
		s.fault.Set(0)
		s.logger.Info("a store that was broken is open again", "broken_for", s.now().Sub(before.Since).Round(time.Second))
	}
}

// tellCut says what tsdb's repair of a damaged log cost.
func (s *store) tellCut(bytes int64) {
	if bytes == 0 {
		return
	}
	s.cut.Add(float64(bytes))
	s.logger.Error("a log of the store was damaged, and the repair cut off all that follows the damage: samples that no block has are lost",
		"log_bytes_cut_off", bytes, "dir", s.dir, "way_out", "look at the disk, and restore a backup if the samples matter")
}

// tryBroken tries once more to open the store if it is broken and no try is under way.
func (s *store) tryBroken(ctx context.Context) {
	if s.broken.Load() == nil {
		return
	}
	if _, err := os.Stat(s.dir); os.IsNotExist(err) {
		s.mends() // it was moved away as a whole
		return
	}
	if db, err := s.read(ctx); err == nil && db != nil {
		s.release()
	}
}

// largeWAL is the log, in bytes, of a database that is opened for many series: it may have
// them, and would soon be opened again.
const largeWAL = 4 << 20

// walBytes is how large the log of a database is that is to be opened.
func walBytes(dir string) (n int64) {
	entries, err := os.ReadDir(filepath.Join(dir, "wal"))
	if err != nil {
		return 0 // it has none yet
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && !e.IsDir() {
			n += info.Size()
		}
	}
	return n
}

// look notes what broke since the store was opened. Its directory may be another one or gone:
// the files that are open then take what nobody will find again. Or its disk takes nothing.
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
		s.fault.Set(1)
		s.logger.Error("a store that is open is broken", "err", now.Cause, "way_out", now.WayOut)
	case now == nil && before != nil:
		s.logger.Info("a store that was broken is in order again", "broken_for", s.now().Sub(before.Since).Round(time.Second))
		if s.broken.Load() == nil {
			s.fault.Set(0)
		}
	}
}

// ails is what is wrong with an open store, whose log was in that directory when it was
// opened.
func (s *store) ails(log os.FileInfo) *BrokenError {
	broken := BrokenError{Tenant: s.tenant, Store: s.kind, Since: s.now(), Open: true}
	if now, err := os.Stat(filepath.Join(s.dir, "wal")); log != nil && (err != nil || !os.SameFile(now, log)) {
		broken.Cause = errGone
		broken.WayOut = fmt.Sprintf("move the directory back to %s, and what stands there away; if it is deleted, stop and start Freshet and restore a backup: what the store takes until then is lost", s.dir)
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
