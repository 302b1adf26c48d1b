package batch

import (
	"errors"

	"github.com/freshet-io/freshet/internal/core/series"
)

// ErrRefused means that batches can never be taken, however often they are
// pushed: their sender counts their samples and goes on with the next window.
var ErrRefused = errors.New("refused for good")

// Writer sorts the increments of one tenant's window into a batch a shard. It
// keeps its memory from window to window.
type Writer struct {
	header  Header
	shards  [series.Shards]pending
	touched []uint16
	batches []Batch
}

type pending struct {
	bytes      []byte
	increments uint32
}

// keepBytes is the most memory that a shard's batch may keep for the next
// window: a flood of one second should not be held for ever.
const keepBytes = 256 << 10

// Begin starts the batches of a window. All fields of the header are used but
// Shard.
func (w *Writer) Begin(h Header) {
	for _, shard := range w.touched {
		p := &w.shards[shard]
		if cap(p.bytes) > keepBytes {
			p.bytes = nil
		}
		p.bytes, p.increments = p.bytes[:0], 0
	}
	w.touched = w.touched[:0]
	w.header = h
}

// Add appends an increment to its shard's batch.
func (w *Writer) Add(shard uint16, inc *Increment) {
	p := &w.shards[shard]
	if p.increments == 0 {
		h := w.header
		h.Shard = shard
		p.bytes = Begin(p.bytes, &h)
		w.touched = append(w.touched, shard)
	}
	p.bytes = inc.Append(p.bytes, w.header.Second)
	p.increments++
}

// End returns the batches of the window, valid until the next Begin.
func (w *Writer) End() []Batch {
	w.batches = w.batches[:0]
	for _, shard := range w.touched {
		p := &w.shards[shard]
		End(p.bytes, p.increments)
		w.batches = append(w.batches, Batch{shard, p.bytes})
	}
	return w.batches
}

// Batch is the batch of one shard, whole.
type Batch struct {
	Shard uint16
	Bytes []byte
}
