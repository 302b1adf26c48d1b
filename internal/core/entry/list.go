package entry

import (
	"encoding/binary"
	"iter"

	"github.com/freshet-io/freshet/internal/core/series"
)

// List is a list of byte strings, each after its length as a uvarint. A leader copies a received
// list as bytes, without reading the items.
type List []byte

// Append appends an item.
func (l List) Append(item []byte) List {
	return append(binary.AppendUvarint(l, uint64(len(item))), item...)
}

// AppendText is Append for a string.
func (l List) AppendText(item string) List { return appendText(l, item, MaxSize) }

// All yields the items. They point into the list.
func (l List) All() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for r := (reader{b: l}); len(r.b) > 0 && !r.bad; {
			if item := r.cut(int(r.number(MaxSize))); r.bad || !yield(item) {
				return
			}
		}
	}
}

func (l List) valid() bool {
	r := reader{b: l}
	for len(r.b) > 0 && !r.bad {
		r.cut(int(r.number(MaxSize)))
	}
	return !r.bad
}

// Shards is a set of shards, with one bit for each shard.
type Shards [series.Shards / 64]uint64

// Add adds a shard.
func (s *Shards) Add(shard uint16) { s[shard/64] |= 1 << (shard % 64) }

// Has reports whether a shard is in the set.
func (s *Shards) Has(shard uint16) bool { return s[shard/64]>>(shard%64)&1 != 0 }
