package distributor

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/freshet-io/freshet/internal/core/otlp"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/write"
	"github.com/freshet-io/freshet/internal/settings"
)

// pushOTLP converts and pushes a request with one histogram point of each kind.
func (w *world) pushOTLP(flags pmetric.DataPointFlags) (outcome.Outcome, error) {
	w.t.Helper()
	m := pmetric.NewMetrics()
	all := m.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics()
	at := pcommon.NewTimestampFromTime(w.now)
	for _, name := range []string{"explicit", "exponential"} {
		h := all.AppendEmpty()
		h.SetName(name)
		if name == "explicit" {
			h.SetEmptyHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
			p := h.Histogram().DataPoints().AppendEmpty()
			p.SetTimestamp(at)
			p.SetFlags(flags)
			p.ExplicitBounds().FromRaw([]float64{1, 2})
			p.BucketCounts().FromRaw([]uint64{0, 2, 1})
			p.SetCount(3)
			continue
		}
		h.SetEmptyExponentialHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		p := h.ExponentialHistogram().DataPoints().AppendEmpty()
		p.SetTimestamp(at)
		p.SetFlags(flags)
		p.Positive().BucketCounts().FromRaw([]uint64{2})
		p.SetCount(2)
	}
	var r write.Incoming
	var none remotewrite.Request
	var b, deltas remotewrite.Builder
	b.Begin(&r.Request, nil)
	deltas.Begin(&none, nil)
	c, err := otlp.Convert(m, w.OTLP(), &b, &deltas, func(int) error { return nil })
	if err != nil || c.Points != 2 {
		w.t.Fatalf("%v: %+v", err, c)
	}
	return w.Push(w.t.Context(), "a", &r)
}

// Native histograms of both kinds, and their staleness markers, are written like histograms of remote
// write.
func TestHistogramsOfOTLP(t *testing.T) {
	w := newWorld(t, func(c *settings.Distributor) { c.OTLP.NativeHistograms = true })
	for _, flags := range []pmetric.DataPointFlags{0, pmetric.DefaultDataPointFlags.WithNoRecordedValue(true)} {
		w.now = w.now.Add(1e9)
		if o, err := w.pushOTLP(flags); err != nil || o.Written.Histograms != 2 || o.AnyRefused() {
			t.Errorf("flags %d: error %v, %+v: %s", flags, err, o.Written, o.Text())
		}
	}
}

// Points that are refused before Push are counted in the books and metrics in the same way as those that
// Push refuses.
func TestPointsRefusedBeforehandAreCounted(t *testing.T) {
	w := newWorld(t, func(*settings.Distributor) {})
	var o outcome.Outcome
	o.Refuse(outcome.Delta, outcome.Counts{Samples: 3})
	o.Tell("x", errors.New("the cause"))
	w.Refused("a", &o)
	if n := testutil.ToFloat64(w.metrics.refused.WithLabelValues("delta")); n != 3 {
		t.Errorf("the metric counts %v refused points, want 3", n)
	}
	if books := w.Ledger.Books().Tenants["a"].Samples; books.Refused["delta"] != 3 || books.Received != 3 ||
		books.Difference != 0 {
		t.Errorf("the books are %+v", books)
	}
}
