package window

import (
	"encoding/binary"
	"unsafe"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/lib/arena"
	"github.com/freshet-io/freshet/internal/lib/prefetch"
)

// MaxLines is how many metrics Metrics takes at once: as many as a datagram of 1,432
// bytes holds, or a little more. Memory answers no more questions than that at once.
const MaxLines = 16

// Metrics counts metrics, MaxLines at most, that were read at now, Unix nanoseconds.
//
// It asks the memory first, step by step, for what all of them need of it: slots,
// contexts, records. Contexts come rarely, even in much
// traffic, and other programs use the caches meanwhile: most of what a metric costs is
// waiting for memory, and 16 such waits at once take little longer than one.
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
