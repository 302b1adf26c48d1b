package limit

import (
	"encoding/binary"
	"hash/maphash"
	"sync/atomic"

	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/lib/arena"
	"github.com/freshet-io/freshet/internal/lib/index"
)

// Place is the number of a series' place in its Tenant; 0 means no place. The number is valid until
// the last holder leaves: then another series may get it.
type Place uint32

// places holds the series that have a place, by metric. A million series take a few thousand pieces
// of memory without pointers, and a map of the metrics.
//
// Memory for each series: 33 bytes, and the key rounded up to a multiple of 8 bytes.
type places struct {
	seed    maphash.Seed
	index   index.Index // Places by the hash of key and source
	slots   list[slot]
	keys    arena.Arena // each slot's key, followed by its source if it has one
	metrics list[metric]
	numbers map[string]uint32 // numbers of metrics that have series
	taken   int
}

// slot is one place.
type slot struct {
	key     arena.Ref
	length  uint32 // bytes of the key
	metric  uint32 // the metric's number; 0 if the place is free
	freed   uint32 // when the place last lost its last holder, in Unix seconds, rounded up
	holders uint16 // tables
	flags   uint8
}

const (
	sourced  = 1 << iota // a source follows the key
	passerBy             // the series has no holder, and was in one window only
	waiting              // the place is among the unclaimed, whether or not it was claimed again
	upDown               // an up/down counter
)

func (s *slot) is(flag uint8) bool { return s.flags&flag != 0 }

func (s *slot) set(flag uint8, on bool) {
	if s.flags &^= flag; on {
		s.flags |= flag
	}
}

// metric is a metric that has series.
type metric struct {
	name   string
	series int
	over   atomic.Int64 // Unix nanoseconds of the last claim over the metric's limit
}

// sourceBytes is the size of a source behind a key.
const sourceBytes = 8

// maxKey is the longest key that the configuration can allow: half a mebibyte, eight times the
// largest datagram.
const maxKey = arena.MaxLen - sourceBytes

func newPlaces() places {
	return places{seed: maphash.MakeSeed(), numbers: map[string]uint32{}}
}

func (p *places) hash(key []byte, source uint64) uint64 { return maphash.Bytes(p.seed, key) ^ source }

func (p *places) at(place Place) *slot { return p.slots.at(uint32(place)) }

// key returns the key of the series in a place. Any goroutine may call it.
func (p *places) key(place Place) []byte {
	s := p.at(place)
	return p.keys.Bytes(s.key, int(s.length))
}

func (p *places) source(s *slot) uint64 {
	if !s.is(sourced) {
		return 0
	}
	return binary.LittleEndian.Uint64(p.keys.Bytes(s.key, s.size())[s.length:])
}

// size returns the bytes that a slot takes in the arena.
func (s *slot) size() int {
	if s.is(sourced) {
		return int(s.length) + sourceBytes
	}
	return int(s.length)
}

// find returns the place of a series, or 0 if the series has none.
func (p *places) find(hash uint64, key []byte, source uint64) Place {
	search := p.index.Search(hash)
	for place := Place(search.Next()); place != 0; place = Place(search.Next()) {
		s := p.at(place)
		if int(s.length) == len(key) && string(p.keys.Bytes(s.key, len(key))) == string(key) && p.source(s) == source {
			return place
		}
	}
	return 0
}

// insert gives a place to a series that has none. It copies `key`.
func (p *places) insert(hash uint64, key []byte, source uint64) Place {
	place := Place(p.slots.add())
	s := p.at(place)
	s.length = uint32(len(key))
	s.metric = p.number(series.Name(key))
	s.set(sourced, source != 0)
	s.set(upDown, series.Kind(key[0]) == series.UpDown)
	var block []byte
	s.key, block = p.keys.Alloc(s.size())
	copy(block, key)
	if source != 0 {
		binary.LittleEndian.PutUint64(block[len(key):], source)
	}
	p.metrics.at(s.metric).series++
	p.index.Insert(hash, uint32(place))
	p.taken++
	return place
}

// remove frees the place of a series. A place that is among the unclaimed stays there.
func (p *places) remove(place Place) {
	s := p.at(place)
	p.index.Remove(p.hash(p.key(place), p.source(s)), uint32(place))
	p.keys.Free(s.key, s.size())
	if m := p.metrics.at(s.metric); m.series > 1 {
		m.series--
	} else {
		delete(p.numbers, m.name)
		m.name, m.series = "", 0
		m.over.Store(0)
		p.metrics.drop(s.metric)
	}
	*s = slot{flags: s.flags & waiting}
	p.slots.drop(uint32(place))
	p.taken--
}

// number returns the metric's number. It assigns a number if the metric has none.
func (p *places) number(name []byte) uint32 {
	number := p.numbers[string(name)]
	if number == 0 {
		number = p.metrics.add()
		m := p.metrics.at(number)
		m.name = string(name)
		p.numbers[m.name] = number
	}
	return number
}

// metric returns the metric of a name, or nil if the metric has no series.
func (p *places) metric(name []byte) *metric {
	if number := p.numbers[string(name)]; number != 0 {
		return p.metrics.at(number)
	}
	return nil
}
