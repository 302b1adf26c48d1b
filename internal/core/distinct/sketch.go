package distinct

import (
	"math"
	"math/bits"
)

// Sketch is a small HyperLogLog: 6.5 % standard error in 256 bytes. It serves to find the label with the
// most values, and users do not see its estimates. The zero value is empty.
type Sketch [256]uint8

// Add counts the value with this hash.
func (s *Sketch) Add(hash uint64) {
	rank := uint8(bits.LeadingZeros64(hash<<8|1<<7)) + 1
	if register := &s[hash>>56]; *register < rank {
		*register = rank
	}
}

// Merge adds all values of `other`.
func (s *Sketch) Merge(other *Sketch) {
	for i, rank := range other {
		s[i] = max(s[i], rank)
	}
}

// Len estimates the number of distinct values by the method of Flajolet et al. (2007): with linear
// counting if there are few values and some registers are empty.
func (s *Sketch) Len() uint64 {
	const m = float64(len(s))
	sum, empty := 0.0, 0
	for _, rank := range s {
		sum += math.Ldexp(1, -int(rank))
		if rank == 0 {
			empty++
		}
	}
	estimate := 0.7213 / (1 + 1.079/m) * m * m / sum
	if estimate <= 2.5*m && empty > 0 {
		estimate = m * math.Log(m/float64(empty))
	}
	return uint64(math.Round(estimate))
}
