package bench

import (
	"math"
	"strconv"

	"github.com/freshet-io/freshet/internal/adapter/terminal"
)

// wholeRate writes a rate without a fraction.
func wholeRate(rate float64) string { return terminal.Thousands(uint64(math.Round(rate))) }

// decimals writes a figure with so many digits behind the point.
func decimals(n int) func(float64) string {
	return func(v float64) string { return strconv.FormatFloat(v, 'f', n, 64) }
}

// megabytes writes bytes.
func megabytes(v float64) string { return decimals(1)(v / 1e6) }

// reachedShare is the part of the rate that was asked for below which the sender was the limit.
const reachedShare = 0.97
