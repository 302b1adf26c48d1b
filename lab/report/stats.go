package report

import (
	"math"
	"slices"
)

// Median returns the middle value, or the mean of the two middle values. Without values it returns 0.
func Median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Quantile returns the smallest value v such that at least the share q of all values is not larger than
// v. q is from 0 to 1. Without values it returns 0.
func Quantile(values []float64, q float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	rank := int(math.Ceil(q * float64(n)))
	return slices.Sorted(slices.Values(values))[max(1, rank)-1]
}

// MedianInterval returns the interval that contains the median of all possible values with a
// confidence of 95 % or more. It uses order statistics: with any distribution, a value lies below
// the median with a probability of one half. Fewer than six values are not enough, and the interval
// then contains all numbers.
func MedianInterval(values []float64) (low, high float64) {
	sorted := slices.Sorted(slices.Values(values))
	n, k := len(sorted), 0 // the interval leaves out k values at either end
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

// ratios returns the ratio of each pair.
func ratios(values, bases []float64) []float64 {
	all := make([]float64, min(len(values), len(bases)))
	for i := range all {
		all[i] = values[i] / bases[i]
	}
	return all
}

// allRatios returns the ratio of each value to each base, for runs that are not pairs.
func allRatios(values, bases []float64) (all []float64) {
	for _, v := range values {
		for _, base := range bases {
			all = append(all, v/base)
		}
	}
	return all
}

// spread returns the smallest and the largest value. There must be at least one value.
func spread(values []float64) (least, largest float64) {
	return slices.Min(values), slices.Max(values)
}
