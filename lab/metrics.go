package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/prometheus/model/histogram"
)

// metrics calls `look` with each of the server's metrics.
func (f *freshet) metrics(ctx context.Context, look func(family string, m *dto.Metric)) error {
	return metricsOf(ctx, "http://"+f.HTTP, look)
}

// metricsOf calls `look` with each metric of a server. It asks for the only format that has native histograms.
func metricsOf(ctx context.Context, url string, look func(family string, m *dto.Metric)) error {
	format := expfmt.NewFormat(expfmt.TypeProtoDelim)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", string(format))
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", request.URL, answer.Status)
	}
	decoder := expfmt.NewDecoder(answer.Body, format)
	for {
		var family dto.MetricFamily
		err := decoder.Decode(&family)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("/metrics: %w", err)
		}
		for _, m := range family.Metric {
			look(family.GetName(), m)
		}
	}
}

// probed reads the results of the server's own probes.
func (f *freshet) probed(ctx context.Context) (probes, error) {
	found := probes{}
	err := f.metrics(ctx, func(family string, m *dto.Metric) {
		if family != "freshet_freshness_seconds" {
			return
		}
		for _, l := range m.Label {
			if l.GetName() == "path" {
				found[l.GetValue()] = native(m.Histogram)
			}
		}
	})
	return found, err
}

// native returns the part of a histogram from which quantiles are computed. It leaves out negative
// buckets, since durations are never negative.
func native(h *dto.Histogram) *histogram.FloatHistogram {
	n := &histogram.Histogram{Schema: h.GetSchema(), Count: h.GetSampleCount(), Sum: h.GetSampleSum(),
		ZeroThreshold: h.GetZeroThreshold(), ZeroCount: h.GetZeroCount(), PositiveBuckets: h.PositiveDelta}
	for _, s := range h.PositiveSpan {
		n.PositiveSpans = append(n.PositiveSpans, histogram.Span{Offset: s.GetOffset(), Length: s.GetLength()})
	}
	return n.ToFloat(nil)
}

// p99Between returns the 99th percentile of the observations between two reads of a histogram, and their
// number. A bucket's upper bound is about a tenth above its lower bound. Within a bucket, p99Between
// interpolates on a logarithmic scale, as PromQL does.
func p99Between(before, after *histogram.FloatHistogram) (p99 float64, n uint64, err error) {
	between, _, _, err := after.Copy().Sub(before)
	if err != nil {
		return 0, 0, err
	}
	rank := .99*between.Count - between.ZeroCount
	for it := between.PositiveBucketIterator(); it.Next(); {
		b := it.At()
		if b.Count > 0 && rank <= b.Count {
			return b.Lower * math.Pow(b.Upper/b.Lower, max(0, rank)/b.Count), uint64(between.Count), nil
		}
		rank -= b.Count
	}
	return 0, uint64(between.Count), nil
}
