package report

import (
	"math"
	"slices"
)

// Median is the middle of values, or the mean of the two there; 0 of none.
func Median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Quantile is the least of the values that the given part of them, from 0 to 1, does not
// exceed; 0 of none.
func Quantile(values []float64, q float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	rank := int(math.Ceil(q * float64(n)))
	return slices.Sorted(slices.Values(values))[max(1, rank)-1]
}

// MedianInterval is where the median of all such values lies with a confidence of 95 %
// or more, by order statistics: n values lie on either side of it like the tosses of a
// coin, whatever their distribution. Of less than six values nothing can be said, and it
// is all numbers.
func MedianInterval(values []float64) (low, high float64) {
	sorted := slices.Sorted(slices.Values(values))
	n, k := len(sorted), 0 // so many may be left out at either end
	toss := math.Pow(.5, float64(n))
	for below := toss; 2*below <= .05 && k < n/2; {
		k++
		toss *= float64(n-k+1) / float64(k)
		below += toss
	}
	if k == 0 {
		return math.Inf(-1), math.Inf(1)
	}
	return sorted[k-1], sorted[n-k]
}

// ratios are of pairs.
func ratios(values, bases []float64) []float64 {
	all := make([]float64, min(len(values), len(bases)))
	for i := range all {
		all[i] = values[i] / bases[i]
	}
	return all
}

// allRatios are of each value to each base, for runs that are not pairs.
func allRatios(values, bases []float64) (all []float64) {
	for _, v := range values {
		for _, base := range bases {
			all = append(all, v/base)
		}
	}
	return all
}

// spread are the least and the largest of values, which are not empty.
func spread(values []float64) (least, largest float64) {
	return slices.Min(values), slices.Max(values)
}
