package scraper

import (
	"math"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"github.com/freshet-io/freshet/internal/core/remotewrite"
)

// known is a series that an earlier scrape had.
type known struct {
	labels []label // sorted by name, including those in Options.Labels
	scrape uint64  // number of the last scrape that had the series
	stored bool
}

type label struct{ name, value string }

// add does what a Prometheus that scrapes the families would do: it writes their samples at `t`, in Unix
// milliseconds, and a stale marker for each series that is gone. A known series allocates nothing, since
// scrapes are a large part of an idle server's work.
func (s *Scraper) add(families []*dto.MetricFamily, t int64, b *remotewrite.Builder) {
	s.scrapes++
	for _, f := range families {
		b.Family(f.GetName(), f.GetHelp(), "", metricTypes[f.GetType()])
		for _, m := range f.Metric {
			s.addMetric(b, t, f.GetName(), m)
		}
	}
	s.sample(b, t, "up", "", nil, label{}, 1)
	for _, k := range s.known {
		if k.stored && k.scrape != s.scrapes {
			begin(b, k.labels)
			b.Sample(remotewrite.Sample{Value: math.Float64frombits(value.StaleNaN), Time: t})
		}
	}
}

// stored notes that the last scrape has been stored, and forgets series that are gone.
func (s *Scraper) stored() {
	for key, k := range s.known {
		if k.stored = k.scrape == s.scrapes; !k.stored {
			delete(s.known, key)
		}
	}
}

// metricTypes maps Prometheus' types to the numbers of remote write.
var metricTypes = map[dto.MetricType]remotewrite.MetricType{
	dto.MetricType_COUNTER: remotewrite.CounterType, dto.MetricType_GAUGE: remotewrite.GaugeType,
	dto.MetricType_HISTOGRAM: remotewrite.HistogramType, dto.MetricType_SUMMARY: remotewrite.SummaryType,
}

func (s *Scraper) addMetric(b *remotewrite.Builder, t int64, name string, m *dto.Metric) {
	switch {
	case m.Counter != nil:
		s.sample(b, t, name, "", m, label{}, m.Counter.GetValue())
		addExemplar(b, t, m.Counter.Exemplar)
	case m.Gauge != nil:
		s.sample(b, t, name, "", m, label{}, m.Gauge.GetValue())
	case m.Untyped != nil:
		s.sample(b, t, name, "", m, label{}, m.Untyped.GetValue())
	case m.Summary != nil:
		s.sample(b, t, name, "_count", m, label{}, float64(m.Summary.GetSampleCount()))
		s.sample(b, t, name, "_sum", m, label{}, m.Summary.GetSampleSum())
		for _, q := range m.Summary.Quantile {
			s.sample(b, t, name, "", m, label{model.QuantileLabel, labels.FormatOpenMetricsFloat(q.GetQuantile())}, q.GetValue())
		}
	case m.Histogram != nil && native(m.Histogram):
		s.series(b, name, "", m, label{})
		b.Histogram(histogramOf(m.Histogram, t))
		for _, e := range exemplars(m.Histogram) {
			if e.GetTimestamp() != nil {
				addExemplar(b, t, e)
			}
		}
	case m.Histogram != nil:
		s.addClassic(b, t, name, m)
	}
}

// native reports whether a histogram has native buckets. The rule is the same as in Prometheus.
func native(h *dto.Histogram) bool {
	return len(h.PositiveSpan) > 0 || len(h.NegativeSpan) > 0 || h.GetZeroThreshold() > 0 || h.GetZeroCount() > 0
}

func (s *Scraper) addClassic(b *remotewrite.Builder, t int64, name string, m *dto.Metric) {
	h := m.Histogram
	s.sample(b, t, name, "_count", m, label{}, float64(h.GetSampleCount()))
	s.sample(b, t, name, "_sum", m, label{}, h.GetSampleSum())
	last := 0.0
	for _, bucket := range h.Bucket {
		last = bucket.GetUpperBound()
		s.sample(b, t, name, "_bucket", m, label{model.BucketLabel, labels.FormatOpenMetricsFloat(last)},
			float64(bucket.GetCumulativeCount()))
		addExemplar(b, t, bucket.Exemplar)
	}
	if !math.IsInf(last, +1) {
		s.sample(b, t, name, "_bucket", m, label{model.BucketLabel, "+Inf"}, float64(h.GetSampleCount()))
	}
}

