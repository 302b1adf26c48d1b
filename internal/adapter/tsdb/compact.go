package tsdb

import (
	"context"
	"errors"
	"fmt"
)

// CompactByHand leaves compactions to the method Compact. Otherwise each open database compacts
// itself, at moments that depend on the speed of the machine, so a simulation could not repeat a run.
// CompactByHand also keeps the files of blocks small: tsdb allocates whole files in advance, and a
// simulation holds them in memory. Call it before the first use of a store.
func (s *Stores) CompactByHand() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byHand = true
	for _, st := range s.allStores() {
		st.byHand = true
	}
}

// BeforeSync makes the stores call fn before they sync a file or a directory. With it, a simulation
// can end a process between two steps of its work on files. Call it before the first use of a store.
func (s *Stores) BeforeSync(fn func(path string)) {
	sync := s.fsync
	s.fsync = func(path string) error {
		fn(path)
		return sync(path)
	}
}

// Compact runs the compactions of heads and blocks that are due in open databases. If `outOfOrder` is
// true, it also compacts out-of-order samples, whether or not that is due.
func (s *Stores) Compact(ctx context.Context, outOfOrder bool) error {
	s.mu.Lock()
	all := s.allStores()
	s.mu.Unlock()
	var errs []error
	for _, st := range all {
		if err := st.compact(ctx, outOfOrder); err != nil {
			errs = append(errs, fmt.Errorf("compact store %s of tenant %s: %w", st.kind, st.tenant, err))
		}
	}
	return errors.Join(errs...)
}

func (s *store) compact(ctx context.Context, outOfOrder bool) error {
	s.mu.Lock()
	db := s.db
	if db == nil || s.closing {
		s.mu.Unlock()
		return nil
	}
	s.users++
	s.mu.Unlock()
	defer s.release()
	if err := db.Compact(ctx); err != nil {
		return err
	}
	if !outOfOrder {
		return nil
	}
	return db.CompactOOOHead(ctx)
}
