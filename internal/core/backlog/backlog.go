// Package backlog knows how far the members of a group are behind in applying their log, in bytes. A leader
// asks it, and counts only entries that it has applied itself.
package backlog

import (
	"slices"
	"sort"
)

// steps is how many places are remembered in the bytes that a member may be behind, up to the last applied
// entry.
const steps = 64

// Backlog knows, for each other member, how many bytes of entries the member still has to apply. The zero value
// is empty.
type Backlog struct {
	sum    int64             // bytes of all entries that this member has applied
	places []place           // ascending, and some distance apart
	others map[uint64]uint64 // the last entry that each member is known to have applied
}

// place is an entry, and the bytes of all entries up to it.
type place struct {
	index uint64
	sum   int64
}

// Applied is called with each entry that this member applies. The other members may be at most `most`
// bytes behind.
func (b *Backlog) Applied(index uint64, bytes int, most int64) {
	b.sum += int64(bytes)
	last := len(b.places) - 1
	if last >= 0 && b.sum-b.places[last].sum < most/steps {
		return
	}
	b.places = append(b.places, place{index, b.sum})
	if oldest := b.places[0].sum; b.sum-oldest > 2*most {
		b.places = slices.Delete(b.places, 0, 1)
	}
}

// Heard is called with the last entry that another member has applied.
func (b *Backlog) Heard(member, applied uint64) {
	if b.others == nil {
		b.others = map[uint64]uint64{}
	}
	b.others[member] = applied
}

// Of returns a lower bound for how many bytes of entries a member is behind. The true number may be higher by
// the distance of two places, and entries from before the start of this process are not counted.
func (b *Backlog) Of(member uint64) int64 {
	applied := b.others[member]
	i := sort.Search(len(b.places), func(i int) bool { return b.places[i].index > applied })
	if i == len(b.places) {
		return 0
	}
	return b.sum - b.places[i].sum
}
