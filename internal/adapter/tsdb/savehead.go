package tsdb

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// heads is what all stores need to save their heads.
type heads struct {
	least  int64 // bytes of a log that make a saved head worthwhile
	saved  *prometheus.CounterVec
	failed *prometheus.CounterVec
	unused *prometheus.CounterVec
}

func newHeads(reg prometheus.Registerer) heads {
	vec := func(name, help string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "freshet", Subsystem: "store", Name: name, Help: help}, []string{"store"})
		for _, kind := range kinds {
			c.WithLabelValues(kind) // so that it exists and begins at 0
		}
		reg.MustRegister(c)
		return c
	}
	return heads{
		least: leastLog,
		saved: vec("heads_saved_total", "Heads of stores that were saved: with a saved head, a store opens without reading "+
			"most of its log."),
		failed: vec("head_saves_failed_total", "Heads of stores that could not be saved: nothing is lost, but the next "+
			"opening takes longer. Rising: the disk is nearly full or broken; the log has the cause."),
		unused: vec("saved_heads_unused_total", "Saved heads that an opening did not use, since they do not fit to the "+
			"other files of the store, are damaged, or were being written when the process ended: nothing is lost, since the "+
			"opening then uses the one before, or reads the whole log of the store. The log of the process has the cause."),
	}
}

const (
	// leastLog is the value of heads.least. Reading so much of a log takes half a second.
	leastLog = 4 << 20

	// While the server runs, a head is saved again when the log has grown by a runningShare of the saved head: reading
	// that much takes about one and a half times as long as reading the saved head. So the saved heads of a store are
	// at most runningShare times what is written to its log, however fast that is, and however many series there are.
	runningShare = 4

	// At a stop, a head is saved again when the log has grown by a stoppingShare of the saved head: the next start
	// reads less, and stops are rare.
	stoppingShare = 16

	// spareSpace is how many bytes must be free on the disk beyond those of the saved head.
	spareSpace = 256 << 20

	// headBytes is about what a series takes in a saved head.
	headBytes = 600
)

// dropHead removes the saved head of a closed database.
func (s *store) dropHead(why error) {
	s.savedHeads.unused.WithLabelValues(s.kind).Inc()
	s.logger.Info("the saved head of a store is not used; it opens from its whole log instead", "why", why)
	if _, err := keepHead(s.dir, nil); err != nil {
		s.logger.Warn("a saved head cannot be removed", "err", err)
	}
}

// saves reports whether the head should be saved now, because the log has grown by this share of the saved head.
func (s *store) saves(db *database, share int64) (bool, error) {
	if s.damaged.Load() {
		return false, nil
	}
	grown, least := walBytes(s.dir), s.savedHeads.least
	n, found, err := readHeadNote(s.dir)
	if err == nil && found {
		if grown, err = n.log.behind(filepath.Join(s.dir, "wal")); err != nil {
			return false, err
		}
		least = max(least, n.bytes/share)
	}
	if grown < least {
		return false, nil
	}
	if err := s.hasSpace(2 * headBytes * int64(db.Head().NumSeries())); err != nil {
		return false, err
	}
	if err := db.readNumbers(s.dir); err != nil {
		return false, err
	}
	return db.savable(), nil
}

// hasSpace returns an error if the disk has no room for so many bytes, and some more: a saved head must not take the
// room of the log.
func (s *store) hasSpace(bytes int64) error {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(s.dir, &disk); err != nil {
		return &fs.PathError{Op: "statfs", Path: s.dir, Err: err}
	}
	if free := int64(disk.Bavail) * disk.Bsize; free < bytes+spareSpace {
		return fmt.Errorf("its disk has %d MB free, and %d MB are needed", free>>20, (bytes+spareSpace)>>20)
	}
	return nil
}

