package distributor

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/golang/snappy"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"

	"github.com/freshet-io/freshet/internal/core/entry"
	"github.com/freshet-io/freshet/internal/core/outcome"
	"github.com/freshet-io/freshet/internal/core/remotewrite"
	"github.com/freshet-io/freshet/internal/core/series"
	"github.com/freshet-io/freshet/internal/core/tile"
	"github.com/freshet-io/freshet/internal/core/write"
)

// Backend is another server for the samples that are written here. It keeps an accepted request until
// the other server has it. If it gives the request up, it counts the samples.
type Backend interface {
	// Push hands over a remote-write request, compressed with snappy. `version` is 1 or 2, and the span is where the
	// request comes from in the log of a group.
	Push(from entry.Span, tenant string, version int, parts outcome.Counts, body []byte) error
	TakesRequests() bool
	TakesTiles(width tile.Width) bool
}

// forwardedSamples is the number of samples of tiles in a request. Prometheus sends the same number.
const forwardedSamples = 2000

// forwarded is a request for backends.
type forwarded struct {
	version int
	parts   outcome.Counts
	body    []byte
}

// forward encodes a request once and hands it to all backends for which `takes` is true.
func (d *Distributor) forward(
	from entry.Span, tenant string, takes func(Backend) bool, encode func() (forwarded, error),
) error {
	var f forwarded
	var errs []error
	for _, b := range d.Backends {
		if !takes(b) {
			continue
		}
		if f.body == nil {
			var err error
			if f, err = encode(); err != nil {
				return fmt.Errorf("encode for backends: %w", err)
			}
		}
		errs = append(errs, b.Push(from, tenant, f.version, f.parts, f.body))
	}
	return errors.Join(errs...)
}

// forwardRequest forwards a request as it was received, before any relabelling: encoding it again
// would cost as much as all other work on it.
func (d *Distributor) forwardRequest(tenant string, r *write.Incoming) error {
	return d.forward(entry.Span{}, tenant, Backend.TakesRequests, func() (forwarded, error) {
		if r.Compressed == nil {
			return encodeRequest(&r.Request)
		}
		f := forwarded{1, r.Counts(), r.Compressed}
		if r.Version2() {
			f.version = 2
		}
		return f, nil
	})
}

// ForwardRequest forwards a request from the log of a group, in the form in which the log has it: the
// node that received the request has already applied its rules. A backend whose queue cannot be written
// misses the request, and counts it as unsent.
func (d *Distributor) ForwardRequest(from entry.Span, tenant string, version int, parts outcome.Counts, body []byte) {
	err := d.forward(from, tenant, Backend.TakesRequests, func() (forwarded, error) {
		return forwarded{version, parts, body}, nil
	})
	if err != nil {
		d.Logger.Error("a request is stored here, but a backend does not get it", "tenant", tenant,
			"samples", samples(parts), "error", err)
	}
}

// encoder makes a request of version 2.
type encoder struct {
	symbols writev2.SymbolsTable
	message writev2.Request
	parts   outcome.Counts
}

func newEncoder() *encoder { return &encoder{symbols: writev2.NewSymbolTable()} }

func (e *encoder) end() (forwarded, error) {
	e.message.Symbols = e.symbols.Symbols()
	body, err := e.message.Marshal()
	if err != nil {
		return forwarded{}, err
	}
	return forwarded{2, e.parts, snappy.Encode(nil, body)}, nil
}

func (e *encoder) series(refs []uint32) *writev2.TimeSeries {
	e.message.Timeseries = append(e.message.Timeseries, writev2.TimeSeries{LabelsRefs: refs})
	return &e.message.Timeseries[len(e.message.Timeseries)-1]
}

// typeOf returns the metric type of a kind of series in remote write's metadata.
func typeOf(kind series.Kind) writev2.Metadata_MetricType {
	switch kind {
	case 0:
		return writev2.Metadata_METRIC_TYPE_UNSPECIFIED
	case series.Counter:
		return writev2.Metadata_METRIC_TYPE_COUNTER
	case series.Timer:
		return writev2.Metadata_METRIC_TYPE_HISTOGRAM
	}
	return writev2.Metadata_METRIC_TYPE_GAUGE
}

