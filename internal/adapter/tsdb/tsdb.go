package tsdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/core/checkpoint"
	"github.com/freshet-io/freshet/internal/core/growth"
	"github.com/freshet-io/freshet/internal/core/tenant"
)

// Stores has all stores of one data directory. The first write opens a database; so does the first
// query if the database exists on disk. The database closes after some time without use, or at
// Close. All methods are safe for concurrent use.
type Stores struct {
	cfg      Config
	dir      string // <data directory>/tsdb
	now      func() time.Time
	reg      prometheus.Registerer
	logger   *slog.Logger
	metrics  *metrics
	growth   *growth.Tracker
	fsync    func(path string) error
	syncTurn chan struct{} // holds one element while a Sync is under way
	syncTime time.Duration
	note     func(name string) // called when a store was opened
	byHand   bool              // see CompactByHand
	others   atomic.Bool       // see NeverRepair
	warming  progress
	noted    noted
	heads    heads
	turns    turns
	moving   sync.Map // paths to which Stage and Show are moving blocks

	sparePages atomic.Int64 // see rawPasts
	wide       atomic.Int32 // how many databases are open with many stripes: see mostWide

	*scrub

	mu      sync.Mutex
	closed  bool
	tenants map[string]map[string]*store // by tenant and store; all stores of a tenant are made together

	// These fields are used only in a group: see CutBack.
	inGroup  bool
	boot     string
	requests map[string]uint64
}

// Open makes the directory tsdb in `dataDir` and finds the tenants that have stores there. It opens no
// database, but notes stores that cannot be opened, if the names and types of their files show it.
// `now` decides which samples are too far in the future.
func Open(
	cfg Config, dataDir string, now func() time.Time, reg prometheus.Registerer, logger *slog.Logger,
) (*Stores, error) {
	s := &Stores{
		cfg:      cfg,
		dir:      filepath.Join(dataDir, "tsdb"),
		now:      now,
		reg:      reg,
		logger:   logger,
		metrics:  newMetrics(reg),
		growth:   growth.New(),
		fsync:    fsync,
		syncTurn: make(chan struct{}, 1),
		syncTime: syncTime,
		tenants:  map[string]map[string]*store{},
		scrub:    newScrub(reg),
		heads:    newHeads(reg),
		turns:    newTurns(),
	}
	s.note = s.noteOpened
	s.sparePages.Store(mostPastPages)
	if err := os.MkdirAll(s.dir, 0o777); err != nil {
		return nil, fmt.Errorf("open stores: %w", err)
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("open stores: %w", err)
	}
	for _, e := range entries {
		// A file in place of a tenant's directory makes all stores of the tenant broken. Hidden files
		// are ignored, because they belong to a file system or an editor.
		if tenant.Check(e.Name()) == nil && (e.IsDir() || !strings.HasPrefix(e.Name(), ".")) {
			s.tenants[e.Name()] = s.newTenant(e.Name())
		}
	}
	for name := range s.tenants {
		if err := removeParts(filepath.Join(s.dir, name)); err != nil {
			return nil, fmt.Errorf("remove unfinished imports: %w", err)
		}
	}
	for _, st := range s.allStores() { // no lock is needed: s is not shared yet
		st.unsynced.Store(true) // the last process may have been killed
		if err := st.failed.read(st.dir); err != nil {
			logger.Warn("files whose sync failed may not survive a power loss", "dir", st.dir, "err", err)
		}
		if err := examine(st.dir); err != nil {
			st.breaks(err)
		}
	}
	return s, nil
}

// Tend does the work that is due once a minute: it closes idle databases, tries broken stores
// again, syncs written files, and notes which stores are in use.
func (s *Stores) Tend(ctx context.Context) error {
	err := s.closeIdle()
	s.mu.Lock()
	all := s.allStores()
	s.mu.Unlock()
	for _, st := range all {
		try, cancel := context.WithTimeout(ctx, openPause) // a hanging store must not hold up the others
		st.tryBroken(try)
		cancel()
		st.look()
	}
	synced := s.Sync(ctx)
	if leftOut := (*checkpoint.LeftOutError)(nil); errors.As(synced, &leftOut) {
		synced = nil // these stores report their faults themselves
	}
	return errors.Join(err, synced, s.noteUsed())
}

// Close closes all databases. It waits for queries that read them, until ctx is done. A database
// that still has readers then stays open, because they use its memory. Nothing is lost, because
// everything written is in its WAL.
func (s *Stores) Close(ctx context.Context) error {
	errs := []error{s.noteUsed()}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	for name, stores := range s.tenants { // the map does not change once closed is set
		for kind, st := range stores {
			if err := st.close(ctx); err != nil {
				errs = append(errs, fmt.Errorf("close store %s of tenant %s: %w", kind, name, err))
			}
		}
	}
	return errors.Join(errs...)
}
