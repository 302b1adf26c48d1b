// Package seriescache finds a database's series by the bytes that a sender wrote for its labels, so
// that the labels of a known series are not parsed again. A series may have several spellings: from
// two versions of the protocol, from two senders, or with labels that relabelling removes. The
// garbage collector has nothing to scan in the cache.
//
// Of each spelling the cache keeps a fingerprint of 128 bits. Its bytes would be a sixth of the memory that a series
// takes. The seeds are random, so a sender cannot choose labels with the fingerprint of others. Two of 100 million
// spellings have the same one by chance with a probability below 10^-22.
//
// The caller resolves each spelling once. The caller also keeps track of the samples written to a
// series: this package only holds the fields for that.
package seriescache

import (
	"hash/maphash"
	"math/bits"

	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/lib/index"
)

// Number identifies a series in a Cache until it is evicted. The zero Number stands for no series.
type Number uint32

// Dropped stands for all series that a rule drops.
const Dropped Number = 1<<32 - 1

// Series is the state of one series.
//
// Shape: 48 bytes.
type Series struct {
	Ref   uint64 // of the database; never changes
	Hash  uint64 // of its labels, computed by the caller
	LastT int64  // Unix milliseconds of the newest sample, in the database or waiting to be committed
	Bits  uint64 // of the value at LastT, if Float

	Commit uint32 // the last commit that wrote to the series; 0 if none did since the series was cached
	Noted  uint32 // when the caller last noted a write; 0 if it noted none since the series was cached
	first  uint32 // its first spelling
	Float  bool   // the sample at LastT is a float, not a histogram
	Exact  bool   // there is a sample at LastT; otherwise LastT is an upper bound

	Described bool // its metadata was passed on
	Past      bool // the caller remembers older samples of the series, too
}

// spelling is one way to write the labels of a series.
//
// Shape: 32 bytes, and 11 to 16 in the index.
type spelling struct {
	print  print
	series Number // 0 if the spelling is free
	next   uint32 // the spelling that followed this one in the last request; in a free spelling, the next free spelling
	twin   uint32 // the next spelling of the same series
	size   uint32 // bytes of the labels in version 1, or their symbols in version 2
}

// print is the fingerprint of a spelling: two hashes with different seeds.
type print struct{ index, check uint64 }

const (
	// maxSpellings is how many spellings of a series are remembered. The caller resolves further
	// spellings each time, so writing one series in many ways cannot fill the memory.
	maxSpellings = 8

	// maxDropped is how many spellings of dropped series are remembered, in 5 MB. When one more comes, the
	// cache forgets them all, and spellings in use are added again.
	maxDropped = 100_000
)

// Cache belongs to one open database, since references are valid only in that database. One
// goroutine at a time may use it.
type Cache struct {
	seeds     [2]maphash.Seed
	index     index.Index     // spellings by print.index
	spellings pages[spelling] // [0] is unused, but its field next is the first spelling of a request
	free      uint32          // the first free spelling
	dropped   []uint32

	series     pages[Series] // by number; [0] is unused
	byRef      index.Index
	freeSeries []Number
}

