// Package recentseries remembers the series that a tenant wrote to recently, as hashes of their
// labels. They are the series that distributor.max_series counts. Members derive them from
// the requests in the order of the log, so they are equal on all members, whatever the stores hold in
// memory.
//
// Time is the log's time: the largest arrival of a request so far. It is cut into epochs of 2 h. A
// series counts if it was written to in the present epoch or in the one before. So it counts for 2 to 4
// h after its last sample.
//
// Two series whose labels have the same 64-bit hash count as one. By chance that happens to one in
// 37 million tenants with a million series each. A tenant that makes such labels on purpose slows
// down its own store, whose hash is no better.
package recentseries

import (
	"sync"
	"unsafe"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/freshet-io/freshet/internal/lib/index"
	"github.com/freshet-io/freshet/internal/lib/prefetch"
)

const (
	// Epoch is the length of an epoch, in milliseconds of the log's time.
	Epoch = 2 * 3600 * 1000

	// Most is the largest number of series that count: they take 200 MiB here, and more than 60 GiB
	// in a store. A tenant without a limit may write to more series, which do not count.
	Most = 1 << 24
)

// Hash is the hash of a series' labels. Its upper half is not 0.
type Hash uint64

// Of(ls) returns the hash of a series with the labels ls. The hash is part of the saved form, so it
// never changes.
func Of(ls labels.Labels) Hash { return hashOf(labels.StableHash(ls)) }

func hashOf(h uint64) Hash {
	if h>>32 == 0 {
		h |= 1 << 32
	}
	return Hash(h)
}

// number returns the upper half of the hash, which the index stores as the series' number. The index
// itself keeps the lower half, so both together are the whole hash.
func (h Hash) number() uint32 { return uint32(h >> 32) }

// Set has the recent series of one tenant. Its changes are provisional until Keep. The zero value is
// empty and ready. One goroutine at a time uses it, but AppendKept may run in another goroutine
// meanwhile.
//
// Shape: 4 kB, and 11 to 16 bytes a series; up to 20 while an epoch begins.
type Set struct {
	noted []Hash // by Note, and not looked up yet; at most atOnce

	mu sync.Mutex // held by each change, and by AppendKept while it reads
	series

	changes []change   // since the last Keep, for Undo
	dropped []*dropped // the earlier epochs that these changes dropped

	records  bool     // see Record
	recorded []uint64 // final changes: hashes of noted series, and numbers of epochs that began, which are below any hash
}

// series holds the series that count as recent.
type series struct {
	epoch   int64       // number of the present epoch, counted from 1970; 0 before the first request
	present index.Index // series that were written to in the present epoch
	before  index.Index // series that were last written to in the epoch before
	size    int         // of both
	older   int         // of before
}

// change is one step of a Set.
type change struct {
	what changed
	of   uint64 // the Hash of a series, or the number of the epoch that began
}

type changed uint8

const (
	added changed = iota // to present
	moved                // a series moved from Set.before to Set.present
	aged                 // Set.present became Set.before, and the old Set.before was dropped
	begun                // the first epoch
)

// dropped holds what a step to the next epoch removed.
type dropped struct {
	epoch  int64
	before index.Index
	older  int
}

// Advance moves the log's time to the arrival of the request that is being applied, in Unix
// milliseconds. An earlier time changes nothing: another node's clock may be behind.
func (s *Set) Advance(arrival int64) {
	epoch := min(arrival, maxTime) / Epoch
	if epoch <= s.epoch {
		return
	}
	s.lookUp()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch == 0 { // series that were restored from a store count as written to just now
		s.changes = append(s.changes, change{begun, uint64(epoch)})
		s.epoch = epoch
		return
	}
	steps := min(epoch-s.epoch, 2)
	for range steps {
		s.changes = append(s.changes, change{aged, uint64(epoch)})
		s.dropped = append(s.dropped, &dropped{s.epoch, s.before, s.older})
		s.before, s.older = s.present, s.size-s.older
		s.present, s.size = index.Index{}, s.older
	}
	s.epoch = epoch
}