// encodeTiles groups the samples by series, floats apart from histograms.
func encodeTiles(samples []tile.Sample) (forwarded, error) {
	type kind struct {
		series    *tile.Series
		histogram bool
	}
	e := newEncoder()
	at := map[kind]int{}
	for i := range samples {
		s := &samples[i]
		k := kind{s.Series, s.H != nil}
		n, ok := at[k]
		if !ok {
			n = len(e.message.Timeseries)
			at[k] = n
			var refs []uint32
			s.Series.Labels.Range(func(l labels.Label) {
				refs = append(refs, e.symbols.Symbolize(l.Name), e.symbols.Symbolize(l.Value))
			})
			e.series(refs).Metadata.Type = typeOf(s.Series.Kind)
		}
		ts := &e.message.Timeseries[n]
		if s.H != nil {
			ts.Histograms = append(ts.Histograms, writev2.FromFloatHistogram(0, s.T, s.H))
			e.parts.Histograms++
		} else {
			ts.Samples = append(ts.Samples, writev2.Sample{Timestamp: s.T, Value: s.V})
			e.parts.Samples++
		}
	}
	return e.end()
}

// encodeRequest encodes a request that did not come by remote write.
func encodeRequest(r *remotewrite.Request) (forwarded, error) {
	e := newEncoder()
	e.parts = r.Counts()
	refs := func(all []remotewrite.Label, err error) ([]uint32, error) {
		var refs []uint32
		for _, l := range all {
			refs = append(refs, e.symbols.Symbolize(string(l.Name)), e.symbols.Symbolize(string(l.Value)))
		}
		return refs, err
	}
	families := map[string]writev2.Metadata{}
	for _, f := range r.Families {
		families[string(f.Name)] = writev2.Metadata{
			Type:    writev2.Metadata_MetricType(f.Type),
			HelpRef: e.symbols.Symbolize(string(f.Help)), UnitRef: e.symbols.Symbolize(string(f.Unit)),
		}
	}
	for i := range r.Series {
		s := &r.Series[i]
		all, err := r.Labels(nil, s)
		own, err := refs(all, err)
		if err != nil {
			return forwarded{}, err
		}
		ts := e.series(own)
		ts.Metadata = said(families, all)
		for _, sample := range r.Samples(s) {
			ts.Samples = append(ts.Samples, writev2.Sample{
				Timestamp: sample.Time, Value: sample.Value, StartTimestamp: sample.Start,
			})
		}
		for i := range r.Histograms(s) {
			ts.Histograms = append(ts.Histograms, histogramOf(&r.Histograms(s)[i]))
		}
		for i := range r.Exemplars(s) {
			x := &r.Exemplars(s)[i]
			labels, err := refs(r.ExemplarLabels(nil, x))
			if err != nil {
				return forwarded{}, err
			}
			ts.Exemplars = append(ts.Exemplars, writev2.Exemplar{LabelsRefs: labels, Value: x.Value, Timestamp: x.Time})
		}
	}
	return e.end()
}

// said returns the metadata of a series' family. The name of the family is the name of the series, or
// of the classic histogram or summary to which the series belongs.
func said(families map[string]writev2.Metadata, of []remotewrite.Label) writev2.Metadata {
	for _, l := range of {
		if string(l.Name) != model.MetricNameLabel {
			continue
		}
		if m, ok := families[string(l.Value)]; ok {
			return m
		}
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			if whole, ok := bytes.CutSuffix(l.Value, []byte(suffix)); ok {
				return families[string(whole)]
			}
		}
	}
	return writev2.Metadata{}
}

func histogramOf(h *remotewrite.Histogram) writev2.Histogram {
	out := writev2.Histogram{
		Sum: h.Sum, Schema: h.Schema, ZeroThreshold: h.ZeroThreshold,
		NegativeSpans: spansOf(h.NegativeSpans), NegativeDeltas: h.NegativeDeltas, NegativeCounts: h.NegativeCounts,
		PositiveSpans: spansOf(h.PositiveSpans), PositiveDeltas: h.PositiveDeltas, PositiveCounts: h.PositiveCounts,
		ResetHint: writev2.Histogram_ResetHint(h.ResetHint), CustomValues: h.CustomValues,
		Timestamp: h.Time, StartTimestamp: h.Start,
	}
	if h.Count.Form == remotewrite.FloatCount {
		out.Count = &writev2.Histogram_CountFloat{CountFloat: h.Count.Float}
		out.ZeroCount = &writev2.Histogram_ZeroCountFloat{ZeroCountFloat: h.ZeroCount.Float}
	} else {
		out.Count = &writev2.Histogram_CountInt{CountInt: h.Count.Integer}
		out.ZeroCount = &writev2.Histogram_ZeroCountInt{ZeroCountInt: h.ZeroCount.Integer}
	}
	return out
}

func spansOf(all []remotewrite.Span) (out []writev2.BucketSpan) {
	for _, s := range all {
		out = append(out, writev2.BucketSpan{Offset: s.Offset, Length: s.Length})
	}
	return out
}
