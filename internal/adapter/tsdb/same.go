package tsdb

import (
	"fmt"
	"math"

	"github.com/prometheus/prometheus/model/value"

	"github.com/freshet-io/freshet/internal/core/tile"
)

func point(s *tile.Sample) tile.Point { return tile.Point{T: s.T, V: s.V, H: s.H} }

// same reports whether two samples of the same time are equal. All stale markers are equal, as a float
// or in a histogram, because tsdb turns each form into the other. Empty buckets do not count, because
// tsdb adds the buckets that other samples of the chunk have.
func same(a, b tile.Point) bool {
	switch {
	case isStale(a) || isStale(b):
		return isStale(a) && isStale(b)
	case a.H == nil && b.H == nil:
		return math.Float64bits(a.V) == math.Float64bits(b.V)
	case a.H == nil || b.H == nil:
		return false
	default:
		return a.H.Copy().Compact(0).Equals(b.H.Copy().Compact(0))
	}
}

func isStale(p tile.Point) bool {
	if p.H != nil {
		return value.IsStaleNaN(p.H.Sum)
	}
	return value.IsStaleNaN(p.V)
}

// format returns a sample as text. Samples that are the same have the same text.
func format(p tile.Point) string {
	switch {
	case isStale(p):
		return "a stale marker"
	case p.H != nil:
		return p.H.Copy().Compact(0).String()
	}
	return fmt.Sprint(p.V)
}
