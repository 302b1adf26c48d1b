// Package histogram counts the distribution of a timer's values in exponential buckets. The buckets
// become a Prometheus native float histogram, and can be merged across windows, hosts and
// resolutions. Classic buckets are not here: they are plain counts, kept where their bounds are
// known.
package histogram

import (
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
)

// MinSchema and MaxSchema bound the resolutions that Prometheus stores.
const (
	MinSchema = -4
	MaxSchema = 8
)

// zeroThreshold is the largest absolute value that counts as zero: 2^-128, as in Prometheus' client
// libraries.
var zeroThreshold = math.Ldexp(1, -128)

// Exponential counts values in buckets whose bounds grow by 2^(2^-Schema): bucket i holds
// (2^((i-1)*2^-Schema), 2^(i*2^-Schema)]. Counts are floats, since a sampled value stands for
// 1/rate values. The zero value is empty, with schema 0. Reset keeps its memory.
type Exponential struct {
	Schema   int8
	Count    float64 // number of all values
	Sum      float64 // in the metric's own unit
	Zero     float64 // number of values too close to zero for a bucket
	Positive Buckets
	Negative Buckets // buckets of negative values, by absolute value
}

// Buckets are the populated buckets of one sign, ordered by index.
type Buckets struct {
	Index []int32
	Count []float64
}

// Reset empties h and sets its resolution.
func (h *Exponential) Reset(schema int8) {
	h.Schema, h.Count, h.Sum, h.Zero = schema, 0, 0, 0
	h.Positive.reset()
	h.Negative.reset()
}

func (b *Buckets) reset() { b.Index, b.Count = b.Index[:0], b.Count[:0] }

// Observe adds `value`, which stands for `weight` values. If more than `maxBuckets` buckets are
// populated, the resolution is halved until at most that many are.
func (h *Exponential) Observe(value, weight float64, maxBuckets int) {
	h.Count += weight
	h.Sum += value * weight
	switch {
	case value > zeroThreshold:
		h.Positive.add(bucketIndex(value, h.Schema), weight)
	case value < -zeroThreshold:
		h.Negative.add(bucketIndex(-value, h.Schema), weight)
	default:
		h.Zero += weight
	}
	h.Limit(maxBuckets)
}

// Limit halves the resolution until at most `maxBuckets` buckets are populated, or the resolution
// is the lowest.
func (h *Exponential) Limit(maxBuckets int) {
	for len(h.Positive.Index)+len(h.Negative.Index) > maxBuckets && h.Schema > MinSchema {
		h.reduce(h.Schema - 1)
	}
}

// Merge adds `other` to `h`, at the lower of both resolutions, and bounds the buckets as Observe
// does. It does not change `other`.
func (h *Exponential) Merge(other *Exponential, maxBuckets int) {
	if other.Schema < h.Schema {
		h.reduce(other.Schema)
	}
	h.Count += other.Count
	h.Sum += other.Sum
	h.Zero += other.Zero
	shift := uint(other.Schema - h.Schema)
	h.Positive.merge(&other.Positive, shift)
	h.Negative.merge(&other.Negative, shift)
	h.Limit(maxBuckets)
}

// Clone returns a copy that shares no memory with h.
func (h *Exponential) Clone() *Exponential {
	c := *h
	c.Positive, c.Negative = h.Positive.clone(), h.Negative.clone()
	return &c
}

func (b *Buckets) clone() Buckets {
	return Buckets{Index: slices.Clone(b.Index), Count: slices.Clone(b.Count)}
}

// Float returns a copy of h as Prometheus stores it.
func (h *Exponential) Float() *histogram.FloatHistogram {
	f := &histogram.FloatHistogram{
		Schema:        int32(h.Schema),
		ZeroThreshold: zeroThreshold,
		ZeroCount:     h.Zero,
		Count:         h.Count,
		Sum:           h.Sum,
	}
	f.PositiveSpans, f.PositiveBuckets = h.Positive.spans()
	f.NegativeSpans, f.NegativeBuckets = h.Negative.spans()
	return f
}

func (b *Buckets) spans() ([]histogram.Span, []float64) {
	if len(b.Index) == 0 {
		return nil, nil
	}
	var spans []histogram.Span
	next := int32(0) // the index that would continue the span
	for i, index := range b.Index {
		if i == 0 || index != next {
			spans = append(spans, histogram.Span{Offset: index - next})
		}
		spans[len(spans)-1].Length++
		next = index + 1
	}
	return spans, slices.Clone(b.Count)
}

// add finds the bucket by binary search: timers have a few dozen buckets, so the slices fit in up
// to three cache lines.
func (b *Buckets) add(index int32, weight float64) {
	at, found := slices.BinarySearch(b.Index, index)
	if !found {
		b.Index = slices.Insert(b.Index, at, index)
		b.Count = slices.Insert(b.Count, at, 0)
	}
	b.Count[at] += weight
}

func (b *Buckets) merge(other *Buckets, shift uint) {
	for i, index := range other.Index {
		b.add(coarser(index, shift), other.Count[i])
	}
}

func (h *Exponential) reduce(schema int8) {
	shift := uint(h.Schema - schema)
	h.Positive.reduce(shift)
	h.Negative.reduce(shift)
	h.Schema = schema
}

func (b *Buckets) reduce(shift uint) {
	n := 0
	for i, index := range b.Index {
		index = coarser(index, shift)
		if n > 0 && b.Index[n-1] == index {
			b.Count[n-1] += b.Count[i]
			continue
		}
		b.Index[n], b.Count[n] = index, b.Count[i]
		n++
	}
	b.Index, b.Count = b.Index[:n], b.Count[:n]
}

// coarser returns the index of a bucket at a resolution 2^shift times lower. Upper bounds are
// inclusive, so indices round up.
func coarser(index int32, shift uint) int32 { return ((index - 1) >> shift) + 1 }

// bucketIndex returns the index of the bucket of v > 0.
func bucketIndex(v float64, schema int8) int32 {
	fraction, exponent := math.Frexp(v)
	if schema <= 0 {
		index := int32(exponent)
		if fraction == 0.5 { // a power of two is the upper bound of its bucket
			index--
		}
		return coarser(index, uint(-schema))
	}
	t := &tables[schema]
	// The leading bits of the mantissa of a double in [0.5, 1) select a cell. A cell is so narrow
	// that it contains at most one bound.
	cell := t.first[(math.Float64bits(fraction)&(1<<52-1))>>(51-uint(schema))]
	if fraction > t.bounds[cell] {
		cell++
	}
	return int32(cell) + int32(exponent-1)<<uint(schema)
}

// table finds the bucket of a double in [0.5, 1) at one resolution.
type table struct {
	bounds []float64 // lower bounds of the 2^schema buckets, and 1
	first  []uint16  // for each cell of width 2^-(schema+2), the index of the first bound not below the cell
}

var tables = func() (all [MaxSchema + 1]table) {
	for schema := 1; schema <= MaxSchema; schema++ {
		n := 1 << schema
		t := &all[schema]
		for i := range n + 1 {
			t.bounds = append(t.bounds, math.Exp2(float64(i)/float64(n))/2)
		}
		for cell := range 2 * n {
			start := 0.5 + float64(cell)/float64(4*n)
			first, _ := slices.BinarySearch(t.bounds, start)
			t.first = append(t.first, uint16(first))
		}
	}
	return all
}()
