package distinct

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"
)

func numbered(from, to int) *Set {
	s := new(Set)
	for i := from; i < to; i++ {
		s.Add(Hash(binary.LittleEndian.AppendUint64(nil, uint64(i))))
	}
	return s
}

func TestSmallSetsAreExact(t *testing.T) {
	for _, n := range []int{0, 1, 2, 1000, exact} {
		s := numbered(0, n)
		s.Merge(numbered(0, n)) // repeats count once
		if got := s.Len(); got != uint64(n) {
			t.Errorf("%d distinct values are counted as %d", n, got)
		}
	}
}

func TestLargeSetsAreWithinTheSketchesError(t *testing.T) {
	for _, n := range []int{exact + 1, 5000, 100_000} {
		got := float64(numbered(0, n).Len())
		if math.Abs(got-float64(n)) > 3*0.0082*float64(n) {
			t.Errorf("%d distinct values are counted as %g", n, got)
		}
	}
}

// The answer must not depend on the number of listeners or the order of batches.
func TestUnionDoesNotDependOnOrder(t *testing.T) {
	for _, cut := range []int{1, 500, 1500, 2900} {
		whole := numbered(0, 3000)
		a := numbered(0, cut)
		a.Merge(numbered(cut, 3000))
		b := numbered(cut, 3000)
		b.Merge(numbered(0, cut))
		if a.Len() != whole.Len() || b.Len() != whole.Len() {
			t.Errorf("cut at %d: merges count %d and %d, want %d", cut, a.Len(), b.Len(), whole.Len())
		}
	}
}

func TestReadBack(t *testing.T) {
	for _, n := range []int{0, 1, exact, exact + 1, 10_000} {
		s := numbered(0, n)
		var again Set
		rest, err := again.Parse(append(s.Append(nil), "rest"...))
		if err != nil || string(rest) != "rest" {
			t.Fatalf("%d values: error %v; %q is left over, want \"rest\"", n, err, rest)
		}
		if again.Len() != s.Len() {
			t.Errorf("%d values are read back as %d", s.Len(), again.Len())
		}
		again.Merge(numbered(0, n))
		if again.Len() != s.Len() {
			t.Errorf("a set of %d values has %d after they are added again", s.Len(), again.Len())
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(numbered(0, 3).Append(nil))
	f.Add(new(Set).Append(nil))
	f.Add(numbered(0, 2000).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s Set
		if _, err := s.Parse(b); err != nil {
			return
		}
		var again Set
		if _, err := again.Parse(s.Append(nil)); err != nil || again.Len() != s.Len() {
			t.Fatalf("read back %d values, want %d; error %v", again.Len(), s.Len(), err)
		}
		s.Merge(numbered(0, 2000))
	})
}

// The error of a Sketch is below 25 %, whatever the number of values and the order of merges.
func TestSketch(t *testing.T) {
	for _, n := range []int{0, 1, 7, 100, 1000, 100_000} {
		var all, even Sketch
		for i := range n {
			to := &all
			if i%2 == 0 {
				to = &even
			}
			to.Add(HashString(fmt.Sprint(i)))
			to.Add(HashString(fmt.Sprint(i)))
		}
		all.Merge(&even)
		if got := float64(all.Len()); got < .75*float64(n) || got > 1.25*float64(n) {
			t.Errorf("%d values are counted as %v", n, got)
		}
	}
}
