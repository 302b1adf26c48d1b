package tile

import (
	"cmp"
	"iter"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
)

// Waiting is the samples of one closed tile of a tenant in a shard, until the tenant's
// stores have them. Nothing in it is ever changed.
type Waiting struct {
	Tenant   string
	Boundary int64               // end of the tile, Unix ms
	Samples  [NumWidths][]Sample // in the order of time for each series
	Raw      uint64              // values on the wire that they stand for
	Bytes    int64               // of memory, about
}

// begin returns a place for the samples of the tile up to boundary, with room for a
// sample of each series in each width that ends there.
func (t *tenant) begin(boundary int64) *Waiting {
	w := &Waiting{Tenant: t.name, Boundary: boundary}
	for width := range w.Samples {
		if boundary%Width(width).Millis() == 0 {
			w.Samples[width] = make([]Sample, 0, len(t.entries))
		}
	}
	return w
}

func (w *Waiting) len() (n int) {
	for _, samples := range w.Samples {
		n += len(samples)
	}
	return n
}

// sampleBytes is the size of a Sample, histogramBytes that of a histogram without
// spans and buckets.
const (
	sampleBytes    = 56
	histogramBytes = 208
)

// measure fills Raw and Bytes, and gives back room that was not needed. A histogram is that
// of the finest width in the others, too.
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
			w.Bytes += histogramBytes + 8*int64(len(h.PositiveSpans)+len(h.NegativeSpans)+len(h.PositiveBuckets)+len(h.NegativeBuckets))
		}
	}
}

// Stored says that the stores of a tenant have its samples up to boundary: they leave
// the open set.
func (s *Shard) Stored(tenantName string, boundary int64) {
	t := s.tenants[tenantName]
	if t == nil {
		return
	}
	n := 0
	for n < len(t.waiting) && t.waiting[n].Boundary <= boundary {
		n++
	}
	t.waiting = slices.Delete(t.waiting, 0, n)
}

// AllStored is Stored for all tenants and all that is closed.
func (s *Shard) AllStored() {
	for name := range s.tenants {
		s.Stored(name, s.closed)
	}
}

// Waiting returns what waits to be stored, for each tenant by boundary.
func (s *Shard) Waiting() (all []*Waiting) {
	for _, t := range s.tenants {
		all = append(all, t.waiting...)
	}
	return all
}

// Since is the time, Unix milliseconds, before which everything of a tenant that was
// counted at its time is stored: the start of its first tile that waits, or the boundary.
func (s *Shard) Since(tenantName string) int64 {
	if t := s.tenants[tenantName]; t != nil && len(t.waiting) > 0 {
		return t.waiting[0].Boundary - finest.Millis()
	}
	return s.closed
}

// Unstored yields each tenant that has something here, with the end of its first tile that is not
// stored, Unix milliseconds: one that waits, or the one that closes next.
func (s *Shard) Unstored() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for name, t := range s.tenants {
			if len(t.entries)+len(t.waiting) > 0 && !yield(name, s.Since(name)+finest.Millis()) {
				return
			}
		}
	}
}

// waitingSamples are those samples of a width that wait and whose series match, by
// series. It is nil if there are none.
func (t *tenant) waitingSamples(w Width, matchers []*labels.Matcher) map[*Series][]Sample {
	if len(t.waiting) == 0 {
		return nil
	}
	found := map[*Series][]Sample{}
	other := map[*Series]bool{}
	for _, waiting := range t.waiting {
		for _, sample := range waiting.Samples[w] {
			samples, known := found[sample.Series]
			switch {
			case !known && other[sample.Series]:
			case !known && !matches(sample.Series.Labels, matchers):
				other[sample.Series] = true
			default:
				found[sample.Series] = append(samples, sample)
			}
		}
	}
	return found
}

// appendWaiting adds the series of which nothing but waiting samples are left: their
// buckets are others now. They may have come back with the same labels.
func appendWaiting(out []Live, left map[*Series][]Sample) []Live {
	if len(left) == 0 {
		return out
	}
	for s, samples := range left {
		out = appendPoints(out, []*Series{s}, samples)
	}
	slices.SortStableFunc(out, func(a, b Live) int { return labels.Compare(a.Labels, b.Labels) })
	merged := out[:1]
	for _, l := range out[1:] {
		last := &merged[len(merged)-1]
		if !labels.Equal(last.Labels, l.Labels) {
			merged = append(merged, l)
			continue
		}
		last.Points = sortPoints(append(last.Points, l.Points...))
	}
	return merged
}

// sortPoints puts points in the order of time, the first one of each.
func sortPoints(points []Point) []Point {
	slices.SortStableFunc(points, func(a, b Point) int { return cmp.Compare(a.T, b.T) })
	return slices.CompactFunc(points, func(a, b Point) bool { return a.T == b.T })
}
