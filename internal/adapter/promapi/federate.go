package promapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"
	"google.golang.org/protobuf/proto"
)

// federatePath is the path from which another Prometheus scrapes this server.
const federatePath = "/federate"

// maxFederated bounds an answer, in series. In memory, a series takes 100 bytes plus its labels.
const maxFederated = 1_000_000

var errTooManyFederated = fmt.Errorf("match[] finds more than %d series; ask for fewer, or use remote read",
	maxFederated)

// federate answers with the newest sample of each series that matches match[], no older than the
// look-back, in a format for scraping. The answer equals the answer of Prometheus' web/federate.go,
// except that Freshet has no external labels.
func (a *api) federate(w http.ResponseWriter, r *http.Request) {
	matchers, err := a.Engine.parser.ParseMetricSelectors(r.Form["match[]"])
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	newest, warnings, err := a.newest(r.Context(), matchers)
	if err != nil {
		status := http.StatusInternalServerError
		if errors.Is(err, errTooManyFederated) || needsMore(err) {
			status = http.StatusUnprocessableEntity
		}
		http.Error(w, err.Error(), status)
		return
	}
	slices.SortStableFunc(newest, func(x, y promql.Sample) int {
		return cmp.Compare(x.Metric.Get(model.MetricNameLabel), y.Metric.Get(model.MetricNameLabel))
	})
	format := expfmt.NegotiateAccept(r.Header, expfmt.NewFormat(expfmt.TypeProtoDelim),
		expfmt.NewFormat(expfmt.TypeProtoText),
		expfmt.NewFormat(expfmt.TypeProtoCompact), expfmt.NewFormat(expfmt.TypeTextPlain))
	w.Header().Set("Content-Type", string(format))
	for _, warning := range warnings.AsErrors() { // the formats have no place for warnings
		w.Header().Add("Warning", fmt.Sprintf("199 freshet %+q", warning.Error()))
	}
	encoder := expfmt.NewEncoder(w, format)
	for _, family := range federated(newest, format.FormatType() != expfmt.TypeTextPlain) {
		if err := encoder.Encode(family); err != nil {
			panic(http.ErrAbortHandler) // a broken connection shows the scraper that the answer is incomplete
		}
	}
}

// newest returns the newest sample of each series that has not ended, and warnings about missing
// data.
func (a *api) newest(ctx context.Context,
	matchers [][]*labels.Matcher) (all promql.Vector, warnings annotations.Annotations, err error) {
	until := a.Now()
	from, to := until.Add(-a.Engine.lookback).UnixMilli(), until.UnixMilli()
	q, err := metered{a.Queryable}.Querier(from, to)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	var sets []storage.SeriesSet
	for _, m := range matchers {
		sets = append(sets, q.Select(ctx, true, &storage.SelectHints{Start: from, End: to}, m...))
	}
	set := storage.NewMergeSeriesSet(sets, 0, storage.ChainedSeriesMerge)
	buffer := storage.NewBuffer(int64(a.Engine.lookback / time.Millisecond))
	var chunks chunkenc.Iterator
	for set.Next() {
		s := set.At()
		chunks = s.Iterator(chunks)
		buffer.Reset(chunks)
		sample, ok := newestOf(buffer, to)
		if buffer.Err() != nil {
			return nil, nil, buffer.Err()
		}
		// The formats have no stale markers, so a series that ended is left out.
		if !ok || value.IsStaleNaN(sample.F) || sample.H != nil && value.IsStaleNaN(sample.H.Sum) {
			continue
		}
		if len(all) == maxFederated {
			return nil, nil, errTooManyFederated
		}
		sample.Metric = s.Labels()
		all = append(all, sample)
	}
	return all, set.Warnings(), set.Err()
}

