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
// It asks the memory first, step by step, for what all of them need of it: slots,
// contexts, records. Contexts come rarely, even in much
// traffic, and other programs use the caches meanwhile: most of what a metric costs is
// waiting for memory, and 14 such waits at once take little longer than one.
func (t *Table) Metrics(all []dogstatsd.Metric, now int64) {
	var lines [MaxLines]struct {
		hash uint64
		ref  arena.Ref
	}
	loaded := uint32(0)
	for i := range all {
		m, l := &all[i], &lines[i]
		l.hash = t.hashOf(byte(m.Type), m.Name, m.Tags, t.rest(nil, &m.Origin))
		s := t.contexts.segment(l.hash)
		loaded += s.slots[s.home(uint32(l.hash))].number
	}
	for i := range all {
		m, l := &all[i], &lines[i]
		if l.ref = arena.Ref(t.contexts.first(l.hash)); l.ref != 0 {
			block := t.keys.From(l.ref)
			last := headerSize + len(m.Name) + len(m.Tags) - 1
			loaded += uint32(block[0]) + uint32(block[min(cacheLine, len(block)-1)]) + uint32(block[min(last, len(block)-1)])
		}
	}
	for i := range all {
		if l := &lines[i]; l.ref != 0 {
			loaded += t.records.at(binary.LittleEndian.Uint32(t.keys.From(l.ref)[seriesAt:])).used
		}
	}
	t.loaded = loaded
	for i := range all {
		t.countMetric(lines[i].hash, &all[i], now)
	}
}

const cacheLine = 64 // bytes