// New returns an empty cache.
func New() *Cache {
	c := &Cache{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	c.spellings.add()
	c.series.add()
	return c
}

// Cursor is a position in a request. It expects the series in the same order as in the previous
// request. As long as they come in that order, it finds them without a search.
type Cursor struct {
	last    uint32  // the spelling found last
	print   print   // of the spelling that was looked for last
	size    uint32  // of this spelling
	symbols []print // of the request, if hashed
	hashed  bool
}

// manySymbols is how many symbols a cursor has memory for between requests: 0.8 MB. A usual request has some thousands.
const manySymbols = 50_000

// Begin resets the cursor. Call it before the first series of a request.
func (u *Cursor) Begin() {
	u.last, u.hashed = 0, false
	if cap(u.symbols) > manySymbols {
		u.symbols = nil
	}
}

// Find returns the series whose labels are spelled like the labels of s, or 0. Between Begin and
// the last series of a request, no series may be evicted or forgotten.
func (c *Cache) Find(u *Cursor, r *remotewrite.Request, s *remotewrite.Series) Number {
	if r.Version2() {
		refs := r.Refs(s)
		u.print, u.size = c.printV2(u, r, refs), uint32(len(refs))
	} else {
		key := r.Key(s)
		u.print, u.size = c.printOf(key), uint32(len(key))
	}
	if u.size == 0 {
		return 0
	}
	if n := c.spellings.at(u.last).next; n != 0 && c.is(n, u) {
		u.last = n
		return c.spellings.at(n).series
	}
	for search := c.index.Search(u.print.index); ; {
		n := search.Next()
		if n == 0 || c.is(n, u) {
			return c.found(u, n)
		}
	}
}

func (c *Cache) found(u *Cursor, n uint32) Number {
	if n != 0 {
		c.spellings.at(u.last).next = n
		u.last = n
	}
	return c.spellings.at(n).series
}

// is reports whether spelling n is the one that u looks for.
func (c *Cache) is(n uint32, u *Cursor) bool {
	p := c.spellings.at(n)
	return p.print == u.print && p.size == u.size
}

func (c *Cache) printOf(key []byte) print {
	return print{maphash.Bytes(c.seeds[0], key), maphash.Bytes(c.seeds[1], key)}
}

// printV2 returns a fingerprint of the fingerprints of symbols, and makes these once for a request.
func (c *Cache) printV2(u *Cursor, r *remotewrite.Request, refs []uint32) (p print) {
	if !u.hashed {
		u.symbols = u.symbols[:0]
		for i := range r.Symbols() {
			u.symbols = append(u.symbols, c.printOf(r.Symbol(uint32(i))))
		}
		u.hashed = true
	}
	for _, ref := range refs {
		symbol := u.symbols[ref]
		p.index, p.check = mix(p.index, symbol.index), mix(p.check, symbol.check)
	}
	return p
}

// mix combines two hashes; their order matters.
func mix(hash, symbol uint64) uint64 {
	high, low := bits.Mul64(hash^symbol, 0x9e3779b97f4a7c15)
	return high ^ low ^ hash<<1
}

// Add remembers that the spelling of s stands for series n, or for Dropped. Call it only after Find
// with the same u has returned 0 for s.
func (c *Cache) Add(u *Cursor, r *remotewrite.Request, s *remotewrite.Series, n Number) {
	if u.size == 0 {
		return // without a label; the caller resolves it each time
	}
	switch {
	case n == Dropped && len(c.dropped) >= maxDropped:
		c.forgetDropped()
		u.last = 0 // the spelling found last may have been forgotten
	case n != Dropped && c.isFull(n):
		return
	}
	at := c.free
	if at != 0 {
		c.free = c.spellings.at(at).next
	} else {
		at = c.spellings.add()
	}
	p := c.spellings.at(at)
	*p = spelling{print: u.print, size: u.size, series: n}
	if n == Dropped {
		c.dropped = append(c.dropped, at)
	} else {
		p.twin = c.At(n).first
		c.At(n).first = at
	}
	c.index.Insert(u.print.index, at)
	c.found(u, at)
}

func (c *Cache) isFull(n Number) bool {
	count := 0
	for at := c.At(n).first; at != 0; at = c.spellings.at(at).twin {
		count++
	}
	return count >= maxSpellings
}

// At returns the state of a series, in the cache's memory: valid until it is evicted.
func (c *Cache) At(n Number) *Series { return c.series.at(uint32(n)) }

// ByRef returns the series with a reference of the database, or 0.
func (c *Cache) ByRef(ref uint64) Number {
	for search := c.byRef.Search(hashRef(ref)); ; {
		n := search.Next()
		if n == 0 || c.series.at(n).Ref == ref {
			return Number(n)
		}
	}
}

// hashRef spreads references, which are consecutive numbers from 1.
func hashRef(ref uint64) uint64 { return mix(ref, 0x2545f4914f6cdd1d) }

// NewSeries adds a series that is not in the cache, without a spelling.
func (c *Cache) NewSeries(ref, hash uint64, lastT int64) Number {
	var n Number
	if last := len(c.freeSeries) - 1; last >= 0 {
		n = c.freeSeries[last]
		c.freeSeries = c.freeSeries[:last]
	} else {
		n = Number(c.series.add())
	}
	*c.At(n) = Series{Ref: ref, Hash: hash, LastT: lastT}
	c.byRef.Insert(hashRef(ref), uint32(n))
	return n
}

// SetRef sets the new reference of a series that the database dropped and made again.
func (c *Cache) SetRef(n Number, ref uint64) {
	s := c.At(n)
	c.byRef.Remove(hashRef(s.Ref), uint32(n))
	s.Ref = ref
	c.byRef.Insert(hashRef(ref), uint32(n))
}

// Evict removes the series with this reference and its spellings, if it is cached.
func (c *Cache) Evict(ref uint64) {
	n := c.ByRef(ref)
	if n == 0 {
		return
	}
	c.forgetSpellings(n)
	c.byRef.Remove(hashRef(ref), uint32(n))
	*c.At(n) = Series{}
	c.freeSeries = append(c.freeSeries, n)
}

// ForgetSpellings removes all spellings. Call it when the rules change, since they decide which
// series a spelling stands for.
func (c *Cache) ForgetSpellings() {
	for n := range c.series.len {
		c.forgetSpellings(Number(n))
	}
	c.forgetDropped()
}

func (c *Cache) forgetSpellings(n Number) {
	for at := c.At(n).first; at != 0; {
		twin := c.spellings.at(at).twin
		c.forget(at)
		at = twin
	}
	c.At(n).first = 0
}

func (c *Cache) forgetDropped() {
	for _, at := range c.dropped {
		c.forget(at)
	}
	c.dropped = c.dropped[:0]
}

func (c *Cache) forget(at uint32) {
	p := c.spellings.at(at)
	c.index.Remove(p.print.index, at)
	*p = spelling{next: c.free}
	c.free = at
}
