package tile

import (
	"encoding/binary"
	"slices"

	prom "github.com/prometheus/prometheus/model/histogram"

	"github.com/freshet-io/freshet/internal/core/series"
)

// Waiting has the samples of one closed tile of a tenant in a shard, until the tenant's stores
// have them. It is immutable.
type Waiting struct {
	Tenant string

	// Index is the index in the log of the boundary that closed the tile. It is 0 if an older program
	// saved the tile.
	Index uint64

	Boundary int64               // end of the tile, Unix ms
	Samples  [NumWidths][]Sample // those of each series in order of time
	Raw      uint64              // values on the wire that the samples stand for
	Bytes    int64               // estimated size in memory
}

func (w *Waiting) len() (n int) {
	for _, samples := range w.Samples {
		n += len(samples)
	}
	return n
}

// sampleBytes is the size of a Sample. histogramBytes is the size of a histogram without spans and
// buckets.
const (
	sampleBytes    = 56
	histogramBytes = 208
)

// measure fills Raw and Bytes, and frees unused capacity. Other widths share the finest width's
// histograms.
func (w *Waiting) measure() {
	for width, samples := range w.Samples {
		if cap(samples) > 2*len(samples) {
			w.Samples[width] = slices.Clone(samples)
		}
		w.Bytes += sampleBytes * int64(cap(w.Samples[width]))
	}
	for i := range w.Samples[finest] {
		w.Raw += w.Samples[finest][i].Raw
		if h := w.Samples[finest][i].H; h != nil {
			words := len(h.PositiveSpans) + len(h.NegativeSpans) + len(h.PositiveBuckets) + len(h.NegativeBuckets)
			w.Bytes += histogramBytes + 8*int64(words)
		}
	}
}

// docs/format/checkpoint.md draws the layout of waiting tiles.

// Flags of a waiting sample.
const (
	flagHistogram = 1 << iota
	flagTimed
	flagExemplar
	waitingFlags = 1<<iota - 1
)

// appendTiles appends the waiting tiles of a tenant. Series are numbered in order of appearance.
// Series with the same labels share a number, since they become one series when they are read.
func appendTiles(dst []byte, waiting []*Waiting) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(waiting)))
	if len(waiting) == 0 {
		return dst
	}
	numbers, byKey := map[*Series]int{}, map[string]int{}
	var keys []byte
	for _, w := range waiting {
		for _, samples := range w.Samples {
			for i := range samples {
				s := samples[i].Series
				if _, numbered := numbers[s]; numbered {
					continue
				}
				key := seriesKey(s)
				number, known := byKey[string(key)]
				if !known {
					number = len(byKey)
					byKey[string(key)] = number
					keys = appendString(keys, key)
				}
				numbers[s] = number
			}
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(byKey)))
	dst = append(dst, keys...)
	for _, w := range waiting {
		dst = binary.AppendVarint(dst, w.Boundary)
		dst = binary.AppendUvarint(dst, w.Index)
		for _, samples := range w.Samples {
			dst = binary.AppendUvarint(dst, uint64(len(samples)))
			for i := range samples {
				dst = binary.AppendUvarint(dst, uint64(numbers[samples[i].Series]))
				dst = samples[i].append(dst)
			}
		}
	}
	return dst
}

// seriesKey identifies a series by its labels alone, in the form of series.AppendKey.
func seriesKey(s *Series) []byte { return series.AppendKey(nil, series.Counter, s.Labels) }

func (s *Sample) append(dst []byte) []byte {
	var flags byte
	if s.H != nil {
		flags |= flagHistogram
	}
	if s.Timed {
		flags |= flagTimed
	}
	if s.Exemplar != nil {
		flags |= flagExemplar
	}
	dst = append(dst, flags)
	dst = binary.AppendVarint(dst, s.T)
	dst = binary.AppendUvarint(dst, s.Raw)
	if s.H != nil {
		dst = appendHistogram(dst, s.H)
	} else {
		dst = appendFloat(dst, s.V)
	}
	if s.Exemplar != nil {
		dst = s.Exemplar.Append(dst, 0)
	}
	return dst
}

