package tile

import (
	"encoding/binary"

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

// Places in a log, as tiles know their newest increment by.
const (
	nothing   = iota // the tile is empty
	forgotten        // there were increments before this place, which are not in the log
	firstPlace
)

// note keeps an increment that was folded into tile t, as one of a second that began at
// begin, Unix ms.
func (s *Shard) note(t *openTile, inc *batch.Increment, begin int64) {
	l := &s.logs[t.end/finest.Millis()%MaxAhead]
	if l.end != t.end { // the first one of the tile
		s.releaseLog(l)
		*l = log{end: t.end, b: s.spare}
		s.spare = nil
	}
	if len(l.b) > maxLog {
		t.newest = forgotten
		return
	}
	place := uint32(len(l.b)) + firstPlace
	start := t.end - finest.Millis()
	// What is late or ahead joins a tile that is not its own.
	second := (min(max(begin, start), t.end-1) - start) / 1000
	l.b = binary.LittleEndian.AppendUint32(l.b, t.newest)
	l.b = append(l.b, byte(second))
	l.b = binary.AppendVarint(l.b, s.reader.Header.Second-start/1000)
	l.b = inc.AppendBrief(l.b)
	t.newest = place
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
	if l := &s.logs[end/finest.Millis()%MaxAhead]; l.end == end {
		s.releaseLog(l)
	}
}

// at returns what a tile of a series had counted at the time at, Unix ms, which lies in the
// tile. It reports false if that is not known any more: the tile is older than the process, or came too much.
func (s *Shard) at(e *entry, t *openTile, at int64) (past openTile, known bool) {
	past = openTile{end: t.end}
	if t.newest == nothing {
		return past, t.samples == 0
	}
	l := &s.logs[t.end/finest.Millis()%MaxAhead]
	start := t.end - finest.Millis()
	var places []uint32 // of what had come, the newest first
	for place := t.newest; place != nothing; {
		if place == forgotten || l.end != t.end {
			return past, false
		}
		head := l.b[place-firstPlace:]
		if start+1000*int64(head[4])+1000 <= at {
			places = append(places, place)
		}
		place = binary.LittleEndian.Uint32(head)
	}
	for i := len(places) - 1; i >= 0; i-- {
		b := l.b[places[i]-firstPlace+5:]
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
