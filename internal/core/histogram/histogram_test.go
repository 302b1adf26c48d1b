package histogram

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Every value lies within the bounds that Prometheus computes for the value's bucket.
func TestBucketsHoldTheirValues(t *testing.T) {
	values := []float64{
		1, 2, 0.5, 3, 1e-30, 1e30, math.MaxFloat64, 1000, 0.001, math.Nextafter(2, 3), math.Nextafter(2, 1),
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		values = append(values, math.Exp(r.NormFloat64()*8))
	}
	for schema := int8(MinSchema); schema <= MaxSchema; schema++ {
		for _, v := range values {
			var h Exponential
			h.Reset(schema)
			h.Observe(v, 1, 160)
			it := h.Float().PositiveBucketIterator()
			if !it.Next() {
				t.Fatalf("schema %d: %g is in no bucket", schema, v)
			}
			// Bounds are computed in two ways that may differ in the last bit.
			if b := it.At(); v <= b.Lower*(1-1e-15) || v > b.Upper*(1+1e-15) {
				t.Errorf("schema %d: %g is in (%g, %g]", schema, v, b.Lower, b.Upper)
			}
		}
	}
}

func TestPowersOfTwoAreUpperBounds(t *testing.T) {
	for schema := int8(MinSchema); schema <= MaxSchema; schema++ {
		if got := bucketIndex(1, schema); got != 0 {
			t.Errorf("schema %d: 1 is in bucket %d, want 0", schema, got)
		}
		if got := bucketIndex(math.Nextafter(1, 2), schema); got != 1 {
			t.Errorf("schema %d: the next double after 1 is in bucket %d, want 1", schema, got)
		}
	}
}

// Counting at a low resolution gives the same buckets as reducing to that resolution later. So the
// order in which hosts with different resolutions are merged does not matter.
func TestReducingEqualsCountingCoarser(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for schema := int8(MinSchema + 1); schema <= MaxSchema; schema++ {
		var fine, coarse Exponential
		fine.Reset(schema)
		coarse.Reset(schema - 1)
		for range 500 {
			v := math.Exp(r.NormFloat64()*3) * float64(1-2*r.IntN(2))
			fine.Observe(v, 2, math.MaxInt)
			coarse.Observe(v, 2, math.MaxInt)
		}
		fine.reduce(schema - 1)
		if !fine.Float().Equals(coarse.Float()) {
			t.Errorf("schema %d: reduced to %v, want %v as counted at the low resolution", schema, fine.Float(), coarse.Float())
		}
	}
}

func TestMergeIsCounting(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var whole, a, b Exponential
	whole.Reset(2)
	a.Reset(4)
	b.Reset(2)
	for i := range 1000 {
		v := float64(r.IntN(100000)-50000) / 64 // exact in binary, so sums are exact too
		whole.Observe(v, 1, math.MaxInt)
		if i%2 == 0 {
			a.Observe(v, 1, math.MaxInt)
		} else {
			b.Observe(v, 1, math.MaxInt)
		}
	}
	a.Merge(&b, math.MaxInt)
	if !a.Float().Equals(whole.Float()) {
		t.Errorf("got %v after a merge, want %v as in one histogram", a.Float(), whole.Float())
	}
}

func TestBucketLimit(t *testing.T) {
	var h Exponential
	h.Reset(8)
	for v := 1e-9; v < 1e9; v *= 1.01 {
		h.Observe(v, 1, 160)
	}
	if n := len(h.Positive.Index); n > 160 {
		t.Errorf("%d buckets are populated", n)
	}
	total := h.Zero
	for _, c := range h.Positive.Count {
		total += c
	}
	if total != h.Count {
		t.Errorf("the buckets hold %g values, want %g", total, h.Count)
	}
	if err := h.Float().Validate(); err != nil {
		t.Error(err)
	}
}

func TestObserveDoesNotAllocate(t *testing.T) {
	var h Exponential
	fill := func() {
		h.Reset(3)
		for i := range 100 {
			h.Observe(float64(i-50)*1.5, 1, 160)
		}
	}
	fill()
	if n := testing.AllocsPerRun(100, fill); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParse(f *testing.F) {
	var h Exponential
	h.Reset(3)
	for _, v := range []float64{0, 1, -1, 1000.5, 1e-200} {
		h.Observe(v, 10.0/3, 160)
	}
	f.Add(h.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h, again Exponential
		rest, err := h.Parse(b)
		if err != nil {
			return
		}
		text := h.Append(nil)
		if tail, err := again.Parse(text); err != nil || len(tail) != 0 {
			t.Fatalf("%v is read back with the error %v and %d bytes left", h, err, len(tail))
		}
		if string(again.Append(nil)) != string(text) {
			t.Fatal("a histogram differs after it is written and read")
		}
		if len(rest) > len(b) {
			t.Fatal("Parse returns more bytes than it was given")
		}
		h.Merge(&again, 160)
		h.Float()
	})
}

// Bound: 0 allocs/op and at most 40 ns/op on one core of the CI machine.
func BenchmarkObserve(b *testing.B) {
	var h Exponential
	h.Reset(3)
	values := make([]float64, 1024)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range values {
		values[i] = math.Exp(r.NormFloat64()) * 0.1
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		h.Observe(values[i%1024], 1, 160)
	}
}
