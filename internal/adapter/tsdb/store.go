package tsdb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	prom "github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/freshet-io/freshet/internal/core/changes"
	"github.com/freshet-io/freshet/internal/core/growth"
)

// store holds one database, open or not.
type store struct {
	tenant string
	kind   string // Raw or the name of a width
	dir    string
	reg    prometheus.Registerer
	sums   *sums
	logger *slog.Logger
	opened prometheus.Gauge
	marks  func() *storeMarks
	now    func() time.Time
	growth *growth.Tracker
	note   func(name string) // called when the store was opened

	changes *changes.Log // of all stores of the tenant

	fsync       func(path string) error
	syncCommits bool               // outside of a group, commits of requests survive a power loss: see syncCommit
	restored    prometheus.Counter // files with metadata of blocks, of all stores
	logs        logSync
	ends        keptEnds
	savedHeads  *heads
	sparePages  *atomic.Int64 // see rawPasts
	turns       turns         // of all stores
	wide        *atomic.Int32 // how many databases are open with many stripes, of all stores

	// unreadable says which block could not be read when tsdb opened it, which left tsdb's lock of the directory held. It
	// is used only by the method openFiles.
	unreadable error

	keeping sync.Mutex // held while the metadata of a block are copied or restored
	saving  sync.Mutex // held while the head of the open database is saved

	others *atomic.Bool // other members of the group have the data: see Stores.NeverRepair

	broken atomic.Pointer[BrokenError] // why the last opening failed; nil if it succeeded
	ill    atomic.Pointer[BrokenError] // the fault since the opening, as of the last look
	hurt   atomic.Pointer[BrokenError] // a closed file that is damaged: see check; nil if none is known

	mu       sync.Mutex
	options  *tsdb.Options // options for the next opening
	opening  chan struct{} // closed when the current opening ends; nil if there is none
	again    time.Time     // earliest time to try a broken store again
	db       *database     // nil while closed
	log      os.FileInfo   // the directory of its WAL, as of the opening
	users    int           // how many writes, queriers and openings use db
	used     time.Time     // when the last user released it
	openedAt time.Time     // when db was opened
	leftAt   time.Time     // when db was last closed because it was idle
	idle     chan struct{} // closed when users falls to 0; nil if no goroutine waits for that
	closing  bool          // accepts no new users
	renewing bool          // its files are being rewritten: accepts no new users
	isWide   bool          // db has many stripes
	byHand   bool          // see Stores.CompactByHand

	unwanted   unwanted // blocks that an operator removes
	committing sync.Mutex
	damaged    atomic.Bool // a commit failed: see repair
	unsynced   atomic.Bool // the store was written to since the last sync
	syncing    atomic.Bool // a sync is under way
	failed     unsyncedFiles
}

// name returns the name of the store in files, logs and answers.
func (s *store) name() string { return s.tenant + "/" + s.kind }

// inMemory returns how many series the database has in memory, 0 if it is closed.
func (s *store) inMemory() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil {
		return 0
	}
	return int(s.db.Head().NumSeries())
}

// applyOptions applies the options that an open database can change. The caller holds s.mu.
func (s *store) applyOptions() error {
	room := &s.db.exemplars
	room.mu.Lock()
	defer room.mu.Unlock()
	room.outOfOrder = s.options.OutOfOrderTimeWindow // because the first exemplar sets it again
	// tsdb turns off each setting that is missing here, so we pass all of them.
	return s.db.ApplyConfig(&prom.Config{StorageConfig: prom.StorageConfig{
		TSDBConfig: &prom.TSDBConfig{
			OutOfOrderTimeWindow: s.options.OutOfOrderTimeWindow,
			Retention: &prom.TSDBRetentionConfig{
				Time: model.Duration(time.Duration(s.options.RetentionDuration) * time.Millisecond),
			},
		},
		ExemplarsConfig: &prom.ExemplarsConfig{MaxExemplars: room.now},
	}})
}

func (s *store) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	s.used = s.now()
	s.let()
}

// leave does what release does for work that does not count as use.
func (s *store) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	s.let()
}

