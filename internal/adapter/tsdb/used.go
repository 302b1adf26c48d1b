package tsdb

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// usedFile lists the stores that were in use: docs/format/databases.md.
	usedFile = "stores.json"

	// Before a process is ready, it opens the stores that were used at most inUse before the end of
	// the previous process.
	inUse = time.Hour
)

// usedStores is the contents of usedFile. Times are Unix milliseconds.
type usedStores struct {
	At   int64            `json:"at_ms"`   // when it was written
	Used map[string]int64 `json:"used_ms"` // last write or query of stores in use, by TENANT/STORE
}

// Progress is how far OpenUsed has got.
type Progress struct {
	Done  int      `json:"done"`
	Total int      `json:"total"`
	Now   []string `json:"now"` // stores that are being opened, as TENANT/STORE
}

// noted has the contents of usedFile. While one goroutine writes the file, goroutines that open other
// stores wait for the lock. The next write then lists all these stores. So opening many stores at once
// costs few writes.
type noted struct {
	sync.Mutex
	names map[string]int64 // used_ms of the file as it was last written
}

// progress has the Progress of OpenUsed, and its lock.
type progress struct {
	mu    sync.Mutex
	begun bool
	Progress
}

// Opening returns how far OpenUsed has got. The total is 0 before it begins.
func (s *Stores) Opening() Progress {
	s.warming.mu.Lock()
	defer s.warming.mu.Unlock()
	p := s.warming.Progress
	p.Now = slices.Clone(p.Now)
	return p
}

func (p *progress) begin(total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun, p.Total = true, total
}

func (p *progress) opening(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Now = append(p.Now, name)
}

func (p *progress) opened(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Now = slices.DeleteFunc(p.Now, func(n string) bool { return n == name })
	p.Done++
}

// OpenUsed opens the stores that were in use when the last process ended, at most as many as
// the configuration allows. It opens the largest logs first, and as many at a time as there are
// processors. It returns when all are open or broken, or ctx is done.
func (s *Stores) OpenUsed(ctx context.Context) {
	all := s.wereUsed()
	s.warming.begin(len(all))
	if err := s.noteUsed(); err != nil { // stores may already have been opened
		s.logger.Warn(notNoted, "err", err)
	}
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, st := range all {
		group.Go(func() error {
			s.warming.opening(st.name())
			defer s.warming.opened(st.name())
			if db, err := st.read(ctx); err == nil && db != nil { // s.Broken reports any error
				st.release()
			}
			return nil
		})
	}
	_ = group.Wait() // no goroutine returns an error
}

// wereUsed returns the stores to open, the largest first. From now on they count as used, so
// that a process which ends before it is ready does not forget them.
func (s *Stores) wereUsed() (found []*store) {
	s.mu.Lock()
	all := s.allStores()
	s.mu.Unlock()
	used := s.readUsed(all)
	sizes := map[*store]int64{}
	for _, st := range all {
		if last, ok := used.Used[st.name()]; !ok || last < used.At-inUse.Milliseconds() {
			continue
		}
		if info, err := os.Stat(st.dir); err != nil || !info.IsDir() {
			continue
		}
		sizes[st] = walBytes(st.dir)
		found = append(found, st)
	}
	slices.SortStableFunc(found, func(a, b *store) int { return cmp.Compare(sizes[b], sizes[a]) })
	found = found[:min(len(found), s.cfg.MaxOpen)]
	for _, st := range found {
		st.mu.Lock()
		st.used = s.now()
		st.mu.Unlock()
	}
	return found
}

// readUsed reads the file. If there is none, as in the data directory of an older version, the
// times of the logs show which stores were written to.
func (s *Stores) readUsed(all []*store) (used usedStores) {
	text, err := os.ReadFile(s.usedPath())
	if err == nil {
		err = json.Unmarshal(text, &used)
	}
	if err == nil {
		return used
	}
	if !errors.Is(err, fs.ErrNotExist) {
		s.logger.Warn("the list of stores in use cannot be read; the stores with recent logs are opened",
			"file", s.usedPath(), "err", err)
	}
	used = usedStores{Used: map[string]int64{}}
	for _, st := range all {
		for _, info := range listLogs(st.dir) {
			used.Used[st.name()] = max(used.Used[st.name()], info.ModTime().UnixMilli())
		}
		used.At = max(used.At, used.Used[st.name()])
	}
	return used
}