// Epoch returns the number of the present epoch. It is 0 before the first request.
func (s *Set) Epoch() int64 { return s.epoch }

// Len returns how many series count.
func (s *Set) Len() int {
	s.lookUp()
	return s.size
}

// Full reports whether there is no room for another series. A `limit` of 0 means no limit.
func (s *Set) Full(limit int) bool {
	if limit = min(limit, Most); limit <= 0 || s.size+len(s.noted) < limit {
		return false
	}
	s.lookUp()
	return s.size >= limit
}

// Has reports whether a series counts as recent.
func (s *Set) Has(h Hash) bool {
	s.lookUp()
	return has(&s.present, h) || has(&s.before, h)
}

func has(in *index.Index, h Hash) bool {
	for search := in.Search(uint64(h)); ; {
		switch search.Next() {
		case 0:
			return false
		case h.number():
			return true
		}
	}
}

// atOnce is how many series are looked up at a time. Most lookups are cache misses. If they are done
// together, the CPU waits once instead of once per series: see package prefetch.
const atOnce = 64

// Note records that a series is written to. It does nothing if the series was already noted in the
// present epoch.
func (s *Set) Note(h Hash) {
	if s.noted = append(s.noted, h); len(s.noted) == atOnce {
		s.lookUp()
	}
}

// lookUp looks up the series that were noted, and adds those that are new.
func (s *Set) lookUp() {
	if len(s.noted) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var slots [2 * atOnce]unsafe.Pointer
	for i, h := range s.noted {
		slots[2*i], slots[2*i+1] = s.present.Begin(uint64(h)), s.before.Begin(uint64(h))
	}
	prefetch.Lines(slots[:2*len(s.noted)])
	for _, h := range s.noted {
		s.add(h)
	}
	s.noted = s.noted[:0]
}

func (s *Set) add(h Hash) {
	if has(&s.present, h) {
		return
	}
	c := change{added, uint64(h)}
	switch {
	case has(&s.before, h):
		c.what = moved
		s.before.Remove(uint64(h), h.number())
		s.older--
	case s.size >= Most:
		return
	default:
		s.size++
	}
	s.present.Insert(uint64(h), h.number())
	s.changes = append(s.changes, c)
}

// keepChanges is how many changes Keep leaves memory for: 256 KiB. A request that makes more changes
// comes about once an epoch.
const keepChanges = 1 << 14

// Keep makes all changes final. Call it when the samples that caused them are stored.
func (s *Set) Keep() {
	s.lookUp()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.records {
		for _, c := range s.changes {
			s.recorded = append(s.recorded, c.of)
		}
	}
	s.settled()
}

// settled() forgets the changes. Undo can then no longer take them back.
func (s *Set) settled() {
	if s.changes = s.changes[:0]; cap(s.changes) > keepChanges {
		s.changes = nil
	}
	s.dropped = nil
}

// Undo takes back all changes since the last Keep. Call it when some samples that caused them are not
// stored, since the samples come again.
func (s *Set) Undo() {
	s.noted = s.noted[:0]
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.changes) - 1; i >= 0; i-- {
		c := s.changes[i]
		switch c.what {
		case added:
			s.present.Remove(c.of, Hash(c.of).number())
			s.size--
		case moved:
			s.present.Remove(c.of, Hash(c.of).number())
			s.before.Insert(c.of, Hash(c.of).number())
			s.older++
		case aged: // later additions to s.present are taken back already
			last := s.dropped[len(s.dropped)-1]
			s.dropped = s.dropped[:len(s.dropped)-1]
			s.present, s.before = s.before, last.before
			s.epoch, s.older, s.size = last.epoch, last.older, s.older+last.older
		case begun:
			s.epoch = 0
		}
	}
	s.settled()
}
