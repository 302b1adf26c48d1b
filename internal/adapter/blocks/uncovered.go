package blocks

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// Span is a time from From, before To, in Unix milliseconds.
type Span struct{ From, To int64 }

// shortest is the time of the shortest blocks. A block of less than its time ends at its last sample, so what is
// between two blocks is no missing block unless it is as long.
const shortest = int64(2 * time.Hour / time.Millisecond)

// Uncovered returns the times of some blocks, in order, for which no block of others with the same external labels has
// samples.
func Uncovered(some, others []Block) (left []Span) {
	for _, b := range some {
		rest := []Span{{b.Meta.MinTime, b.Meta.MaxTime}}
		for _, o := range others {
			if labels.Equal(o.External, b.External) {
				rest = without(rest, Span{o.Meta.MinTime, o.Meta.MaxTime})
			}
		}
		left = append(left, slices.DeleteFunc(rest, func(s Span) bool { return s.To-s.From < shortest })...)
	}
	slices.SortFunc(left, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	merged := left[:0]
	for _, s := range left {
		if n := len(merged); n > 0 && s.From <= merged[n-1].To {
			merged[n-1].To = max(merged[n-1].To, s.To)
		} else {
			merged = append(merged, s)
		}
	}
	return merged
}

// without returns the parts of spans that are not in another one.
func without(all []Span, other Span) (left []Span) {
	for _, s := range all {
		if before := (Span{s.From, min(s.To, other.From)}); before.From < before.To {
			left = append(left, before)
		}
		if behind := (Span{max(s.From, other.To), s.To}); behind.From < behind.To {
			left = append(left, behind)
		}
	}
	return left
}
