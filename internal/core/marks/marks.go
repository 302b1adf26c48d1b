// Package marks makes hashes of what the entries of a log have made of a member, each after so many
// entries. Members with equal states have equal marks, whenever their stores take the work. So members
// that show each other their marks find out that one of them differs.
package marks

import (
	"cmp"
	"maps"
	"math"
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/freshet-io/freshet/internal/core/tile"
)

// Mark is a hash of all outcomes of requests up to the entry Index, and of the tiles that the last entries
// closed. Members with the same Index and another Hash differ.
type Mark struct{ Index, Hash uint64 }

const (
	// Every is the number of entries between two marks. An idle cluster makes a few entries a second.
	Every = 64

	// most bounds the marks that are kept, and those that wait for stores.
	most = 64
)

// Marks makes the marks of a member. They are not saved: a restart begins anew. The zero value is ready.
type Marks struct {
	tiles uint64 // the sum of the hashes of the tiles that were closed since the last mark
	done  []Mark // by index, the newest last

	open  int               // marks that wait
	waits map[string][]*One // by index, for each tenant whose requests they wait for
}

// One is a mark in the making.
type One struct {
	mark  Mark
	waits int // number of tenants
}

// All returns the newest marks, by index. They are the caller's.
func (m *Marks) All() []Mark { return slices.Clone(m.done) }

// Closed adds closed tiles to the next mark. The sum does not depend on their order. If two series had each
// other's values, the sum would be the same: a hash of the labels would cost too much.
func (m *Marks) Closed(closed []*tile.Waiting) {
	for _, w := range closed {
		for _, samples := range w.Samples {
			for i := range samples {
				s := &samples[i]
				h := mix(uint64(s.T), math.Float64bits(s.V))
				if s.H != nil {
					h = mix(math.Float64bits(s.H.Count), math.Float64bits(s.H.Sum))
				}
				m.tiles += h
			}
		}
	}
}

// mix returns a hash of two numbers.
func mix(a, b uint64) uint64 {
	high, low := bits.Mul64(a^0x9e3779b97f4a7c15, b^0xd6e8feb86659fd93)
	return high ^ low
}

// Begin begins the mark of an entry. It returns nil if too many marks wait already, or if not all entries
// since the last mark are known. The caller calls Add or Wait for each tenant, and then End.
func (m *Marks) Begin(index uint64, whole bool) *One {
	o := &One{mark: Mark{index, mix(index, m.tiles)}}
	m.tiles = 0
	if !whole || m.open >= most {
		return nil
	}
	m.open++
	return o
}

// Add adds the digest of a tenant's outcomes: its index and its hash. The sum does not depend on the order
// of tenants.
func (o *One) Add(tenant string, index, hash uint64) {
	if index != 0 {
		o.mark.Hash += mix(xxhash.Sum64String(tenant), mix(index, hash))
	}
}

// Wait lets a mark wait until Settle adds the digest of a tenant.
func (m *Marks) Wait(o *One, tenant string) {
	if m.waits == nil {
		m.waits = map[string][]*One{}
	}
	m.waits[tenant] = append(m.waits[tenant], o)
	o.waits++
}

// Settle adds the digest of a tenant to the marks up to an entry. The digest has all outcomes up to it.
func (m *Marks) Settle(tenant string, upTo, index, hash uint64) {
	all := m.waits[tenant]
	if len(all) == 0 {
		return
	}
	n := 0
	for ; n < len(all) && all[n].mark.Index <= upTo; n++ {
		all[n].waits--
		all[n].Add(tenant, index, hash)
		m.End(all[n])
	}
	if m.waits[tenant] = all[n:]; n == len(all) {
		delete(m.waits, tenant)
	}
}

// End keeps a mark once it no longer waits.
func (m *Marks) End(o *One) {
	if o.waits > 0 {
		return
	}
	m.open--
	at, _ := slices.BinarySearchFunc(m.done, o.mark, func(a, b Mark) int { return cmp.Compare(a.Index, b.Index) })
	m.done = slices.Insert(m.done, at, o.mark)
	m.done = m.done[max(0, len(m.done)-most):]
}

// compared bounds the entries for which the marks of all nodes are kept: 16,384 entries of the log, for a node
// that lags.
const compared = 256

// Compared compares the marks of nodes as they come in. The zero value is ready.
type Compared struct {
	all   map[uint64]map[string]uint64 // the hashes of the nodes, by index
	odd   map[string]uint64            // the first index at which a node differed, of those no longer in all
	agree map[string]uint64            // the last index at which a node agreed, of those no longer in all
}

// Add adds the marks of a node.
func (c *Compared) Add(node string, marks []Mark) {
	if c.all == nil {
		*c = Compared{map[uint64]map[string]uint64{}, map[string]uint64{}, map[string]uint64{}}
	}
	for _, m := range marks {
		if c.all[m.Index] == nil {
			c.all[m.Index] = map[string]uint64{}
		}
		c.all[m.Index][node] = m.Hash
	}
	if len(c.all) <= compared {
		return
	}
	indexes := slices.Sorted(maps.Keys(c.all))
	for _, index := range indexes[:len(indexes)-compared] {
		for node := range c.all[index] {
			c.judge(node, index, c.odd, c.agree)
		}
		delete(c.all, index)
	}
}

// judge notes whether a node agreed or differed at an index. It agrees with more than half of the nodes that have a
// mark there; of two that differ, either may be wrong.
func (c *Compared) judge(node string, index uint64, odd, agree map[string]uint64) {
	at := c.all[index]
	own, has := at[node]
	if !has || len(at) < 2 {
		return
	}
	same := 0
	for _, hash := range at {
		if hash == own {
			same++
		}
	}
	if 2*same > len(at) {
		agree[node] = max(agree[node], index)
	} else if odd[node] == 0 || index < odd[node] {
		odd[node] = index
	}
}

// Verdict returns the first entry at whose mark a node differed from most others, and the last one at whose mark it
// agreed with them; 0 for none.
func (c *Compared) Verdict(node string) (differed, agreed uint64) {
	odd, agree := map[string]uint64{node: c.odd[node]}, map[string]uint64{node: c.agree[node]}
	for index := range c.all {
		c.judge(node, index, odd, agree)
	}
	return odd[node], agree[node]
}

// Forget forgets what a node's marks were, since another member has taken its place.
func (c *Compared) Forget(node string) {
	delete(c.odd, node)
	delete(c.agree, node)
	for _, at := range c.all {
		delete(at, node)
	}
}
