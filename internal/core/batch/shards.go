package batch

import "github.com/freshet-io/freshet/internal/core/series"

// Writer sorts the increments of one tenant's window, or of a portion of the window, into batches:
// nearly always one batch for each shard. It reuses its memory from window to window.
type Writer struct {
	header  Header
	shards  [series.Shards]pending
	touched []uint16 // shards with increments, in the order of their first increment
	batches []Batch
	size    int // bytes of all increments added
}

// pending is a shard's batch while it is being filled.
type pending struct {
	bytes      []byte
	increments uint32
	samples    uint64 // how many samples the increments have
	part       uint64 // how many full batches of the shard came before this one
}

const (
	// splitBytes is the size at which a batch takes no more increments. A journal frame holds 16 MiB,
	// and every increment is much smaller than the remaining 12 MiB.
	splitBytes = 4 << 20

	// keepBytes is the most memory that a shard's batch keeps for the next portion, so that a flood of
	// one second does not hold memory for ever. All shards together keep at most 16 MiB.
	keepBytes = 16 << 10

	// partBits is the number of bits in a sequence number that count the batches of one shard in a
	// portion. They suffice: no memory holds 65,536 batches of splitBytes each.
	partBits = 16
)

// Begin starts the batches of a portion of a window. Nearly always the portion is the whole window.
// Begin uses all fields of the header but Shard. h.Sequence is the number of the portion, below
// 2^48. The sequence of a batch is the portion's number times 65,536, plus 1 for each earlier batch
// of the shard in the portion. So sequences grow with the batches of a shard, in the order of End.
func (w *Writer) Begin(h Header) {
	for _, shard := range w.touched {
		p := &w.shards[shard]
		if cap(p.bytes) > keepBytes {
			p.bytes = nil
		}
		*p = pending{bytes: p.bytes[:0]}
	}
	w.touched = w.touched[:0]
	clear(w.batches)
	w.batches = w.batches[:0]
	w.header, w.size = h, 0
}

// Portion returns the number of the portion that a batch belongs to, from the sequence of the batch.
func Portion(sequence uint64) uint64 { return sequence >> partBits }

// Add appends an increment to its shard's batch.
func (w *Writer) Add(shard uint16, inc *Increment) {
	p := &w.shards[shard]
	if len(p.bytes) > splitBytes {
		w.batches = append(w.batches, p.end(shard))
		*p = pending{part: p.part + 1} // the full batch keeps the old memory
		p.begin(w.header, shard)
	} else if p.increments == 0 {
		p.begin(w.header, shard)
		w.touched = append(w.touched, shard)
	}
	if inc.Kind() == series.UpDown {
		p.bytes[0] |= flagUpDown
	}
	before := len(p.bytes)
	p.bytes = inc.Append(p.bytes, w.header.Second)
	w.size += len(p.bytes) - before
	p.increments++
	p.samples += uint64(inc.Samples)
}

// Size returns the size in bytes of the increments added since Begin.
func (w *Writer) Size() int { return w.size }

func (p *pending) begin(h Header, shard uint16) {
	h.Shard, h.Sequence = shard, h.Sequence<<partBits|p.part
	p.bytes = Begin(p.bytes, &h)
}

func (p *pending) end(shard uint16) Batch {
	End(p.bytes, p.increments)
	return Batch{shard, p.samples, p.bytes}
}

// End returns the batches of the portion, valid until the next Begin. Batches of one shard come
// in the order of their sequence.
func (w *Writer) End() []Batch {
	for _, shard := range w.touched {
		w.batches = append(w.batches, w.shards[shard].end(shard))
	}
	return w.batches
}

// Batch is one complete batch of one shard.
type Batch struct {
	Shard   uint16
	Samples uint64 // how many samples its increments have
	Bytes   []byte
}
