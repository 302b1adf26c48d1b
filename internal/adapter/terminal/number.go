package terminal

import "strconv"

// Thousands returns n with separators between the thousands.
func Thousands(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Share returns n as a percentage of the total, or an empty string if the total is 0.
func Share(n, of uint64) string {
	percent := 100 * float64(n) / float64(of)
	switch {
	case n == 0 || of == 0:
		return ""
	case percent < 0.1:
		return "<0.1 %"
	}
	return strconv.FormatFloat(percent, 'f', 1, 64) + " %"
}
