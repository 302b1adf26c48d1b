package tsdb

import (
	"errors"
	"fmt"
	"time"
)

const (
	// smallIdle is how long a small store stays open without use. An open database takes 0.45 MB, however small.
	// A closed one is open again in some milliseconds.
	smallIdle = 5 * time.Minute

	// smallLog is the size of the log of a small store, in bytes. It has about 200,000 samples, which a processor
	// reads in a tenth of a second.
	smallLog = 1 << 20
)

// closeIdle closes databases that were unused for as long as the configuration says, and small ones sooner.
func (s *Stores) closeIdle() error {
	s.mu.Lock()
	all := s.allStores()
	s.mu.Unlock()
	var errs []error
	for _, st := range all {
		if err := st.closeIdle(s.cfg.Idle); err != nil {
			errs = append(errs, fmt.Errorf("close store %s of tenant %s, which was idle: %w", st.kind, st.tenant, err))
		}
	}
	return errors.Join(errs...)
}

// closeIdle closes the database if it was unused for longer than `most`, or for longer than smallIdle if it is small.
//
// Each opening begins new files of the logs, which stay until the next compaction. So a small store that was needed
// again within `most` stays open for `most`: it opens once in that time, even if it is used every six minutes.
//
// It saves the head before it locks the store for the close: saving takes seconds with many series, and reads and
// writes go on meanwhile. Right after that, the close does not save the head again.
func (s *store) closeIdle(most time.Duration) error {
	if !s.mu.TryLock() {
		return nil // the store is in use
	}
	idle := s.isIdle(most)
	s.mu.Unlock()
	if !idle {
		return nil
	}
	s.saveOpenHead(stoppingShare)
	if !s.mu.TryLock() {
		return nil
	}
	defer s.mu.Unlock()
	if !s.isIdle(most) { // it was used while its head was saved
		return nil
	}
	s.leftAt = s.now()
	return s.shut()
}

// isIdle reports whether closeIdle may close the database. The caller holds s.mu.
func (s *store) isIdle(most time.Duration) bool {
	if s.db == nil || s.users > 0 || s.closing {
		return false
	}
	idle := s.now().Sub(s.used)
	return idle > most || idle > min(smallIdle, most) && !s.cameBack(most) && walBytes(s.dir) <= smallLog
}

// cameBack reports whether the store was opened within `within` after it was closed because it was idle.
func (s *store) cameBack(within time.Duration) bool {
	return !s.leftAt.IsZero() && s.openedAt.Sub(s.leftAt) <= within
}
