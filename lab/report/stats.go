package report

import "slices"

// Median is the middle of values, or the mean of the two there; 0 of none.
func Median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// spread are the least and the largest of values, which are not empty.
func spread(values []float64) (least, largest float64) {
	return slices.Min(values), slices.Max(values)
}