func appendHistogram(dst []byte, h *prom.FloatHistogram) []byte {
	dst = binary.AppendVarint(dst, int64(h.Schema))
	for _, v := range []float64{h.ZeroThreshold, h.ZeroCount, h.Count, h.Sum} {
		dst = appendFloat(dst, v)
	}
	dst = appendBuckets(dst, h.PositiveSpans, h.PositiveBuckets)
	return appendBuckets(dst, h.NegativeSpans, h.NegativeBuckets)
}

func appendBuckets(dst []byte, spans []prom.Span, counts []float64) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(spans)))
	for _, s := range spans {
		dst = binary.AppendVarint(dst, int64(s.Offset))
		dst = binary.AppendUvarint(dst, uint64(s.Length))
	}
	for _, c := range counts {
		dst = appendFloat(dst, c)
	}
	return dst
}

// tiles reads the tiles that appendTiles wrote. `held` returns the held series by seriesKey.
// Waiting samples of such a series are attached to it, so that a query finds all samples of a
// series in one place.
func (d *decoder) tiles(tenant string, closed int64, held func() map[string]*Series) (waiting []*Waiting) {
	tiles := d.count(3)
	if tiles == 0 {
		return nil
	}
	known := held()
	var all []*Series
	for range d.count(2) {
		all = append(all, d.series(known))
	}
	for range tiles {
		w := &Waiting{Tenant: tenant, Boundary: d.varint()}
		if d.version > 6 {
			w.Index = d.uvarint()
		}
		for width := range w.Samples {
			for range d.count(12) {
				w.Samples[width] = append(w.Samples[width], d.sample(all))
			}
		}
		if w.Boundary > closed || w.len() == 0 {
			d.fail()
		}
		if n := len(waiting); n > 0 && (waiting[n-1].Boundary >= w.Boundary || waiting[n-1].Index > w.Index) {
			d.fail()
		}
		if d.err != nil {
			return nil
		}
		w.measure()
		waiting = append(waiting, w)
	}
	return waiting
}

// series reads a key that seriesKey made.
func (d *decoder) series(held map[string]*Series) *Series {
	key := d.bytes()
	if s := held[string(key)]; s != nil {
		return s
	}
	_, ls, err := series.ParseKey(key)
	if err != nil {
		d.fail()
	}
	return &Series{Labels: ls}
}

func (d *decoder) sample(all []*Series) (s Sample) {
	number, flags := d.uvarint(), d.byte()
	if number >= uint64(len(all)) || flags&^waitingFlags != 0 {
		d.fail()
		return s
	}
	s = Sample{Series: all[number], T: d.varint(), Raw: d.uvarint(), Timed: flags&flagTimed != 0}
	if flags&flagHistogram != 0 {
		s.H = d.histogram()
	} else {
		s.V = d.float()
	}
	if flags&flagExemplar != 0 {
		s.Exemplar = d.exemplar()
	}
	return s
}

func (d *decoder) histogram() *prom.FloatHistogram {
	h := &prom.FloatHistogram{
		Schema: int32(d.varint()), ZeroThreshold: d.float(), ZeroCount: d.float(), Count: d.float(), Sum: d.float(),
	}
	h.PositiveSpans, h.PositiveBuckets = d.buckets()
	h.NegativeSpans, h.NegativeBuckets = d.buckets()
	return h
}

func (d *decoder) buckets() (spans []prom.Span, counts []float64) {
	buckets := uint64(0)
	for range d.count(2) {
		s := prom.Span{Offset: int32(d.varint()), Length: uint32(d.uvarint())}
		spans = append(spans, s)
		buckets += uint64(s.Length)
	}
	if buckets > uint64(len(d.b)/8) {
		d.fail()
		return nil, nil
	}
	for range buckets {
		counts = append(counts, d.float())
	}
	return spans, counts
}