func (s *Scraper) sample(b *remotewrite.Builder, t int64, name, suffix string, m *dto.Metric, more label, v float64) {
	s.series(b, name, suffix, m, more)
	b.Sample(remotewrite.Sample{Value: v, Time: t})
}

// series begins a series of a metric. `suffix` is added to the metric's name, and `more` is one more
// label, if any.
func (s *Scraper) series(b *remotewrite.Builder, name, suffix string, m *dto.Metric, more label) {
	s.key = append(append(s.key[:0], name...), suffix...)
	for _, p := range m.GetLabel() {
		s.key = appendLabel(s.key, p.GetName(), p.GetValue())
	}
	if more.name != "" {
		s.key = appendLabel(s.key, more.name, more.value)
	}
	k := s.known[string(s.key)]
	if k == nil {
		k = &known{labels: s.labels(name+suffix, m, more)}
		s.known[string(s.key)] = k
	}
	k.scrape = s.scrapes
	begin(b, k.labels)
}

// appendLabel appends a label to the key of a series. It puts a byte that is never part
// of UTF-8 before the name and before the value, so that keys are unique.
func appendLabel(key []byte, name, value string) []byte {
	return append(append(append(append(key, 0xff), name...), 0xff), value...)
}

// labels returns the labels of a series, including those in Options.Labels.
func (s *Scraper) labels(name string, m *dto.Metric, more label) []label {
	all := []label{{model.MetricNameLabel, name}}
	for _, p := range m.GetLabel() {
		all = append(all, label{p.GetName(), p.GetValue()})
	}
	if more.name != "" {
		all = append(all, more)
	}
	for name, value := range s.Labels {
		if !slices.ContainsFunc(all, func(l label) bool { return l.name == name }) {
			all = append(all, label{name, value})
		}
	}
	slices.SortFunc(all, func(a, b label) int { return strings.Compare(a.name, b.name) })
	return all
}

func begin(b *remotewrite.Builder, all []label) {
	b.Series()
	for _, l := range all {
		b.Label(l.name, l.value)
	}
}

// exemplars returns a native histogram's exemplars, which may be in its classic buckets.
func exemplars(h *dto.Histogram) []*dto.Exemplar {
	if len(h.Exemplars) > 0 {
		return h.Exemplars
	}
	var all []*dto.Exemplar
	for _, bucket := range h.Bucket {
		if bucket.Exemplar != nil {
			all = append(all, bucket.Exemplar)
		}
	}
	return all
}

func addExemplar(b *remotewrite.Builder, t int64, e *dto.Exemplar) {
	if e == nil {
		return
	}
	if at := e.GetTimestamp(); at != nil {
		t = at.AsTime().UnixMilli()
	}
	b.Exemplar(e.GetValue(), t)
	for _, p := range e.Label { // needs no sorting, since our exemplars have at most one label
		b.Label(p.GetName(), p.GetValue())
	}
}

func histogramOf(h *dto.Histogram, t int64) remotewrite.Histogram {
	count := func(n uint64) remotewrite.Count {
		return remotewrite.Count{Form: remotewrite.IntegerCount, Integer: n}
	}
	return remotewrite.Histogram{
		Count: count(h.GetSampleCount()), ZeroCount: count(h.GetZeroCount()), Sum: h.GetSampleSum(), Schema: h.GetSchema(),
		ZeroThreshold: h.GetZeroThreshold(),
		PositiveSpans: spansOf(h.PositiveSpan), PositiveDeltas: h.PositiveDelta,
		NegativeSpans: spansOf(h.NegativeSpan), NegativeDeltas: h.NegativeDelta, Time: t,
	}
}

func spansOf(all []*dto.BucketSpan) (out []remotewrite.Span) {
	for _, s := range all {
		out = append(out, remotewrite.Span{Offset: s.GetOffset(), Length: s.GetLength()})
	}
	return out
}
