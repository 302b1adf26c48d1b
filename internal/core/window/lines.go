package window

import (
	"encoding/binary"
	"unsafe"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/lib/arena"
	"github.com/freshet-io/freshet/internal/lib/prefetch"
)

// MaxLines is how many metrics a call of Metrics takes: about as many as a datagram of 1,432 bytes
// holds. Memory can serve about that many cache misses in parallel.
const MaxLines = 16

// Metrics counts at most MaxLines metrics that were read at `now`, in Unix nanoseconds.
//
// It first prefetches the slots, contexts and records that all of them need. Cache misses are most
// of a metric's cost: even in heavy traffic each context comes rarely, and other programs use the
// caches meanwhile. 16 misses at once take little longer than one.
func (t *Table) Metrics(all []dogstatsd.Metric, now int64) {
	var hashes [MaxLines]uint64
	var refs [MaxLines]arena.Ref
	var wanted [3 * MaxLines]unsafe.Pointer
	for i := range all {
		m := &all[i]
		hashes[i] = t.hashOf(byte(m.Type), m.Name, m.Tags, t.rest(nil, &m.Origin))
		wanted[i] = t.contexts.Begin(hashes[i])
	}
	prefetch.Lines(wanted[:len(all)])
	n := 0
	for i := range all {
		m := &all[i]
		search := t.contexts.Search(hashes[i])
		if refs[i] = arena.Ref(search.Next()); refs[i] != 0 {
			block := t.keys.From(refs[i])
			last := headerSize + len(m.Name) + len(m.Tags) - 1
			wanted[n] = unsafe.Pointer(&block[0])
			wanted[n+1] = unsafe.Pointer(&block[min(cacheLine, len(block)-1)])
			wanted[n+2] = unsafe.Pointer(&block[min(last, len(block)-1)])
			n += 3
		}
	}
	prefetch.Lines(wanted[:n])
	n = 0
	for i := range all {
		if refs[i] != 0 {
			wanted[n] = unsafe.Pointer(t.records.at(binary.LittleEndian.Uint32(t.keys.From(refs[i])[seriesAt:])))
			n++
		}
	}
	prefetch.Lines(wanted[:n])
	for i := range all {
		t.countMetric(hashes[i], &all[i], now)
	}
}

const cacheLine = 64 // bytes
