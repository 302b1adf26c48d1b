package forwarder

import (
	"fmt"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"

	"github.com/freshet-io/freshet/internal/core/remotewrite"
)

// maxDecompressed bounds the bytes of a decompressed body. The distributor has already accepted the
// body under a lower limit.
const maxDecompressed = 256 << 20

// toV1 converts a body of remote write 2.0 to version 1.0, both compressed. It drops start
// timestamps, for which 1.0 has no field, and metadata, which belong to metrics in 1.0 and to
// series in 2.0.
func toV1(body []byte) ([]byte, error) {
	raw, err := remotewrite.Decompress(nil, body, maxDecompressed)
	if err != nil {
		return nil, err
	}
	var from writev2.Request
	if err := from.Unmarshal(raw); err != nil {
		return nil, fmt.Errorf("the body is not a request of remote write 2.0: %w", err)
	}
	to := prompb.WriteRequest{Timeseries: make([]prompb.TimeSeries, len(from.Timeseries))}
	builder := labels.NewScratchBuilder(0)
	for i := range from.Timeseries {
		if err := seriesToV1(&to.Timeseries[i], &from.Timeseries[i], from.Symbols, &builder); err != nil {
			return nil, fmt.Errorf("time series %d: %w", i+1, err)
		}
	}
	raw, err = to.Marshal()
	if err != nil {
		return nil, err
	}
	return snappy.Encode(nil, raw), nil
}

func seriesToV1(to *prompb.TimeSeries, from *writev2.TimeSeries, symbols []string,
	builder *labels.ScratchBuilder) error {
	set, err := from.ToLabels(builder, symbols)
	if err != nil {
		return err
	}
	to.Labels = prompb.FromLabels(set, nil)
	for _, s := range from.Samples {
		to.Samples = append(to.Samples, prompb.Sample{Value: s.Value, Timestamp: s.Timestamp})
	}
	for _, e := range from.Exemplars {
		exemplar, err := e.ToExemplar(builder, symbols)
		if err != nil {
			return fmt.Errorf("exemplar: %w", err)
		}
		to.Exemplars = append(to.Exemplars, prompb.Exemplar{
			Labels: prompb.FromLabels(exemplar.Labels, nil), Value: e.Value, Timestamp: e.Timestamp,
		})
	}
	for _, h := range from.Histograms {
		if h.IsFloatHistogram() {
			to.Histograms = append(to.Histograms, prompb.FromFloatHistogram(h.Timestamp, h.ToFloatHistogram()))
		} else {
			to.Histograms = append(to.Histograms, prompb.FromIntHistogram(h.Timestamp, h.ToIntHistogram()))
		}
	}
	return nil
}
