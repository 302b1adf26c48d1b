// Package marks finds members whose states differ. After every 64 entries of the log, each member hashes
// the results of these entries. The hash is a mark. Members with equal states have equal marks, even if
// their stores do their work at different times. So members that exchange marks notice if one of them
// differs.
package marks

import (
	"cmp"
	"maps"
	"math"
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/freshet-io/freshet/internal/core/mutant"
	"github.com/freshet-io/freshet/internal/core/tile"
)

// Mark is a hash of all outcomes of requests up to the entry Index, and of the tiles that the last entries
// closed. If two members have marks with the same Index and different hashes, their states differ.
type Mark struct{ Index, Hash uint64 }

const (
	// Every is the number of entries between two marks. An idle cluster makes a few entries a second.
	Every = 64

	// most is the limit for the number of marks that are kept, and for the number of marks that wait for
	// stores.
	most = 64
)

// Marks makes the marks of a member. They are not saved: after a restart there are none. The zero value
// is ready.
type Marks struct {
	tiles uint64 // the sum of the hashes of the tiles that were closed since the last mark
	done  []Mark // by index, the newest last

	open  int               // number of marks that wait for a tenant
	waits map[string][]*One // marks by index, for each tenant whose requests they wait for
}

// One is a mark that is not complete yet.
type One struct {
	mark  Mark
	waits int // number of tenants whose digests are missing
}

// All returns the newest marks, by index. The caller owns the slice.
func (m *Marks) All() []Mark { return slices.Clone(m.done) }

// Closed adds the hashes of closed tiles to the next mark. Their sum does not depend on the order of the
// tiles. It does not show whether two series have swapped their values: a hash of the labels would cost
// too much.
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

// Settle adds the digest of a tenant to the marks that wait for the tenant, up to the entry `upTo`. The
// digest has all outcomes up to that entry.
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

// End is called after the last Add or Wait of a mark. The mark is complete once it waits for no
// tenant.
func (m *Marks) End(o *One) {
	if o.waits > 0 {
		return
	}
	m.open--
	at, _ := slices.BinarySearchFunc(m.done, o.mark, func(a, b Mark) int { return cmp.Compare(a.Index, b.Index) })
	m.done = slices.Insert(m.done, at, o.mark)
	m.done = m.done[max(0, len(m.done)-most):]
}

// compared is the largest number of indexes for which the marks of all nodes are kept. These 256 marks
// cover 16,384 entries of the log, so a node that lags is compared, too.
const compared = 256

// Compared compares the marks of nodes as they come in. The zero value is ready.
type Compared struct {
	all  map[uint64]map[string]uint64 // the hashes of the nodes, by index
	past map[string]Verdict           // by node: what the marks showed that `all` no longer has
}

// Verdict is what the marks of a node show. Each field is an entry, or 0 for none.
type Verdict struct {
	Agreed   uint64 // the last entry at which the node agreed with most nodes
	Differed uint64 // the first entry at which it did not
	Outvoted uint64 // the first entry at which most nodes agreed with each other, and not with this node
}

// Add adds the marks of a node.
func (c *Compared) Add(node string, marks []Mark) {
	if c.all == nil {
		*c = Compared{map[uint64]map[string]uint64{}, map[string]Verdict{}}
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
			v := c.past[node]
			c.judge(node, index, &v)
			c.past[node] = v
		}
		delete(c.all, index)
	}
}

// judge adds to a verdict what the marks at an index show of a node. The node agrees if more than half of the nodes
// with a mark at the index have the same mark. If only two nodes have marks and these differ, both nodes differ, since
// either may be wrong, and none is outvoted.
func (c *Compared) judge(node string, index uint64, v *Verdict) {
	at := c.all[index]
	own, has := at[node]
	if !has || len(at) < 2 {
		return
	}
	same := map[uint64]int{} // nodes by their hash
	for _, hash := range at {
		same[hash]++
	}
	if 2*same[own] > len(at) || mutant.OwnDigest {
		v.Agreed = max(v.Agreed, index)
		return
	}
	v.Differed = first(v.Differed, index)
	for _, nodes := range same {
		if 2*nodes > len(at) {
			v.Outvoted = first(v.Outvoted, index)
		}
	}
}

// first returns the smaller entry. 0 is none.
func first(a, b uint64) uint64 {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// Verdict returns what the marks of a node show.
func (c *Compared) Verdict(node string) Verdict {
	v := c.past[node]
	for index := range c.all {
		c.judge(node, index, &v)
	}
	return v
}

// Forget removes the marks of a node, because another member has taken its place.
func (c *Compared) Forget(node string) {
	delete(c.past, node)
	for _, at := range c.all {
		delete(at, node)
	}
}
