package main

import (
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/model/histogram"

	"github.com/freshet-io/freshet/lab/report"
)

// At either pace of a short run, the server reports two durations for exactly the requests after the
// first round: how long whole requests took, and how long they were in the ingester.
func TestAcknowledge(t *testing.T) {
	part := new(report.RemoteWrite)
	w := writeWorkload{version: 1, WriteLoad: report.WriteLoad{Name: "few", Series: 500, Batch: 50, Rounds: 1 + 2*20}}
	if err := serverLab(t).acknowledge(t.Context(), part, w); err != nil {
		t.Fatal(err)
	}
	if len(part.Acknowledged) != 2 {
		t.Fatalf("got %d paces, want 2", len(part.Acknowledged))
	}
	for _, a := range part.Acknowledged {
		// Buckets are a tenth wide, so interpolation may make a figure a tenth too small.
		if a.Load != "few" || a.Requests != 200 || a.Push[0] <= 0 || a.Whole[0] < a.Push[0]/1.1 {
			t.Errorf("got %+v", a)
		}
	}
}

// p99Between counts only observations between the two reads, even if the server has merged buckets
// meanwhile.
func TestP99Between(t *testing.T) {
	for maxBuckets, within := range map[uint32]float64{160: .002, 10: .1} {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: maxBuckets,
		})
		look := func() *histogram.FloatHistogram {
			var m dto.Metric
			if err := h.Write(&m); err != nil {
				t.Fatal(err)
			}
			return native(m.Histogram)
		}
		for range 5000 {
			h.Observe(3.2)
		}
		before := look()
		for i := range 1000 {
			h.Observe(float64(i+1) / 1000)
		}
		got, n, err := p99Between(before, look())
		if err != nil || n != 1000 || math.Abs(got-.99) > within {
			t.Errorf("with %d buckets: got %d observations with a p99 of %v, want 1000 with a p99 of 0.99; error %v",
				maxBuckets, n, got, err)
		}
	}
}
