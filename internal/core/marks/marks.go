// Package marks makes hashes of what the entries of a log have made of a member, each after so many
// entries. Members with equal states have equal marks, whenever their stores take the work. So members
// that show each other their marks find out that one of them differs.
package marks

import (
	"cmp"
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

// Difference returns the first index at which two members have marks that differ, and the last index at which both
// have a mark; 0 for none.
func Difference(a, b []Mark) (differs, last uint64) {
	for len(a) > 0 && len(b) > 0 {
		switch x, y := a[0], b[0]; {
		case x.Index < y.Index:
			a = a[1:]
		case y.Index < x.Index:
			b = b[1:]
		default:
			if last = x.Index; x.Hash != y.Hash && differs == 0 {
				differs = x.Index
			}
			a, b = a[1:], b[1:]
		}
	}
	return differs, last
}
