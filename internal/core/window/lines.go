package window

import (
	"encoding/binary"

	"github.com/freshet-io/freshet/internal/core/dogstatsd"
	"github.com/freshet-io/freshet/internal/lib/arena"
)

// MaxLines is how many metrics Metrics takes at once: as many as a datagram of 1,432
// bytes holds, or a little more. Memory answers no more questions than that at once.
const MaxLines = 16

// Metrics counts metrics, MaxLines at most, that were read at now, Unix nanoseconds.
//
// It does what Metric does for each, but asks the memory first, step by step, for what
// all of them need of it. Contexts come rarely, even in much traffic, and other
// programs use the caches meanwhile: most of what a metric costs is waiting for memory,
// and 14 such waits at once take little longer than one.
func (t *Table) Metrics(all []dogstatsd.Metric, now int64) {
	var hashes [MaxLines]uint64
	var refs [MaxLines]arena.Ref
	loaded := uint32(0)
	for i := range all {
		m := &all[i]
		hashes[i] = t.hashOf(byte(m.Type), m.Name, m.Tags, t.rest(nil, &m.Origin))
		s := t.contexts.segment(hashes[i])
		loaded += s.slots[s.home(uint32(hashes[i]))].number
	}
	for i := range all {
		if refs[i] = arena.Ref(t.contexts.first(hashes[i])); refs[i] != 0 {
			block := t.keys.From(refs[i])
			loaded += uint32(block[0]) + uint32(block[min(cacheLine, len(block)-1)])
		}
	}
	for i := range all {
		if refs[i] != 0 {
			loaded += t.records.at(binary.LittleEndian.Uint32(t.keys.From(refs[i])[seriesAt:])).used
		}
	}
	t.loaded = loaded
	for i := range all {
		t.countMetric(hashes[i], &all[i], now)
	}
}

const cacheLine = 64 // bytes
