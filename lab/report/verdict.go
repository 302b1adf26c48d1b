package report

// Verdict is what a run says of a goal. docs/benchmarking.md has the rule for noisy figures.
type Verdict string

// A run shows that a goal is reached, that it is missed, or neither.
const (
	Reached  Verdict = "reached"
	Missed   Verdict = "missed"
	NotShown Verdict = "not shown"
)

// verdict is of a figure without noise: a count, or a median that is taken as it is.
func verdict(reached bool) Verdict {
	if reached {
		return Reached
	}
	return Missed
}

// RatioAtMost says whether the median ratio of pairs is at most bound, which is over 1. The
// 95 % interval of the median must lie on one side of the bound. An interval below the bound
// must also be narrower than bound-1, the effect that the goal allows: noise that is larger
// than this effect would hide it. An interval above the bound is a miss, however wide it is.
func RatioAtMost(ratios []float64, bound float64) Verdict {
	low, high := MedianInterval(ratios)
	switch {
	case low > bound:
		return Missed
	case high <= bound && high-low < bound-1:
		return Reached
	}
	return NotShown
}
