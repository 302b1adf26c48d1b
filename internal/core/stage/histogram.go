package stage

import (
	"math"
	"sort"
	"sync/atomic"
	"time"
)

// Schema is that of the histograms, as Prometheus numbers them: 8 buckets for each power
// of two, so that a quantile is off by 4.4 % at most.
const Schema = 3

const (
	perOctave = 1 << Schema
	lowest    = -20 // log2 of the seconds below which all is one: 0.95 us
	highest   = 10  // and of those above which all is: 17 minutes

	// ZeroThreshold is up to how many seconds a duration counts as nothing.
	ZeroThreshold = 1.0 / (1 << -lowest)

	firstBucket = lowest*perOctave + 1 // upper bound: 2^(n/8) s
	numBuckets  = (highest - lowest) * perOctave
)

// bounds are the upper bounds of the buckets from 1/2 to 1, but for that of 1.
var bounds = func() (b [perOctave]float64) {
	for i := range b {
		b[i] = math.Exp2(float64(i)/perOctave) / 2
	}
	return b
}()

// histogram counts durations in seconds. It is what Prometheus' client has, but for a
// third of the time: nothing is looked up, and nobody waits (BenchmarkEnd).
type histogram struct {
	sum      atomic.Int64 // nanoseconds
	zero     atomic.Uint64
	buckets  [numBuckets]atomic.Uint64
	exemplar atomic.Pointer[Exemplar]
}

func (h *histogram) observe(d time.Duration) {
	h.sum.Add(int64(d))
	seconds := d.Seconds()
	if seconds <= ZeroThreshold {
		h.zero.Add(1)
		return
	}
	h.buckets[min(bucketOf(seconds)-firstBucket, numBuckets-1)].Add(1)
}

// bucketOf is the number of the bucket as Prometheus counts them.
func bucketOf(seconds float64) int {
	fraction, exponent := math.Frexp(seconds)
	i := 0
	for i < perOctave && bounds[i] < fraction {
		i++
	}
	return i + (exponent-1)*perOctave
}

// Histogram is what was counted until now.
type Histogram struct {
	Count    uint64
	Sum      float64 // seconds
	Zero     uint64
	Buckets  map[int]int64 // by number, of Schema; none is empty
	Exemplar *Exemplar     // or nil
}

// read is about one moment: what is counted meanwhile may be in some of it. Count is what
// the buckets have, as who reads it expects.
func (h *histogram) read() Histogram {
	r := Histogram{Sum: time.Duration(h.sum.Load()).Seconds(), Zero: h.zero.Load(), Buckets: map[int]int64{}, Exemplar: h.exemplar.Load()}
	r.Count = r.Zero
	for i := range h.buckets {
		if n := h.buckets[i].Load(); n > 0 {
			r.Buckets[firstBucket+i] = int64(n)
			r.Count += n
		}
	}
	return r
}

// Classic is how many durations were up to each of the bounds, which are in seconds and in
// rising order. It is exact for bounds of buckets, as powers of two are.
func (h Histogram) Classic(bounds []float64) []uint64 {
	upTo := make([]uint64, len(bounds))
	for bucket, n := range h.Buckets {
		i := sort.Search(len(bounds), func(i int) bool { return bucket <= bucketOf(bounds[i]) })
		if i < len(bounds) {
			upTo[i] += uint64(n)
		}
	}
	sum := h.Zero
	for i := range upTo {
		sum += upTo[i]
		upTo[i] = sum
	}
	return upTo
}
