package remotewrite

import (
	"testing"

	"github.com/prometheus/prometheus/prompb"
)

// Fields that a request does not have are nil, even if the last request in the same memory had
// them. Otherwise a histogram with exponential buckets would have an empty list of custom bounds,
// and be refused.
func TestAUsedRequestLeavesNothing(t *testing.T) {
	with := prompb.Histogram{Count: &prompb.Histogram_CountFloat{CountFloat: 1}, Schema: -53, CustomValues: []float64{1},
		PositiveSpans: []prompb.BucketSpan{{Length: 1}}, PositiveCounts: []float64{1},
		NegativeSpans: []prompb.BucketSpan{{Length: 1}}, NegativeCounts: []float64{1},
		PositiveDeltas: []int64{1}, NegativeDeltas: []int64{1}}
	var r Request
	for _, h := range []prompb.Histogram{with, {Timestamp: 5}} {
		m := prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{Histograms: []prompb.Histogram{h}}}}
		body, err := m.Marshal()
		if err == nil {
			err = r.DecodeV1(body)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	h := r.Histograms(&r.Series[0])[0]
	if h.CustomValues != nil || h.PositiveSpans != nil || h.NegativeSpans != nil || h.PositiveDeltas != nil ||
		h.NegativeDeltas != nil || h.PositiveCounts != nil || h.NegativeCounts != nil {
		t.Errorf("%+v", h)
	}
}
