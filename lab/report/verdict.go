package report

import "fmt"

// Verdict is what a run shows about a goal. docs/benchmarking.md has the rule for noisy figures.
type Verdict string

// A run shows that a goal is reached, or that it is missed, or neither.
const (
	Reached  Verdict = "reached"
	Missed   Verdict = "missed"
	NotShown Verdict = "not shown"
)

// verdict judges a figure without noise: a count, or a figure that was measured once.
func verdict(reached bool) Verdict {
	if reached {
		return Reached
	}
	return Missed
}

// verdictOfRuns judges a figure that was measured in several runs. The goal is reached if all runs keep
// its bound, and missed if no run does. Otherwise the runs show neither.
func verdictOfRuns(runs []float64, keeps func(float64) bool) Verdict {
	kept := 0
	for _, v := range runs {
		if keeps(v) {
			kept++
		}
	}
	switch {
	case len(runs) == 0:
		return NotShown
	case kept == 0:
		return Missed
	case kept == len(runs):
		return Reached
	}
	return NotShown
}

func atMost(bound float64) func(float64) bool { return func(v float64) bool { return v <= bound } }
func under(bound float64) func(float64) bool  { return func(v float64) bool { return v < bound } }
func over(bound float64) func(float64) bool   { return func(v float64) bool { return v > bound } }

// RatioAtMost judges whether the median ratio of pairs is at most bound, which is over 1. The 95 %
// interval of the median must lie on one side of the bound. An interval below the bound must also
// be narrower than bound-1, the effect that the goal allows, since larger noise would hide this
// effect. An interval above the bound is a miss, however wide it is.
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

// goalRow returns a row of the table for a figure without noise: the thing that was measured, the name
// of the figure, its value, and its bound.
func goalRow(what, how, is, bound string, reached bool) []string {
	return verdictRow(what, how, is, bound, verdict(reached))
}

// runsRow returns the row of the table for a figure of several runs.
func runsRow(what, how string, runs []float64, format func(float64) string, bound string,
	keeps func(float64) bool) []string {
	return verdictRow(what, how, withSpread(runs, format), bound, verdictOfRuns(runs, keeps))
}

// verdictRow returns the row of the table for a goal that noise may leave undecided.
func verdictRow(what, how, is, bound string, v Verdict) []string {
	if v != Reached {
		bound += fmt.Sprintf(", **%s**", v)
	}
	return []string{what, how, is, bound}
}

// judged returns an upper bound with its verdict unless it is reached; an empty text if there is none.
func judged(runs []float64, most float64) string {
	if most == 0 {
		return ""
	}
	text := bound(most)
	if v := verdictOfRuns(runs, atMost(most)); v != Reached {
		text += fmt.Sprintf(", **%s**", v)
	}
	return text
}

// bound returns a bound as text, in the digits in which it was set.
func bound(v float64) string {
	if v < 100 {
		return fmt.Sprint(v)
	}
	return thousands(v)
}

// RateReached is the part of a requested rate that must be sent. If less is sent, the sender was the limit.
const RateReached = 0.97