// let is called when a user of the database has gone. After the last user, let wakes the goroutines that
// wait until the database has no user. The caller holds s.mu.
func (s *store) let() {
	if s.users == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// commit writes the samples in `app`, if any. None of them changes an answer about a time before `oldest`. Afterwards
// the logs have all of the first `requests` requests of the tenant; `requests` is 0 if a request is not complete.
// Commits run one at a time, and none succeeds after a failed commit, because a replay might not reach its samples.
func (s *store) commit(app storage.Appender, oldest int64, requests uint64) error {
	s.committing.Lock()
	defer s.committing.Unlock()
	if s.damaged.Load() {
		return errors.Join(errDamaged, app.Rollback())
	}
	s.changes.Note(oldest)
	err := app.Commit()
	s.changes.Note(oldest)
	s.unsynced.Store(true)
	if err != nil {
		s.damaged.Store(true)
		return err
	}
	s.ends.has(requests) // before a sync can save the new ends of the logs
	return nil
}

// syncCommit makes the commits of requests before the call survive a power loss, if they must. In a group, the log of
// the group has the requests, and is synced.
//
// A removed segment needs no sync, since its samples are in a block: it may go between two calls, or during one.
func (s *store) syncCommit() error {
	if !s.syncCommits || s.ends.kept {
		return nil
	}
	if err := s.unsyncable(); err != nil {
		return err
	}
	err := s.logs.sync(s.dir, s.fsync)
	if errors.Is(err, fs.ErrNotExist) {
		err = s.logs.sync(s.dir, s.fsync)
	}
	var of *fs.PathError
	if errors.As(err, &of) {
		err = s.failed.failed(s.dir, of.Path, err)
	}
	return err
}

// repairWait is how long a repair waits for queries under way. New queries and writes are
// refused meanwhile.
const repairWait = 5 * time.Second

// repair closes the database after a failed commit, so that it opens again from the files on disk.
// The open database would lose acknowledged samples. Series made by the failed write stay in memory
// without a record in the WAL, so a replay does not know their later samples. And a half-written
// record makes the replay drop everything behind it.
//
// If the disk still accepts no file, the new database could not be opened. So the old one stays,
// and answers queries, until the disk accepts files again.
//
// The caller holds s.mu; repair releases it while it waits.
func (s *store) repair(ctx context.Context) error {
	if err := probe(s.dir); err != nil {
		return fmt.Errorf("the disk is still not writable after a failed write: %w", err)
	}
	s.closing = true
	defer func() { s.closing = false }()
	ctx, cancel := context.WithTimeout(ctx, repairWait)
	defer cancel()
	if err := s.drain(ctx); err != nil {
		return fmt.Errorf("open again after a failed write: %w", err)
	}
	if err := s.shut(); err != nil {
		s.logger.Warn("closing the database failed; it opens again from its WAL", "err", err)
	}
	s.damaged.Store(false)
	return nil
}

// drain waits until the database has no user. The caller holds s.mu and has set s.closing or s.renewing;
// drain releases s.mu while it waits.
func (s *store) drain(ctx context.Context) error {
	for s.users > 0 {
		if s.idle == nil {
			s.idle = make(chan struct{})
		}
		idle := s.idle
		s.mu.Unlock()
		select {
		case <-idle:
			s.mu.Lock()
		case <-ctx.Done():
			s.mu.Lock()
			return fmt.Errorf("wait for %d readers and writers: %w", s.users, ctx.Err())
		}
	}
	return nil
}

// shut closes a database without users, and saves its head if that pays. The caller holds s.mu.
func (s *store) shut() error {
	if s.db == nil {
		return nil
	}
	err := s.closeDatabase(s.db)
	s.db = nil
	s.opened.Dec()
	if s.isWide {
		s.wide.Add(-1)
	}
	return err
}

// close closes the store for good.
func (s *store) close(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	if err := s.drain(ctx); err != nil {
		return err
	}
	return s.shut()
}

// probe writes a file of the size that the opening of a database needs, and removes it.
func probe(dir string) error {
	f, err := os.CreateTemp(dir, "probe-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(make([]byte, 256<<10))
	return errors.Join(err, f.Close())
}

// watchedLogger returns the logger of the store's database: see syncErrors.
func (s *store) watchedLogger() *slog.Logger {
	var handler slog.Handler = closings{s.logger.Handler()}
	if s.kind == History {
		handler = mayOverlap{handler}
	}
	return slog.New(syncErrors{handler, func(path string, err error) {
		if within, _ := filepath.Rel(s.dir, path); !slices.Contains(unsyncedDirs, filepath.Dir(within)) {
			return // a file of a block: tsdb writes the block again
		}
		s.unsynced.Store(true)
		_ = s.failed.failed(s.dir, path, err) // tsdb logs the failure of the sync
	}})
}
