package tile

import (
	"encoding/binary"
	"slices"

	"github.com/freshet-io/freshet/internal/core/batch"
)

// Queries that ask a little before now, as dashboards do, need what an open tile had counted
// at the end of each of its seconds. So what is folded into an open tile is kept, in its
// encoding and without its key, until the tile is closed: a counter's increment in some
// 15 bytes, a timer's in some 40. It is written at the end of one piece of memory for all
// series of the shard, without pointers, and read by such queries alone, which fold it
// once more. A series without increments in its open tiles has nothing here.

// seconds are the trails of a shard's open tiles.
type seconds struct {
	tiles [MaxAhead]trail // by end in tiles modulo MaxAhead
	spare []byte          // for the next trail
}

// trail is what came for one open tile of the shard.
type trail struct {
	end int64 // of the tile, Unix ms
	b   []byte
}

// maxTrail bounds a trail, in bytes: with 1,024 shards and two open tiles that is a million
// increments a second, beyond which queries see open tiles only as they are now.
const maxTrail = 256 << 10

// Numbers of places in a trail, as tiles know their newest increment by.
const (
	nothing   = iota // the tile is empty
	forgotten        // there were increments before this place, which are not in the trail
	firstPlace
)

// place is that of the tile that ends at end, Unix ms, among the open ones.
func place(end int64) int64 { return end / tileMillis % MaxAhead }

// note keeps an increment of the window that starts at the Unix second window, which was folded
// into tile t as one of a second that began at begin, Unix ms.
func (s *seconds) note(t *openTile, inc *batch.Increment, window, begin int64) {
	l := &s.tiles[place(t.end)]
	if l.end != t.end { // the first one of the tile
		s.release(l)
		*l = trail{end: t.end, b: s.spare}
		s.spare = nil
	}
	if len(l.b) > maxTrail {
		t.newest = forgotten
		return
	}
	newest, last := uint32(len(l.b))+firstPlace, t.newest
	start := t.end - tileMillis
	// What is late or ahead joins a tile that is not its own.
	second := (min(max(begin, start), t.end-1) - start) / 1000
	l.b = append(l.b, byte(last), byte(last>>8), byte(last>>16), byte(last>>24), byte(second))
	l.b = binary.AppendVarint(l.b, window-start/1000)
	l.b = inc.AppendBrief(l.b)
	t.newest = newest
}

// release keeps the memory of a trail for the next, unless it was mostly empty.
func (s *seconds) release(l *trail) {
	if len(l.b) >= cap(l.b)/4 && cap(l.b) >= cap(s.spare) {
		s.spare = l.b[:0]
	}
	*l = trail{}
}

// close forgets what came for the tile that ends at end.
func (s *seconds) close(end int64) {
	if l := &s.tiles[place(end)]; l.end == end {
		s.release(l)
	}
}

// at folds into past, an empty tile, what tile t of a series had counted at the time at, Unix ms,
// which lies in the tile. It does so by way of a reader, which reads no batch then. It reports false
// if that is not known any more: the tile is older than the process, or there was too much of it.
func (s *seconds) at(r *batch.Reader, e *entry, t *openTile, at int64, past *openTile) (known bool) {
	if t.newest == nothing {
		return t.samples == 0
	}
	l := &s.tiles[place(t.end)]
	start := t.end - tileMillis
	var came [][]byte // until then, the newest first
	for next := t.newest; next != nothing; {
		if next == forgotten || l.end != t.end {
			return false
		}
		b := l.b[next-firstPlace:]
		if start+1000*int64(b[4])+1000 <= at {
			came = append(came, b[5:])
		}
		next = binary.LittleEndian.Uint32(b)
	}
	for _, b := range slices.Backward(came) {
		window, n := binary.Varint(b)
		inc := r.Brief(e.kind, start/1000+window, b[n:])
		if inc == nil {
			return false
		}
		inc.Exemplar = nil // belongs to the tile as it is now
		e.add(past, inc)
	}
	return true
}
