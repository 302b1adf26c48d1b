package tsdb

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/freshet-io/freshet/internal/core/recentseries"
	"github.com/freshet-io/freshet/internal/core/seriescache"
)

// rawCache remembers the series of one open database of raw samples. It is discarded when the database
// closes, because another database has other references.
type rawCache struct {
	*newcomers
	mu        sync.Mutex // held through a commit, so that the cache agrees with the database
	lookup    rawLookup
	pasts     rawPasts
	exemplars rawExemplars
	bound     int64  // Unix milliseconds; a series that is in the head but not in the cache has no newer sample
	commits   uint32 // number of the last commit

	// If the field Noted of a series' entry equals `mark`, the series is noted in the present epoch of `recent`.
	recent *recentseries.Set
	epoch  int64
	mark   uint32

	deleting sync.Mutex
	deleted  []uint64 // references that the head has dropped since the last commit
}

func newRawCache(n *newcomers, sparePages *atomic.Int64) *rawCache {
	return &rawCache{
		newcomers: n,
		pasts:     rawPasts{spare: sparePages},
		exemplars: rawExemplars{builder: labels.NewScratchBuilder(16)},
	}
}

// forget drops all series from the cache. The database has no sample newer than `maxT`.
func (c *rawCache) forget(maxT int64) {
	c.lookup.cache, c.bound = seriescache.New(), maxT
	c.pasts.forget()
}

// PostDeletion is tsdb's callback.
func (c *rawCache) PostDeletion(series map[chunks.HeadSeriesRef]labels.Labels) {
	c.deleting.Lock()
	defer c.deleting.Unlock()
	for ref := range series {
		c.deleted = append(c.deleted, uint64(ref))
	}
}

// evict removes series that the head has dropped.
func (c *rawCache) evict() {
	c.deleting.Lock()
	deleted := c.deleted
	c.deleted = nil
	c.deleting.Unlock()
	for _, ref := range deleted {
		c.lookup.cache.Evict(ref)
	}
}

// noteIn chooses the set and the epoch in which series are noted. Entries that are noted in another set
// or epoch no longer count as noted.
func (c *rawCache) noteIn(recent *recentseries.Set) {
	if c.recent != recent || c.epoch != recent.Epoch() {
		c.recent, c.epoch = recent, recent.Epoch()
		c.mark++
	}
}

// note marks a series as written to in the present epoch.
func (c *rawCache) note(f *rawFound) {
	if f.entry == nil {
		c.recent.Note(f.hash())
	} else if f.entry.Noted != c.mark {
		c.recent.Note(f.hash())
		f.entry.Noted = c.mark
	}
}

// isNoted reports whether a series is certainly noted in the present epoch.
func (c *rawCache) isNoted(f *rawFound) bool { return f.entry != nil && f.entry.Noted == c.mark }

// nextCommit returns the number of a new commit.
func (c *rawCache) nextCommit() uint32 {
	if c.commits++; c.commits == 0 {
		c.commits = 1 // 0 means no commit
	}
	return c.commits
}
