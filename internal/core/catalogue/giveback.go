package catalogue

import (
	"cmp"
	"slices"
	"time"

	"github.com/freshet-io/freshet/internal/core/series"
)

// keptBriefly is how long a name keeps its owner after the last sample, unless KeepFor sets another
// time. By default no series lives longer.
const keptBriefly = 2 * time.Hour

// TouchedEvery is the most by which Touch may lag behind the last sample of a name. Every 17 min,
// callers touch each series that never pauses.
const TouchedEvery = 20 * time.Minute

const (
	// givingBack is the share of a tenant's names that one search gives back, as a divisor: 10 is a
	// tenth. The next new names then need no search.
	givingBack = 10

	// searchEvery is the least time between two searches of a full tenant's names, in milliseconds. A
	// search of 100,000 names takes about 20 ms, and other callers wait for it.
	searchEvery = 10_000
)

// KeepFor sets the least time that a name keeps its owner after the last sample, by kind. This time
// must be long enough that no series of the name is measured, remembered or repeated afterwards.
// `kept` is called with the catalogue locked.
func (c *Catalogue) KeepFor(kept func(series.Kind) time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = kept
}

// makeRoom gives back names of a full tenant, and reports whether the tenant then has room. It
// gives back names that have been unused for longer than they were in use, shortest use first. So
// names of a flood go soon, and names that are used now and then stay.
//
// The samples of a name that was given back stay stored. If another kind claims the name later, its
// samples are stored beside them: docs/decisions/names-owned.md says why that is accepted.
func (c *Catalogue) makeRoom(t *tenant, now int64) bool {
	if wait := t.searchAt - now; wait > 0 && wait <= searchEvery { // if wait is longer, the clock was set back
		return false
	}
	t.searchAt = now + searchEvery
	var spare []*metric
	for m := range t.all() {
		if c.idle(m, now) >= max(c.kept(m.Kind).Milliseconds(), m.life()+1) {
			spare = append(spare, m)
		}
	}
	slices.SortFunc(spare, func(a, b *metric) int {
		return cmp.Or(cmp.Compare(a.life(), b.life()), cmp.Compare(a.used, b.used), cmp.Compare(a.Name, b.Name))
	})
	for _, m := range spare[:min(len(spare), max(1, c.maxNames/givingBack))] {
		t.remove(m)
		delete(c.dirty, m)
		c.gone[savedName{m.Tenant, m.Name}] = struct{}{}
		c.givenBack++
	}
	t.forgetRaws()
	return t.names < c.maxNames
}

// idle returns how long a name has been unused, in milliseconds, as far as this process can know:
// the file has the times of earlier use only to the hour.
func (c *Catalogue) idle(m *metric, now int64) int64 {
	return now - max(m.LastSeen, m.used, c.began)
}

// life returns how long a name was in use, from its first sample to its last, in milliseconds. A
// metric saved before Metric.First existed counts as old.
func (m *metric) life() int64 { return max(m.LastSeen, m.used) - m.First }

// use notes that a name is in use at `now`. The clock may go back.
func (c *Catalogue) use(m *metric, now int64) {
	c.begin(now)
	m.used = max(m.used, now)
}

// begin notes the time of the first claim in this process.
func (c *Catalogue) begin(now int64) {
	if c.began == 0 {
		c.began = now
	}
}

// savedName is the key under which a metric is saved.
type savedName struct{ tenant, name string }

// Gone returns the metrics that were given back since the last call, with only Tenant and Name set.
// Remove them from the file before saving the metrics of Dirty. A caller that cannot remove them
// hands them back by MarkGone.
func (c *Catalogue) Gone() (gone []Metric) {
	c.mu.Lock()
	for key := range c.gone {
		if t := c.tenants[key.tenant]; t.metric(key.name) == nil { // otherwise Dirty overwrites the entry
			gone = append(gone, Metric{Tenant: key.tenant, Name: key.name})
		}
	}
	if len(c.gone) > 0 {
		c.gone = map[savedName]struct{}{}
	}
	c.mu.Unlock()
	sortMetrics(gone)
	return gone
}

// MarkGone makes the next Gone return these metrics again.
func (c *Catalogue) MarkGone(metrics []Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range metrics {
		c.gone[savedName{metrics[i].Tenant, metrics[i].Name}] = struct{}{}
	}
}

// GivenBack returns how many names were given back since the start.
func (c *Catalogue) GivenBack() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.givenBack
}