// newestOf returns the newest sample whose time is at most `to`.
func newestOf(it *storage.BufferedSeriesIterator, to int64) (s promql.Sample, ok bool) {
	switch it.Seek(to) {
	case chunkenc.ValFloat:
		s.T, s.F = it.At()
		return s, true
	case chunkenc.ValHistogram, chunkenc.ValFloatHistogram:
		s.T, s.H = it.AtFloatHistogram(nil)
		return s, true
	}
	before, ok := it.PeekBack(1)
	if !ok {
		return s, false
	}
	s.T = before.T()
	switch before.Type() {
	case chunkenc.ValFloat:
		s.F = before.F()
	case chunkenc.ValHistogram:
		s.H = before.H().ToFloat(nil)
	case chunkenc.ValFloatHistogram:
		s.H = before.FH()
	}
	return s, true
}

// federated puts samples into groups, by name and type. As in Prometheus, the type of all floats
// is untyped. The text format has no native histograms. So unless `native` is set, histograms with
// exponential buckets are left out.
func federated(all promql.Vector, native bool) (out []*dto.MetricFamily) {
	var last *dto.MetricFamily
	for _, s := range all {
		name := s.Metric.Get(model.MetricNameLabel)
		if name == "" || s.H != nil && !native && !s.H.UsesCustomBuckets() {
			continue
		}
		kind := dto.MetricType_UNTYPED
		if s.H != nil && s.H.CounterResetHint == histogram.GaugeType {
			kind = dto.MetricType_GAUGE_HISTOGRAM
		} else if s.H != nil {
			kind = dto.MetricType_HISTOGRAM
		}
		if last == nil || last.GetName() != name || last.GetType() != kind {
			last = &dto.MetricFamily{Name: proto.String(name), Type: kind.Enum()}
			out = append(out, last)
		}
		last.Metric = append(last.Metric, metric(&s))
	}
	return out
}

// metric converts one sample. A series without the label instance gets an empty one, because a scrape
// with honor_labels would otherwise set the label to this server's address.
func metric(s *promql.Sample) *dto.Metric {
	m := &dto.Metric{TimestampMs: proto.Int64(s.T)}
	s.Metric.Range(func(l labels.Label) {
		if l.Name != model.MetricNameLabel {
			m.Label = append(m.Label, &dto.LabelPair{Name: proto.String(l.Name), Value: proto.String(l.Value)})
		}
	})
	if !s.Metric.Has(model.InstanceLabel) {
		m.Label = append(m.Label, &dto.LabelPair{Name: proto.String(model.InstanceLabel), Value: proto.String("")})
	}
	switch {
	case s.H == nil:
		m.Untyped = &dto.Untyped{Value: proto.Float64(s.F)}
	case s.H.UsesCustomBuckets():
		m.Histogram = classic(s.H)
	default:
		m.Histogram = exponential(s.H)
	}
	return m
}

func exponential(h *histogram.FloatHistogram) *dto.Histogram {
	return &dto.Histogram{
		SampleCountFloat: proto.Float64(h.Count), SampleSum: proto.Float64(h.Sum), Schema: proto.Int32(h.Schema),
		ZeroThreshold: proto.Float64(h.ZeroThreshold), ZeroCountFloat: proto.Float64(h.ZeroCount),
		NegativeCount: h.NegativeBuckets, NegativeSpan: spans(h.NegativeSpans),
		PositiveCount: h.PositiveBuckets, PositiveSpan: spans(h.PositiveSpans),
	}
}

func spans(all []histogram.Span) (out []*dto.BucketSpan) {
	for _, s := range all {
		out = append(out, &dto.BucketSpan{Offset: proto.Int32(s.Offset), Length: proto.Uint32(s.Length)})
	}
	return out
}

// classic converts custom buckets to a classic histogram. The encoder adds the +Inf bucket where a
// format wants it.
func classic(h *histogram.FloatHistogram) *dto.Histogram {
	out := &dto.Histogram{SampleCountFloat: proto.Float64(h.Count), SampleSum: proto.Float64(h.Sum)}
	buckets := h.PositiveBucketIterator()
	more := buckets.Next()
	var total float64
	for i, bound := range h.CustomValues {
		for more && int(buckets.At().Index) <= i {
			total += buckets.At().Count
			more = buckets.Next()
		}
		out.Bucket = append(out.Bucket,
			&dto.Bucket{UpperBound: proto.Float64(bound), CumulativeCountFloat: proto.Float64(total)})
	}
	return out
}