func (s *Stores) usedPath() string { return filepath.Join(filepath.Dir(s.dir), usedFile) }

const notNoted = "the list of stores in use cannot be written: " +
	"the next start may not open all of them before it is ready"

// noteOpened writes the file if it lacks a store that was opened: the process may be killed
// before the next regular write.
func (s *Stores) noteOpened(name string) {
	s.noted.Lock()
	defer s.noted.Unlock()
	if _, has := s.noted.names[name]; has {
		return
	}
	if err := s.writeUsed(); err != nil {
		s.logger.Warn(notNoted, "err", err)
	}
}

// noteUsed writes the file with the stores that are in use.
func (s *Stores) noteUsed() error {
	s.noted.Lock()
	defer s.noted.Unlock()
	return s.writeUsed()
}

// writeUsed writes the file. It does nothing until OpenUsed has read the file of the last process. The
// file is complete at any time, but not synced: after a power loss, the times of the logs take its
// place. The caller holds s.noted.
func (s *Stores) writeUsed() error {
	s.warming.mu.Lock()
	begun := s.warming.begun
	s.warming.mu.Unlock()
	if !begun {
		return nil
	}
	s.mu.Lock()
	all := s.allStores()
	s.mu.Unlock()
	now := s.now()
	used := usedStores{At: now.UnixMilli(), Used: map[string]int64{}}
	for _, st := range all {
		last := now
		if st.mu.TryLock() { // otherwise the store is in use
			last = st.used
			if st.users > 0 {
				last = now
			}
			st.mu.Unlock()
		}
		if last.After(now.Add(-inUse)) {
			used.Used[st.name()] = last.UnixMilli()
		}
	}
	text, err := json.Marshal(used)
	if err != nil {
		return err
	}
	temp := s.usedPath() + ".tmp"
	if err := os.WriteFile(temp, append(text, '\n'), 0o640); err != nil {
		return fmt.Errorf("write the list of stores in use: %w", err)
	}
	if err := os.Rename(temp, s.usedPath()); err != nil {
		return err
	}
	s.noted.names = used.Used
	return nil
}

// Look checks the open stores and notes faults for Broken to return. Tend calls it once a minute.
func (s *Stores) Look() {
	s.mu.Lock()
	all := s.allStores()
	s.mu.Unlock()
	for _, st := range all {
		st.look()
	}
}

// Broken returns the stores that could not be opened at the last try, in the order of their names.
// It includes stores that broke after they were opened, as of the last Look. Stores that were not
// used since the start were only examined.
func (s *Stores) Broken() (found []*BrokenError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.allStores() {
		broken := cmp.Or(st.broken.Load(), st.ill.Load())
		if hurt := st.hurt.Load(); hurt != nil && hurt.Damaged {
			broken = cmp.Or(broken, hurt)
		}
		if broken != nil {
			found = append(found, broken)
		}
	}
	return found
}

// NeverRepair sets whether other members of the group have the same data. If so, a store with a damaged file stays
// closed, and is broken. Otherwise tsdb would remove a damaged record of a log and everything behind it, or leave
// out a block, and answer without these samples. Call it before the first use of a store, and when that changes.
func (s *Stores) NeverRepair(others bool) {
	if s.others.Swap(others) == others {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.allStores() {
		if hurt := st.hurt.Load(); hurt != nil {
			st.noteDamage(hurt.Cause)
		}
		if broken := st.broken.Load(); broken != nil { // Open has found it
			st.breaks(broken.Cause)
		}
	}
}

// Damaged returns the stores with a file that is known to be damaged, in the order of their names. If no other member
// of the group has their data, they answer all the same.
func (s *Stores) Damaged() (found []*BrokenError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.allStores() {
		damage := st.broken.Load()
		if damage == nil || !damage.Damaged {
			damage = st.hurt.Load()
		}
		if damage != nil {
			found = append(found, damage)
		}
	}
	return found
}

// Exist reports whether any tenant has a store of one of these kinds on disk.
func (s *Stores) Exist(kinds ...string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.allStores(), func(st *store) bool {
		info, err := os.Stat(st.dir)
		return slices.Contains(kinds, st.kind) && err == nil && info.IsDir()
	})
}
