package bench

import (
	"math"
	"strconv"

	"github.com/freshet-io/freshet/internal/adapter/terminal"
)

// wholeRate formats a rate without decimals.
func wholeRate(rate float64) string { return terminal.Thousands(uint64(math.Round(rate))) }

// decimals returns a function that formats a figure with n decimals.
func decimals(n int) func(float64) string {
	return func(v float64) string { return strconv.FormatFloat(v, 'f', n, 64) }
}

// megabytes formats bytes as MB.
func megabytes(v float64) string { return decimals(1)(v / 1e6) }

// reachedShare is a share of the requested rate. If a run reaches less, the sender was the limit.
const reachedShare = 0.97
