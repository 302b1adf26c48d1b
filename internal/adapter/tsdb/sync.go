package tsdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// syncsAtOnce bounds how many stores are synced at a time.
const syncsAtOnce = 8

// syncTime is how long a store may take to sync. After that its disk counts as hanging.
const syncTime = 10 * time.Second

// Sync makes everything that was written before the call survive a power loss. After an error, only
// data synced by earlier calls is certain to survive. Sync leaves out stores that are broken, and
// stores whose disk hangs: they report their faults themselves.
func (s *Stores) Sync(ctx context.Context) error {
	// Only one Sync runs at a time: a second one would skip stores that the first is still syncing.
	select {
	case s.syncTurn <- struct{}{}:
		defer func() { <-s.syncTurn }()
	case <-ctx.Done():
		return fmt.Errorf("wait until the running sync of the stores ends: %w", context.Cause(ctx))
	}
	s.mu.Lock()
	all := s.allStores()
	s.mu.Unlock()
	var mu sync.Mutex
	var errs []error
	var group errgroup.Group
	group.SetLimit(syncsAtOnce)
	for _, st := range all {
		if !st.unsynced.Swap(false) {
			continue
		}
		group.Go(func() error {
			err := s.syncStore(ctx, st)
			if err == nil {
				return nil
			}
			st.unsynced.Store(true)
			if st.broken.Load() != nil || st.ill.Load() != nil || errors.Is(err, errSyncHangs) {
				s.logger.Warn("a store is not synced: its newest samples would not survive a power loss",
					"tenant", st.tenant, "store", st.kind, "err", err)
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, fmt.Errorf("sync store %s of tenant %s: %w", st.kind, st.tenant, err))
			return nil
		})
	}
	_ = group.Wait()
	return errors.Join(errs...)
}

var errSyncHangs = errors.New("its disk has not finished a sync")

// syncStore syncs the files of a store, open or not. A sync cannot be interrupted. If it hangs, it
// keeps its goroutine, and the store begins no other sync.
func (s *Stores) syncStore(ctx context.Context, st *store) error {
	if !st.syncing.CompareAndSwap(false, true) {
		return errSyncHangs
	}
	done := make(chan error, 1)
	go func() {
		defer st.syncing.Store(false)
		done <- st.syncEnds()
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(s.syncTime):
		return errSyncHangs
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fsync syncs a file or directory.
func fsync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
