package client

import (
	"math"
	"math/bits"
	"sync/atomic"
)

// table finds series by kind, rate, name and tags. Lookups take no lock; changes hold Client.mu. Series
// are only added to a table. To remove series, the client makes a new table. A table is at most half
// full, so that a search ends soon.
type table struct {
	slots []atomic.Pointer[series] // their number is a power of two
	n     int                      // number of series; guarded by Client.mu
}

const minTable = 64 // the least number of slots

func newTable(slots int) *table { return &table{slots: make([]atomic.Pointer[series], slots)} }

func (t *table) get(hash uint64, k kind, rate float64, name string, tags []string) *series {
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := t.slots[i].Load()
		if s == nil {
			return nil
		}
		if s.hash == hash && s.is(k, rate, name, tags) {
			return s
		}
	}
}

func (t *table) put(s *series) {
	mask := uint64(len(t.slots) - 1)
	for i := s.hash & mask; ; i = (i + 1) & mask {
		if t.slots[i].Load() == nil {
			t.slots[i].Store(s)
			t.n++
			return
		}
	}
}

// each calls f for every series.
func (t *table) each(f func(*series)) {
	for i := range t.slots {
		if s := t.slots[i].Load(); s != nil {
			f(s)
		}
	}
}

// with is a method that puts s into t, or into a larger copy of t if t may be full, and returns the
// table that has s.
func (t *table) with(s *series) *table {
	if 2*(t.n+1) > len(t.slots) {
		grown := newTable(2 * len(t.slots))
		t.each(grown.put)
		t = grown
	}
	t.put(s)
	return t
}

// hash hashes everything that identifies a series, by wyhash (github.com/wangyi-fudan/wyhash). The seed
// is secret, so that nobody can choose tags that collide. wyhash is implemented here, since package
// maphash takes twice as long for so many short strings.
func (c *Client) hash(k kind, rate float64, name string, tags []string) uint64 {
	h := hashString(c.seed^uint64(k), name)
	if rate != 1 {
		h = mix(h, math.Float64bits(rate)^hashKey1)
	}
	for _, tag := range tags {
		h = hashString(h, tag)
	}
	return h
}

// Keys of wyhash.
const hashKey1, hashKey2 = 0xa0761d6478bd642f, 0xe7037ed1a0b428db

func mix(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low
}

func hashString(h uint64, s string) uint64 {
	var a, b uint64
	n := len(s)
	switch {
	case n > 16:
		for rest := s; len(rest) > 16; rest = rest[16:] {
			h = mix(eight(rest)^hashKey1, eight(rest[8:])^h)
		}
		a, b = eight(s[n-16:]), eight(s[n-8:])
	case n >= 8:
		a, b = eight(s), eight(s[n-8:])
	case n >= 4:
		a, b = four(s), four(s[n-4:])
	case n > 0:
		a = uint64(s[0])<<16 | uint64(s[n>>1])<<8 | uint64(s[n-1])
	}
	return mix(hashKey2^uint64(n), mix(a^hashKey2, b^h))
}

func eight(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

func four(s string) uint64 {
	_ = s[3]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24
}

// find returns the series for a call, perhaps an overflow series. If there is no place, find counts the
// call as refused and returns nil. It keeps neither name nor tags.
func (c *Client) find(k kind, rate float64, name string, tags []string) *series {
	h := c.hash(k, rate, name, tags)
	if s := c.table.Load().get(h, k, rate, name, tags); s != nil {
		return s
	}
	return c.findNew(h, k, rate, name, tags)
}

// findNew is the rest of find, for a series that is not in the table under this name and these tags.
func (c *Client) findNew(h uint64, k kind, rate float64, name string, tags []string) *series {
	if name == "" {
		c.counts.turnAway(refused, k)
		return nil
	}
	if !isClean(c.options.Prefix, name, tags) {
		name, tags = cleaned(c.options.Prefix, name, tags)
		c.counts.cleaned.Add(1)
		h = c.hash(k, rate, name, tags)
		if s := c.table.Load().get(h, k, rate, name, tags); s != nil {
			return s
		}
	}
	if c.lineBytes(name, tags) > c.options.PacketBytes {
		c.counts.turnAway(refused, k)
		return nil
	}
	if s := c.add(h, k, rate, name, tags, false); s != nil {
		return s
	}
	if k == gauge { // values of several gauges cannot be combined
		c.counts.turnAway(c.whyNot(), k)
		return nil
	}
	return c.findOverflow(k, rate, name)
}

var overflowTags = []string{"client_overflow:true"}

func (c *Client) findOverflow(k kind, rate float64, name string) *series {
	h := c.hash(k, rate, name, overflowTags)
	s := c.table.Load().get(h, k, rate, name, overflowTags)
	if s == nil && c.lineBytes(name, overflowTags) <= c.options.PacketBytes {
		s = c.add(h, k, rate, name, overflowTags, true)
	}
	if s == nil {
		c.counts.turnAway(c.whyNot(), k)
		return nil
	}
	c.counts.folded.Add(1)
	return s
}

// whyNot returns the reason why a series could not be added.
func (c *Client) whyNot() fate {
	if c.closed.Load() {
		return unsent
	}
	return tooMany
}

// add puts the series into the table and returns it, or returns nil if there is no room. Overflow series
// have reserved places, since they are needed when all other places are taken.
func (c *Client) add(h uint64, k kind, rate float64, name string, tags []string, overflow bool) *series {
	if !overflow && c.counts.series.Load() >= int64(c.options.MaxSeries) {
		return nil // avoid the lock: in a flood of new series, all calls would wait for it
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.table.Load()
	if s := t.get(h, k, rate, name, tags); s != nil {
		return s
	}
	switch {
	case c.closed.Load():
		return nil
	case overflow && c.overflow >= max(16, c.options.MaxSeries/8):
		return nil
	case !overflow && t.n-c.overflow >= c.options.MaxSeries:
		return nil
	}
	s := newSeries(h, k, rate, name, tags)
	s.overflow = overflow
	if overflow {
		c.overflow++
	}
	c.setTable(t.with(s))
	return s
}

// setTable replaces the table. The caller must hold mu.
func (c *Client) setTable(t *table) {
	c.table.Store(t)
	c.counts.series.Store(int64(t.n - c.overflow))
}

// An unused series is evicted after this many flushes: the first value holds once the table is half full,
// the second once it is full.
const (
	idleHalfFull = 10
	idleFull     = 1
)

// evict removes series from the table and returns them. Calls may still find them until they are
// retired.
func (c *Client) evict() (evicted []*series) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.table.Load()
	idle := uint8(math.MaxUint8) // no series is idle for so long
	if n := t.n - c.overflow; n >= c.options.MaxSeries {
		idle = idleFull
	} else if 2*n > c.options.MaxSeries {
		idle = idleHalfFull
	}
	t.each(func(s *series) {
		// Evict an idle overflow series early, to make room for the overflow series of another name.
		if s.idle >= idle || s.overflow && s.idle >= idleHalfFull {
			evicted = append(evicted, s)
		}
	})
	if len(evicted) == 0 {
		return nil
	}
	gone := make(map[*series]bool, len(evicted))
	for _, s := range evicted {
		gone[s] = true
		if s.overflow {
			c.overflow--
		}
	}
	rest := newTable(len(t.slots))
	t.each(func(s *series) {
		if !gone[s] {
			rest.put(s)
		}
	})
	c.setTable(rest)
	return evicted
}
