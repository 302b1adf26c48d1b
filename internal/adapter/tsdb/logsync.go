package tsdb

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// logSync syncs the logs of a store before each acknowledgement. tsdb itself syncs a segment only when the next one
// begins, and without waiting for it.
type logSync struct {
	mu     sync.Mutex
	newest map[string]int // number of the newest segment that was synced, by log; all older segments were synced before
}

// forget makes the next sync cover whole logs. An opening calls it, since a repair writes old segments anew.
func (l *logSync) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.newest = nil
}

// sync makes everything that was written to the logs in `dir` before the call survive a power loss. After an error,
// only what earlier calls synced is certain to survive.
func (l *logSync) sync(dir string, fsync func(path string) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.newest == nil {
		l.newest = make(map[string]int, len(logDirs))
		if err := errors.Join(fsync(dir), fsync(filepath.Dir(dir)), fsync(filepath.Dir(filepath.Dir(dir)))); err != nil {
			l.newest = nil
			return err
		}
	}
	for _, log := range logDirs {
		if err := l.syncLog(filepath.Join(dir, log), fsync); err != nil {
			l.newest = nil
			return err
		}
	}
	return nil
}

// syncLog syncs one log from its newest synced segment on.
func (l *logSync) syncLog(log string, fsync func(path string) error) error {
	n, known := l.newest[log]
	if !known {
		all, err := segmentsOf(log)
		if err != nil {
			return err
		}
		if len(all.numbers) == 0 {
			return fmt.Errorf("%s has no segments: %w", log, fs.ErrNotExist)
		}
		n = all.numbers[0]
		if err := fsync(log); err != nil {
			return err
		}
	}
	for {
		if err := fsync(segmentPath(log, n)); err != nil {
			return err
		}
		l.newest[log] = n
		_, err := os.Stat(segmentPath(log, n+1))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			err = fsync(log) // else a power loss could take the name of the new segment
		}
		if err != nil {
			return err
		}
		n++
	}
}
