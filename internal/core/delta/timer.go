package delta

import (
	"errors"
	"fmt"
	"math"

	"github.com/freshet-io/freshet/internal/core/histogram"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
)

// timerOf converts a native histogram to a histogram of integers, which tiles can add up.
func timerOf(h *remotewrite.Histogram) (*histogram.Exponential, error) {
	if h.Schema < histogram.MinSchema || h.Schema > histogram.MaxSchema {
		return nil, fmt.Errorf("its schema is %d, but deltas can be added up only in schemas %d to %d",
			h.Schema, histogram.MinSchema, histogram.MaxSchema)
	}
	timer := &histogram.Exponential{
		Schema: int8(h.Schema), Count: float64(h.Count.Integer), Zero: float64(h.ZeroCount.Integer),
	}
	if !math.IsNaN(h.Sum) && !math.IsInf(h.Sum, 0) {
		timer.Sum = h.Sum
	}
	var positive, negative float64
	var err error
	if timer.Positive, positive, err = bucketsOf(h.PositiveSpans, h.PositiveDeltas); err == nil {
		timer.Negative, negative, err = bucketsOf(h.NegativeSpans, h.NegativeDeltas)
	}
	if in := positive + negative + timer.Zero; err == nil && in != timer.Count {
		err = fmt.Errorf("its count is %v, but its buckets add up to %v", timer.Count, in)
	}
	return timer, err
}

func bucketsOf(spans []remotewrite.Span, deltas []int64) (b histogram.Buckets, sum float64, err error) {
	index, count := int64(0), int64(0)
	for _, s := range spans {
		index += int64(s.Offset)
		for range s.Length {
			if len(deltas) == 0 {
				return b, 0, errors.New("it has fewer buckets than its spans say")
			}
			if count, deltas = count+deltas[0], deltas[1:]; count < 0 {
				return b, 0, fmt.Errorf("its bucket %d has a count that is negative, or 2^63 or more", index)
			}
			if count > 0 {
				if index < -histogram.MaxIndex || index > histogram.MaxIndex {
					return b, 0, fmt.Errorf("its bucket %d is beyond the largest index, %d", index, histogram.MaxIndex)
				}
				b.Index, b.Count = append(b.Index, int32(index)), append(b.Count, float64(count))
				sum += float64(count)
			}
			index++
		}
	}
	return b, sum, nil
}
