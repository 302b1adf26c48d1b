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

// log is what came for one open tile of the shard.
type log struct {
	end int64 // of the tile, Unix ms
	b   []byte
}

// maxLog bounds a log, in bytes: with 1,024 shards and two open tiles that is a million
// increments a second, beyond which queries see open tiles only as they are now.
const maxLog = 256 << 10

// Numbers of places in a log, as tiles know their newest increment by.
const (
	nothing   = iota // the tile is empty
	forgotten        // there were increments before this place, which are not in the log
	firstPlace
)

// tileMillis is finest.Millis(), a constant, since the compiler divides by those without a
// division.
const tileMillis = 10_000

// place is that of the tile that ends at end, Unix ms, among the open ones.
func place(end int64) int64 { return end / tileMillis % MaxAhead }

// note keeps an increment that was folded into tile t, as one of a second that began at
// begin, Unix ms.
func (s *Shard) note(t *openTile, inc *batch.Increment, begin int64) {
	l := &s.logs[place(t.end)]
	if l.end != t.end { // the first one of the tile
		s.releaseLog(l)
		*l = log{end: t.end, b: s.spare}
		s.spare = nil
	}
	if len(l.b) > maxLog {
		t.newest = forgotten
		return
	}
	newest, last := uint32(len(l.b))+firstPlace, t.newest
	start := t.end - tileMillis
	// What is late or ahead joins a tile that is not its own.
	second := (min(max(begin, start), t.end-1) - start) / 1000
	l.b = append(l.b, byte(last), byte(last>>8), byte(last>>16), byte(last>>24), byte(second))
	l.b = binary.AppendVarint(l.b, s.reader.Header.Second-start/1000)
	l.b = inc.AppendBrief(l.b)
	t.newest = newest
}

// releaseLog keeps the memory of a log for the next, unless it was mostly empty.
func (s *Shard) releaseLog(l *log) {
	if len(l.b) >= cap(l.b)/4 && cap(l.b) >= cap(s.spare) {
		s.spare = l.b[:0]
	}
	*l = log{}
}

// closeLog forgets what came for the tile that ends at end.
func (s *Shard) closeLog(end int64) {
	if l := &s.logs[place(end)]; l.end == end {
		s.releaseLog(l)
	}
}

// at returns what a tile of a series had counted at the time at, Unix ms, which lies in the
// tile. It reports false if that is not known any more: the tile is older than the process,
// or there was too much of it.
func (s *Shard) at(e *entry, t *openTile, at int64) (past openTile, known bool) {
	past = openTile{end: t.end}
	if t.newest == nothing {
		return past, t.samples == 0
	}
	l := &s.logs[place(t.end)]
	start := t.end - tileMillis
	var came [][]byte // until then, the newest first
	for next := t.newest; next != nothing; {
		if next == forgotten || l.end != t.end {
			return past, false
		}
		b := l.b[next-firstPlace:]
		if start+1000*int64(b[4])+1000 <= at {
			came = append(came, b[5:])
		}
		next = binary.LittleEndian.Uint32(b)
	}
	for _, b := range slices.Backward(came) {
		window, n := binary.Varint(b)
		inc := s.reader.Brief(e.kind, start/1000+window, b[n:])
		if inc == nil {
			return past, false
		}
		inc.Exemplar = nil // belongs to the tile as it is now
		e.add(&past, inc)
	}
	return past, true
}
