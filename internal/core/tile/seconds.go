package tile

import (
	"encoding/binary"
	"slices"

	"github.com/freshet-io/freshet/internal/core/batch"
)

// Queries that end slightly in the past, such as those of dashboards, need the content of an open
// tile at the end of each of its seconds. So the increments of an open tile are kept until it
// closes, encoded and without their keys: an increment of a counter takes some 15 bytes, one of a
// timer some 40. All increments of a shard's tile are in one piece of memory, without pointers.
// Only such queries read that memory, and fold the increments again. A series without increments in
// its open tiles takes no space here.

// seconds has the trails of a shard's open tiles.
type seconds struct {
	tiles [MaxAhead]trail // a tile's trail is at place(end of the tile)
	spare []byte          // for the next trail
}

// trail has the increments of one open tile of the shard.
type trail struct {
	end int64 // end of the tile, Unix ms
	b   []byte
}

// maxTrail bounds a trail, in bytes. With 1,024 shards and two open tiles it allows a million
// increments a second. Beyond that, queries see open tiles only as they are now.
const maxTrail = 256 << 10

// Values of openTile.newest that do not refer to a place in a trail.
const (
	nothing   = iota // the tile is empty
	forgotten        // earlier increments are not in the trail
	firstPlace
)

// place returns the index of the open tile that ends at `end`, Unix ms.
func place(end int64) int64 { return end / tileMillis % MaxAhead }

// note keeps an increment of the window that starts at `window`, in Unix seconds. It was folded
// into tile t in the second that began at `begin`, in Unix ms.
func (s *seconds) note(t *openTile, inc *batch.Increment, window, begin int64) {
	l := &s.tiles[place(t.end)]
	if l.end != t.end { // the first increment of the tile
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
	// An increment that is late or ahead joins a tile other than its own.
	second := (min(max(begin, start), t.end-1) - start) / 1000
	l.b = append(l.b, byte(last), byte(last>>8), byte(last>>16), byte(last>>24), byte(second))
	l.b = binary.AppendVarint(l.b, window-start/1000)
	l.b = inc.AppendBrief(l.b)
	t.newest = newest
}

// release keeps the memory of a trail for reuse, unless it was mostly empty.
func (s *seconds) release(l *trail) {
	if len(l.b) >= cap(l.b)/4 && cap(l.b) >= cap(s.spare) {
		s.spare = l.b[:0]
	}
	*l = trail{}
}

// close drops the trail of the tile that ends at `end`.
func (s *seconds) close(end int64) {
	if l := &s.tiles[place(end)]; l.end == end {
		s.release(l)
	}
}

// at restores a tile as it was earlier. It fills `past`, which is empty, with the increments that tile t
// of a series had at the time `at`. That time is within the tile, in Unix ms. It uses the reader r,
// which must not be reading a batch. `known` is false if these increments are not known: the tile is
// older than the process, or the trail was too long.
func (s *seconds) at(r *batch.Reader, e *entry, t *openTile, at int64, past *openTile) (known bool) {
	if t.newest == nothing {
		return t.samples == 0
	}
	l := &s.tiles[place(t.end)]
	start := t.end - tileMillis
	var came [][]byte // the increments up to the time `at`, newest first
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
		inc.Exemplar = nil // a past tile must not replace the exemplar of the present one
		e.add(past, inc)
	}
	return true
}
