package scraper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"

	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/write"
)

// taken is a distributor that keeps, as text, the samples that it gets.
type taken struct {
	pushes []string
	full   atomic.Bool
}

func (d *taken) Push(_ context.Context, tenant string, r *write.Incoming) (outcome.Outcome, error) {
	var lines []string
	for i := range r.Series {
		s := &r.Series[i]
		all, err := r.Labels(nil, s)
		if err != nil {
			return outcome.Outcome{}, err
		}
		line := tenant
		for _, l := range all {
			line += fmt.Sprintf(" %s=%s", l.Name, l.Value)
		}
		for _, v := range r.Samples(s) {
			if math.Float64bits(v.Value) == value.StaleNaN {
				line += " stale"
			} else {
				line += fmt.Sprintf(" %v", v.Value)
			}
			line += fmt.Sprintf(" @%d", v.Time/1000)
		}
		for _, h := range r.Histograms(s) {
			line += fmt.Sprintf(" {%s} @%d", buckets(h), h.Time/1000)
		}
		for _, e := range r.Exemplars(s) {
			line += fmt.Sprintf(" exemplar %v", e.Value)
		}
		lines = append(lines, line)
	}
	for _, f := range r.Families {
		lines = append(lines, fmt.Sprintf("family %s: %s %d", f.Name, f.Help, f.Type))
	}
	slices.Sort(lines)
	d.pushes = append(d.pushes, strings.Join(lines, "\n"))
	if d.full.Load() {
		return outcome.Outcome{}, errors.New("the disk is full")
	}
	return outcome.Outcome{}, nil
}

// buckets returns the counts and the compacted buckets of a histogram, in the form of Prometheus'
// parser.
func buckets(from remotewrite.Histogram) string {
	h := histogram.Histogram{PositiveBuckets: from.PositiveDeltas, NegativeBuckets: from.NegativeDeltas}
	for _, s := range from.PositiveSpans {
		h.PositiveSpans = append(h.PositiveSpans, histogram.Span{Offset: s.Offset, Length: s.Length})
	}
	for _, s := range from.NegativeSpans {
		h.NegativeSpans = append(h.NegativeSpans, histogram.Span{Offset: s.Offset, Length: s.Length})
	}
	h.Compact(0)
	return fmt.Sprintf("count %d, zero %d below %v, sum %v, schema %d, %v %v %v %v",
		from.Count.Integer, from.ZeroCount.Integer, from.ZeroThreshold, from.Sum, from.Schema,
		h.PositiveSpans, h.PositiveBuckets, h.NegativeSpans, h.NegativeBuckets)
}

func TestScrapes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		shelves := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "shelves", Help: "Full ones."}, []string{"job"})
		waits := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "wait_seconds", Help: "In line.",
			NativeHistogramBucketFactor: 2, Buckets: []float64{1, 2}}, []string{"line"})
		sizes := prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sizes", Help: "In classic buckets.", Buckets: []float64{10},
		})
		reg.MustRegister(shelves, waits, sizes)
		shelves.WithLabelValues("baker").Set(3)
		for line, v := range map[string]float64{"a": 3, "b": 4} {
			waits.WithLabelValues(line).Observe(0)
			waits.WithLabelValues(line).(prometheus.ExemplarObserver).ObserveWithExemplar(v,
				prometheus.Labels{"trace_id": "abc"})
		}
		sizes.Observe(7)

		d := new(taken)
		s := New(Options{
			Gatherer: reg, Distributor: d, Tenant: "freshet", Labels: map[string]string{"job": "freshet", "instance": "here"},
			Interval: 5 * time.Second, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		begun := time.Now().Unix()
		time.Sleep(5*time.Second + time.Millisecond)
		shelves.DeleteLabelValues("baker")
		d.full.Store(true) // the next scrape is refused
		time.Sleep(5 * time.Second)
		d.full.Store(false)
		time.Sleep(5 * time.Second)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}

		at := func(ticks int64) int64 { return begun - begun%5 + ticks*5 }
		rest := func(t int64) string {
			return fmt.Sprintf(`freshet __name__=sizes_bucket instance=here job=freshet le=+Inf 1 @%[1]d
freshet __name__=sizes_bucket instance=here job=freshet le=10.0 1 @%[1]d
freshet __name__=sizes_count instance=here job=freshet 1 @%[1]d
freshet __name__=sizes_sum instance=here job=freshet 7 @%[1]d
freshet __name__=up instance=here job=freshet 1 @%[1]d
freshet __name__=wait_seconds instance=here job=freshet line=a {count 2, zero 1 below 2.938735877055719e-39, sum 3, schema 0, [{2 1}] [1] [] []} @%[1]d exemplar 3
freshet __name__=wait_seconds instance=here job=freshet line=b {count 2, zero 1 below 2.938735877055719e-39, sum 4, schema 0, [{2 1}] [1] [] []} @%[1]d exemplar 4`, t)
		}
		const said = `
family sizes: In classic buckets. 3
family wait_seconds: In line. 3`
		want := []string{
			fmt.Sprintf("family shelves: Full ones. 2%s\nfreshet __name__=shelves instance=here job=baker 3 @%d\n%s",
				said, at(1), rest(at(1))),
			fmt.Sprintf("%s\nfreshet __name__=shelves instance=here job=baker stale @%d\n%s", said[1:], at(2), rest(at(2))),
			// The marker was refused the first time, so it is sent again.
			fmt.Sprintf("%s\nfreshet __name__=shelves instance=here job=baker stale @%d\n%s", said[1:], at(3), rest(at(3))),
		}
		for i := range want {
			if i >= len(d.pushes) || d.pushes[i] != want[i] {
				t.Errorf("scrape %d:\ngot  %s\nwant %s", i, d.pushes[min(i, len(d.pushes)-1)], want[i])
			}
		}
	})
}
