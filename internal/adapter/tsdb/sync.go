package tsdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/internal/core/checkpoint"
)

// syncsAtOnce bounds how many stores are synced at a time.
const syncsAtOnce = 8

// syncTime is how long a store may take to sync. After that its disk counts as hanging.
const syncTime = 10 * time.Second

// Sync makes everything that was written before the call survive a power loss. After an error, only
// data synced by earlier calls is certain to survive. Sync leaves out stores that are broken, and stores
// whose disk hangs. If only these are missing, the error is a *checkpoint.LeftOutError.
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
	leftOut := &checkpoint.LeftOutError{}
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
			hangs := errors.Is(err, errSyncHangs) && len(st.failed.all()) == 0
			if st.broken.Load() != nil || st.ill.Load() != nil || hangs {
				s.logger.Warn("a store is not synced: its newest samples would not survive a power loss",
					"tenant", st.tenant, "store", st.kind, "err", err)
				mu.Lock()
				defer mu.Unlock()
				leftOut.Stores = append(leftOut.Stores, st.tenant+"/"+st.kind)
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, fmt.Errorf("sync store %s of tenant %s: %w", st.kind, st.tenant, err))
			return nil
		})
	}
	_ = group.Wait()
	if len(errs) == 0 && len(leftOut.Stores) > 0 {
		slices.Sort(leftOut.Stores)
		return leftOut
	}
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
		err := st.renew()
		if err == nil {
			err = st.syncEnds()
		}
		st.syncing.Store(false) // before the send, because the next Sync may follow at once
		done <- err
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

// renew rewrites the files whose sync failed, with the database closed. Meanwhile queries and writes
// are refused. The next query or write opens the database again.
func (s *store) renew() error {
	failed := s.failed.all()
	if len(failed) == 0 {
		return nil
	}
	if err := s.beginRenewal(); err != nil {
		return fmt.Errorf("rewrite %s, whose sync failed: %w", strings.Join(failed, ", "), err)
	}
	defer s.endRenewal()
	for _, path := range failed {
		if err := replace(s.dir, path, s.fsync); err != nil {
			return fmt.Errorf("rewrite %s, whose sync failed: %w", path, err)
		}
		if err := s.failed.replaced(s.dir, path); err != nil {
			return err
		}
	}
	s.logger.Info("files of a store whose sync had failed were rewritten: they survive a power loss now",
		"files", strings.Join(failed, ", "))
	return nil
}

// beginRenewal closes the database, and keeps it closed.
func (s *store) beginRenewal() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renewing = true
	ctx, cancel := context.WithTimeout(context.Background(), repairWait)
	defer cancel()
	if err := s.drain(ctx); err != nil {
		s.renewing = false
		return err
	}
	if err := s.shut(); err != nil {
		s.logger.Warn("closing the database failed; it opens again from its WAL", "err", err)
	}
	return nil
}

func (s *store) endRenewal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renewing = false
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
