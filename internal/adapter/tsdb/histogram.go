package tsdb

import (
	"errors"
	"slices"

	prom "github.com/prometheus/prometheus/model/histogram"

	"github.com/freshet-io/freshet/internal/core/remotewrite"
)

// nativeHistogram has integer or float counts: at least one of the fields is nil.
type nativeHistogram struct {
	integer *prom.Histogram
	float   *prom.FloatHistogram
}

var errMixedHistogram = errors.New("the histogram has both integer counts and float counts")

// newHistogram copies a received histogram, because tsdb keeps it. If the resolution is too high to
// store, it uses the highest possible one.
func newHistogram(h *remotewrite.Histogram) (n nativeHistogram, err error) {
	if h.Count.Form == remotewrite.FloatCount {
		if h.ZeroCount.Form == remotewrite.IntegerCount || len(h.NegativeDeltas)+len(h.PositiveDeltas) > 0 {
			return n, errMixedHistogram
		}
		n.float = &prom.FloatHistogram{
			CounterResetHint: prom.CounterResetHint(h.ResetHint), Schema: h.Schema, ZeroThreshold: h.ZeroThreshold,
			ZeroCount: h.ZeroCount.Float, Count: h.Count.Float, Sum: h.Sum,
			PositiveSpans: spans(h.PositiveSpans), PositiveBuckets: slices.Clone(h.PositiveCounts),
			NegativeSpans: spans(h.NegativeSpans), NegativeBuckets: slices.Clone(h.NegativeCounts),
			CustomValues: slices.Clone(h.CustomValues),
		}
		if tooFine(h.Schema) {
			err = n.float.ReduceResolution(prom.ExponentialSchemaMax)
		}
		return n, err
	}
	if h.ZeroCount.Form == remotewrite.FloatCount || len(h.NegativeCounts)+len(h.PositiveCounts) > 0 {
		return n, errMixedHistogram
	}
	n.integer = &prom.Histogram{
		CounterResetHint: prom.CounterResetHint(h.ResetHint), Schema: h.Schema, ZeroThreshold: h.ZeroThreshold,
		ZeroCount: h.ZeroCount.Integer, Count: h.Count.Integer, Sum: h.Sum,
		PositiveSpans: spans(h.PositiveSpans), PositiveBuckets: slices.Clone(h.PositiveDeltas),
		NegativeSpans: spans(h.NegativeSpans), NegativeBuckets: slices.Clone(h.NegativeDeltas),
		CustomValues: slices.Clone(h.CustomValues),
	}
	if tooFine(h.Schema) {
		err = n.integer.ReduceResolution(prom.ExponentialSchemaMax)
	}
	return n, err
}

func tooFine(schema int32) bool {
	return schema > prom.ExponentialSchemaMax && prom.IsExponentialSchemaReserved(schema)
}

func spans(all []remotewrite.Span) []prom.Span {
	out := make([]prom.Span, len(all))
	for i, s := range all {
		out[i] = prom.Span{Offset: s.Offset, Length: s.Length}
	}
	return out
}

// zero returns a histogram without observations. It has the buckets of n, so that it needs no
// chunk of its own.
func (n nativeHistogram) zero() nativeHistogram {
	if n.float != nil {
		return nativeHistogram{float: &prom.FloatHistogram{
			CounterResetHint: prom.CounterReset, Schema: n.float.Schema, ZeroThreshold: n.float.ZeroThreshold,
			CustomValues: n.float.CustomValues,
		}}
	}
	return nativeHistogram{integer: &prom.Histogram{
		CounterResetHint: prom.CounterReset, Schema: n.integer.Schema, ZeroThreshold: n.integer.ZeroThreshold,
		CustomValues: n.integer.CustomValues,
	}}
}

// validate returns the error with which tsdb would refuse n. The zero value, which is no histogram,
// is valid.
func (n nativeHistogram) validate() error {
	switch {
	case n.integer != nil:
		return n.integer.Validate()
	case n.float != nil:
		return n.float.Validate()
	}
	return nil
}

// floats returns n as queries see it.
func (n nativeHistogram) floats() *prom.FloatHistogram {
	if n.float != nil {
		return n.float
	}
	return n.integer.ToFloat(nil)
}