// saveHead saves the head of an open database, which the caller uses. Commits go on meanwhile: the opening reads the
// log from the segment that saveHead begins first, and ignores samples that the saved head has already.
func (s *store) saveHead(db *database) error {
	parts, err := partsOf(db.Head())
	if err != nil {
		return err
	}
	var n headNote
	if n.segment, n.before, err = s.beginSegment(db, &parts); err != nil {
		return err
	}
	stats, err := db.Head().ChunkSnapshot() // also removes the one before
	if err != nil {
		return err
	}
	// A chunk that ended meanwhile is in neither the saved head nor a file yet.
	db.ForceHeadMMap()
	if err := parts.flushChunks(); err != nil {
		return err
	}
	if to := savedHead(s.dir, n.segment, 0); stats.Dir != to { // unless nothing was written meanwhile
		if err := os.Rename(stats.Dir, to); err != nil {
			return err
		}
	}
	return s.noteHead(db, &n)
}

// beginSegment begins a segment of the log, at a moment at which no write is under way. No series has a number above
// `highest` then.
func (s *store) beginSegment(
	db *database, parts *headParts,
) (number int, highest chunks.HeadSeriesRef, err error) {
	writes := db.writes()
	writes.Lock()
	defer writes.Unlock()
	s.committing.Lock()
	defer s.committing.Unlock()
	number, err = parts.log.NextSegment()
	return number, db.numbers.now(), err
}

// writes returns the lock that a write holds from its first sample until after its commit.
func (d *database) writes() sync.Locker {
	if d.raw != nil {
		return &d.raw.mu
	}
	return &d.references.mu
}

// noteHead writes the note of a saved head that is complete.
func (s *store) noteHead(db *database, n *headNote) (err error) {
	db.numbers.raise(headNumber(db.Head()))
	n.highest = db.numbers.now()
	if n.chunks, err = chunkEnd(s.dir); err != nil {
		return err
	}
	if n.log, err = s.soundEnd(); err != nil {
		return err
	}
	head := savedHead(s.dir, n.segment, n.offset)
	if n.bytes, n.sum, err = sumOf(head); err != nil {
		return err
	}
	if err := errors.Join(s.syncFiles(), s.syncHead(head)); err != nil {
		return err
	}
	if err := n.write(s.dir, s.fsync); err != nil {
		return err
	}
	s.savedHeads.saved.WithLabelValues(s.kind).Inc()
	return nil
}

// syncHead syncs the files of a saved head.
func (s *store) syncHead(head string) error {
	return filepath.WalkDir(head, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return s.fsync(path)
	})
}

// soundEnd returns the end of the log, or an error if a commit has failed: the head has series then that the log lacks.
func (s *store) soundEnd() (logEnd, error) {
	s.committing.Lock()
	defer s.committing.Unlock()
	if s.damaged.Load() {
		return logEnd{}, errDamaged
	}
	return endOf(filepath.Join(s.dir, "wal"))
}

// saveClosed saves the head of a database that has just been closed.
func (s *store) saveClosed(db *database) error {
	if _, err := db.Head().ChunkSnapshot(); err != nil {
		return err
	}
	_, segment, offset, err := tsdb.LastChunkSnapshot(s.dir)
	if err != nil {
		return err
	}
	highest := db.numbers.now()
	return s.noteHead(db, &headNote{segment: segment, offset: offset, before: highest})
}

// closeDatabase closes a database that has no users. If that pays, it saves the head; if not, the last saved head
// stays. A saved head is never needed, so its failure is only counted.
func (s *store) closeDatabase(db *database) error {
	begun := time.Now()
	save, failed := s.saves(db, stoppingShare)
	err := db.close()
	if err == nil && failed == nil && save {
		failed = s.saveClosed(db)
	}
	s.tellSaved(save, failed, begun)
	return err
}

// tellSaved reports whether the head was saved.
func (s *store) tellSaved(saved bool, failed error, begun time.Time) {
	if failed != nil {
		s.savedHeads.failed.WithLabelValues(s.kind).Inc()
		s.logger.Warn("the head of a store is not saved: its next opening takes longer", "err", failed)
	} else if saved {
		s.logger.Debug("the head of a store is saved", "took", time.Since(begun))
	}
}
